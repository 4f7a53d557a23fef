"""`make reproduce`: everything that is not up to date, with arms trained side by side.

DVC runs one stage at a time. So the stale arms are first trained together, through the slot pool;
then DVC runs its stages in order, and each arm's stage finds its runs finished and publishes them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from filelock import FileLock, Timeout

from small_init.config import Corpus
from small_init.errors import UserError
from small_init.launch.pool import train_runs
from small_init.launch.publish import publish
from small_init.launch.torchrun import (
    is_divided,
    is_one_of_many,
    run_to_end,
    train_divided,
    train_together,
)
from small_init.runs.objects import object_names
from small_init.runs.plan import Plan, load_plan
from small_init.runs.spec import RunSpec
from small_init.runs.stages import check_stages

_LOCK = Path("scratch/reproduce.lock")
STAGE_OF_CORPUS = {
    Corpus.packed: "pack",
    Corpus.backcopy: "backcopy",
    Corpus.composite: "composite",
}


def train_arms(keys: list[str], jobs: int | None = None) -> None:
    """Train all seeds of the named arms and publish each arm whose runs are all finished."""
    plan = load_plan()
    if unknown := sorted(set(keys) - set(plan.arms)):
        raise UserError(
            f"Arm '{unknown[0]}' is not in params.json; `small-init plan` writes it, "
            "`dvc stage list` shows the names."
        )
    specs = _specs(plan, keys)
    title = keys[0] if len(keys) == 1 else f"{len(keys)} arms"
    if is_one_of_many():
        train_together(specs)
        return
    folders = _train(specs, jobs, title)
    for spec in specs:
        publish(spec, folders[spec.arm_key, spec.seed])


def _train(specs: list[RunSpec], jobs: int | None, title: str) -> dict[tuple[str, int], Path]:
    if is_divided(specs[0].parallel):
        return train_divided(specs)
    return train_runs(specs, jobs, title)


def _specs(plan: Plan, keys: list[str]) -> list[RunSpec]:
    return [
        RunSpec(plan.profile, plan.stages[key], key, plan.arms[key], seed, plan.parallel)
        for key in keys
        for seed in plan.arms[key].seeds
    ]


def reproduce(targets: list[str], jobs: int | None, force: bool) -> None:
    """Bring `targets` (default: every stage) up to date; one such command at a time."""
    _LOCK.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(_LOCK, blocking=False):
            _reproduce(targets, jobs, force)
    except Timeout:
        raise UserError(
            "Another `make reproduce` is at work in this folder; wait for it, or stop it first."
        ) from None


def _reproduce(targets: list[str], jobs: int | None, force: bool) -> None:
    check_stages()
    options = ["--force", "--single-item"] if force else []
    targets = _members(targets) or drawable(load_plan())
    stale = _stale([*options, *targets])
    # `--dry` does not cascade: a stale text is listed, the arms that follow from it are not.
    if {"corpus", "tokenizer", *STAGE_OF_CORPUS.values()}.intersection(stale):
        _dvc(["repro", *STAGE_OF_CORPUS.values()])
        stale = _stale([*options, *targets])
    plan = load_plan()
    # `tokens@<arm>` is not among them: it reads an arm's weights and trains nothing.
    homes = {f"{stage}@{key}": key for key, stage in plan.stages.items()}
    if keys := [homes[name] for name in stale if name in homes]:
        specs = _specs(plan, keys)
        # A fresh clone has the manifests of the tokens, and not the tokens.
        if missing := {s.arm.train.corpus for s in specs if not s.data_folder.is_dir()}:
            _dvc(["repro", *sorted(STAGE_OF_CORPUS[corpus] for corpus in missing)])
        _train(specs, jobs, f"{len(keys)} arms")
    _dvc(["repro", "--allow-missing", *options, *targets])


def _members(targets: list[str]) -> list[str]:
    """The targets with the groups `tables`, `figures` and `objects` written out."""
    names = object_names()
    groups = {
        "tables": [name for name in names if name.startswith("table")],
        "figures": [name for name in names if name.startswith("figure")],
        "objects": list(names),
    }
    return [name for target in targets for name in groups.get(target, [target])]


def drawable(plan: Plan) -> list[str]:
    """Every stage but those of objects that have no arm at this scale; none where all have some,
    which is how DVC is asked for everything."""
    empty = sorted(name for name, arms in plan.objects.items() if not arms)
    if not empty:
        return []
    print(f"Profile {plan.profile} plans no arm for {', '.join(empty)}; they are left out.")
    command = [sys.executable, "-m", "dvc", "stage", "list", "--name-only"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if name not in empty]


def _stale(arguments: list[str]) -> list[str]:
    """The stages `dvc repro` would run, in order, but those it cannot judge yet: they read what
    another stage has still to make. The arms are not among those once the data is there."""
    options = ["--dry", "--allow-missing", "--keep-going"]
    command = [sys.executable, "-m", "dvc", "repro", *options, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not ("failed to reproduce" in done.stderr or "missing" in done.stderr):
        raise UserError(f"DVC cannot read the pipeline: {done.stderr.strip()}")
    return re.findall(r"^Running stage '(.+)':$", done.stdout, flags=re.MULTILINE)


def _dvc(arguments: list[str]) -> None:
    # Told to stop, DVC and its stage save and end, and dvc.lock stays whole.
    code, _ = run_to_end([sys.executable, "-m", "dvc", *arguments])
    if code:
        raise UserError(f"`dvc {' '.join(arguments)}` ended with exit code {code}; see above.")
