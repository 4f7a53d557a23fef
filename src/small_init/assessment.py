"""`small-init claims`: the verdicts of one scale, and the taking in of records from elsewhere.

Verdicts of a profile stand in results/<profile>/claims.json. The profile of params.json must have
every record it plans; of another one, whose records others contributed, what is there is judged.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from small_init import records
from small_init.claims import ClaimSet, load_claims
from small_init.contrasts import evidence_of
from small_init.errors import UserError
from small_init.plan import CONFIGS, make_params
from small_init.records import Plan, Run
from small_init.verdicts import judge_all, plain


def planned(profile: str) -> Plan:
    """The plan of any profile: params.json where it is of that profile, else made anew."""
    active = records.load_plan()
    if profile == active.profile:
        return active
    known = sorted(path.stem for path in (CONFIGS / "profiles").glob("*.yaml"))
    if profile not in known:
        raise UserError(f"There is no profile '{profile}'; choose one of {', '.join(known)}.")
    return records.read_plan(OmegaConf.create(make_params(profile)), f"the plan of {profile}")


def object_runs(plan: Plan, name: str, all_of_them: bool) -> list[Run]:
    """The records an object reads; with `all_of_them` a missing one is an error."""
    wanted = [(key, seed) for key in plan.objects.get(name, []) for seed in plan.arms[key].seeds]
    return [
        records.load_run(plan.profile, key, seed)
        for key, seed in wanted
        if all_of_them or records.record_folder(plan.profile, key, seed).is_dir()
    ]


def assess(profile: str) -> list[dict[str, Any]]:
    """Judge every claim on the records of a profile; writes and returns its claims.json."""
    claims = load_claims()
    plan = planned(profile)
    active = profile == records.load_plan().profile
    runs = {name: object_runs(plan, name, active) for name in sorted(_objects(claims))}
    judged = judge_all(
        claims, evidence_of(claims, runs, pilot=False), evidence_of(claims, runs, pilot=True)
    )
    rows = [plain(judgement, claims.rules) for judgement in judged]
    records.write_text(records.claims_file(profile), records.json_text(records.rounded(rows)))
    return rows


def _objects(claims: ClaimSet) -> set[str]:
    return {claim.object for claim in claims.claims}


def scales(active: str) -> list[str]:
    """Profiles that have verdicts, the active one first."""
    found = sorted(path.parent.name for path in Path("results").glob("*/claims.json"))
    return [active, *(name for name in found if name != active)]


def verdict_table(profile: str) -> str:
    """The verdicts of every scale as text, and why, for the terminal."""
    columns = {
        name: {row["id"]: row for row in json.loads(records.claims_file(name).read_text())}
        for name in scales(profile)
    }
    lines = []
    for claim_id, row in columns[profile].items():
        verdicts = "  ".join(f"{name}: {rows[claim_id]['verdict']}" for name, rows in
                             columns.items() if claim_id in rows)  # fmt: skip
        lines += [f"{claim_id:3} {verdicts}", f"    {row['statement']}", f"    {row['why']}"]
    return "\n".join(lines)


# --- contributed records -------------------------------------------------------------------------


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
        records.replace_folder(draft, target)
    return {profile for _, profile, _ in accepted}


def _checked(folder: Path) -> tuple[str, Path]:
    path = folder / "metrics.json"
    try:
        metrics = json.loads(path.read_text())
        profile, arm, seed = metrics["profile"], metrics["arm"], metrics["seed"]
        data = metrics["data"]["meta_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not the record of a run ({type(error).__name__}); name a folder that holds "
            "metrics.json, curve.csv, spectra.csv and init.json."
        ) from None
    plan = planned(profile)
    if arm not in plan.arms or seed not in plan.arms[arm].seeds:
        raise UserError(
            f"{folder}: arm {arm}, seed {seed} is not in the plan of profile {profile}; only "
            "planned runs can be judged."
        )
    run = records.read_run(folder, arm, seed)
    if run.config.identity() != plan.arms[arm].identity():
        raise UserError(
            f"{folder} was made with another configuration than the plan has for {arm}; train it "
            f"with `small-init plan --profile {profile}` and `small-init pretrain --arm {arm}`."
        )
    target = records.record_folder(profile, arm, seed)
    if target.is_dir() and records.read_run(target, arm, seed).hashes() != run.hashes():
        raise UserError(f"{target} is already there with other numbers; a record is never changed.")
    for other in records.results_folder(profile).glob("runs/*/seed-*/metrics.json"):
        theirs = json.loads(other.read_text())
        same_text = theirs["config"]["train"].get("corpus") == metrics["config"]["train"].get(
            "corpus"
        )
        if same_text and theirs["data"]["meta_sha256"] != data:
            raise UserError(
                f"{folder} was trained on another packed corpus than {other.parent}; records of "
                "one profile share their corpus."
            )
    return profile, target
