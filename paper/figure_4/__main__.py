"""Figure 4: is γ = 1 critical? Loss against γ, and residual flow against theory.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from paper.figure_4.drawing import (
    draw_attention,
    draw_contexts,
    draw_losses,
    draw_mlp,
    draw_windows,
)
from paper.figure_4.numbers import (
    CURVE,
    MIN_GAMMAS,
    context_table,
    flow_table,
    loss_rows,
    mean_rows,
    minimum,
)
from paper.shared.runs import load, table, unique_in_order
from paper.shared.style import PAGE, limits, panel_titles, plt, run_script, save_figure
from small_init.runs.table import demand_one_arm_each

NAME = "figure-4"


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    frame = table(runs)
    demand_one_arm_each(frame, [*CURVE, "gamma"], NAME)
    flows = flow_table(runs)
    curves = [curve for _, curve in frame.groupby(CURVE, sort=False)]
    minima = [minimum(curve) for curve in curves if curve["gamma"].nunique() >= MIN_GAMMAS]

    # One context for all that compares widths and variants; the others have panels of their own.
    context = int(frame["context"].mode()[0])
    usual = flows[flows["context"] == context]
    start, end = (usual[usual["kind"] == kind] for kind in ("flow", "flow at the end"))
    lengths = frame.groupby(["variant", "d_model"])["context"].transform("nunique")
    by_context = [curve for _, curve in frame[lengths > 1].groupby(CURVE, sort=False)]
    varied = {(c["variant"].iloc[0], c["d_model"].iloc[0]) for c in by_context}
    windows = context_table([run for run in runs if of(run) in varied])

    widths = sorted(set(frame["d_model"]))
    variants = unique_in_order(frame["variant"])
    at_context = [curve for curve in curves if curve["context"].iloc[0] == context]
    drawn: list[tuple[str, Callable[[Axes], None]]] = [
        ("loss above the lowest mean of its curve",
         lambda ax: draw_losses(ax, at_context, minima, widths)),
        *((f"attention, first block, {variant}{gate_word(start, variant)}",
           lambda ax, variant=variant: draw_attention(
               ax, start[start["variant"] == variant], widths))
          for variant in variants),
        (f"feed-forward, first block, T = {context}",
         lambda ax: draw_mlp(ax, start, widths, variants)),
    ]  # fmt: skip
    if not end.empty:
        drawn += [
            ("attention, after training", lambda ax: draw_attention(ax, end, widths)),
            (f"feed-forward, after training, T = {context}",
             lambda ax: draw_mlp(ax, end, widths, variants)),
        ]  # fmt: skip
    if by_context:
        drawn.append(
            ("loss above the lowest, by context", lambda ax: draw_contexts(ax, by_context, minima))
        )
    if not windows.empty:
        drawn.append(("attention, first block, by window", lambda ax: draw_windows(ax, windows)))

    lines = (len(drawn) + 1) // 2
    fig, grid = plt.subplots(lines, 2, figsize=(PAGE, 2.25 * lines), squeeze=False)
    for ax, (_, draw) in zip(grid.flat, drawn, strict=False):
        draw(ax)
    for spare in list(grid.flat)[len(drawn) :]:
        spare.remove()
    panel_titles(list(grid.flat)[: len(drawn)], [title for title, _ in drawn])
    means = [mean_rows(curve) for curve in curves]
    data = pd.concat(
        [loss_rows(frame), *means, pd.DataFrame(minima), flows, windows], ignore_index=True
    )
    text = caption(len(curves), minima, start, end, windows, context)
    return save_figure(fig, NAME, data, runs, text)


def of(run: Any) -> tuple[str, int]:
    return run.config.variant, run.config.model.d_model


def gate_word(flows: pd.DataFrame, variant: str) -> str:
    gated = flows.loc[flows["variant"] == variant, "gated"].any()
    return " (gate)" if gated else " (no gate)"


# --- words ---------------------------------------------------------------------------------------


def caption(
    curves: int,
    minima: list[dict[str, Any]],
    flows: pd.DataFrame,
    end: pd.DataFrame,
    windows: pd.DataFrame,
    context: int,
) -> str:
    worst = {
        column: np.exp(np.abs(np.log(flows[column] / flows[f"{column}_theory"])).max())
        for column in ("attention_single", "attention", "mlp")
    }
    found = minima_words(minima, curves, context)
    return f"""
Loss and residual flow against γ; every seed a point (for losses moved aside a little), lines join
means over the seeds that have every γ of their curve (over all where no seed has). {found} Residual
flow is rms(branch) / rms(stream before it), T the number of positions attended over. At step 0,
solid lines for T = 1 are d^(1−γ) times what the norm lets through, 1/√(1 + ε·d^(2γ)), and, with a
gate, times the rms of the gate: ½ for large γ, more below, where gates open at random. For T =
{context} uniform attention multiplies this by √(H_T/T); at small γ attention is not uniform and the
points lie above. Points at T = 1 are over single tokens, each alone in its window. The feed-forward
branch follows ½·(d_ff/d)^(1/2−γ)·d^(3/2−2γ) for small pre-activations; the lines hold the
constant's exact value and the measured attention branch. At step 0 measured and predicted differ at
most by a factor of {worst["attention_single"]:.2f} (attention, T = 1), {worst["attention"]:.2f}
(attention, T = {context}) and {worst["mlp"]:.2f} (feed-forward). {end_words(end, context)}
{window_words(windows)} The derivation stands in src/small_init/theory.py.
""".strip().replace("\n", " ")


def minima_words(minima: list[dict[str, Any]], curves: int, context: int) -> str:
    """The sentences on the minima; curves of too few γ have none."""
    if not minima:
        return f"No curve has the {MIN_GAMMAS} γ that a minimum needs."
    listed = "; ".join(
        f"{m['variant']}, d = {m['d_model']}"
        f"{'' if m['context'] == context else ', T = ' + str(m['context'])}: {where(m)}"
        for m in minima
    )
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


def end_words(end: pd.DataFrame, context: int) -> str:
    """How far the flows of different γ still lie apart when training ends."""
    if end.empty:
        return "No run recorded its flow at the end."
    said = []
    for name, column in (("attention", "attention"), ("feed-forward", "mlp")):
        mean = end.groupby(["variant", "d_model", "gamma"])[column].mean()
        said.append(f"{mean.min():.2g} to {mean.max():.2g} ({name})")
    return (
        "After training there is no theory: over the variants, widths and γ drawn, the first "
        f"block's flow at T = {context} then ranges from {' and from '.join(said)}."
    )


def window_words(windows: pd.DataFrame) -> str:
    """How well theory tells the flow at other window lengths."""
    if windows.empty:
        return ""
    start = windows[windows["step"] == 0]
    worst = np.exp(np.abs(np.log(start["attention"] / start["attention_theory"])).max())
    contexts = ", ".join(str(t) for t in sorted(set(windows["context"])))
    widths = ", ".join(str(d) for d in sorted(set(windows["d_model"])))
    return (
        f"By window: one model per γ (d = {widths}, trained at T = {contexts}) on windows cut to T "
        f"tokens; at step 0 theory is off by a factor of {worst:.2f} at most. If balance decided "
        "the best γ, the minimum would move to smaller γ as T grows."
    )


if __name__ == "__main__":
    main()
