"""`make reproduce`: everything that is not up to date, with arms trained side by side.

DVC runs one stage at a time. So the stale arms are first trained together, through the slot pool;
then DVC runs its stages in order, and each arm's stage finds its runs finished and publishes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from filelock import FileLock, Timeout

from small_init.errors import UserError
from small_init.records import RunSpec, load_plan
from small_init.runner import default_jobs, publish, train_runs

_LOCK = Path("scratch/reproduce.lock")
_DATA_STAGES = ("corpus", "tokenizer", "pack")


def train_arms(keys: list[str], jobs: int | None = None) -> None:
    """Train all seeds of the named arms and publish each arm whose runs are all finished."""
    plan = load_plan()
    if unknown := sorted(set(keys) - set(plan.arms)):
        raise UserError(
            f"Arm '{unknown[0]}' is not in params.yaml; `small-init plan` writes it, "
            "`dvc stage list` shows the names."
        )
    specs = [
        RunSpec(plan.profile, plan.stages[key], key, plan.arms[key], seed)
        for key in keys
        for seed in plan.arms[key].seeds
    ]
    title = keys[0] if len(keys) == 1 else f"{len(keys)} arms"
    folders = train_runs(specs, jobs or default_jobs(), title)
    for spec in specs:
        publish(spec, folders[spec.arm_key, spec.seed])


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
    arms = load_plan().arms
    stale = _stale(targets, force)
    if any(stage in stale for stage in _DATA_STAGES):
        _dvc(["repro", *[stage for stage in _DATA_STAGES if stage in stale]])
    stale_arms = [name.split("@")[1] for name in stale if name.split("@")[-1] in arms]
    if stale_arms:
        plan = load_plan()
        specs = [
            RunSpec(plan.profile, plan.stages[key], key, plan.arms[key], seed)
            for key in stale_arms
            for seed in plan.arms[key].seeds
        ]
        train_runs(specs, jobs or default_jobs(), f"{len(stale_arms)} arms")
    _dvc(["repro", "--allow-missing", *(["--force", "--single-item"] if force else []), *targets])


def _stale(targets: list[str], force: bool) -> list[str]:
    """The stages DVC would run, in order."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            stages = repo.reproduce(
                targets or None, dry=True, allow_missing=True, force=force, single_item=force
            )
            return [stage.addressing for stage in stages]
    except DvcException as error:
        raise UserError(f"DVC cannot read the pipeline: {error}") from None


def _dvc(arguments: list[str]) -> None:
    environment = os.environ | {"DVC_NO_ANALYTICS": "1"}
    code = subprocess.run([sys.executable, "-m", "dvc", *arguments], env=environment).returncode
    if code:
        raise UserError(f"`dvc {' '.join(arguments)}` ended with exit code {code}; see above.")
