"""Figure S3: composing or memorising? Answers on a held-out pair of anchors, by γ, decay, depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from paper.shared.runs import load
from paper.shared.style import PAGE, look, panel_titles, plt, run_script, save_figure
from small_init.runs.record import Run
from small_init.runs.table import demand_one_arm_each

NAME = "figure-s3"
# Validation sources of the task (`small_init.data.composite`) and what their panels are called.
SOURCES = {
    "seen-pairs": "seen pairs",
    "conflict": "conflicting pair",
    "held-out-composed": "held out, composed",
    "held-out-mirrored": "held out, mirrored",
}
SOLVED = 0.9  # accuracy on seen pairs above which a run has learnt the task


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    data = pd.DataFrame([row(run) for run in runs])
    keys = ["n_layers", "weight_decay", "gamma"]
    demand_one_arm_each(data, keys, NAME)
    data = data.sort_values([*keys, "seed"], ignore_index=True)
    depths = sorted(set(data["n_layers"]))

    size = (PAGE, 1.75 * len(depths) + 0.5)
    fig, grid = plt.subplots(
        len(depths), len(SOURCES), figsize=size, squeeze=False, sharex=True, sharey=True
    )
    for axes, depth in zip(grid, depths, strict=True):
        for ax, source in zip(axes, SOURCES, strict=True):
            draw(ax, data[data["n_layers"] == depth], source, sorted(set(data["weight_decay"])))
        axes[0].set_ylabel(f"{depth} layers\nshare of answers")
    for ax in grid[-1]:
        ax.set_xlabel("γ")
        ax.set_xticks(sorted(set(data["gamma"])))
    grid[0][0].set_ylim(-0.04, 1.04)
    grid[0][0].legend(loc="center")  # where a task is learnt, or not at all, nothing is drawn
    panel_titles(list(grid.flat), [*SOURCES.values()] * len(depths))
    return save_figure(fig, NAME, data, runs, caption(data, runs[0]))


def row(run: Run) -> dict[str, Any]:
    """A run's setting and, per validation source, the share of answers that are that source's."""
    config = run.config
    return {
        "arm": run.arm,
        "seed": run.seed,
        "n_layers": config.model.n_layers,
        "weight_decay": config.optimizer.weight_decay,
        "gamma": config.init.gamma,
        **(run.metrics.final.accuracy_by_source or {}),
    }


def draw(ax: Axes, depth: pd.DataFrame, source: str, decays: list[float]) -> None:
    """A line per weight decay through the means over seeds; every seed is a point."""
    for index, decay in enumerate(decays):
        found = depth[depth["weight_decay"] == decay]
        style = look((4, 2, 3, 5, 1, 6, 0)[index % 7])
        mean = found.groupby("gamma")[source].mean()
        ax.plot(mean.index, mean, color=style["color"], linestyle=style["linestyle"])
        aside = 0.01 * (index - (len(decays) - 1) / 2)  # so that no decay hides another
        ax.plot(found["gamma"] + aside, found[source], style["marker"], color=style["color"],
                markersize=3)  # fmt: skip
        ax.plot([], [], **style, label=f"weight decay {decay:g}")


def caption(data: pd.DataFrame, run: Run) -> str:
    config = run.config
    sequences = config.train.batch_tokens // config.model.context
    solved = int((data["seen-pairs"] >= SOLVED).sum())
    others = "" if solved == len(data) else "; what the others answer says little of γ"
    most = data[["held-out-composed", "held-out-mirrored"]] > 0.5
    composing, mirroring = most.sum()
    neither = len(data) - composing - mirroring
    by_depth = "; ".join(depth_words(cell) for _, cell in data.groupby("n_layers"))
    return f"""
*Exploratory: no claim is judged by it.* The composite-function task (2405.05409): the answer is a
key item after the shifts of the two anchors that follow it. One pair of anchors is trained with
another shift than the rule's, and the mirrored pair is held out: a model that composes gives it
the composed answer, one that takes the two anchors for an unordered pair the mirrored one; a run's
two shares need not add up to 1. All key items are new at their place. Every point is a seed, lines
join the means. d = {config.model.d_model}, {config.steps} steps of {sequences} sequences, peak
learning rate {config.optimizer.lr:g} for every γ, ε = {config.model.norm_eps:g}. {solved} of
{len(data)} runs reach an accuracy of {SOLVED:g} on seen pairs{others}. To most held-out inputs
{composing} runs give the composed answer, {mirroring} the mirrored one and {neither} neither. Mean
shares of composed and mirrored answers, with the accuracy on seen pairs in brackets: {by_depth}.
""".strip().replace("\n", " ")


def depth_words(cell: pd.DataFrame) -> str:
    """2 layers: γ = 0.5 with decay 0.1: 0.20, 0.70 (0.99), …"""
    means = cell.groupby(["weight_decay", "gamma"], as_index=False)[list(SOURCES)].mean()
    parts = [
        f"γ = {mean['gamma']:g} with decay {mean['weight_decay']:g}: "
        f"{mean['held-out-composed']:.2f}, {mean['held-out-mirrored']:.2f} "
        f"({mean['seen-pairs']:.2f})"
        for mean in means.to_dict("records")
    ]
    return f"{cell['n_layers'].iloc[0]} layers: " + ", ".join(parts)


if __name__ == "__main__":
    main()
