"""`small-init claims`: the verdicts of one scale, and the taking in of records from elsewhere.

Verdicts of a profile stand in results/<profile>/claims.json. Of the profile of params.json a claim
is judged once every confirmatory run it plans has its record; of another one, whose records others
contributed, what is there is judged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from small_init.claims.contrasts.registry import evidence_of
from small_init.claims.criteria import ClaimSet, load_claims
from small_init.claims.verdicts import judge_all, plain
from small_init.config import PILOT_SEEDS
from small_init.errors import UserError
from small_init.files import json_text, rounded, write_text
from small_init.runs.experiments import make_params
from small_init.runs.paths import CONFIGS, claims_file, record_folder
from small_init.runs.plan import Plan, load_plan, read_plan
from small_init.runs.record import Run, load_run
from small_init.runs.table import pending_runs


def planned(profile: str) -> Plan:
    """The plan of any profile: params.json where it is of that profile, else made anew."""
    active = load_plan()
    if profile == active.profile:
        return active
    known = sorted(path.stem for path in (CONFIGS / "profiles").glob("*.yaml"))
    if profile not in known:
        raise UserError(f"There is no profile '{profile}'; choose one of {', '.join(known)}.")
    return read_plan(OmegaConf.create(make_params(profile)), f"the plan of {profile}")


def object_runs(plan: Plan, name: str) -> list[Run]:
    """The records there are of those an object reads."""
    wanted = [(key, seed) for key in plan.objects.get(name, []) for seed in plan.arms[key].seeds]
    return [
        load_run(plan.profile, key, seed)
        for key, seed in wanted
        if record_folder(plan.profile, key, seed).is_dir()
    ]


def still_to_come(plan: Plan, claims: ClaimSet) -> dict[str, str]:
    """Claim → how many of the confirmatory runs planned for its objects have no record."""
    pending = set(pending_runs(plan))
    found = {}
    for claim in claims.claims:
        planned = {
            (key, seed)
            for name in claim.objects
            for key in plan.objects.get(name, [])
            for seed in plan.arms[key].seeds
            if seed not in PILOT_SEEDS
        }
        if missing := planned & pending:
            found[claim.id] = f"{len(missing)} of {len(planned)} confirmatory runs are to come"
    return found


def assess(profile: str) -> list[dict[str, Any]]:
    """Judge every claim on the records of a profile; writes and returns its claims.json."""
    claims = load_claims()
    plan = planned(profile)
    active = profile == load_plan().profile
    runs = {name: object_runs(plan, name) for name in sorted(_objects(claims))}
    judged = judge_all(
        claims,
        evidence_of(claims, runs, pilot=False),
        evidence_of(claims, runs, pilot=True),
        still_to_come(plan, claims) if active else {},
    )
    rows = [plain(judgement, claims.rules) for judgement in judged]
    write_text(claims_file(profile), json_text(rounded(rows)))
    return rows


def _objects(claims: ClaimSet) -> set[str]:
    return {name for claim in claims.claims for name in claim.objects}


def scales(active: str) -> list[str]:
    """Profiles that have verdicts, the active one first."""
    found = sorted(path.parent.name for path in Path("results").glob("*/claims.json"))
    return [active, *(name for name in found if name != active)]


def verdict_table(profile: str) -> str:
    """The verdicts of every scale as text, and why, for the terminal."""
    columns = {
        name: {row["id"]: row for row in json.loads(claims_file(name).read_text())}
        for name in scales(profile)
    }
    lines = []
    for claim_id, row in columns[profile].items():
        verdicts = "  ".join(f"{name}: {rows[claim_id]['verdict']}" for name, rows in
                             columns.items() if claim_id in rows)  # fmt: skip
        lines += [f"{claim_id:3} {verdicts}", f"    {row['statement']}", f"    {row['why']}"]
    return "\n".join(lines)
