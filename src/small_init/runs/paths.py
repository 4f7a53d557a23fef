"""Where everything stands, relative to the project's root (the current directory).

data/<profile>/packed/                      token bins and meta.json; backcopy/ and
                                            composite/ likewise
results/<profile>/runs/<arm>/seed-<n>/      the record of one run (see `runs.record`)
results/<profile>/runs.csv                  one row per run (see `runs.table`)
results/<profile>/curves.csv, summary/      what DVC shows: losses by tokens; per arm, its means
results/<profile>/claims.json               verdict, numbers and reason per claim
results/<profile>/index/<object>.json       the records an object reads, with their hashes
results/<profile>/tokens/targets.npz        the validation tokens looked at one by one (targets)
results/<profile>/tokens/<arm>/seed-<n>.npz their log-probabilities under one run, float16
results/<profile>/{tables,figures}/         the objects
results/<profile>/tasks/<arm>/seed-<n>.json downstream tasks of one run, from its weights
results/<profile>/weights/<arm>/            one seed's final weights, float16, and their
                                            tokenizer.json: of Table 2's arms
models/<arm>/seed-<n>.safetensors           final weights, float32; not in git
scratch/                                    checkpoints, event files, finished runs; not in git
"""

from __future__ import annotations

from pathlib import Path

from small_init.config import Corpus

PARAMS = Path("params.json")
CONFIGS = Path("configs")
CLAIMS = Path("paper/claims.yaml")
PERFORMANCE_FILE = "perf.json"


def packed_folder(profile: str, corpus: Corpus = Corpus.packed) -> Path:
    return Path("data") / profile / corpus.value


def manifest_file(profile: str, name: str) -> Path:
    """The manifest, in git, of a folder of data/<profile>/, which is not."""
    return Path("data") / profile / f"{name}.json"


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


def targets_file(profile: str) -> Path:
    return results_folder(profile) / "tokens" / "targets.npz"


def tokens_file(profile: str, arm: str, seed: int) -> Path:
    return results_folder(profile) / "tokens" / arm / f"seed-{seed}.npz"
