"""Figure 7: does γ = 1 serve a mixture of experts as it does a dense model, and are its experts
used evenly?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from paper.figure_7.numbers import MODELS, at_end, gains, losses, model_of, routing, stable_ranks
from paper.shared.runs import load, published, unique_in_order
from paper.shared.style import (
    PAGE,
    gamma_look,
    limits,
    look,
    panel_titles,
    plt,
    room_above,
    run_script,
    save_figure,
    signed,
    step_axis,
)
from small_init.claims.gains import SMALL, USUAL
from small_init.runs.record import Run

NAME = "figure-7"
GAMMAS = (USUAL, SMALL)
LINES = {"mixture": "-", "dense": "--"}


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    frame = losses(runs, NAME)
    shown = unique_in_order(frame["arm"])
    runs = sorted((run for run in runs if run.arm in shown), key=lambda run: shown.index(run.arm))
    mixtures = [run for run in runs if model_of(run) == "mixture"]
    variants = [v for v in unique_in_order(frame["variant"])
                if v in {run.config.variant for run in mixtures}]  # fmt: skip
    gained = gains(frame)
    routed = pd.concat([routing(run) for run in mixtures], ignore_index=True)
    ranks = pd.concat([stable_ranks(run) for run in runs], ignore_index=True)
    experts = mixtures[0].config.model.n_experts

    rows: list[Any] = [["losses"] * 3 + ["gains"] * 3]
    rows += [[f"{what} {v}" for what in ("load", "entropy", "rank") for _ in "12"]
             for v in variants]  # fmt: skip
    fig, axes = plt.subplot_mosaic(rows, figsize=(PAGE, 2.4 + 2.0 * len(variants)))
    draw_losses(axes["losses"], frame)
    draw_gains(axes["gains"], gained)
    titles = ["final loss", f"gain of γ = {SMALL:g}"]
    last = int(routed["step"].max())
    for variant in variants:
        of_variant = routed[routed["variant"] == variant]
        draw_load(axes[f"load {variant}"], of_variant)
        draw_entropy(axes[f"entropy {variant}"], of_variant, experts)
        draw_ranks(axes[f"rank {variant}"], ranks[ranks["variant"] == variant])
        titles += [f"{variant}: {what}" for what in ("load", "router", "experts' rank")]
        for what in ("load", "entropy", "rank"):
            step_axis(axes[f"{what} {variant}"], last)
    panel_titles(list(axes.values()), titles)
    columns = ["variant", "model", "gamma", "arm", "seed", "val_loss"]
    data = pd.concat(
        [
            published(frame[columns]).assign(kind="run"),
            gained.assign(kind="gain"),
            routed.assign(kind="routing"),
            ranks.assign(kind="stable rank"),
        ],
        ignore_index=True,
    )
    data = data[["kind", *data.columns.drop("kind")]]
    return save_figure(fig, NAME, data, runs, caption(runs, gained, routed, ranks))


# --- drawing -------------------------------------------------------------------------------------


def places(frame: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Where a variant's dense model and mixture stand on an axis of categories."""
    pairs = [
        (variant, model)
        for variant in unique_in_order(frame["variant"])
        for model in MODELS
        if ((frame["variant"] == variant) & (frame["model"] == model)).any()
    ]
    return {pair: float(index) for index, pair in enumerate(pairs)}


def category_axis(ax: Axes, at: dict[tuple[str, str], float]) -> None:
    ax.set_xticks(list(at.values()), [f"{variant}\n{MODELS[model]}" for variant, model in at])
    ax.set_xlim(-0.5, len(at) - 0.5)


def draw_losses(ax: Axes, frame: pd.DataFrame) -> None:
    """Every seed a point; a line joins the means of the two γ of one model."""
    at = places(frame)
    for (variant, model), place in at.items():
        cell = frame[(frame["variant"] == variant) & (frame["model"] == model)]
        mean = cell.groupby("gamma")["val_loss"].mean()
        ax.plot([place + aside(gamma) for gamma in mean.index], mean, color="0.6", linewidth=0.8,
                zorder=1)  # fmt: skip
        for gamma in GAMMAS:
            some, style = cell[cell["gamma"] == gamma], gamma_look(gamma)
            ax.plot([place + aside(gamma)] * len(some), some["val_loss"], style["marker"],
                    color=style["color"], markersize=4.5)  # fmt: skip
    for gamma in GAMMAS:
        style = gamma_look(gamma)
        ax.plot([], [], style["marker"], color=style["color"], label=f"γ = {gamma:g}")
    category_axis(ax, at)
    ax.margins(y=0.12)
    ax.set_ylabel("loss (nats per token)")
    ax.legend(handlelength=1)


def aside(gamma: float) -> float:
    return -0.15 if gamma == USUAL else 0.15


def draw_gains(ax: Axes, gained: pd.DataFrame) -> None:
    at = places(gained)
    for (variant, model), place in at.items():
        found = gained[(gained["variant"] == variant) & (gained["model"] == model)].iloc[0]
        style = look(5 if model == "dense" else 3)
        ax.plot([place, place], [found["low"], found["high"]], color=style["color"])
        ax.plot(place, found["gain"], style["marker"], color=style["color"], markersize=5)
    ax.axhline(0, color="0.6", linewidth=0.6, zorder=0)
    category_axis(ax, at)
    ax.margins(y=0.15)
    ax.set_ylabel(f"L({USUAL:g}) − L({SMALL:g}) (nats)")


def draw_load(ax: Axes, routed: pd.DataFrame) -> None:
    """The mean over layers and seeds as a line, their range as a band."""
    for gamma in GAMMAS:
        cell = routed[routed["gamma"] == gamma].groupby("step")
        color = gamma_look(gamma)["color"]
        for column, line in (("busiest", "-"), ("idlest", "--")):
            steps = cell[column].mean()
            ax.plot(steps.index, steps, color=color, linestyle=line,
                    label=f"γ = {gamma:g}, {column}" if len(steps) else None)  # fmt: skip
            ax.fill_between(steps.index, cell[column].min(), cell[column].max(), color=color,
                            alpha=0.18, linewidth=0)  # fmt: skip
    ax.axhline(1, color="0.5", linewidth=0.8, zorder=0)
    ax.set_ylim(bottom=0)
    room_above(ax)
    ax.legend(loc="upper left", labelspacing=0.2, fontsize=6)
    ax.set_ylabel("load / even load")


def draw_entropy(ax: Axes, routed: pd.DataFrame, experts: int) -> None:
    for gamma in GAMMAS:
        cell = routed[routed["gamma"] == gamma].groupby("step")["router_entropy"]
        style = gamma_look(gamma)
        ax.plot(cell.mean().index, cell.mean(), **style | {"markersize": 3}, label=f"γ = {gamma:g}")
        ax.fill_between(cell.mean().index, cell.min(), cell.max(), color=style["color"], alpha=0.18,
                        linewidth=0)  # fmt: skip
    ax.axhline(math.log(experts), color="0.5", linewidth=0.8, zorder=0)
    ax.annotate(f"ln {experts}", (0, math.log(experts)), (3, 2), textcoords="offset points",
                fontsize=6, color="0.4")  # fmt: skip
    ax.set_ylim(0, 1.15 * math.log(experts))
    ax.legend(loc="lower left", fontsize=6)
    ax.set_ylabel("router entropy (nats)")


def draw_ranks(ax: Axes, ranks: pd.DataFrame) -> None:
    """Of the up projections: the mean over layers, experts and seeds."""
    for gamma in GAMMAS:
        for model, line in LINES.items():
            cell = ranks[(ranks["gamma"] == gamma) & (ranks["model"] == model)]
            mean = cell.groupby("step")["stable_rank_share"].mean()
            if len(mean):
                ax.plot(mean.index, mean, color=gamma_look(gamma)["color"], linestyle=line,
                        label=f"γ = {gamma:g}, {MODELS[model]}")  # fmt: skip
    ax.axhline(1, color="0.5", linewidth=0.8, zorder=0)
    ax.set_ylim(0, 1.3)
    ax.legend(loc="lower left", labelspacing=0.2, fontsize=6)
    ax.set_ylabel("stable rank / random")


# --- words ---------------------------------------------------------------------------------------


def caption(
    runs: Sequence[Run], gained: pd.DataFrame, routed: pd.DataFrame, ranks: pd.DataFrame
) -> str:
    mixture = next(run for run in runs if model_of(run) == "mixture")
    model = mixture.config.model
    named = [
        f"{row['model']} in {row['variant']} {signed(row['gain'])} "
        f"({limits(missing(row['low']), missing(row['high']), row['pairs'])})"
        for row in gained.to_dict("records")
    ]
    return f"""
Mixtures of {model.n_experts} experts, {model.experts_per_token} a token, beside dense models of the
same width (d = {model.d_model}){size_words(runs)}. Rates are those calibrated for the dense models.
A: final validation loss, every seed a point. B: L({USUAL:g}) − L({SMALL:g}), positive where
γ = {SMALL:g} is better, with its 95 % t interval over seeds where there are two:
{"; ".join(named) or "no seed has both γ"}. Below, over training (steps): the shares of the tokens'
choices that fall on the busiest and the idlest expert of a layer (its load), in units of the even
share (grey); the mean entropy of a token's softmax over experts, at most ln {model.n_experts}
(grey); the stable rank of the up projections as a share of a large random matrix's (grey). Lines
are means over layers and seeds, bands their range. At the end:
{end_words(routed, model.n_experts)}. Lowest stable rank after step 0: {rank_words(ranks)}.
""".strip().replace("\n", " ")


def missing(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def size_words(runs: Sequence[Run]) -> str:
    """How many weights a token meets, without embedding and readout, per variant."""
    said = []
    for variant in unique_in_order(run.config.variant for run in runs):
        counts = {}
        for run in runs:
            if run.config.variant == variant:
                counts[model_of(run)] = run.metrics.parameters
        if len(counts) == 2:
            sparse, dense = counts["mixture"], counts["dense"]
            active = sparse.active - sparse.embedding_and_readout
            said.append(
                f"{variant}: a token meets {active:,} of {sparse.non_embedding:,} weights, "
                f"{dense.non_embedding:,} in the dense model"
            )
    return f" ({'; '.join(said)}; without embedding and readout)" if said else ""


def end_words(routed: pd.DataFrame, experts: int) -> str:
    said = [
        f"{row['variant']}, γ = {row['gamma']:g}: load {row['idlest']:.2f} to {row['busiest']:.2f} "
        f"of the even share (highest before: {row['highest']:.1f}), its standard deviation "
        f"{row['load_spread']:.0%}; router entropy "
        f"{row['router_entropy'] / math.log(experts):.0%} of ln {experts}"
        for row in at_end(routed).to_dict("records")
    ]
    return "; ".join(said)


def rank_words(ranks: pd.DataFrame) -> str:
    later = ranks[ranks["step"] > 0].groupby(["variant", "gamma", "model", "step"], sort=False)
    lowest = later["stable_rank_share"].mean().groupby(["variant", "gamma", "model"], sort=False)
    return "; ".join(
        f"{row['variant']}, γ = {row['gamma']:g}, {MODELS[row['model']]} "
        f"{row['stable_rank_share']:.2f}"
        for row in lowest.min().reset_index().to_dict("records")
    )


if __name__ == "__main__":
    main()
