"""Figure 1: loss against size for γ = 0.5 and 1 in each variant, and what γ = 1 gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from paper.shared.runs import load, published, table, unique_in_order
from paper.shared.style import (
    PAGE,
    gamma_look,
    limits,
    look,
    panel_titles,
    plt,
    run_script,
    save_figure,
    signed,
    size_axis,
)
from small_init.claims.contrasts.ladder import effective_sizes, gain_slopes
from small_init.claims.gains import SMALL, USUAL, PairedLosses
from small_init.errors import UserError
from small_init.runs.table import demand_one_arm_each
from small_init.stats.fits import MIN_FIT_SIZES, ScalingFit, fit_scaling
from small_init.stats.intervals import Interval, mean_interval

NAME = "figure-1"


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    frame = table(runs)
    frame = frame[frame["gamma"].isin([USUAL, SMALL])]
    if frame.empty:
        raise UserError(f"{NAME} compares γ = {USUAL:g} and {SMALL:g}; its index names neither.")
    demand_one_arm_each(frame, ["variant", "d_model", "gamma"], NAME)
    variants = unique_in_order(frame["variant"])
    losses = PairedLosses(runs)

    panels = len(variants) + 1
    fig, axes = plt.subplots(1, panels, figsize=(PAGE, 2.5), squeeze=False)
    axes = axes[0]
    for ax in axes[1:-1]:
        ax.sharey(axes[0])
    rows, notes = [], []
    for index, (variant, ax) in enumerate(zip(variants, axes, strict=False)):
        cell = frame[frame["variant"] == variant]
        gains = differences(losses, variant)
        fits = {gamma: fit(cell, gamma) for gamma in (USUAL, SMALL)}
        draw_losses(ax, cell, fits)
        draw_differences(axes[-1], gains, variant, index)
        rows += table_rows(cell, gains, fits)
        notes.append(note(variant, gain_slopes(losses, variant), gains, fits))
    axes[0].set_ylabel("validation loss (nats per token)")
    axes[-1].axhline(0, color="0.6", linewidth=0.6, zorder=0)
    axes[-1].set_ylabel(f"L({USUAL:g}) − L({SMALL:g}) (nats per token)")
    axes[-1].legend(loc="best")
    first = frame[frame["variant"] == variants[0]]
    size_axis(axes[-1].xaxis, sorted(set(first["parameters_non_embedding"])))
    for ax in axes:
        ax.set_xlabel("parameters without embeddings")
    panel_titles(axes, [*variants, f"gain of γ = {SMALL:g}"])
    return save_figure(fig, NAME, pd.DataFrame(rows), runs, caption(notes))


# --- numbers -------------------------------------------------------------------------------------


def differences(losses: PairedLosses, variant: str) -> list[dict[str, Any]]:
    """Per size that has a pair: Δ, and the effective size of γ = 1 against γ = 0.5 (claim C4)."""
    ratios = effective_sizes(losses, variant)
    return [
        {
            "size": losses.size(variant, width),
            "gain": mean_interval(gains.values()),
            "ratio": ratios[width],
        }
        for width in losses.widths(variant)
        if (gains := losses.gains(variant, width))
    ]


def fit(cell: pd.DataFrame, gamma: float) -> ScalingFit | None:
    arm = cell[cell["gamma"] == gamma]
    return fit_scaling(arm["parameters_non_embedding"].tolist(), arm["val_loss"].tolist())


# --- drawing -------------------------------------------------------------------------------------


def draw_losses(ax: Axes, cell: pd.DataFrame, fits: dict[float, ScalingFit | None]) -> None:
    """Every seed a point, the line through the means; the fit as a thin line where there is one."""
    ax.set_xscale("log")
    for gamma, aside in ((USUAL, 0.965), (SMALL, 1.035)):  # so that no seed hides another
        style = gamma_look(gamma)
        arm = cell[cell["gamma"] == gamma]
        mean = arm.groupby("parameters_non_embedding")["val_loss"].mean()
        ax.plot(mean.index, mean, color=style["color"], linestyle=style["linestyle"])
        ax.plot(
            arm["parameters_non_embedding"] * aside,
            arm["val_loss"],
            style["marker"],
            color=style["color"],
            markerfacecolor="white",
            markersize=3,
        )
        ax.plot([], [], **style, markerfacecolor="white", label=f"γ = {gamma:g}")
        if fitted := fits[gamma]:
            size = np.geomspace(mean.index.min(), mean.index.max(), 100)
            ax.plot(size, fitted(size), color=style["color"], linewidth=0.5, alpha=0.8)
    size_axis(ax.xaxis, unique_in_order(sorted(cell["parameters_non_embedding"])))
    ax.margins(x=0.12)
    ax.legend(loc="upper right")


def draw_differences(ax: Axes, gains: list[dict[str, Any]], variant: str, index: int) -> None:
    """The mean difference at each size with its interval; one seed has a point and no bar."""
    ax.set_xscale("log")
    style = look((5, 3, 1, 6, 0)[index % 5])  # not the colours of the two γ beside it
    sizes = [g["size"] for g in gains]
    estimates = [g["gain"].estimate for g in gains]
    ax.plot(sizes, estimates, **style, label=variant)
    for size, gain in zip(sizes, (g["gain"] for g in gains), strict=True):
        if gain.low is not None:
            ax.plot([size, size], [gain.low, gain.high], color=style["color"], linewidth=0.9)
    ax.margins(x=0.12)


# --- words ---------------------------------------------------------------------------------------


def table_rows(
    cell: pd.DataFrame,
    gains: list[dict[str, Any]],
    fits: dict[float, ScalingFit | None],
) -> list[dict[Any, Any]]:
    """What the CSV holds: `kind` says whether a row is a run, a difference or a fit."""
    keys = ["kind", "variant", "d_model", "gamma", "non_embedding", "seed", "loss"]
    rows: list[dict[Any, Any]] = published(cell).assign(kind="run")[keys].to_dict("records")
    variant = cell["variant"].iloc[0]
    for g in gains:
        ratio = g["ratio"].interval
        rows.append(
            {
                "kind": "difference",
                "variant": variant,
                "non_embedding": g["size"],
                "difference": g["gain"].estimate,
                "low": g["gain"].low,
                "high": g["gain"].high,
                "pairs": g["gain"].n,
                "size_ratio": ratio.estimate if ratio else None,
                "size_ratio_low": ratio.low if ratio else None,
                "size_ratio_high": ratio.high if ratio else None,
                "size_ratio_refused": g["ratio"].reason,
            }
        )
    for gamma, fitted in fits.items():
        if fitted:
            rows.append(
                {
                    "kind": "fit",
                    "variant": variant,
                    "gamma": gamma,
                    "fit_e": fitted.e,
                    "fit_a": fitted.a,
                    "fit_alpha": fitted.alpha,
                    "fit_rms_residual": fitted.rms_residual,
                    "fit_at_bound": fitted.at_bound,
                }
            )
    return rows


def note(
    variant: str,
    slopes: dict[int, float],  # seed → slope of Δ on ln N (claim C1)
    gains: list[dict[str, Any]],
    fits: dict[float, ScalingFit | None],
) -> str:
    """One variant in a paragraph."""
    text = f"*{variant}*: L({USUAL:g}) − L({SMALL:g}) is " + (
        "; ".join(
            f"{signed(g['gain'].estimate)} at N = {g['size']:,.0f} "
            f"({limits(g['gain'].low, g['gain'].high, g['gain'].n)})"
            for g in gains
        )
        or "not available, no seed is shared"
    )
    if slopes:
        slope = mean_interval(slopes.values())
        text += (
            f". Its slope on ln N is {signed(slope.estimate)} nats per e-fold "
            f"({limits(slope.low, slope.high, slope.n)})"
        )
    for g in gains:
        ratio = g["ratio"].interval
        text += f". Effective size at N = {g['size']:,.0f}: " + (
            f"N'/N − 1 = {signed(100 * (ratio.estimate - 1), 0)} %" + percent_limits(ratio)
            if ratio
            else f"refused, {g['ratio'].reason}"
        )
    exponents = [
        f"α = {f.alpha:.2f} at γ = {gamma:g}" + (" (not determined)" if f.at_bound else "")
        for gamma, f in fits.items()
        if f
    ]
    return text + (f". Fit E + A·N^(−α): {', '.join(exponents)}." if exponents else ".")


def percent_limits(ratio: Interval) -> str:
    if ratio.low is None or ratio.high is None:
        return f" (n = {ratio.n}: no interval)"
    return f" [{signed(100 * (ratio.low - 1), 0)}, {signed(100 * (ratio.high - 1), 0)}] %"


def caption(notes: list[str]) -> str:
    opening = f"""
Final validation loss against size, every seed a point (moved aside a little), the line through the
means; in the last panel the paired difference with its 95 % t interval over seeds, positive where
γ = {SMALL:g} is better. Effective size N': where the γ = {USUAL:g} losses, interpolated in ln N
seed by seed, reach the loss of γ = {SMALL:g}; never extrapolated. A thin line is the fit E +
A·N^(−α), drawn with at least {MIN_FIT_SIZES} sizes; it describes and predicts nothing.
""".strip().replace("\n", " ")
    return "\n\n".join([opening, *notes])


if __name__ == "__main__":
    main()
