"""Figure T2: the gain in accuracy of a task against how much lower its right answers' loss is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from paper.shared.runs import unique_in_order
from paper.shared.style import COLUMN, look, plt, save_figure, signed
from paper.table_2.numbers import EQUAL, SMALL, USUAL
from small_init.runs.record import Run

FIGURE = "figure-t2"


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
    tasks = data[data["variant"] != EQUAL].dropna(subset=["gain", "loss_gain"])
    found = at_equal_loss = ""
    said = []
    for variant, mine in tasks.groupby("variant"):
        if mine["gain"].std() > 0 and mine["loss_gain"].std() > 0:
            correlation = float(np.corrcoef(mine["loss_gain"], mine["gain"])[0, 1])
            said.append(f"{signed(correlation, 2)} in {variant}")
    if said:
        found = (
            f" Correlation at full length: {', '.join(said)}; points whose interval holds 0 say "
            "little about it."
        )
    if len(tasks) < len(data):
        at_equal_loss = (
            f" In the panel at equal loss γ = {SMALL:g} is a shorter run that ends where "
            f"γ = {USUAL:g} does in loss over all text; on a task's own right answers the losses "
            "still differ, as the horizontal axis shows."
        )
    return f"""
Gain in accuracy of γ = {SMALL:g} over γ = {USUAL:g} by task against the fall of the loss on the
task's right answers, one point a multiple-choice task of Table 2, with the table's 95 % intervals.
If a lower loss were all, families would lie on one line.{found}{at_equal_loss}
""".replace("\n", " ")
