"""The last page of Figure 6: does a deeper dip mean a better model? Over all runs on text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from paper.figure_6.numbers import GROUP, MIN_RUNS, correlations, loss_row
from paper.shared.runs import VARIANTS, unique_in_order
from paper.shared.style import PAGE, compact, look, panel_titles, plt, save_figure, signed
from small_init.runs.record import Run


def make_losses(name: str, runs: list[Run]) -> Path:
    data = pd.DataFrame([loss_row(run) for run in runs]).sort_values(
        [*GROUP, "gamma", "arm", "seed"], ignore_index=True
    )
    found = correlations(data)
    widths = sorted(set(data["d_model"]))
    columns = min(3, len(widths))
    lines = -(-len(widths) // columns)
    fig, grid = plt.subplots(lines, columns, figsize=(PAGE, 2.6 * lines), squeeze=False)
    variants = unique_in_order([v for v in (*VARIANTS, *sorted(set(data["variant"])))
                                if v in set(data["variant"])])  # fmt: skip
    longest = data["tokens"].max()
    for ax, width in zip(grid.flat, widths, strict=False):
        draw_depths(ax, data[data["d_model"] == width], variants, longest)
        ax.set_ylabel("validation loss (nats per token)")
        ax.set_xlabel("depth of the dip (share of random)")
        ax.legend(handletextpad=0.2, fontsize=5.5)
    for spare in list(grid.flat)[len(widths) :]:
        spare.remove()
    panel_titles(list(grid.flat), [f"d = {width}" for width in widths])
    numbers = pd.concat(
        [data.assign(kind="run"), found.assign(kind="correlation")], ignore_index=True
    )
    return save_figure(fig, name, numbers, runs, loss_caption(data, found))


def draw_depths(ax: Axes, data: pd.DataFrame, variants: list[str], longest: int) -> None:
    """Colour and marker tell the variant; γ < 1 open, γ = 1 filled, γ > 1 grey; short runs are
    small."""
    for variant in variants:
        cell = data[data["variant"] == variant]
        if cell.empty:
            continue
        style = look((4, 2, 3, 5, 1, 6, 0)[variants.index(variant) % 7])
        for sign, face in ((-1, "white"), (0, style["color"]), (1, "0.8")):
            for short_run in (False, True):
                some = cell[(np.sign(cell["gamma"] - 1) == sign)
                            & ((cell["tokens"] < longest) == short_run)]  # fmt: skip
                ax.plot(some["depth"], some["loss"], style["marker"], color=style["color"],
                        markerfacecolor=face, markersize=2.5 if short_run else 4.5,
                        markeredgewidth=0.8)  # fmt: skip
        ax.plot([], [], style["marker"], color=style["color"], label=variant)


def loss_caption(data: pd.DataFrame, found: pd.DataFrame) -> str:
    def of_group(row: Any) -> str:
        gamma = "" if np.isnan(row.gamma) else ", γ = 1 alone"
        where = f"{row.variant}, d = {row.d_model}, {compact(row.tokens)} tokens, T = {row.context}"
        return f"{signed(row.correlation, 2)} ({where}{gamma}; n = {row.runs})"

    said = "; ".join(of_group(row) for row in found.astype({"gamma": float}).itertuples())
    ranks = f"Spearman's correlation of depth and loss: {said}." if said else (
        f"No group of runs has the {MIN_RUNS} that a rank correlation needs."
    )  # fmt: skip
    worst = data.to_dict("records")[int(data["depth"].argmax())]
    return f"""
Does a deeper dip mean a better model? Every run of the project's text experiments a point: its
final loss against the depth of its dip, 1 − (lowest stable rank of the MLP up projections after
step 0, mean over layers) / (random value). Filled: γ = 1; open: γ < 1; grey: γ > 1; small: runs
shorter than the longest, T other than the usual included. The deepest dip, {worst["depth"]:.2f}, is
that of {worst["arm"]}, seed {worst["seed"]}, with a loss of {worst["loss"]:.3f}. Only runs of one
width, variant, length and T are compared; they still differ in γ, learning rate and warm-up.
{ranks}
""".strip().replace("\n", " ")
