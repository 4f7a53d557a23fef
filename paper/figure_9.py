"""Figure 9: the best standard deviation against the width: the rule, or just a small number?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from paper.shared.runs import load, published, table
from paper.shared.style import (
    PAGE,
    limits,
    look,
    panel_titles,
    plt,
    run_script,
    save_figure,
    size_axis,
)
from small_init.claims.contrasts.best_std import VARIANT, best_stds
from small_init.claims.gains import PairedLosses, of_one_context, of_the_rule
from small_init.model.init import FIXED_STD
from small_init.runs.record import Run
from small_init.stats.best_scale import BestStd, exponent
from small_init.stats.intervals import Estimate

NAME = "figure-9"
LOOKS = (4, 2, 3, 5, 6)  # of `look`, by width
DEFAULTS = "gpt2", "fixed"
MARKERS = {"fixed": "x", "gpt2": "+"}


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    rule = of_one_context(of_the_rule(runs))
    best = best_stds(PairedLosses(rule))
    gamma = exponent(best)
    frame = table(run for run in rule if run.config.variant == VARIANT)
    frame["std"] = frame["d_model"] ** -frame["gamma"]
    rivals = rival_table(runs)

    fig, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 3.0), width_ratios=(1.25, 1))
    draw_losses(left, frame, best, rivals)
    draw_exponent(right, best, gamma)
    panel_titles([left, right], ["loss against the weights' standard deviation", "the best one"])
    return save_figure(fig, NAME, numbers(frame, rivals, best, gamma), runs,
                       caption(frame, best, gamma, rivals))  # fmt: skip


# --- numbers -------------------------------------------------------------------------------------


def rival_table(runs: Sequence[Run]) -> pd.DataFrame:
    """The runs of stronger baselines: width, seed, loss and the scheme's name."""
    mine = [run for run in runs if run.config.init.scheme.value in DEFAULTS]
    if not mine:
        return pd.DataFrame(columns=["d_model", "seed", "val_loss", "scheme", "std"])
    frame = table(mine)
    scheme = {run.arm: run.config.init.scheme.value for run in mine}
    return frame.assign(scheme=frame["arm"].map(scheme), std=FIXED_STD)


def numbers(
    frame: pd.DataFrame, rivals: pd.DataFrame, best: Sequence[BestStd], gamma: Estimate | None
) -> pd.DataFrame:
    columns = ["d_model", "gamma", "std", "lr", "seed", "val_loss"]
    parts = [published(frame[columns]).assign(kind="run")]
    if len(rivals):
        parts.append(published(rivals[["d_model", "scheme", "std", "lr", "seed", "val_loss"]])
                     .assign(kind="baseline"))  # fmt: skip
    rows: list[dict[str, Any]] = [
        {
            "kind": "best", "d_model": b.width, "std": b.std, "loss": b.loss, "edge": b.edge,
            "log_error": b.error, "seeds": b.n,
        }
        for b in best
    ]  # fmt: skip
    if gamma is not None:
        interval = gamma.interval()
        rows.append({"kind": "exponent", "estimate": gamma.value, "low": interval.low,
                     "high": interval.high, "freedom": gamma.freedom})  # fmt: skip
    return pd.concat([*parts, pd.DataFrame(rows)], ignore_index=True)


def span_of(best: BestStd) -> tuple[float, float] | None:
    """The 95 % interval of σ* over seeds."""
    if best.error is None:
        return None
    interval = Estimate(math.log(best.std), best.error, best.n - 1, best.n).interval()
    assert interval.low is not None
    assert interval.high is not None
    return math.exp(interval.low), math.exp(interval.high)


# --- drawing -------------------------------------------------------------------------------------


def draw_losses(
    ax: Axes, frame: pd.DataFrame, best: Sequence[BestStd], rivals: pd.DataFrame
) -> None:
    """Every seed a point, the means joined; a bar at the vertex with its interval. Losses are above
    the lowest mean of their width."""
    ax.set_xscale("log")
    widths = sorted(set(frame["d_model"]))
    vertices = {b.width: b for b in best}
    for index, width in enumerate(widths):
        style = look(LOOKS[index % len(LOOKS)])
        own = frame[frame["d_model"] == width]
        color = style["color"]
        mean = own.groupby("std")["val_loss"].mean()
        base = mean.min()
        ax.plot(own["std"], own["val_loss"] - base, style["marker"], color=color, markersize=2.5)
        ax.plot(mean.index, mean - base, color=color, linestyle=style["linestyle"])
        ax.plot([], [], **style, label=f"d = {width}")
        if (found := vertices.get(width)) is not None:
            low, high = span_of(found) or (found.std, found.std)
            ax.plot([low, high], [found.loss - base] * 2, color=color, linewidth=3, alpha=0.4)
            ax.plot(
                found.std, found.loss - base, "|", color=color, markersize=14, markeredgewidth=1.6
            )
        for scheme, group in rivals[rivals["d_model"] == width].groupby("scheme"):
            ax.plot(group["std"], group["val_loss"] - base, MARKERS[str(scheme)], color=color,
                    markersize=5, markeredgewidth=1.1)  # fmt: skip
    for scheme, word in (("fixed", "0.02 everywhere"), ("gpt2", "GPT-2")):
        if scheme in set(rivals["scheme"]):
            ax.plot([], [], MARKERS[scheme], color="0.3", label=word)
    ax.plot([], [], "|", color="0.3", markersize=9, label="best, interval")
    ax.axvline(FIXED_STD, color="0.7", linewidth=0.8, zorder=0)
    ax.annotate("0.02", (FIXED_STD, 1), xycoords=("data", "axes fraction"), xytext=(2, -2),
                textcoords="offset points", va="top", size=6, color="0.4")  # fmt: skip
    ax.set_xlabel(r"$\sigma = d^{-\gamma}$")
    ax.set_ylabel("loss − lowest of its width (nats per token)")
    ax.legend(fontsize=6, loc="upper left")


def draw_exponent(ax: Axes, best: Sequence[BestStd], gamma: Estimate | None) -> None:
    """σ* by width, open where it is the edge of its grid, between the lines of three rules."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    widths = [b.width for b in best] or [1]
    span = [min(widths) * 0.85, max(widths) * 1.18]
    for label, rule, style in (
        (r"$d^{-1}$", lambda d: 1 / d, look(4)),
        (r"$d^{-1/2}$", lambda d: d**-0.5, look(2)),
        ("0.02", lambda d: FIXED_STD, look(0)),
    ):
        ax.plot(span, [rule(d) for d in span], color=style["color"],
                linestyle=style["linestyle"], linewidth=0.9, label=label)  # fmt: skip
    for b in best:
        if (found := span_of(b)) is not None:
            ax.plot([b.width] * 2, found, color="0.2", linewidth=1)
        face = "white" if b.edge else "0.2"
        ax.plot(b.width, b.std, "o", color="0.2", markerfacecolor=face, markersize=5)
    ax.plot([], [], "o", color="0.2", label="best σ (95 %)")
    if gamma is not None:
        middle = math.exp(sum(math.log(b.width) for b in best) / len(best))
        level = math.exp(sum(math.log(b.std) for b in best) / len(best))
        ax.plot(span, [level * (d / middle) ** -gamma.value for d in span], color="0.2",
                linewidth=0.8, label=f"fit, γ* = {gamma.value:.2f}")  # fmt: skip
    size_axis(ax.xaxis, widths)
    ax.set_xlabel("width d")
    ax.set_ylabel("σ")
    ax.legend(fontsize=6)


# --- words ---------------------------------------------------------------------------------------


def caption(
    frame: pd.DataFrame, best: Sequence[BestStd], gamma: Estimate | None, rivals: pd.DataFrame
) -> str:
    where = "; ".join(
        f"d = {b.width}: {b.std:.4f} (γ = {-math.log(b.std) / math.log(b.width):.2f}"
        + (", an edge of the grid)" if b.edge else f", n = {b.n})")
        for b in best
    )
    if gamma is None:
        edges = any(b.edge for b in best)
        reason = (
            "some best σ lies at an edge of its grid" if edges
            else "it takes two widths and two seeds at each"
        )  # fmt: skip
        opening = f"How the best σ moves with the width cannot be said: {reason}."
    else:
        interval = gamma.interval()
        opening = (
            f"The best σ falls with the width as d to the power of −γ*, γ* = {gamma.value:.2f} "
            f"{limits(interval.low, interval.high, interval.n, 2)}: the rule of γ = 1 says 1, the "
            "usual one 0.5, a constant 0."
        )
    beside = " Crosses: a fixed 0.02 and GPT-2's start, at their own rates." if len(rivals) else ""
    return f"""
{opening} Variant {VARIANT}; γ is chosen so that d^(−γ), the standard deviation of the weights with
fan-in d, takes the same values at every width (other fan-ins follow their own γ rule); each at its
own learning rate. A: losses above the lowest mean of their width, every seed a point, means joined,
a bar at the vertex of the parabola through the lowest mean and its two neighbours in ln σ, with its
interval over seeds (jackknife).{beside} B: that vertex against the width, between three rules. Best
σ: {where}.
""".strip().replace("\n", " ")


if __name__ == "__main__":
    main()
