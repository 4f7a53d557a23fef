"""Table 2: downstream tasks at the largest size, γ = 0.5 against γ = 1, by task and family.

Beside the runs of full length stands a shorter γ = 1 that ends at the loss of γ = 0.5, where the
pilots gave one: what it gains no lower loss explains.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paper.shared.runs import load, table
from paper.shared.style import Row, compact, run_script, save_table, signed
from paper.table_2.figure import draw
from paper.table_2.numbers import EQUAL, NAME, SMALL, USUAL, variant_rows
from paper.table_2.samples import SAMPLES, save_samples
from small_init.claims.contrasts.tasks import equal_loss_arm, task_record
from small_init.claims.criteria import Claim, load_claims
from small_init.errors import UserError
from small_init.runs.record import load_runs
from small_init.runs.table import by_seed, demand_one_arm_each

READS = ("paper/claims.yaml", "results/{profile}/tasks")
PAGES = ("table-2", "figure-t2")
EXTRA = ("tables/table-2-samples.md",)


def main() -> None:
    run_script(make)


def make() -> Path:
    runs, claim = load(NAME), load_claims()["C7"]
    frame = table(runs)
    frame = frame[frame["d_model"] == frame["d_model"].max()]
    pairs = compared(frame, equal_loss_arm(load_runs(NAME), claim))
    if not pairs:
        raise UserError(f"{NAME} needs γ = {USUAL:g} and γ = {SMALL:g} of one variant.")
    arms = {arm for pair in pairs.values() for part in pair for arm in part["arm"]}
    shown = [run for run in runs if run.arm in arms]
    tasks = {(run.arm, run.seed): task_record(run)["tasks"] for run in shown}
    rows = []
    for variant, pair in pairs.items():
        usual, small = (
            {int(s): tasks[arm, int(s)] for arm, s in zip(part["arm"], part["seed"], strict=True)}
            for part in pair
        )
        rows += variant_rows(variant, usual, small)
    draw(rows, shown)
    save_samples(tasks, shown)
    entries = next(iter(tasks.values()))
    return save_table(
        NAME, rows, columns(), caption(rows, entries, equal_loss(pairs, claim)), shown
    )


Pair = tuple[pd.DataFrame, pd.DataFrame]  # runs of γ = 0.5 and of γ = 1, a row each


def compared(frame: pd.DataFrame, shorter: str | None) -> dict[str, Pair]:
    """Variant → its two γ at full length; `EQUAL` → the adjusted γ = 0.5 and the arm `shorter`."""
    full = frame[frame["tokens"] == frame["tokens"].max()]
    demand_one_arm_each(full, ["variant", "gamma"], NAME)
    pairs = {}
    for variant, cell in full.groupby("variant", sort=False):
        usual, small = (cell[cell["gamma"] == gamma] for gamma in (USUAL, SMALL))
        if len(usual) and len(small):
            pairs[str(variant)] = (usual, small)
    if shorter is not None and "adjusted" in pairs:
        usual, small = pairs["adjusted"][0], frame[frame["arm"] == shorter]
        shared = set(usual["seed"]) & set(small["seed"])
        if shared:
            pairs[EQUAL] = (usual[usual["seed"].isin(shared)], small[small["seed"].isin(shared)])
    return pairs


# --- words ---------------------------------------------------------------------------------------


def equal_loss(pairs: dict[str, Pair], claim: Claim) -> str:
    """A sentence on the comparison at equal loss, or that there is none."""
    same = claim.thresholds["same_loss"]
    if EQUAL not in pairs:
        return (
            f"There is no comparison at equal loss: no shorter γ = {SMALL:g} run that ended within "
            f"{same:g} nats of γ = {USUAL:g} on the pilot seeds shares a seed with it here."
        )
    usual, small = pairs[EQUAL]
    mine, other = by_seed(usual), by_seed(small)
    left = float(np.mean([mine[seed] - other[seed] for seed in mine]))
    tokens = int(small["tokens"].iloc[0])
    share = tokens / int(usual["tokens"].iloc[0])
    return (
        f"`{EQUAL}` sets a complete γ = {SMALL:g} run of {compact(tokens)} tokens "
        f"({percent(share)} % of the length) against γ = {USUAL:g} at full length: the pilots "
        f"chose it within {same:g} nats of equal loss, and here L({USUAL:g}) − L({SMALL:g}) is "
        f"{signed(left)}. That is the loss over all text; on a task's own answers losses differ."
    )


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def points(value: float | None) -> str:
    return "–" if value is None else signed(100 * value, 1)


def columns() -> dict[str, Callable[[Row], str]]:
    def interval(r: Row) -> str:
        return "–" if r["low"] is None else f"[{points(r['low'])}, {points(r['high'])}]"

    return {
        "variant": lambda r: r["variant"],
        "family": lambda r: r["family"],
        "task": lambda r: r["task"].replace("_", " "),
        "items": lambda r: str(r["items"]),
        "chance": lambda r: percent(r["chance"]),
        f"γ = {USUAL:g}": lambda r: percent(r[f"accuracy_{USUAL:g}"]),
        f"γ = {SMALL:g}": lambda r: percent(r[f"accuracy_{SMALL:g}"]),
        f"Δ({SMALL:g} − {USUAL:g})": lambda r: points(r["difference"]),
        "95 % interval": interval,
        "detectable": lambda r: "–" if r["detectable"] is None else percent(r["detectable"]),
        "off floor": lambda r: r["room"],
    }


OWN = """Tasks have two to four choices, scored by log-likelihood
(knowledge: by how much the question raises it); `written` tasks are the same questions answered in
writing. Wrong choices are right answers of other items, so a model that ignores the question is at
chance."""


def how_scored(entries: dict[str, Any]) -> str:
    """Of benchmarks: their metrics, and the examples before the question."""
    metrics: dict[str, list[str]] = {}
    for name, entry in entries.items():
        by = entry["metric"] + (f" ({entry['filter']})" if "filter" in entry else "")
        shots = f" after {entry['shots']} examples" if entry["shots"] else ""
        metrics.setdefault(by, []).append(name.replace("_", " ") + shots)
    found = "; ".join(f"by {by}: {', '.join(names)}" for by, names in metrics.items())
    return f"They are scored as lm-eval defines it, {found}."


def caption(rows: list[dict[str, Any]], entries: dict[str, Any], at_equal_loss: str) -> str:
    public = any("shots" in entry for entry in entries.values())
    asked = "public benchmarks" if public else "tasks built by the project"
    scored = how_scored(entries) if public else OWN
    together = "of one subject" if public else "cut from one document"
    tasks = [r for r in rows if r["task"] != "mean"]
    above = sum(r["low"] is not None and r["low"] > 0 for r in tasks)
    below = sum(r["high"] is not None and r["high"] < 0 for r in tasks)
    floor = sum(r["room"] == "floor" for r in tasks)
    pairs = sorted({r["pairs"] for r in tasks})
    over = "items alone, for want of a second seed" if pairs == [1] else "items and seeds"
    return f"""
Accuracy in percent on {asked}, at the largest size, mean over the seeds. Δ is
γ = {SMALL:g} minus γ = {USUAL:g} in points, item by item and seed by seed, with a 95 % interval
over {over} (items {together} are drawn together); `detectable` is the difference that would be
found with probability 0.8. {scored} `floor`: the better γ is not above chance by Wilson's interval.
{floor} of {len(tasks)} comparisons are at the floor; the interval of Δ lies above 0 in {above} and
below 0 in {below}.
{at_equal_loss} Figure T2 sets the gains against the losses; what the models write to a few of the
questions stands in `{SAMPLES}`.
""".replace("\n", " ")


if __name__ == "__main__":
    main()
