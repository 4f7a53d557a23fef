"""`make audit`: published runs, chosen at random, trained anew and compared file by file.

Training is the published path (`pool.train_runs`), from nothing, in a project folder of its own
under build/audit. An interrupted audit goes on; after a finished one the next begins from nothing.
What it found is in results/<profile>/audit.json: the same wherever it is made but for `machine`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from small_init.config import Accelerator, Corpus
from small_init.errors import UserError
from small_init.files import json_text, sha256, write_text
from small_init.launch.pool import train_runs
from small_init.runs.machine import Machine
from small_init.runs.paths import PERFORMANCE_FILE, audit_file, packed_folder, record_folder
from small_init.runs.plan import Plan, load_plan
from small_init.runs.record import Run, load_run, record_files
from small_init.runs.same import FileResult, Verdict, compare_file, worst
from small_init.runs.spec import RunSpec
from small_init.runs.tolerance import EARLY, EARLY_STEPS, LATE

HOME = Path("build/audit")
DEFAULT_RUNS = 3
_FINISHED = "finished"  # a file in the scratch project: everything there has been compared
_MAKE = {Corpus.packed: "pack", Corpus.backcopy: "backcopy", Corpus.composite: "composite"}


@dataclass(frozen=True)
class Audited:
    """One published run against the run made anew."""

    arm: str
    seed: int
    unlike: list[str]  # in what the machines are not known to be of one kind
    code: dict[str, str | None]
    files: dict[str, FileResult]
    made_on: Machine
    made_anew_on: Machine

    @property
    def verdict(self) -> Verdict:
        return worst(result.verdict for result in self.files.values())

    @property
    def standard(self) -> str:
        return "tolerance" if self.unlike else "bitwise"

    def as_json(self) -> dict[str, Any]:
        return {
            "arm": self.arm, "seed": self.seed, "verdict": self.verdict.value,
            "standard": self.standard, "not_bitwise_because": self.unlike,
            "code": self.code, "published_on": asdict(self.made_on),
            "files": {name: result.as_json() for name, result in self.files.items()},
        }  # fmt: skip


def audit(runs: int | None, seed: int, arms: list[str], jobs: int | None, fresh: bool) -> None:
    """Train `runs` published runs anew and compare them (None: 3, or all runs of `arms`).

    Raises UserError if any differs, after audit.json is written.
    """
    plan = load_plan()
    found = published_runs(plan, arms)
    number = runs if runs is not None else len(found) if arms else min(DEFAULT_RUNS, len(found))
    chosen = choose(found, number, seed)
    demand_data(plan, chosen)
    HOME.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(HOME / "audit.lock", blocking=False):
            home = scratch_project(plan.profile, fresh)
            audited = [compare_run(run, folder) for run, folder in _train(plan, chosen, home, jobs)]
            asked = {"runs": runs, "seed": seed, "arms": arms}
            write_text(audit_file(plan.profile), json_text(_report(plan.profile, asked, audited)))
            (home / _FINISHED).touch()
    except Timeout:
        raise UserError("Another `make audit` is at work in this folder; wait for it.") from None
    print("\n".join(table(audited)))
    _judge(plan.profile, audited)


def published_runs(plan: Plan, arms: list[str]) -> list[tuple[str, int]]:
    """Planned runs that have a record; of `arms` alone where any are named."""
    if plan.parallel.accelerator is not Accelerator.cpu:
        raise UserError(
            f"Profile {plan.profile} trains on GPUs, for which no tolerance has been measured; "
            "audit a profile that trains on CPUs (`make profile PROFILE=cpu`)."
        )
    if unknown := [key for key in arms if key not in plan.arms]:
        raise UserError(f"Arm '{unknown[0]}' is not in params.json; `dvc stage list` shows them.")
    found = [
        (key, seed)
        for key, seed in plan.runs()
        if key in (arms or plan.arms)
        and (record_folder(plan.profile, key, seed) / "metrics.json").is_file()
    ]
    if not found:
        raise UserError(
            f"There is no published record of {', '.join(arms) or f'profile {plan.profile}'} to "
            "compare with; make it with `dvc repro`."
        )
    return found


def choose(runs: list[tuple[str, int]], number: int, seed: int) -> list[tuple[str, int]]:
    """`number` of the runs at random, a function of `seed` and their names alone: a larger number
    begins with the same runs."""
    if not 1 <= number <= len(runs):
        raise UserError(f"There are {len(runs)} runs to choose from; ask for 1 to {len(runs)}.")
    lot = lambda run: hashlib.sha256(f"{seed}:{run[0]}:{run[1]}".encode()).digest()
    return sorted(runs, key=lot)[:number]


def demand_data(plan: Plan, chosen: list[tuple[str, int]]) -> None:
    """The very tokens that the records were made from, or a UserError before hours of training."""
    for arm, seed in chosen:
        run = load_run(plan.profile, arm, seed)
        corpus = plan.arms[arm].train.corpus
        meta = packed_folder(plan.profile, corpus) / "meta.json"
        make = f"make it with `dvc repro {_MAKE[corpus]}`"
        if not meta.is_file():
            raise UserError(f"The tokens in {meta.parent} are not there; {make}.")
        if sha256(meta) != run.metrics.data.meta_sha256:
            raise UserError(
                f"The tokens in {meta.parent} are not those of the record {run.folder}; {make}."
            )


def scratch_project(profile: str, fresh: bool) -> Path:
    """A project folder with the real data and slots and without any run but those of an audit that
    was interrupted."""
    home = HOME / profile
    if fresh or (home / _FINISHED).exists():
        shutil.rmtree(home)
    slots = Path("scratch/slots")  # so that audits and other commands share the cores
    slots.mkdir(parents=True, exist_ok=True)
    (home / "scratch").mkdir(parents=True, exist_ok=True)
    for real in (Path("data"), slots):
        if not (home / real).exists():
            (home / real).symlink_to(real.resolve(), target_is_directory=True)
    return home


def _train(
    plan: Plan, chosen: list[tuple[str, int]], home: Path, jobs: int | None
) -> list[tuple[Run, Path]]:
    """Each published run with the folder of the record made anew."""
    specs = [
        RunSpec(plan.profile, plan.stages[arm], arm, plan.arms[arm], seed, plan.parallel)
        for arm, seed in chosen
    ]
    with _inside(home):
        folders = train_runs(specs, jobs, f"audit of {len(specs)} runs")
    return [(load_run(plan.profile, *run), home / folders[run] / "record") for run in chosen]


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def compare_run(run: Run, anew: Path) -> Audited:
    """The record in folder `anew` against the published one, by the standard their machines allow:
    bit for bit, or the tolerance where they are not known to be of one kind."""
    published_on, now = (_performance(folder) for folder in (run.folder, anew))
    made_on, made_anew_on = Machine.of(published_on), Machine.of(now)
    unlike = made_on.unlike(made_anew_on)
    tolerated = run.config.train.corpus if unlike else None
    files = {
        name: compare_file(run.folder / name, anew / name, tolerated)
        for name in record_files(run.config.train.probes)
    }
    code = {"published": published_on.get("code"), "now": now.get("code")}
    return Audited(run.arm, run.seed, unlike, code, files, made_on, made_anew_on)


def _performance(record: Path) -> dict[str, Any]:
    path = record / PERFORMANCE_FILE
    return json.loads(path.read_text()) if path.is_file() else {}  # nothing demands it of a record


def _report(profile: str, asked: dict[str, Any], audited: list[Audited]) -> dict[str, Any]:
    return {
        "profile": profile,
        "asked": asked,
        "machine": asdict(audited[0].made_anew_on),
        "tolerance": {
            f"to step {EARLY_STEPS}": asdict(EARLY),
            "later": {corpus.value: asdict(limits) for corpus, limits in LATE.items()},
        },
        "runs": [run.as_json() for run in audited],
        "overall": overall(audited),
    }


def overall(audited: list[Audited]) -> str:
    counts = [(verdict, sum(run.verdict is verdict for run in audited)) for verdict in Verdict]
    return ", ".join(f"{n} of {len(audited)} runs: {v.value}" for v, n in counts if n)


def table(audited: list[Audited]) -> Iterator[str]:
    """A line a run, under it what is not the same, and the overall line."""
    for run in audited:
        why = f" ({', '.join(run.unlike)})" if run.unlike else ""
        yield f"{run.verdict.value:16}  {run.arm} seed {run.seed}, {run.standard}{why}"
        for name, result in run.files.items():
            if result.verdict is not Verdict.same:
                yield f"    {name}: {result.verdict.value}: {result.text()}"
    yield overall(audited)


def _judge(profile: str, audited: list[Audited]) -> None:
    if different := [run for run in audited if run.verdict is Verdict.differs]:
        first = different[0]
        raise UserError(
            f"{len(different)} of {len(audited)} runs differ from their published records (the "
            f"first is {first.arm}, seed {first.seed}; all in {audit_file(profile)}): the present "
            "code does not make what is published. A change of run code must be licensed: find "
            "the cause and undo it, or train these arms again with `dvc repro`."
        )
