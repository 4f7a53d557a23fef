"""Figure 4: is γ = 1 critical? Loss against γ, and residual flow at step 0 against theory.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from runs import by_seed, demand_one_arm_each, load, table, unique_in_order
from style import PAGE, limits, look, panel_titles, plt, run_script, save_figure
from theory import attention_flow, mlp_flow

from small_init import statistics
from small_init.config import Gate
from small_init.errors import UserError
from small_init.records import Run

NAME = "figure-4"


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    frame = table(runs)
    demand_one_arm_each(frame, ["variant", "d_model", "gamma"], NAME)
    flows = flow_table(runs)
    minima = [minimum(curve) for _, curve in frame.groupby(["variant", "d_model"], sort=False)]
    widths = sorted(set(frame["d_model"]))
    variants = unique_in_order(frame["variant"])

    panels = 2 + len(variants)
    columns = 2
    lines = (panels + 1) // columns
    fig, grid = plt.subplots(lines, columns, figsize=(PAGE, 2.5 * lines), squeeze=False)
    axes = list(grid.flat)
    for spare in axes[panels:]:
        spare.remove()
    draw_losses(axes[0], frame, minima, widths)
    for ax, variant in zip(axes[1:], variants, strict=False):
        draw_attention(ax, flows[flows["variant"] == variant], widths)
    draw_mlp(axes[panels - 1], flows, widths, variants)
    context = int(flows["context"].iloc[0])
    panel_titles(
        axes[:panels],
        [
            "loss above the lowest mean of its curve",
            *(f"attention, first block, {v}{gate_word(flows, v)}" for v in variants),
            f"feed-forward, first block, T = {context}",
        ],
    )
    data = pd.concat([loss_rows(frame), pd.DataFrame(minima), flows], ignore_index=True)
    return save_figure(fig, NAME, data, runs, caption(minima, flows, context))


# --- numbers -------------------------------------------------------------------------------------


def flow_table(runs: list[Run]) -> pd.DataFrame:
    """One row per run: measured and predicted residual flow of the first block at step 0."""
    rows = []
    for run in runs:
        config, measured = run.config, run.init["residual_flow"]
        model, gamma = config.model, config.init.gamma
        gated = model.gate is not Gate.none
        context = measured["context"]
        given = (gamma, model.d_model, model.norm_eps, gated)
        attention = measured["attention"][0]
        rows.append(
            {
                "kind": "flow",
                "variant": config.variant,
                "d_model": model.d_model,
                "gamma": gamma,
                "seed": run.seed,
                "gated": gated,
                "context": context,
                "attention_single": measured["attention_single"][0],
                "attention_single_theory": attention_flow(*given, context=1),
                "attention": attention,
                "attention_theory": attention_flow(*given, context=context),
                "mlp": measured["mlp"][0],
                "mlp_theory": mlp_flow(gamma, model.d_model, model.d_ff, model.norm_eps, attention),
            }
        )
    flows = pd.DataFrame(rows)
    if flows["context"].nunique() > 1:
        raise UserError(f"{NAME} reads runs of different context lengths; name arms of one only.")
    return flows


def minimum(curve: pd.DataFrame) -> dict[str, Any]:
    """Where one variant's loss at one width is lowest: for the means, and over seeds."""
    mean = curve.groupby("gamma")["loss"].mean()
    vertex = statistics.quadratic_minimum(mean.index.tolist(), mean.tolist())
    gammas = unique_in_order(sorted(curve["gamma"]))
    losses = {gamma: by_seed(curve[curve["gamma"] == gamma]) for gamma in gammas}
    complete = set.intersection(*(set(arm) for arm in losses.values()))
    per_seed = [
        statistics.quadratic_minimum(gammas, [losses[gamma][seed] for gamma in gammas])
        for seed in sorted(complete)
    ]
    # Of the seeds' own vertices: their mean need not be the vertex of the means.
    # A seed whose minimum lies at the edge only bounds it; an interval over such would be false.
    usable = per_seed and not any(m.edge for m in per_seed)
    interval = statistics.mean_interval([m.x for m in per_seed]) if usable else None
    return {
        "kind": "minimum",
        "variant": curve["variant"].iloc[0],
        "d_model": curve["d_model"].iloc[0],
        "gamma": vertex.x,
        "loss": vertex.y,
        "edge": vertex.edge,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "seed_mean": interval.estimate if interval else None,
        "seeds": interval.n if interval else None,
        "lowest_mean": mean.min(),
    }


def loss_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[["variant", "d_model", "gamma", "seed", "loss"]].assign(kind="run")


def gate_word(flows: pd.DataFrame, variant: str) -> str:
    gated = flows.loc[flows["variant"] == variant, "gated"].any()
    return " (gate)" if gated else " (no gate)"


# --- drawing -------------------------------------------------------------------------------------


def width_look(widths: list[int], width: int) -> dict[str, Any]:
    return look((4, 2, 3, 5, 1, 6, 0)[widths.index(width) % 7])


def draw_losses(
    ax: Axes, frame: pd.DataFrame, minima: list[dict[str, Any]], widths: list[int]
) -> None:
    """Colour and marker tell the width; filled and solid is the first variant, open another."""
    first = frame["variant"].iloc[0]
    for index, found in enumerate(minima):
        variant, width = found["variant"], found["d_model"]
        curve = frame[(frame["variant"] == variant) & (frame["d_model"] == width)]
        style = width_look(widths, width)
        color, face = style["color"], style["color"] if variant == first else "white"
        above = curve["loss"] - found["lowest_mean"]
        mean = above.groupby(curve["gamma"]).mean()
        line = "-" if variant == first else "--"
        ax.plot(mean.index, mean, line, color=color)
        aside = 0.02 * (index - (len(minima) - 1) / 2)  # so that no seed hides another
        ax.plot(curve["gamma"] + aside, above, style["marker"], color=color,
                markerfacecolor=face, markersize=2.5, markeredgewidth=0.7)  # fmt: skip
        label = f"{variant}, d = {width}"
        ax.plot(
            [], [], line, color=color, marker=style["marker"], markerfacecolor=face, label=label
        )
        if not found["edge"]:
            depth = found["loss"] - found["lowest_mean"]
            ax.plot(found["gamma"], depth, "|", color=color, markersize=16, markeredgewidth=1.6)
    ax.plot([], [], "|", color="0.3", markersize=9, label="vertex of the parabola")
    ax.set_xlabel("γ")
    ax.set_ylabel("loss − lowest (nats per token)")
    ax.legend()


def draw_attention(ax: Axes, flows: pd.DataFrame, widths: list[int]) -> None:
    """Measured at one position and at the whole context; theory as lines through the same arms."""
    context = int(flows["context"].iloc[0])
    for width in widths:
        cell = flows[flows["d_model"] == width]
        style = width_look(widths, width)
        mean = cell.groupby("gamma").mean(numeric_only=True)
        color, marker = style["color"], style["marker"]
        for column, line, face, length in (
            ("attention_single", "-", color, 1),
            ("attention", "--", "white", context),
        ):
            ax.plot(mean.index, mean[f"{column}_theory"], line, color=color, linewidth=0.9)
            ax.plot(cell["gamma"], cell[column], marker, color=color, markerfacecolor=face)
            ax.plot([], [], line, color=color, marker=marker, markerfacecolor=face,
                    label=f"d = {width}, T = {length}")  # fmt: skip
    reference(ax, flows, widths[-1], r"$d^{1-\gamma}$", lambda gamma: widths[-1] ** (1 - gamma))
    flow_axes(ax)


def draw_mlp(ax: Axes, flows: pd.DataFrame, widths: list[int], variants: list[str]) -> None:
    for variant, width in unique_in_order(zip(flows["variant"], flows["d_model"], strict=True)):
        cell = flows[(flows["variant"] == variant) & (flows["d_model"] == width)]
        style = width_look(widths, width)
        first = variant == variants[0]
        line, face = ("-", style["color"]) if first else ("--", "white")
        mean = cell.groupby("gamma").mean(numeric_only=True)
        ax.plot(mean.index, mean["mlp_theory"], line, color=style["color"], linewidth=0.9)
        ax.plot(
            cell["gamma"], cell["mlp"], style["marker"], color=style["color"], markerfacecolor=face
        )
        ax.plot([], [], line, color=style["color"], marker=style["marker"], markerfacecolor=face,
                label=f"{variant}, d = {width}")  # fmt: skip
    reference(
        ax, flows, widths[-1], r"$d^{3/2-2\gamma}$", lambda gamma: widths[-1] ** (1.5 - 2 * gamma)
    )
    flow_axes(ax)


def reference(
    ax: Axes, flows: pd.DataFrame, width: int, formula: str, of: Callable[[float], float]
) -> None:
    """The bare power law, without the factors that theory.py adds."""
    gammas = sorted(set(flows["gamma"]))
    label = f"{formula} alone, d = {width}"
    ax.plot(gammas, [of(g) for g in gammas], ":", color="0.4", linewidth=1.2, label=label)


def flow_axes(ax: Axes) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.axhline(1, color="0.6", linewidth=0.6, zorder=0)
    ax.set_xlabel("γ")
    ax.set_ylabel("residual flow at step 0")
    low, high = ax.get_ylim()
    ax.set_ylim(low * (low / high) ** 0.3, high)  # room for the legend
    ax.legend(loc="lower left", title="points measured, lines theory", title_fontsize=6.5,
              alignment="left", borderpad=0, ncols=2)  # fmt: skip


# --- words ---------------------------------------------------------------------------------------


def caption(minima: list[dict[str, Any]], flows: pd.DataFrame, context: int) -> str:
    found = "; ".join(
        f"{m['variant']}, d = {m['d_model']}: "
        + (
            f"γ = {m['gamma']:g}, at the edge of the grid"
            if m["edge"]
            else f"γ = {m['gamma']:.2f}" + vertex_limits(m)
        )
        for m in minima
    )
    worst = {
        column: np.exp(np.abs(np.log(flows[column] / flows[f"{column}_theory"])).max())
        for column in ("attention_single", "attention", "mlp")
    }
    return f"""
Loss and residual flow against γ; every seed a point (in A moved aside a little). The lowest loss
(vertex of the parabola through the lowest mean and its two neighbours) lies at: {found}. Residual
flow is rms(branch) / rms(stream before it) at step 0, T the number of positions attended over.
Solid lines for T = 1 are d^(1−γ) times what the norm lets through, 1/√(1 + ε·d^(2γ)), and, with a
gate, times the rms of the gate: ½ for large γ, more below, where gates open at random. For T =
{context} uniform attention multiplies this by √(H_T/T); at small γ attention is not uniform and
the points lie above. Points at T = 1 are over single tokens, each alone in its window. The
feed-forward branch follows ½·(d_ff/d)^(1/2−γ)·d^(3/2−2γ) for small pre-activations; the lines hold
the constant's exact value and the measured attention branch. Measured and predicted differ at most
by a factor of {worst["attention_single"]:.2f} (attention, T = 1), {worst["attention"]:.2f}
(attention, T = {context}) and {worst["mlp"]:.2f} (feed-forward). The derivation stands in
paper/theory.py.
""".strip().replace("\n", " ")


def vertex_limits(m: dict[str, Any]) -> str:
    if m["seeds"] is None:
        return " (no interval: for some seed the lowest γ is an edge)"
    return f" (over seeds {limits(m['low'], m['high'], m['seeds'], 2).replace('+', '')})"


if __name__ == "__main__":
    main()
