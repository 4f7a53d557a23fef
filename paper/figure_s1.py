"""Figure S1: learning-rate calibration, loss against peak rate per γ, variant and width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from paper.shared.runs import load, published, table, unique_in_order
from paper.shared.style import (
    PAGE,
    gamma_look,
    panel_titles,
    plt,
    run_script,
    save_figure,
    size_axis,
)
from small_init.runs.table import demand_one_arm_each
from small_init.stats.fits import log_minimum

NAME = "figure-s1"


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    frame = table(runs)
    demand_one_arm_each(frame, ["variant", "d_model", "gamma", "lr"], NAME)
    optima = [
        optimum(curve) for _, curve in frame.groupby(["variant", "d_model", "gamma"], sort=False)
    ]
    cells = unique_in_order(zip(frame["d_model"], frame["variant"], strict=True))
    cells.sort(key=lambda cell: cell[0])  # a row of panels per width; variants keep their order

    across = min(len(cells), 2)
    lines = -(-len(cells) // across)
    fig, grid = plt.subplots(lines, across, figsize=(PAGE, 2.6 * lines), squeeze=False)
    axes = list(grid.flat)
    for spare in axes[len(cells) :]:
        spare.remove()
    for ax, (width, variant) in zip(axes, cells, strict=False):
        draw(ax, frame, [o for o in optima if (o["d_model"], o["variant"]) == (width, variant)])
    panel_titles(axes[: len(cells)], [f"{variant}, d = {width}" for width, variant in cells])
    columns = ["variant", "d_model", "gamma", "lr", "seed", "val_loss"]
    rows = published(frame[columns]).assign(kind="run")
    data = pd.concat([rows, pd.DataFrame(optima)], ignore_index=True)
    return save_figure(fig, NAME, data, runs, caption(optima))


def optimum(curve: pd.DataFrame) -> dict[str, Any]:
    """The vertex in ln(rate) of one γ's mean losses, or the best rate where that is an edge."""
    mean = curve.groupby("lr")["val_loss"].mean()
    found = log_minimum(mean.index.tolist(), mean.tolist())
    first = curve.iloc[0]
    return {
        "kind": "optimum",
        **{key: first[key] for key in ("variant", "d_model", "gamma")},
        "lr": found.x,
        "loss": found.y,
        "edge": found.edge,
    }


def draw(ax: Axes, frame: pd.DataFrame, optima: list[dict[str, Any]]) -> None:
    """Every seed a point; a large marker at the optimum, open where the grid ends there."""
    ax.set_xscale("log")
    rates: set[float] = set()
    for found in optima:
        curve = frame.merge(pd.DataFrame([found])[["variant", "d_model", "gamma"]])
        style = gamma_look(found["gamma"])
        color = style["color"]
        mean = curve.groupby("lr")["val_loss"].mean()
        label = f"γ = {found['gamma']:g}" + (" (edge)" if found["edge"] else "")
        ax.plot(mean.index, mean, color=color, linestyle=style["linestyle"])
        ax.plot(curve["lr"], curve["val_loss"], style["marker"], color=color, markersize=3)
        face = "white" if found["edge"] else color
        ax.plot(found["lr"], found["loss"], style["marker"], color=color, markerfacecolor=face,
                markersize=8, markeredgewidth=1.2, alpha=0.9)  # fmt: skip
        ax.plot([], [], **{**style, "markerfacecolor": face}, label=label)
        rates |= set(curve["lr"])
    size_axis(ax.xaxis, sorted(rates))
    ax.set_xticklabels([f"{rate:g}" for rate in sorted(rates)])
    ax.margins(x=0.08)
    ax.set_xlabel("peak learning rate")
    ax.set_ylabel("validation loss (nats per token)")
    ax.legend(title="large: optimum", title_fontsize=6.5)


def caption(optima: list[dict[str, Any]]) -> str:
    edges = [o for o in optima if o["edge"]]
    listed = "; ".join(
        f"{o['variant']}, d = {o['d_model']}, γ = {o['gamma']:g}: "
        + (f"{o['lr']:.2g} (edge)" if o["edge"] else f"{o['lr']:.2g}")
        for o in optima
    )
    warning = (
        f"{len(edges)} of {len(optima)} optima lie at an edge of the grid and may lie beyond it."
        if edges
        else f"None of the {len(optima)} optima lies at an edge of the grid."
    )
    return f"""
Final validation loss against the peak learning rate; small markers are seeds, lines join the means,
large markers are the optima (vertex of the parabola in ln(rate) through the best rate and its two
neighbours; open: the best rate is the first or last of the grid). Optima: {listed}. {warning}
""".strip().replace("\n", " ")


if __name__ == "__main__":
    main()
