"""Table 2: downstream tasks at the largest size, γ = 0.5 against γ = 1, by task and family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from runs import demand_one_arm_each, load, table, unique_in_order
from style import COLUMN, Row, look, plt, run_script, save_figure, save_table, signed

from small_init.contrasts_tasks import task_record
from small_init.errors import UserError
from small_init.evaluate import intervals
from small_init.evaluate.intervals import Task, accuracy_limits, item_scores, paired_items
from small_init.records import Run

NAME, FIGURE = "table-2", "figure-t2"
SMALL, USUAL = 1.0, 0.5  # the two γ compared
FAMILIES = ("reasoning", "written", "knowledge", "language")
CEILING = 0.95  # an accuracy above it leaves no room for a gain


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    frame = table(runs)
    frame = frame[frame["d_model"] == frame["d_model"].max()]
    frame = frame[frame["tokens"] == frame["tokens"].max()]  # the shorter run is for claim C7
    demand_one_arm_each(frame, ["variant", "gamma"], NAME)
    found = {(run.arm, run.seed): task_record(run) for run in runs}
    rows = []
    for variant, cell in frame.groupby("variant", sort=False):
        arms = {
            gamma: {
                int(seed): found[arm, int(seed)]["tasks"]
                for arm, seed in zip(part["arm"], part["seed"], strict=True)
            }
            for gamma, part in cell.groupby("gamma")
        }
        if USUAL in arms and SMALL in arms:
            rows += variant_rows(str(variant), arms[USUAL], arms[SMALL])
    shown = [run for run in runs if run.arm in set(frame["arm"])]
    if not rows:
        raise UserError(f"{NAME} needs γ = {USUAL:g} and γ = {SMALL:g} of one variant.")
    draw(rows, shown)
    return save_table(NAME, rows, columns(), caption(rows), shown)


# --- numbers -------------------------------------------------------------------------------------


def variant_rows(
    variant: str, usual: dict[int, dict[str, Any]], small: dict[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row per task, each family followed by its mean; seed → task → entry."""
    names = unique_in_order(name for tasks in usual.values() for name in tasks)
    rows = []
    for family in FAMILIES:
        members = [n for n in names if next(iter(usual.values()))[n]["family"] == family]
        if not members:
            continue
        tasks = [pair(name, usual, small) for name in members]
        found = [
            row(variant, family, name, task, usual, small)
            for name, task in zip(members, tasks, strict=True)
        ]
        apart = tasks_apart(tasks, members, usual)
        rows += [*found, family_row(variant, family, found, apart)]
    return rows


def pair(name: str, usual: dict[int, Any], small: dict[int, Any]) -> Task:
    """The scores of every item; runs that answered other items cannot be compared."""
    files = {tasks[name]["file_sha256"] for arm in (usual, small) for tasks in arm.values()}
    if len(files) > 1:
        raise UserError(
            f"The runs of {NAME} answered different items of {name}; evaluate their arms again "
            "with `dvc repro -f evaluate`."
        )
    a, b = (
        {seed: item_scores(tasks[name]["correct"]) for seed, tasks in arm.items()}
        for arm in (usual, small)
    )
    return Task(a, b, next(iter(usual.values()))[name].get("groups"))


def row(
    variant: str, family: str, name: str, task: Task, usual: dict[int, Any], small: dict[int, Any]
) -> dict[str, Any]:
    first = next(iter(usual.values()))[name]
    accuracy = {g: mean_of(arm, name, "accuracy") for g, arm in ((USUAL, usual), (SMALL, small))}
    written = first["loss"] is None
    loss = {
        g: None if written else mean_of(arm, name, "loss")
        for g, arm in ((USUAL, usual), (SMALL, small))
    }
    best = max(accuracy.values())
    off_floor = accuracy_limits(best, first["items"])[0] > first["chance"]
    return {
        "variant": variant,
        "family": family,
        "task": name,
        "language": first["language"],
        "metric": first["metric"],
        "items": first["items"],
        "chance": first["chance"],
        f"accuracy_{USUAL:g}": accuracy[USUAL],
        f"accuracy_{SMALL:g}": accuracy[SMALL],
        f"loss_{USUAL:g}": loss[USUAL],
        f"loss_{SMALL:g}": loss[SMALL],
        **interval_of(paired_items([task])),
        "room": "floor" if not off_floor else "ceiling" if best > CEILING else "yes",
    }


def family_row(
    variant: str, family: str, members: list[dict[str, Any]], tasks: Sequence[Task]
) -> dict[str, Any]:
    """Unweighted mean over the family's tasks."""

    def mean(key: str) -> float:
        return float(np.mean([member[key] for member in members]))

    return {
        "variant": variant,
        "family": family,
        "task": "mean",
        "language": "",
        "metric": "",
        "items": sum(member["items"] for member in members),
        "chance": mean("chance"),
        f"accuracy_{USUAL:g}": mean(f"accuracy_{USUAL:g}"),
        f"accuracy_{SMALL:g}": mean(f"accuracy_{SMALL:g}"),
        **interval_of(paired_items(tasks)),
        "room": f"{sum(member['room'] == 'yes' for member in members)} of {len(members)}",
    }


def tasks_apart(tasks: Sequence[Task], names: Sequence[str], usual: dict[int, Any]) -> list[Task]:
    """Tasks that ask the same items become one, whose scores are the items' means."""
    entries = next(iter(usual.values()))
    together: dict[str, list[Task]] = {}
    for name, task in zip(names, tasks, strict=True):
        together.setdefault(entries[name]["shared"], []).append(task)
    if len({len(group) for group in together.values()}) > 1:
        raise UserError(f"Tasks of one family share items unevenly: {', '.join(names)}.")
    return [
        Task(
            {s: np.mean([task.a[s] for task in group], axis=0) for s in group[0].a},
            {s: np.mean([task.b[s] for task in group], axis=0) for s in group[0].b},
            group[0].groups,
        )
        for group in together.values()
    ]


def mean_of(arm: dict[int, Any], name: str, key: str) -> float:
    return float(np.mean([tasks[name][key] for tasks in arm.values()]))


def interval_of(difference: intervals.Difference | None) -> dict[str, Any]:
    if difference is None:
        return {"difference": None, "low": None, "high": None, "pairs": 0, "detectable": None}
    return {
        "difference": difference.estimate,
        "low": difference.low,
        "high": difference.high,
        "pairs": difference.seeds,
        "detectable": difference.detectable,
    }


# --- words ---------------------------------------------------------------------------------------


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


def caption(rows: list[dict[str, Any]]) -> str:
    tasks = [r for r in rows if r["task"] != "mean"]
    above = sum(r["low"] is not None and r["low"] > 0 for r in tasks)
    below = sum(r["high"] is not None and r["high"] < 0 for r in tasks)
    floor = sum(r["room"] == "floor" for r in tasks)
    pairs = sorted({r["pairs"] for r in tasks})
    over = "items alone, for want of a second seed" if pairs == [1] else "items and seeds"
    return f"""
Accuracy in percent on tasks built by the project, at the largest size, mean over the seeds. Δ is
γ = {SMALL:g} minus γ = {USUAL:g} in points, item by item and seed by seed, with a 95 % interval
over {over} (items cut from one document are drawn together); `detectable` is the difference that
would be found with probability 0.8. Tasks have two to four choices, scored by log-likelihood
(knowledge: by how much the question raises it); `written` tasks are the same questions answered in
writing. Wrong choices are right answers of other items, so a model that ignores the question is at
chance. `floor`: the better γ is not above chance by Wilson's interval. {floor} of {len(tasks)}
comparisons are at the floor; the interval of Δ lies above 0 in {above} and below 0 in {below}.
Figure T2 sets the gains against the losses.
""".replace("\n", " ")


# --- the figure ----------------------------------------------------------------------------------


def draw(rows: list[dict[str, Any]], runs: Sequence[Run]) -> Path:
    """Gain of a task against how much lower its right answers' loss is: reasoning or just loss?"""
    data = pd.DataFrame([r for r in rows if r.get(f"loss_{USUAL:g}") is not None])
    data = data.assign(
        loss_gain=data[f"loss_{USUAL:g}"] - data[f"loss_{SMALL:g}"],
        gain=100 * data["difference"], gain_low=100 * data["low"], gain_high=100 * data["high"],
    )  # fmt: skip
    variants = unique_in_order(data["variant"])
    fig, axes = plt.subplots(
        len(variants), 1, figsize=(COLUMN, 0.5 + 2.1 * len(variants)), sharex=True, sharey=True,
        squeeze=False,
    )  # fmt: skip
    for ax, variant in zip(axes[:, 0], variants, strict=True):
        panel(ax, data[data["variant"] == variant])
        ax.set_title(f"{variant}")
    axes[-1, 0].set_xlabel(
        f"loss at γ = {USUAL:g} minus γ = {SMALL:g}\n(nats per byte, right answers)"
    )
    # Beside the title: error bars leave no corner free.
    axes[0, 0].legend(
        loc="lower right", bbox_to_anchor=(1, 1), ncols=3, handlelength=1, columnspacing=1
    )
    kept = ["variant", "family", "task", "loss_gain", "gain", "gain_low", "gain_high", "room"]
    return save_figure(fig, FIGURE, data[kept], runs, figure_caption(data))


def panel(ax: Axes, data: pd.DataFrame) -> None:
    ax.axhline(0, color="0.7", linewidth=0.6, zorder=0)
    ax.axvline(0, color="0.7", linewidth=0.6, zorder=0)
    for place, family in enumerate(("reasoning", "knowledge", "language")):
        part = data[data["family"] == family]
        style = look(4 - 2 * place)
        ax.errorbar(
            part["loss_gain"], part["gain"],
            yerr=[part["gain"] - part["gain_low"], part["gain_high"] - part["gain"]],
            fmt=style["marker"], color=style["color"], elinewidth=0.6, markersize=4, label=family,
        )  # fmt: skip
    ax.set_ylabel("gain in accuracy (points)")


def figure_caption(data: pd.DataFrame) -> str:
    tasks = data.dropna(subset=["gain", "loss_gain"])
    found = ""
    if tasks["gain"].std() > 0 and tasks["loss_gain"].std() > 0:
        correlation = float(np.corrcoef(tasks["loss_gain"], tasks["gain"])[0, 1])
        found = (
            f" The correlation over {len(tasks)} points is {signed(correlation, 2)}; points whose "
            "interval holds 0 say little about it."
        )
    return f"""
Gain in accuracy of γ = {SMALL:g} over γ = {USUAL:g} by task against the fall of the loss on the
task's right answers, one point a task of Table 2, with the table's 95 % intervals. If a lower loss
were all, families would lie on one line.{found}
""".replace("\n", " ")


if __name__ == "__main__":
    main()
