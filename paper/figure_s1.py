"""Figure S1: learning-rate calibration, loss against peak rate per γ and condition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from paper.shared.runs import unique_in_order
from paper.shared.style import (
    PAGE,
    gamma_look,
    panel_titles,
    plt,
    run_script,
    save_figure,
    size_axis,
)
from small_init.claims.calibration import MIN_RATES, Grid, grids, noise_of
from small_init.errors import UserError
from small_init.runs.experiments import read_profile
from small_init.runs.record import load_runs
from small_init.stats.vertex import Vertex

NAME = "figure-s1"
READS = ("configs/profiles",)
ACROSS = 3  # panels in a row


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = [run for run in load_runs(NAME) if run.pilot]
    if not runs:
        raise UserError(f"{NAME} has no pilot run; name its arms in configs/experiments/.")
    profile = runs[0].metrics.profile
    found = grids(runs, profile, read_profile(profile).width_ratio)
    if not found:
        raise UserError(f"{NAME} needs one condition with {MIN_RATES} learning rates at least.")
    noise = noise_of(found)
    best = [grid.vertex(noise) for grid in found]
    labels = unique_in_order(grid.label for grid in found)

    across = min(len(labels), ACROSS)
    lines = -(-len(labels) // across)
    fig, axes = plt.subplots(lines, across, figsize=(PAGE, 2.1 * lines), squeeze=False)
    panels = list(axes.flat)
    for spare in panels[len(labels) :]:
        spare.remove()
    for place, (ax, label) in enumerate(zip(panels, labels, strict=False)):
        own = [pair for pair in zip(found, best, strict=True) if pair[0].label == label]
        draw(ax, own)
        if place % across == 0:
            ax.set_ylabel("validation loss (nats)")
        if place + across >= len(labels):
            ax.set_xlabel("peak learning rate")
    panel_titles(panels[: len(labels)], [words(label) for label in labels])
    return save_figure(fig, NAME, numbers(found, best), runs, caption(found, best, noise))


def words(label: str) -> str:
    """`d64-adjusted-qk-norm-true` as a title."""
    size, _, rest = label.partition("-")
    return f"{size.replace('d', 'd = ')}, {rest.replace('-true', '').replace('-', ' ')}"


def numbers(found: Sequence[Grid], best: Sequence[Vertex]) -> pd.DataFrame:
    """A row for every run, and one for every optimum."""
    rows: list[dict[str, Any]] = []
    for grid, vertex in zip(found, best, strict=True):
        place = {"condition": grid.label, "gamma": grid.gamma, "tokens": grid.tokens}
        for rate in grid.rates:
            for seed, loss in sorted(grid.losses[rate].items()):
                rows.append({"kind": "run", **place, "lr": rate, "seed": seed, "loss": loss})
        rows.append(
            {
                "kind": "optimum", **place, "lr": vertex.x, "loss": vertex.y, "edge": vertex.edge,
                "curvature": vertex.curvature, "error": vertex.error, "miss": vertex.miss,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def draw(ax: Axes, own: Sequence[tuple[Grid, Vertex]]) -> None:
    """Every seed a point, the means joined; a large marker at the optimum with its standard error,
    open where the grid ends there."""
    ax.set_xscale("log")
    for grid, best in own:
        style = gamma_look(grid.gamma)
        color = style["color"]
        for rate in grid.rates:
            losses = list(grid.losses[rate].values())
            ax.plot([rate] * len(losses), losses, style["marker"], color=color, markersize=3)
        means = np.array(list(grid.by_seed().values())).mean(0)
        ax.plot(grid.rates, means, color=color, linestyle=style["linestyle"])
        face = "white" if best.edge else color
        if best.error is not None:
            span = [best.x * math.exp(sign * best.error) for sign in (-1, 1)]
            ax.plot(span, [best.y] * 2, color=color, linewidth=1)
        ax.plot(best.x, best.y, style["marker"], color=color, markerfacecolor=face,
                markersize=8, markeredgewidth=1.2, alpha=0.9)  # fmt: skip
        label = f"γ = {grid.gamma:.3g}" + (" (edge)" if best.edge else "")
        ax.plot([], [], **{**style, "markerfacecolor": face}, label=label)
    rates = sorted({rate for grid, _ in own for rate in grid.rates})
    size_axis(ax.xaxis, rates)
    ax.set_xticklabels([f"{rate:g}" for rate in rates])
    ax.margins(x=0.08)
    ax.legend(fontsize=6)


def caption(found: Sequence[Grid], best: Sequence[Vertex], noise: float | None) -> str:
    edges = [grid for grid, vertex in zip(found, best, strict=True) if vertex.edge]
    misses = [vertex.miss for vertex in best if vertex.miss is not None]
    opening = (
        f"Every one of the {len(found)} best rates lies inside its grid."
        if not edges
        else f"{len(edges)} of {len(found)} best rates lie at an edge of their grid and may lie "
        "beyond it: " + "; ".join(f"{g.label}, γ = {g.gamma:.3g}" for g in edges) + "."
    )
    strays = (
        f"One run strays from its curve by {noise:.4f} nats (pooled over the grids with two seeds)"
        if noise is not None
        else "No grid has two seeds, so the error of an optimum is not known"
    )
    costs = (
        f"; an optimum as uncertain as that makes it is expected to cost {max(misses):.4f} nats at "
        f"most, and {sorted(misses)[len(misses) // 2]:.4f} in the middle."
        if misses
        else "."
    )
    tokens = sorted({grid.tokens for grid in found})
    lengths = " and ".join(f"{count / 1e6:.3g}M" for count in tokens)
    return f"""
{opening} Final validation loss against the peak learning rate, runs of {lengths} tokens on pilot
seeds; small markers are seeds, lines join the means. Large markers are the optima, with their
standard error: the vertex of the parabola in ln(rate) through the best rate and its two neighbours
(open: the best rate is the first or last of the grid). {strays}{costs}
""".strip().replace("\n", " ")


if __name__ == "__main__":
    main()
