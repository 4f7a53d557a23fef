"""Figure 4: is γ = 1 critical? Loss against γ, and residual flow at step 0 against theory.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from runs import demand_one_arm_each, load, table, unique_in_order
from style import PAGE, limits, look, panel_titles, plt, run_script, save_figure

from small_init import statistics
from small_init.config import Gate
from small_init.errors import UserError
from small_init.records import Run
from small_init.theory import attention_flow, mlp_flow, uncovered

NAME = "figure-4"
MIN_GAMMAS = 3  # a parabola has three parameters


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    frame = table(runs)
    demand_one_arm_each(frame, ["variant", "d_model", "gamma"], NAME)
    flows = flow_table(runs)
    curves = [curve for _, curve in frame.groupby(["variant", "d_model"], sort=False)]
    minima = [minimum(curve) for curve in curves if curve["gamma"].nunique() >= MIN_GAMMAS]
    widths = sorted(set(frame["d_model"]))
    variants = unique_in_order(frame["variant"])

    panels = 2 + len(variants)
    columns = 2
    lines = (panels + 1) // columns
    fig, grid = plt.subplots(lines, columns, figsize=(PAGE, 2.5 * lines), squeeze=False)
    axes = list(grid.flat)
    for spare in axes[panels:]:
        spare.remove()
    draw_losses(axes[0], curves, minima, widths)
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
    means = [mean_rows(curve) for curve in curves]
    data = pd.concat([loss_rows(frame), *means, pd.DataFrame(minima), flows], ignore_index=True)
    return save_figure(fig, NAME, data, runs, caption(len(curves), minima, flows, context))


# --- numbers -------------------------------------------------------------------------------------


def flow_table(runs: list[Run]) -> pd.DataFrame:
    """One row per run: measured and predicted residual flow of the first block at step 0.

    Raises:
        UserError: an arm that theory.py says nothing about, or different context lengths.
    """
    rows = []
    for run in runs:
        config, measured = run.config, run.init["residual_flow"]
        if fault := uncovered(config):
            raise UserError(
                f"{NAME} draws theory beside every arm, and small_init/theory.py does not cover "
                f"{fault} (arm {run.arm}); leave that arm out in configs/experiments/."
            )
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


def seed_table(curve: pd.DataFrame) -> pd.DataFrame:
    """Losses of a variant at one width, seeds × γ, of the seeds that have every γ, or else all."""
    losses = curve.pivot(index="seed", columns="gamma", values="loss")
    complete = losses.dropna()
    return losses if complete.empty else complete


def minimum(curve: pd.DataFrame) -> dict[str, Any]:
    """Where one variant's loss at one width is lowest, and the interval of that very number.

    It is the mean of the seeds' own vertices where every seed has one, otherwise the vertex of the
    means; `no_interval` says why there is none.
    """
    losses = seed_table(curve)
    gammas, seeds = sorted(set(curve["gamma"])), len(losses)
    found = {
        "kind": "minimum",
        "variant": curve["variant"].iloc[0],
        "d_model": curve["d_model"].iloc[0],
    }
    if losses.isna().any(axis=None):
        reason = "no seed has every γ"
    else:
        vertices = [statistics.quadratic_minimum(gammas, list(row)) for row in losses.to_numpy()]
        # An edge only bounds where a seed's minimum is: a mean over such would be false.
        if not any(vertex.edge for vertex in vertices):
            over_seeds = statistics.mean_interval([vertex.x for vertex in vertices])
            return found | {
                "gamma": over_seeds.estimate,
                "loss": float(np.mean([vertex.y for vertex in vertices])),
                "edge": False,
                "low": over_seeds.low,
                "high": over_seeds.high,
                "seeds": seeds,
                "no_interval": "n = 1" if seeds == 1 else None,
            }
        reason = "n = 1" if seeds == 1 else "for some seed the lowest γ is an edge"
    of_means = statistics.quadratic_minimum(gammas, losses.mean().tolist())
    return found | {
        "gamma": of_means.x,
        "loss": of_means.y,
        "edge": of_means.edge,
        "low": None,
        "high": None,
        "seeds": seeds,
        "no_interval": reason,
    }


def mean_rows(curve: pd.DataFrame) -> pd.DataFrame:
    losses = seed_table(curve)
    numbers = {"gamma": losses.columns, "loss": losses.mean(), "seeds": losses.count()}
    first = curve.iloc[0]
    return pd.DataFrame(numbers).assign(
        kind="mean", variant=first["variant"], d_model=first["d_model"]
    )


def loss_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[["variant", "d_model", "gamma", "seed", "loss"]].assign(kind="run")


def gate_word(flows: pd.DataFrame, variant: str) -> str:
    gated = flows.loc[flows["variant"] == variant, "gated"].any()
    return " (gate)" if gated else " (no gate)"


# --- drawing -------------------------------------------------------------------------------------


def width_look(widths: list[int], width: int) -> dict[str, Any]:
    return look((4, 2, 3, 5, 1, 6, 0)[widths.index(width) % 7])


def draw_losses(
    ax: Axes, curves: list[pd.DataFrame], minima: list[dict[str, Any]], widths: list[int]
) -> None:
    """Colour and marker tell the width; filled and solid is the first variant, open another."""
    first = curves[0]["variant"].iloc[0]
    vertices = {(m["variant"], m["d_model"]): m for m in minima if not m["edge"]}
    for index, curve in enumerate(curves):
        variant, width = curve["variant"].iloc[0], curve["d_model"].iloc[0]
        style = width_look(widths, width)
        color, face = style["color"], style["color"] if variant == first else "white"
        mean = seed_table(curve).mean()
        line = "-" if variant == first else "--"
        ax.plot(mean.index, mean - mean.min(), line, color=color)
        aside = 0.02 * (index - (len(curves) - 1) / 2)  # so that no seed hides another
        ax.plot(curve["gamma"] + aside, curve["loss"] - mean.min(), style["marker"], color=color,
                markerfacecolor=face, markersize=2.5, markeredgewidth=0.7)  # fmt: skip
        label = f"{variant}, d = {width}"
        ax.plot(
            [], [], line, color=color, marker=style["marker"], markerfacecolor=face, label=label
        )
        if found := vertices.get((variant, width)):
            depth = found["loss"] - mean.min()
            ax.plot(found["gamma"], depth, "|", color=color, markersize=16, markeredgewidth=1.6)
    if vertices:
        ax.plot([], [], "|", color="0.3", markersize=9, label="vertex of the parabola")
    ax.set_xlabel("γ")
    ax.set_ylabel("loss − lowest (nats per token)")
    ax.legend()


def draw_attention(ax: Axes, flows: pd.DataFrame, widths: list[int]) -> None:
    """Measured at one position and at the whole context; theory as lines through the same arms."""
    context = int(flows["context"].iloc[0])
    for width in widths:
        cell = flows[flows["d_model"] == width]
        if cell.empty:
            continue
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


def caption(curves: int, minima: list[dict[str, Any]], flows: pd.DataFrame, context: int) -> str:
    worst = {
        column: np.exp(np.abs(np.log(flows[column] / flows[f"{column}_theory"])).max())
        for column in ("attention_single", "attention", "mlp")
    }
    found = minima_words(minima, curves)
    return f"""
Loss and residual flow against γ; every seed a point (in A moved aside a little), lines join means
over the seeds that have every γ of their curve (over all where no seed has). {found} Residual flow
is rms(branch) / rms(stream before it) at step 0, T the number of positions attended over. Solid
lines for T = 1 are d^(1−γ) times what the norm lets through, 1/√(1 + ε·d^(2γ)), and, with a gate,
times the rms of the gate: ½ for large γ, more below, where gates open at random. For T = {context}
uniform attention multiplies this by √(H_T/T); at small γ attention is not uniform and the points
lie above. Points at T = 1 are over single tokens, each alone in its window. The feed-forward branch
follows ½·(d_ff/d)^(1/2−γ)·d^(3/2−2γ) for small pre-activations; the lines hold the constant's exact
value and the measured attention branch. Measured and predicted differ at most by a factor of
{worst["attention_single"]:.2f} (attention, T = 1), {worst["attention"]:.2f} (attention, T =
{context}) and {worst["mlp"]:.2f} (feed-forward). The derivation stands in src/small_init/theory.py.
""".strip().replace("\n", " ")


def minima_words(minima: list[dict[str, Any]], curves: int) -> str:
    """The sentences on the minima; curves of too few γ have none."""
    if not minima:
        return f"No curve has the {MIN_GAMMAS} γ that a minimum needs."
    listed = "; ".join(f"{m['variant']}, d = {m['d_model']}: {where(m)}" for m in minima)
    few = curves - len(minima)
    return (
        "The lowest loss (vertex of the parabola through the lowest γ and its two neighbours; with "
        f"an interval, the mean of the seeds' own vertices) lies at: {listed}."
    ) + (f" Curves of fewer than {MIN_GAMMAS} γ have no minimum ({few} here)." if few else "")


def where(m: dict[str, Any]) -> str:
    """One minimum with its interval or the reason why there is none."""
    if m["edge"]:
        return f"γ = {m['gamma']:g}, at the edge of the grid"
    if m["no_interval"]:
        return f"γ = {m['gamma']:.2f} ({m['no_interval']}: no interval)"
    bounds = limits(m["low"], m["high"], m["seeds"], 2).replace("+", "")
    return f"γ = {m['gamma']:.2f} {bounds}, n = {m['seeds']}"


if __name__ == "__main__":
    main()
