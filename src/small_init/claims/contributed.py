"""Records made elsewhere: checked, then taken in."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from small_init.claims.judge import planned
from small_init.errors import UserError
from small_init.files import replace_folder
from small_init.runs.paths import record_folder, results_folder
from small_init.runs.record import read_metrics, read_run


def add_records(folders: Sequence[Path]) -> set[str]:
    """Check records made elsewhere and copy them to their places; returns their profiles.

    Raises UserError, before anything is copied, for a record that is not whole, not of a planned
    arm and seed, of another configuration or corpus than that arm's other records, or already
    there with other content.
    """
    accepted = [(folder, *_checked(folder)) for folder in folders]
    for folder, _, target in accepted:
        draft = target.with_name(f".{target.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, draft)
        replace_folder(draft, target)
    return {profile for _, profile, _ in accepted}


def _checked(folder: Path) -> tuple[str, Path]:
    path = folder / "metrics.json"
    if not path.is_file():
        raise UserError(
            f"{path} is not the record of a run (no such file); name a folder that holds "
            "metrics.json, curve.csv, spectra.csv and init.json."
        )
    metrics = read_metrics(path)
    profile, arm, seed = metrics.profile, metrics.arm, metrics.seed
    plan = planned(profile)
    if arm not in plan.arms or seed not in plan.arms[arm].seeds:
        raise UserError(
            f"{folder}: arm {arm}, seed {seed} is not in the plan of profile {profile}; only "
            "planned runs can be judged."
        )
    run = read_run(folder, arm, seed)
    if run.config.identity() != plan.arms[arm].identity():
        raise UserError(
            f"{folder} was made with another configuration than the plan has for {arm}; train it "
            f"with `small-init plan --profile {profile}` and `small-init pretrain --arm {arm}`."
        )
    target = record_folder(profile, arm, seed)
    if target.is_dir() and read_run(target, arm, seed).hashes() != run.hashes():
        raise UserError(f"{target} is already there with other numbers; a record is never changed.")
    for other in results_folder(profile).glob("runs/*/seed-*/metrics.json"):
        theirs = read_metrics(other)
        same_text = theirs.config.train.corpus is metrics.config.train.corpus
        if same_text and theirs.data != metrics.data:
            raise UserError(
                f"{folder} was trained on another packed corpus than {other.parent}; records of "
                "one profile share their corpus."
            )
    return profile, target
