"""The second page of Figure 8: learning rate × γ, and other ways to start, best against best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from paper.figure_8.numbers import (
    EXPLORATORY,
    VARIANT,
    empty_page,
    exploratory,
    rows_of,
    smallest_width,
)
from paper.figure_8.rates_numbers import (
    CURVE,
    alignment,
    best_of_each,
    excess,
    optimum,
    rate_grid,
    step_scale,
)
from paper.shared.runs import published
from paper.shared.style import (
    PAGE,
    gamma_look,
    limits,
    look,
    panel_titles,
    plt,
    save_figure,
    signed,
    size_axis,
)
from small_init.claims.gains import SMALL, USUAL
from small_init.config import Scheme
from small_init.runs.record import Run
from small_init.stats.intervals import paired_difference

SCHEME_LOOKS = {"fixed": 0, "gpt2": 1, "zero_out": 6}  # colours that no γ of this page has
EDGE = "at the edge of its grid"


def make_rates(name: str, runs: list[Run], frame: pd.DataFrame) -> Path:
    grid = rate_grid(frame, name)
    if grid.empty:
        return empty_page(name, runs, "No two learning rates of the recipe were run.")
    curves = [curve for _, curve in grid[grid["start"] == "gamma"].groupby(CURVE)]
    aligned = alignment(curves)
    starts = best_of_each(smallest_width(grid))
    fig, grid_of_axes = plt.subplots(2, 2, figsize=(PAGE, 5.2))
    plain, relative, losses, best = axes = list(grid_of_axes.flat)
    draw_excess(plain, curves, power=0)
    draw_excess(relative, curves, power=1)
    relative.sharey(plain)
    plain.legend(fontsize=6, loc="upper right")
    draw_losses(losses, smallest_width(grid), starts)
    draw_best(best, starts)
    width = grid["d_model"].min()
    panel_titles(
        axes,
        ["loss against the rate", "loss against rate · d$^γ$", f"other starts, d = {width}",
         "best against best"],
    )  # fmt: skip
    exploratory(fig)
    columns = ["arm", "seed", *CURVE, "lr", "val_loss"]
    data = pd.concat(
        [
            published(grid[columns]).assign(kind="run"),
            pd.DataFrame([aligned]).assign(kind="alignment"),
            starts.drop(columns="by_seed").assign(kind="best"),
        ],
        ignore_index=True,
    )
    data = data[["kind", *data.columns.drop("kind")]]
    shown = [run for run in runs if run.arm in set(grid["arm"])]
    small = small_as(shown)
    return save_figure(fig, name, data, shown, caption(grid, curves, aligned, starts, small))


# --- drawing -------------------------------------------------------------------------------------


def draw_excess(ax: Axes, curves: list[pd.DataFrame], power: int) -> None:
    """Colour tells γ, a filled marker the smallest width, an open one a larger."""
    ax.set_xscale("log")
    smallest = min(curve["d_model"].iloc[0] for curve in curves)
    rates = set()
    for curve in curves:
        first = curve.iloc[0]
        style = gamma_look(first["gamma"])
        larger = first["d_model"] > smallest
        over = excess(curve)
        rates |= set(over.index)
        ax.plot(over.index * step_scale(curve) ** power, over,
                **style | {"linestyle": "--" if larger else "-"},
                markerfacecolor="white" if larger else style["color"],
                label=f"γ = {first['gamma']:g}, d = {first['d_model']}")  # fmt: skip
    if power == 0:
        rate_axis(ax, rates)
    ax.set_xlabel("peak learning rate · d$^γ$" if power else "peak learning rate")
    ax.set_ylabel("loss over the curve's lowest (nats)")


def rate_axis(ax: Axes, rates: set[float]) -> None:
    size_axis(ax.xaxis, sorted(rates))
    ax.set_xticklabels([f"{rate:g}" for rate in sorted(rates)])
    ax.margins(x=0.08)


def start_look(row: Mapping[Any, Any]) -> dict[str, Any]:
    if row["start"] == "gamma":
        return gamma_look(row["gamma"])
    return look(SCHEME_LOOKS.get(row["start"], 3))


def draw_losses(ax: Axes, grid: pd.DataFrame, starts: pd.DataFrame) -> None:
    """Every seed a point, the lines join the means."""
    ax.set_xscale("log")
    for row in starts.to_dict("records"):
        cell = grid[(grid["start"] == row["start"]) & (grid["gamma"] == row["gamma"])]
        style = start_look(row)
        mean = cell.groupby("lr")["val_loss"].mean()
        ax.plot(mean.index, mean, color=style["color"], linestyle=style["linestyle"])
        ax.plot(cell["lr"], cell["val_loss"], style["marker"], color=style["color"], markersize=4)
        ax.plot([], [], **style, label=row["said"])
    rate_axis(ax, set(grid["lr"]))
    ax.set_xlabel("peak learning rate")
    ax.set_ylabel("validation loss (nats per token)")
    ax.legend(fontsize=6)


def draw_best(ax: Axes, starts: pd.DataFrame) -> None:
    """The loss at the best rate: seeds small, their mean large, open at an edge of the grid."""
    for place, row in enumerate(starts.to_dict("records")):
        style = start_look(row)
        ax.plot(list(row["by_seed"].values()), [place] * len(row["by_seed"]), style["marker"],
                color=style["color"], markersize=3)  # fmt: skip
        ax.plot(row["loss"], place, style["marker"], color=style["color"], markersize=8,
                markerfacecolor="white" if row["edge"] else style["color"])  # fmt: skip
    ax.set_yticks(range(len(starts)),
                  [f"{row.said}\nat {row.lr:.2g}" for row in rows_of(starts)])  # fmt: skip
    ax.set_ylim(len(starts) - 0.5, -0.5)
    ax.grid(axis="y", linewidth=0.3)
    ax.margins(x=0.1)
    ax.set_xlabel("lowest validation loss (nats per token)")


# --- words ---------------------------------------------------------------------------------------


def caption(
    grid: pd.DataFrame, curves: list[pd.DataFrame], aligned: dict[str, float],
    starts: pd.DataFrame, small: str,
) -> str:  # fmt: skip
    widths = ", ".join(str(d) for d in sorted(set(grid["d_model"])))
    return f"""
{EXPLORATORY} Learning rates, variant {VARIANT}, d = {widths}. A: mean
loss over the lowest of its own curve against the peak rate; filled: d = {grid["d_model"].min()}. B:
the same against rate · d^γ, the rate relative to the first weights: curves that collapse here would
mean that what γ changes is the relative step. {alignment_words(curves, aligned)} C: final loss on
the grid for the γ rule and for other ways to start{scheme_words(starts)}; every seed a point. D:
the best rate of each, as measured and not fitted (open: {EDGE}). {best_words(starts)}{small}
""".strip().replace("\n", " ")


def alignment_words(curves: list[pd.DataFrame], aligned: dict[str, float]) -> str:
    best = []
    for curve in curves:
        first, found = curve.iloc[0], optimum(curve)
        edge = " (edge)" if found.edge else ""
        best.append(f"γ = {first['gamma']:g}, d = {first['d_model']}: {found.x:.2g}{edge}")
    text = (
        f"Best rates (vertex of a parabola in ln(rate)): {'; '.join(best)}.{factor_words(curves)}"
    )
    if not aligned:
        return text + " One curve cannot collapse."
    return (
        f"{text} The standard deviation of ln(best rate) over the {len(curves)} curves is "
        f"{aligned['spread_rate']:.2f} for the rate, {aligned['spread_relative']:.2f} for rate · "
        f"d^γ; the points lie {aligned['residual_rate']:.3f} and "
        f"{aligned['residual_relative']:.3f} nats (rms) from one common parabola. Of rate · "
        f"d^(pγ), p = {signed(aligned['power'], 2)} brings the best rates together: 1 would be the "
        "relative step, 0 the rate itself."
    )


def factor_words(curves: list[pd.DataFrame]) -> str:
    """By how much the best rate changes from γ = 0.5 to 1 at the smallest width, and by how much it
    would at equal relative steps."""
    width = min(curve["d_model"].iloc[0] for curve in curves)
    rates = {float(curve["gamma"].iloc[0]): optimum(curve).x for curve in curves
             if curve["d_model"].iloc[0] == width}  # fmt: skip
    if not {USUAL, SMALL} <= set(rates):
        return ""
    return (
        f" From γ = {USUAL:g} to {SMALL:g} at d = {width} the best rate changes by a factor of "
        f"{rates[SMALL] / rates[USUAL]:.2f}; equal relative steps would ask for "
        f"{width ** (USUAL - SMALL):.2f}."
    )


def scheme_words(starts: pd.DataFrame) -> str:
    said = {
        "fixed": "fixed 0.02",
        "gpt2": "GPT-2's 0.02 with output projections smaller by √(2·layers)",
        "zero_out": f"output projections at zero and the rest at γ = {USUAL:g}",
    }
    present = [said.get(start, start) for start in starts["start"] if start != "gamma"]
    return f" ({'; '.join(present)})" if present else ""


def small_as(runs: list[Run]) -> str:
    """Which γ a fixed standard deviation is at this width: it may be a small start itself."""
    for run in runs:
        config = run.config
        if config.init.scheme is Scheme.fixed:
            width = config.model.d_model
            std = run.init["weights"]["embedding.weight"]["std_asked"]
            gamma = -math.log(std) / math.log(width)
            side = "smaller" if gamma > SMALL else "larger"
            return (
                f" At d = {width} a standard deviation of {std:g} is d^(−γ) with γ = {gamma:.2f}: "
                f"a start {side} than that of γ = {SMALL:g}."
            )
    return ""


def best_words(starts: pd.DataFrame) -> str:
    rows = starts.to_dict("records")
    small = next((r for r in rows if (r["start"], r["gamma"]) == ("gamma", SMALL)), None)
    said = []
    for row in rows:
        alone = f", {EDGE} of {row['rates']}" if row["rates"] > 1 else ", the only rate run"
        edge = alone if row["edge"] else ""
        text = f"{row['said']}: {row['loss']:.3f} at {row['lr']:.2g}{edge}"
        if small and row is not small:
            found = paired_difference(row["by_seed"], small["by_seed"])
            if found:
                bounds = limits(found.low, found.high, found.n)
                text += f" ({signed(found.estimate)} against γ = {SMALL:g}, {bounds})"
        said.append(text)
    others = "" if (starts["start"] != "gamma").any() else " No other start was run."
    return "; ".join(said) + "." + others
