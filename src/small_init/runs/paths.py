"""Where everything stands, relative to the project's root (the current directory)."""

from __future__ import annotations

from pathlib import Path

from small_init.config import Corpus

PARAMS = Path("params.json")


PERFORMANCE_FILE = "perf.json"


def packed_folder(profile: str, corpus: Corpus = Corpus.packed) -> Path:
    return Path("data") / profile / corpus.value


def results_folder(profile: str) -> Path:
    return Path("results") / profile


def arm_folder(profile: str, arm: str) -> Path:
    return results_folder(profile) / "runs" / arm


def record_folder(profile: str, arm: str, seed: int) -> Path:
    return arm_folder(profile, arm) / f"seed-{seed}"


def weights_file(arm: str, seed: int) -> Path:
    return Path("models") / arm / f"seed-{seed}.safetensors"


def published_weights(profile: str, arm: str, seed: int) -> Path:
    return results_folder(profile) / "weights" / arm / f"seed-{seed}.safetensors"


def tasks_file(profile: str, arm: str, seed: int) -> Path:
    return results_folder(profile) / "tasks" / arm / f"seed-{seed}.json"


def event_folder(profile: str, arm: str, seed: int) -> Path:
    return Path("scratch/tensorboard") / profile / arm / f"seed-{seed}"


def index_file(profile: str, name: str) -> Path:
    return results_folder(profile) / "index" / f"{name}.json"


def claims_file(profile: str) -> Path:
    return results_folder(profile) / "claims.json"


def audit_file(profile: str) -> Path:
    return results_folder(profile) / "audit.json"


def targets_file(profile: str) -> Path:
    return results_folder(profile) / "tokens" / "targets.npz"


def tokens_file(profile: str, arm: str, seed: int) -> Path:
    return results_folder(profile) / "tokens" / arm / f"seed-{seed}.npz"
