"""Figure 8: does γ = 1 still win when the rest of the recipe changes? Exploratory; three pages.

figure-8: the gain under every change, and which weights it comes from; figure-8b: learning rates,
and other ways to start; figure-8c: run length, weight norms and code length.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from paper.figure_8.numbers import (
    EXPLORATORY,
    UNCHANGED,
    changes,
    describe,
    exploratory,
    gains,
    group_gains,
    limits_of,
    rows_of,
    size_words,
)
from paper.figure_8.rates import make_rates
from paper.figure_8.training import make_training
from paper.shared.runs import load, published
from paper.shared.style import PAGE, look, panel_titles, plt, run_script, save_figure, signed
from small_init.claims.gains import SMALL, USUAL
from small_init.config import Gate
from small_init.runs.record import Run

NAME = "figure-8"
PAGES = ("figure-8", "figure-8b", "figure-8c")


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    frame, usual = describe(runs, NAME)
    made = make_changes(runs, frame, usual)
    make_rates(f"{NAME}b", runs, frame)
    make_training(f"{NAME}c", runs, frame, usual)
    return made


def make_changes(runs: list[Run], frame: pd.DataFrame, usual: Mapping[str, Any]) -> Path:
    compared = changes(frame, NAME)
    gained = gains(compared, ["change"])
    groups = group_gains(frame, NAME)
    height = max(2.6, 0.23 * max(len(gained), len(groups)) + 1.2)
    fig, (left, right) = plt.subplots(1, 2, figsize=(PAGE, height), width_ratios=[3, 2])
    draw_rows(left, gained, "change", UNCHANGED)
    left.set_xlabel(f"L({USUAL:g}) − L({SMALL:g}) (nats per token)")
    draw_rows(right, groups, "group", f"all at γ = {SMALL:g}")
    right.set_xlabel(f"gain over all at γ = {USUAL:g} (nats)")
    panel_titles(
        [left, right],
        [f"gain of γ = {SMALL:g} under a change of the recipe", f"one group at γ = {SMALL:g}"],
    )
    exploratory(fig)
    runs_shown = [run for run in runs if run.arm in set(compared["arm"])]
    parts = [run_rows(compared), gained.assign(kind="gain"), groups.assign(kind="group")]
    data = pd.concat(parts, ignore_index=True)
    data = data[["kind", *data.columns.drop("kind")]]
    return save_figure(fig, NAME, data, runs_shown, caption(frame, usual, gained, groups))


def run_rows(compared: pd.DataFrame) -> pd.DataFrame:
    """The runs as the CSV holds them."""
    rows = compared.assign(
        gated=compared["gate"] != Gate.none.value,
        prequential=compared["prequential_nats_per_token"],
        kind="run",
    )
    return published(rows)[
        ["arm", "seed", "variant", "gamma", "d_model", "context", "gated", "norm_eps", "lr",
         "parameters", "non_embedding", "tokens", "flops", "loss", "prequential", "change",
         "scheme", "kind"]
    ]  # fmt: skip


# --- drawing -------------------------------------------------------------------------------------


def draw_rows(ax: Axes, gained: pd.DataFrame, column: str, reference: str) -> None:
    """A row per change; the reference row is a line through all of them."""
    if gained.empty:
        ax.text(0.5, 0.5, "not run", ha="center", va="center", transform=ax.transAxes)
        ax.set_xticks([])
        ax.set_yticks([])
        return
    for place, row in enumerate(rows_of(gained)):
        is_reference = getattr(row, column) == reference
        style = look(4 if is_reference else 0)
        ax.plot([row.low, row.high], [place, place], color=style["color"], linewidth=1)
        ax.plot(row.gain, place, "o", color=style["color"], markersize=4.5)
        if is_reference:
            ax.axvline(row.gain, color=style["color"], linewidth=0.8, linestyle="--", zorder=0)
    ax.axvline(0, color="0.6", linewidth=0.6, zorder=0)
    ax.set_yticks(range(len(gained)), gained[column])
    ax.set_ylim(len(gained) - 0.4, -0.6)
    ax.grid(axis="y", linewidth=0.3)
    low, high = ax.get_xlim()
    ax.set_xlim(min(low, 0), high)


# --- words ---------------------------------------------------------------------------------------


def caption(
    frame: pd.DataFrame, usual: Mapping[str, Any], gained: pd.DataFrame, groups: pd.DataFrame
) -> str:
    return f"""
{EXPLORATORY} Does the gain of γ = {SMALL:g} depend on the rest of the
recipe ({size_words(frame, usual)})? A: L({USUAL:g}) − L({SMALL:g}), positive where γ = {SMALL:g} is
better, under one change at a time, with 95 % t intervals over seeds where two have both γ. Each γ
keeps the rate calibrated for it with the recipe unchanged (dashed), so a change that moves the best
rate is not answered by a new one. {change_words(gained)} {group_words(groups)}
""".strip().replace("\n", " ")


def change_words(gained: pd.DataFrame) -> str:
    reference = gained[gained["change"] == UNCHANGED]
    others = gained[gained["change"] != UNCHANGED]
    said = [f"{row.change} {signed(row.gain)} ({limits_of(row)})" for row in rows_of(others)]
    unchanged = "".join(f"Unchanged: {signed(row.gain)} ({limits_of(row)}). "
                        for row in rows_of(reference))  # fmt: skip
    if not said:
        return unchanged + "No change of the recipe was run with both γ."
    above = int((others["gain"] > 0).sum())
    return (
        f"{unchanged}The difference is positive under {above} of {len(others)} changes, whose runs "
        f"share seeds and data and are no independent trials: {'; '.join(said)}."
    )


def group_words(groups: pd.DataFrame) -> str:
    if groups.empty:
        return "B: no group of weights was run alone."
    said = [f"{row.group} {signed(row.gain)} ({limits_of(row)})" for row in rows_of(groups)]
    text = (
        f"B: what is gained where one group of weights starts at γ = {SMALL:g} and the rest at "
        f"{USUAL:g}, at the rate of γ = {USUAL:g}; the dashed row has all of them at {SMALL:g}, at "
        f"its own rate: {'; '.join(said)}."
    )
    alone = groups[groups["group"] != f"all at γ = {SMALL:g}"]
    return f"{text} The gains of the {len(alone)} groups add up to {signed(alone['gain'].sum())}."


if __name__ == "__main__":
    main()
