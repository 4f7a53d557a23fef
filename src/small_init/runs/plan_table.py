"""What `small-init plan` prints: costs by model and by experiment, and what does not fit."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from small_init.config import PILOT_SEEDS, Accelerator
from small_init.config_files import load_yaml, merged
from small_init.data.corpus.config import CONFIG_FOLDER, CorpusConfig
from small_init.runs.cost_table import hours_text, lines, table, totals, warnings
from small_init.runs.experiments import Planner
from small_init.runs.pace import Pace, measured_pace, run_hours
from small_init.runs.paths import record_folder
from small_init.runs.plan import Plan

_WIDTH = 200  # room for a table that goes to a file


@dataclass
class Share:
    """The runs that one experiment was the first to ask for, so that all of them add up."""

    arms: set[str]
    pilot: int = 0
    confirmatory: int = 0
    recorded: int = 0
    hours: float = 0.0  # of one core or device, of all runs
    left: float = 0.0  # of those without a record


def shares(planner: Planner, mfu: float | None, pace: Pace | None) -> dict[str, Share]:
    """Experiment → what it adds to the plan, arms that wait for their rate included; hours are NaN
    where nothing says them."""
    found: dict[str, Share] = defaultdict(lambda: Share(set()))
    parallel = planner.profile.parallel
    each: dict[str, float] = {}
    for key, arm in (planner.arms | planner.waiting).items():
        known = run_hours(arm, parallel, mfu, pace)
        each[key] = math.nan if known is None else known
    for (key, seed), experiment in planner.asked.items():
        share, hours = found[experiment], each[key]
        share.arms.add(key)
        if seed in PILOT_SEEDS:
            share.pilot += 1
        else:
            share.confirmatory += 1
        share.hours += hours
        if record_folder(planner.profile.name, key, seed).is_dir():
            share.recorded += 1
        else:
            share.left += hours
    return dict(sorted(found.items()))


def experiment_table(planner: Planner, mfu: float | None, pace: Pace | None) -> Table:
    found = shares(planner, mfu, pace)
    device = "core" if planner.profile.parallel.accelerator is Accelerator.cpu else "GPU"
    shown = Table(box=None, pad_edge=False, padding=(0, 1))
    shown.add_column("experiment")
    for name in (
        "arms",
        "pilot\nruns",
        "confirm.\nruns",
        "recorded",
        f"{device}-h",
        f"{device}-h\nleft",
    ):
        shown.add_column(name, justify="right", no_wrap=True)
    both = Share(set().union(*(share.arms for share in found.values())))
    for share in found.values():
        for name in ("pilot", "confirmatory", "recorded", "hours", "left"):
            setattr(both, name, getattr(both, name) + getattr(share, name))
    for name, share in [*found.items(), ("in all", both)]:
        shown.add_row(
            name, str(len(share.arms)), str(share.pilot), str(share.confirmatory),
            str(share.recorded), *_hours(share),
        )  # fmt: skip
    return shown


def _hours(share: Share) -> tuple[str, str]:
    if math.isnan(share.hours):
        return "-", "-"
    return hours_text(share.hours), hours_text(share.left)


def show(planner: Planner, plan: Plan, mfu: float | None, every_arm: bool) -> None:
    """Print the costs of a plan, by model and by experiment, and what does not fit."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    # Not by `load_corpus_config`, which refuses a corpus whose revisions are still to be named.
    path = CONFIG_FOLDER / f"{plan.profile}.yaml"
    corpus = merged(CorpusConfig(), load_yaml(path), where=str(path))
    pace = None if plan.parallel.device_tflops else measured_pace(plan.profile)
    if plan.arms:
        found = lines(plan, mfu, every_arm, pace)
        console.print(table(found, plan.parallel))
        console.print(experiment_table(planner, mfu, pace))
        console.print(totals(found, plan, corpus, mfu, pace))
    for sentence in warnings(plan, corpus):
        console.print(f"Warning: {sentence}", markup=False)
