"""The panels of Figure 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from paper.figure_4.numbers import CURVE, seed_table
from paper.shared.runs import unique_in_order
from paper.shared.style import gamma_look, look, size_axis


def width_look(widths: list[int], width: int) -> dict[str, Any]:
    return look((4, 2, 3, 5, 1, 6, 0)[widths.index(width) % 7])


def draw_losses(
    ax: Axes, curves: list[pd.DataFrame], minima: list[dict[str, Any]], widths: list[int]
) -> None:
    """Colour and marker tell the width; filled and solid is the first variant, open another."""
    first = curves[0]["variant"].iloc[0]
    looks = []
    for curve in curves:
        variant, width = curve["variant"].iloc[0], curve["d_model"].iloc[0]
        style = width_look(widths, width)
        mine = variant == first
        looks.append(
            {
                "color": style["color"],
                "marker": style["marker"],
                "markerfacecolor": style["color"] if mine else "white",
                "linestyle": "-" if mine else "--",
                "label": f"{variant}, d = {width}",
            }
        )
    loss_curves(ax, curves, looks, minima)


def draw_contexts(ax: Axes, curves: list[pd.DataFrame], minima: list[dict[str, Any]]) -> None:
    """Marker and line tell T; a loss is over windows of the run's own T."""
    curves = sorted(curves, key=lambda curve: curve["context"].iloc[0])
    looks = []
    for index, curve in enumerate(curves):
        style = look((2, 4, 3, 5, 1, 6, 0)[index % 7])
        label = f"{curve['variant'].iloc[0]}, d = {curve['d_model'].iloc[0]}, "
        looks.append(style | {"label": f"{label}T = {curve['context'].iloc[0]}"})
    loss_curves(ax, curves, looks, minima)


def loss_curves(
    ax: Axes,
    curves: list[pd.DataFrame],
    looks: list[dict[str, Any]],
    minima: list[dict[str, Any]],
) -> None:
    vertices = {tuple(m[name] for name in CURVE): m for m in minima if not m["edge"]}
    drawn = False
    for index, (curve, style) in enumerate(zip(curves, looks, strict=True)):
        mean = seed_table(curve).mean()
        point = {k: v for k, v in style.items() if k != "label"} | {"linestyle": "none"}
        ax.plot(mean.index, mean - mean.min(), color=style["color"], linestyle=style["linestyle"])
        aside = 0.02 * (index - (len(curves) - 1) / 2)  # so that no seed hides another
        ax.plot(curve["gamma"] + aside, curve["val_loss"] - mean.min(),
                **point | {"markersize": 2.5, "markeredgewidth": 0.7})  # fmt: skip
        ax.plot([], [], **style)
        if found := vertices.get(tuple(curve[name].iloc[0] for name in CURVE)):
            depth = found["loss"] - mean.min()
            color = style["color"]
            ax.plot(found["gamma"], depth, "|", color=color, markersize=16, markeredgewidth=1.6)
            drawn = True
    if drawn:
        ax.plot([], [], "|", color="0.3", markersize=9, label="vertex of the parabola")
    ax.set_xlabel("γ")
    ax.set_ylabel("loss − lowest (nats per token)")
    ax.legend()


def draw_attention(ax: Axes, flows: pd.DataFrame, widths: list[int]) -> None:
    """Measured at one position and at the whole context; lines are theory at step 0, else means."""
    context = int(flows["context"].iloc[0])
    many = flows["variant"].nunique() > 1
    for variant in unique_in_order(flows["variant"]):
        for width in widths:
            cell = flows[(flows["d_model"] == width) & (flows["variant"] == variant)]
            style = width_look(widths, width)
            for column, line, face, length in (
                ("attention_single", "-", style["color"], 1),
                ("attention", "--", "white", context),
            ):
                name = f"d = {width}, T = {length}"
                label = f"{variant}, {name}" if many else name
                flow_curve(ax, cell, column, style | {"markerfacecolor": face, "label": label,
                                                      "linestyle": line})  # fmt: skip
    reference(ax, flows, r"$d^{1-\gamma}$", lambda d, gamma: d ** (1 - gamma))
    flow_axes(ax, flows)


def draw_mlp(ax: Axes, flows: pd.DataFrame, widths: list[int], variants: list[str]) -> None:
    for variant, width in unique_in_order(zip(flows["variant"], flows["d_model"], strict=True)):
        cell = flows[(flows["variant"] == variant) & (flows["d_model"] == width)]
        style = width_look(widths, width)
        line, face = ("-", style["color"]) if variant == variants[0] else ("--", "white")
        label = f"{variant}, d = {width}"
        flow_curve(ax, cell, "mlp", style | {"markerfacecolor": face, "label": label,
                                             "linestyle": line})  # fmt: skip
    reference(ax, flows, r"$d^{3/2-2\gamma}$", lambda d, gamma: d ** (1.5 - 2 * gamma))
    flow_axes(ax, flows)


def flow_curve(ax: Axes, cell: pd.DataFrame, column: str, style: dict[str, Any]) -> None:
    """Every seed a point; the line is theory where there is one, and else joins the means."""
    if cell.empty:
        return
    mean = cell.groupby("gamma").mean(numeric_only=True)
    theory = f"{column}_theory"
    told = theory in mean and mean[theory].notna().all()
    line = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 0.9}
    ax.plot(mean.index, mean[theory if told else column], **line)
    ax.plot(cell["gamma"], cell[column], **style | {"linestyle": "none", "label": None})
    ax.plot([], [], **style)


def reference(
    ax: Axes, flows: pd.DataFrame, formula: str, of: Callable[[float, float], float]
) -> None:
    """The bare power law, without the factors that theory.py adds."""
    width, gammas = int(flows["d_model"].max()), sorted(set(flows["gamma"]))
    label = f"{formula} alone, d = {width}"
    ax.plot(gammas, [of(width, g) for g in gammas], ":", color="0.4", linewidth=1.2, label=label)


def flow_axes(ax: Axes, flows: pd.DataFrame) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.axhline(1, color="0.6", linewidth=0.6, zorder=0)
    ax.set_xlabel("γ")
    first = flows["step"].max() == 0
    ax.set_ylabel(f"residual flow at {'step 0' if first else 'the end'}")
    low, high = ax.get_ylim()
    ax.set_ylim(low * (low / high) ** (0.3 if first else 0.7), high)  # room for the legend
    title = "points measured, lines theory" if first else "points measured, lines their means"
    size = 6.5 if first else 5.5  # more curves end than start within a panel
    ax.legend(loc="lower left", title=title, title_fontsize=6.5, alignment="left", borderpad=0,
              ncols=2, fontsize=size, columnspacing=0.8, handlelength=2)  # fmt: skip


def draw_windows(ax: Axes, windows: pd.DataFrame) -> None:
    """At step 0 with theory as lines; after training open points, joined thinly."""
    last = windows["step"].max()
    for gamma in sorted(set(windows["gamma"])):
        cell = windows[windows["gamma"] == gamma]
        style = gamma_look(gamma)
        start, end = (cell[cell["step"] == step].groupby("window") for step in (0, last))
        theory = start["attention_theory"].mean()
        ax.plot(theory.index, theory, color=style["color"], linestyle=style["linestyle"])
        points = cell[cell["step"] == 0]
        ax.plot(points["window"], points["attention"], style["marker"], color=style["color"])
        mean = end["attention"].mean()
        ax.plot(mean.index, mean, style["marker"], color=style["color"], markerfacecolor="white",
                markersize=3, linestyle="-", linewidth=0.4)  # fmt: skip
        ax.plot([], [], **style, label=f"γ = {gamma:g}")
    ax.plot([], [], "o", color="0.3", markerfacecolor="white", markersize=3, linestyle="-",
            linewidth=0.4, label="after training")  # fmt: skip
    ax.set_xscale("log")
    size_axis(ax.xaxis, sorted(set(windows["window"])))
    ax.set_yscale("log")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.axhline(1, color="0.6", linewidth=0.6, zorder=0)
    ax.set_xlabel("T, tokens of a window")
    ax.set_ylabel("residual flow")
    low, high = ax.get_ylim()
    ax.set_ylim(low * (low / high) ** 0.4, high)
    ax.legend(loc="lower left", title="step 0: points measured, lines theory", title_fontsize=6.5,
              alignment="left", borderpad=0, ncols=3)  # fmt: skip
