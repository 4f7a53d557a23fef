"""What a run writes and the objects read: every path and every schema stands here.

Relative to the project's root (the current directory):

    data/<profile>/packed/                      token bins and meta.json
    results/<profile>/runs/<arm>/seed-<n>/      the record of one run, small, in git
        metrics.json    configuration, data, parameters, final losses; FLOPs are 6·N·tokens with the
                        readout and without attention scores
        curve.csv       validation and training loss at logarithmically spaced steps
        spectra.csv     per weight and step: norms, stable rank, row cosines, of W and of W − W₀
        init.json       per weight: std and SHA-256 of its first value; residual flow at step 0
        perf.json       time, device, versions: of one machine, no object reads it
    results/<profile>/runs.csv                  one row per run
    results/<profile>/index/<object>.json       the records an object reads, with their hashes
    results/<profile>/{tables,figures}/         the objects
    models/<arm>/seed-<n>.safetensors           final weights, float32; not in git
    scratch/                                    checkpoints, event files, finished runs; not in git
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from small_init.config import PILOT_SEEDS, ArmConfig, check, fingerprint, load_yaml, merged
from small_init.errors import UserError

SCHEMA = 1
PARAMS = Path("params.yaml")
# Files of a record that must be the same for the same run on the same kind of machine.
RECORD_FILES = ("metrics.json", "curve.csv", "spectra.csv", "init.json")
PERFORMANCE_FILE = "perf.json"
# The modules that decide a run's numbers: dvc.yaml's arm stages depend on these, and an
# interrupted run is only resumed by the same code.
RUN_MODULES = (
    "config.py", "data.py", "evaluation.py", "init.py", "loss.py", "model.py", "pretrain.py",
    "probes.py", "recorder.py", "resume.py", "schedule.py",
)  # fmt: skip


def packed_folder(profile: str) -> Path:
    return Path("data") / profile / "packed"


def results_folder(profile: str) -> Path:
    return Path("results") / profile


def arm_folder(profile: str, arm: str) -> Path:
    return results_folder(profile) / "runs" / arm


def record_folder(profile: str, arm: str, seed: int) -> Path:
    return arm_folder(profile, arm) / f"seed-{seed}"


def weights_file(arm: str, seed: int) -> Path:
    return Path("models") / arm / f"seed-{seed}.safetensors"


def event_folder(profile: str, arm: str, seed: int) -> Path:
    return Path("scratch/tensorboard") / profile / arm / f"seed-{seed}"


def index_file(profile: str, name: str) -> Path:
    return results_folder(profile) / "index" / f"{name}.json"


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code_fingerprint() -> str:
    """16 hex digits over the modules that decide a run's numbers, as of the first call."""
    digest = hashlib.sha256()
    for module in RUN_MODULES:
        digest.update(module.encode() + (Path(__file__).parent / module).read_bytes())
    return digest.hexdigest()[:16]


# --- writing -------------------------------------------------------------------------------------


def write_bytes(path: Path, content: bytes) -> None:
    """Write through a temporary name, so that a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(
            f"Cannot write {path}: {error.strerror}; nothing was changed there."
        ) from None


def write_text(path: Path, text: str) -> None:
    """As `write_bytes`, in UTF-8 with the line ends as they are."""
    write_bytes(path, text.encode())


def json_text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of one schema; floats with 7 significant digits, which is what float32 can say."""
    rows = list(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.7g}" if isinstance(v, float) else v for k, v in row.items()})
    return out.getvalue()


def replace_folder(new: Path, old: Path) -> None:
    """Put the folder `new` in the place of `old`; a kill leaves one of the two whole."""
    recover_folder(old)
    aside = old.with_name(f".{old.name}.old")
    old.parent.mkdir(parents=True, exist_ok=True)
    if old.exists():
        old.rename(aside)
    new.rename(old)
    shutil.rmtree(aside, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Undo a `replace_folder` that was killed between its two renames."""
    aside = folder.with_name(f".{folder.name}.old")
    if aside.exists():
        if folder.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(folder)


@dataclass(frozen=True)
class RunSpec:
    """Everything a run is told."""

    profile: str
    stage: str
    arm_key: str
    arm: ArmConfig
    seed: int

    @property
    def data_folder(self) -> Path:
        return packed_folder(self.profile)

    @property
    def event_folder(self) -> Path:
        return event_folder(self.profile, self.arm_key, self.seed)

    def scratch(self, data_sha256: str) -> Path:
        """Where this very run (configuration, data, code, torch) keeps its state."""
        identity = self.arm.identity()
        state = [identity, self.seed, data_sha256, code_fingerprint(), version("torch")]
        return Path("scratch/runs") / self.arm_key / f"seed-{self.seed}-{fingerprint(state)}"

    def finished(self) -> Path | None:
        """The scratch folder of this very run, if its record is there and whole."""
        meta = self.data_folder / "meta.json"
        folder = self.scratch(sha256(meta)) if meta.is_file() else None
        return folder if folder and (folder / "record").is_dir() else None


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """params.yaml: the profile, every arm, and which arms each object reads."""

    profile: str
    stages: dict[str, str]  # arm → its home stage
    arms: dict[str, ArmConfig]
    objects: dict[str, list[str]]

    def runs(self) -> list[tuple[str, int]]:
        return [(key, seed) for key, arm in self.arms.items() for seed in arm.seeds]


def load_plan(path: Path = PARAMS) -> Plan:
    """Read params.yaml; every arm is checked against the configuration's schema."""
    node = load_yaml(path)
    missing = [name for name in ("profile", "arms", "objects") if not node.get(name)]
    if missing:
        raise UserError(f"{path} has no {missing[0]}; write it again with `small-init plan`.")
    arms, stages = {}, {}
    for stage, group in node.arms.items():
        for key, overrides in (group or {}).items():
            where = f"{path}: arm {key}"
            arms[key] = merged(ArmConfig(), overrides, where=where)
            check(arms[key], where)
            stages[key] = stage
    objects = {name: list(keys or []) for name, keys in node.objects.items()}
    return Plan(node.profile, stages, arms, objects)


@dataclass(frozen=True)
class Run:
    """The record of one run; tables are read when asked for."""

    folder: Path
    arm: str
    seed: int
    metrics: dict[str, Any]

    @property
    def config(self) -> ArmConfig:
        """The configuration the run was made with, all fields."""
        return merged(ArmConfig(), self.metrics["config"], where=str(self.folder / "metrics.json"))

    @property
    def pilot(self) -> bool:
        """Pilot seeds orient; they never decide a verdict."""
        return self.seed in PILOT_SEEDS

    @property
    def val_loss(self) -> float:
        """Nats per token on the final validation set."""
        return self.metrics["final"]["loss"]

    @property
    def curve(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "curve.csv")

    @property
    def spectra(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "spectra.csv")

    @property
    def init(self) -> dict[str, Any]:
        return json.loads((self.folder / "init.json").read_text())

    def hashes(self) -> dict[str, str]:
        return {name: sha256(self.folder / name) for name in RECORD_FILES}


def load_run(profile: str, arm: str, seed: int) -> Run:
    """One record from results/; a missing, broken or misplaced one is a UserError."""
    folder = record_folder(profile, arm, seed)
    recover_folder(folder)
    missing = [name for name in RECORD_FILES if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"The record {folder} lacks {', '.join(missing)}; make it with "
            f"`small-init pretrain --arm {arm}`, or restore it with `git checkout {folder}`."
        )
    try:
        metrics = json.loads((folder / "metrics.json").read_text())
        at_home = (metrics["arm"], metrics["seed"], metrics["schema"]) == (arm, seed, SCHEMA)
    except (ValueError, KeyError) as error:
        raise UserError(
            f"{folder / 'metrics.json'} cannot be read ({error}); restore it with `git checkout`."
        ) from None
    if not at_home:
        raise UserError(
            f"The record in {folder} belongs to arm {metrics['arm']}, seed {metrics['seed']}, "
            f"schema {metrics['schema']}; move it to its own folder."
        )
    return Run(folder, arm, seed, metrics)


def load_runs(name: str) -> list[Run]:
    """The runs an object (`figure-1`) reads, by its index in the profile params.yaml names."""
    profile = str(load_yaml(PARAMS).profile)
    path = index_file(profile, name)
    if not path.is_file():
        raise UserError(f"{path} does not exist; write it with `dvc repro runs`.")
    entries = json.loads(path.read_text())["runs"]
    return [load_run(profile, entry["arm"], entry["seed"]) for entry in entries]
