"""The third page of Figure 8: run length, weight norms, and the code length of the whole run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from paper.figure_8.numbers import (
    EXPLORATORY,
    UNCHANGED,
    changes,
    empty_page,
    exploratory,
    gains,
    limits_of,
    rows_of,
    size_words,
)
from paper.figure_8.training_numbers import GAMMAS, code_lengths, curve_of, equal_losses, norm_table
from paper.shared.style import (
    PAGE,
    compact,
    gamma_look,
    look,
    panel_titles,
    plt,
    room_above,
    save_figure,
    signed,
    size_axis,
    step_axis,
)
from small_init.claims.gains import SMALL, USUAL
from small_init.runs.record import Run

LINES = ("-", "--", ":", "-.")  # lengths, and weight decays


def make_training(
    name: str, runs: list[Run], frame: pd.DataFrame, usual: Mapping[str, Any]
) -> Path:
    compared = changes(frame, "figure-8")
    by_length = compared[compared["fields"].isin([(), ("train.tokens",)])]
    by_arm = {(run.arm, run.seed): run for run in runs}
    lengths = gains(by_length, ["tokens"]).sort_values("tokens", ignore_index=True)
    if lengths.empty:
        return empty_page(name, runs, "No length was run with both γ.")
    curves = pd.concat([curve_of(by_arm[row.arm, row.seed], row.gamma, row.tokens)
                        for row in rows_of(by_length)], ignore_index=True)  # fmt: skip
    equal = equal_losses(by_length, curves)
    norms = norm_table(by_arm, compared)
    codes = code_lengths(frame, compared)

    fig, grid = plt.subplots(2, 2, figsize=(PAGE, 5.4))
    over_tokens, by_tokens, of_weights, of_codes = axes = list(grid.flat)
    draw_curves(over_tokens, curves, by_length)
    draw_lengths(by_tokens, lengths, by_length, equal)
    draw_norms(of_weights, norms)
    draw_codes(of_codes, codes)
    panel_titles(
        axes, ["run length", f"gain of γ = {SMALL:g} by length",
               "rms of the weights in the blocks", "code length of the run"],
    )  # fmt: skip
    exploratory(fig)
    data = pd.concat(
        [
            curves.assign(kind="curve"),
            lengths.assign(kind="gain by length"),
            equal.assign(kind="equal loss"),
            norms.assign(kind="norm"),
            codes.assign(kind="code length"),
        ],
        ignore_index=True,
    )
    data = data[["kind", *data.columns.drop("kind")]]
    used = set(compared["arm"]) | set(codes["arms"].explode())
    data = data.drop(columns="arms")
    words = caption(frame, usual, lengths, equal, norms, codes)
    return save_figure(fig, name, data, [run for run in runs if run.arm in used], words)


# --- drawing -------------------------------------------------------------------------------------


def draw_curves(ax: Axes, curves: pd.DataFrame, by_length: pd.DataFrame) -> None:
    """Colour tells γ, the line the length; a marker is the final loss, every seed one."""
    ax.set_xscale("log")
    lengths = sorted(set(curves["length"]))
    for gamma in GAMMAS:
        style = gamma_look(gamma)
        for length, line in zip(lengths, LINES, strict=False):
            cell = curves[(curves["gamma"] == gamma) & (curves["length"] == length)]
            mean = cell.groupby("tokens")["val_loss"].mean()
            ax.plot(mean.index, mean, color=style["color"], linestyle=line, linewidth=1)
            final = by_length[(by_length["gamma"] == gamma) & (by_length["tokens"] == length)]
            ax.plot(final["tokens"], final["val_loss"], style["marker"], color=style["color"])
        ax.plot([], [], style["marker"], color=style["color"], label=f"γ = {gamma:g}")
    for length, line in zip(lengths, LINES, strict=False):
        ax.plot([], [], color="0.4", linestyle=line, label=f"{compact(length)} tokens")
    # Warm-up is left out: the first losses would press the rest together.
    late = curves[curves["tokens"] > lengths[0] / 8]
    ax.set_xlim(lengths[0] / 8, 1.15 * lengths[-1])
    ax.set_ylim(late["val_loss"].min() - 0.1, late["val_loss"].max() + 0.05)
    decades = [lengths[0] / 4, *lengths]
    size_axis(ax.xaxis, decades)
    ax.set_xlabel("tokens")
    ax.set_ylabel("validation loss (nats per token)")
    ax.legend(fontsize=6)


def draw_lengths(
    ax: Axes, lengths: pd.DataFrame, by_length: pd.DataFrame, equal: pd.DataFrame
) -> None:
    """The mean paired difference with its interval, every seed's a small point; beside it the share
    of the tokens that γ = 1 needs for the same loss."""
    ax.set_xscale("log")
    color = look(0)["color"]
    losses = by_length.pivot_table(index=["tokens", "seed"], columns="gamma", values="val_loss")
    seeds = (losses[USUAL] - losses[SMALL]).dropna()
    ax.plot(seeds.index.get_level_values("tokens"), seeds, ".", color="0.6", markersize=4)
    ax.plot(lengths["tokens"], lengths["gain"], "o-", color=color)
    for row in rows_of(lengths):
        ax.plot([row.tokens, row.tokens], [row.low, row.high], color=color, linewidth=0.9)
    needed = equal[equal["gamma"] == SMALL].set_index("length")
    for row in rows_of(lengths):
        if row.tokens in needed.index:
            found = needed.loc[row.tokens]
            bound = "≤ " if found["method"] == "curve" else ""
            share = f"{bound}{found['tokens_needed'] / row.tokens:.0%}\nof the tokens"
            ax.annotate(share, (row.tokens, row.gain), (0, -5), textcoords="offset points",
                        ha="center", va="top", fontsize=6.5)  # fmt: skip
    size_axis(ax.xaxis, lengths["tokens"].tolist())
    ax.axhline(0, color="0.6", linewidth=0.6, zorder=0)
    ax.set_ylim(min(0, 1.2 * seeds.min()), max(0, 1.25 * seeds.max()))
    ax.margins(x=0.25)
    ax.set_xlabel("tokens of the run")
    ax.set_ylabel(f"L({USUAL:g}) − L({SMALL:g}) (nats per token)")


def draw_norms(ax: Axes, norms: pd.DataFrame) -> None:
    shown = norms.dropna(subset=["share"])
    changes_shown = list(dict.fromkeys(shown["change"]))
    for gamma in GAMMAS:
        style = gamma_look(gamma)
        for change, line in zip(changes_shown, LINES, strict=False):
            cell = shown[(shown["gamma"] == gamma) & (shown["change"] == change)]
            mean = cell.groupby("step")["share"].mean()
            ax.plot(mean.index, mean, color=style["color"], linestyle=line)
        ax.plot([], [], color=style["color"], linewidth=3, label=f"γ = {gamma:g}")
    for change, line in zip(changes_shown, LINES, strict=False):
        ax.plot([], [], color="0.4", linestyle=line, label=change)
    step_axis(ax, int(norms["step"].max()))
    ax.set_ylim(bottom=0)
    room_above(ax)
    ax.set_ylabel("rms / √(rate / (2·weight decay))")
    ax.legend(loc="upper left", fontsize=6)


def draw_codes(ax: Axes, codes: pd.DataFrame) -> None:
    """On the diagonal a change gains as much over the whole run as at its end."""
    for pair, marker, face in (("change", "o", "#0072B2"), ("equal rate", "s", "white")):
        cell = codes[codes["pair"] == pair]
        label = {"change": "each γ at its rate", "equal rate": "at equal rates"}[pair]
        ax.plot(cell["gain"], cell["gain_code"], marker, color="#0072B2", markerfacecolor=face,
                label=label if len(cell) else None)  # fmt: skip
    both = codes[["gain", "gain_code"]].to_numpy()
    ends = [min(0.0, both.min()), 1.05 * both.max()]
    ax.plot(ends, ends, color="0.5", linewidth=0.8, zorder=0)
    ax.axhline(0, color="0.6", linewidth=0.6, zorder=0)
    ax.axvline(0, color="0.6", linewidth=0.6, zorder=0)
    ax.set_xlabel(f"L({USUAL:g}) − L({SMALL:g}), final loss (nats)")
    ax.set_ylabel("the same, code length (nats per token)")
    ax.legend(fontsize=6)


# --- words ---------------------------------------------------------------------------------------


def caption(
    frame: pd.DataFrame, usual: Mapping[str, Any], lengths: pd.DataFrame, equal: pd.DataFrame,
    norms: pd.DataFrame, codes: pd.DataFrame,
) -> str:  # fmt: skip
    return f"""
{EXPLORATORY} Over training ({size_words(frame, usual)} unless said).
A: validation loss of complete runs of different length, each with its own schedule and the rate
calibrated at the shortest; markers are final losses, on more validation tokens than the curve. B:
L({USUAL:g}) − L({SMALL:g}) at the end, with 95 % t intervals over seeds where two have both γ; the
percentage is the share of the tokens that γ = {SMALL:g} needs for the loss of γ = {USUAL:g}.
{length_words(lengths)} {equal_words(equal)} C: rms of the matrices in the blocks in units of
√(rate / (2·weight decay)), with the peak rate: where AdamW's steps would bring them if they had no
direction. {norm_words(norms)} D: what γ = {SMALL:g} gains in final loss and in code length, the
mean loss on the training tokens as they were met: what coding the text takes, per token, where the
decoder learns along (a run longer than the corpus meets some tokens again). {code_words(codes)}
""".strip().replace("\n", " ")


def length_words(lengths: pd.DataFrame) -> str:
    said = [f"{signed(row.gain)} at {compact(row.tokens)} tokens ({limits_of(row)})"
            for row in rows_of(lengths)]  # fmt: skip
    if len(lengths) == 1:
        return f"Gain: {said[0]}; no other length was run."
    share = lengths["gain"].iloc[-1] / lengths["gain"].iloc[0]
    ratio = lengths["tokens"].iloc[-1] / lengths["tokens"].iloc[0]
    return (
        f"Gain: {', '.join(said)}; at {ratio:.3g} times the tokens it is {share:.2f} times that of "
        "the shortest run."
    )


def equal_words(equal: pd.DataFrame) -> str:
    methods = {
        "complete": "between complete runs",
        "curve": "read off the curve of its shortest run: too much, since the rate was not yet low "
        "there",
    }
    said = []
    for gamma, cell in equal.groupby("gamma", sort=False):
        needs = [
            f"{compact(row.tokens_needed)} for {compact(row.length)} "
            f"({row.tokens_needed / row.length:.0%}, {methods[row.method]})"
            for row in rows_of(cell)
        ]
        other = USUAL if gamma == SMALL else SMALL
        said.append(f"Tokens that γ = {gamma:g} needs for the loss of γ = {other:g}: "
                    f"{'; '.join(needs)}.")  # fmt: skip
    return " ".join(said) or "No length of one γ lies between two of the other."


def norm_words(norms: pd.DataFrame) -> str:
    """How far apart the two γ are at the start and at the end, and how large the weights are."""
    rms = norms.groupby(["change", "gamma", "step"], sort=False)["rms"].mean()
    said = []
    for change in dict.fromkeys(norms["change"]):
        of_change = rms[change]
        if set(GAMMAS) <= set(of_change.index.get_level_values("gamma")):
            first, last = ((of_change[USUAL] / of_change[SMALL]).iloc[place] for place in (0, -1))
            said.append(f"{change} {first:.2f} → {last:.2f}")
    last_shares = norms.dropna(subset=["share"]).groupby(["change", "gamma"], sort=False)["share"]
    at_end = [f"{row.change}, γ = {row.gamma:g} {row.share:.2f}"
              for row in rows_of(last_shares.last().reset_index())]  # fmt: skip
    return (
        f"Ratio of the rms at γ = {USUAL:g} to that at {SMALL:g}, first → last step: "
        f"{'; '.join(said)}. At the end: {'; '.join(at_end)} of the scale; without weight decay "
        "there is none."
    )


def code_words(codes: pd.DataFrame) -> str:
    shorter = int((codes["gain_code"] > 0).sum())
    larger = int((codes["gain_code"] > codes["gain"]).sum())
    reference = codes[codes["change"] == UNCHANGED]
    unchanged = "".join(f" Unchanged: {signed(row.gain_code)} in code length."
                        for row in rows_of(reference))  # fmt: skip
    return (
        f"γ = {SMALL:g} has the shorter code in {shorter} of {len(codes)} pairs, which are not "
        f"independent, and gains more in it than in the final loss (above the diagonal) in "
        f"{larger}."
        f"{unchanged}"
    )
