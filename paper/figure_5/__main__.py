"""Figure 5: which tokens γ = 1 predicts better, by difficulty, kind of text, and at equal loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper.figure_5.caption import caption
from paper.figure_5.numbers import (
    ADJUSTED,
    CROSS_FITTED,
    GAIN,
    GAP,
    MATCHED,
    NAME,
    OWN,
    SMALL,
    STANDARD,
    USUAL,
    Control,
    Pair,
    Reader,
    TokenRun,
    arms_of,
    claim,
    contrast_rows,
    control,
    curve_rows,
    decile_bins,
    full_pair,
    group_rows,
)
from paper.shared.runs import load
from paper.shared.style import (
    PAGE,
    compact,
    gamma_look,
    look,
    panel_titles,
    plt,
    run_script,
    save_figure,
)
from small_init.claims.contrasts.tokens import middle_deciles
from small_init.errors import UserError
from small_init.measure.targets import Targets, load_targets
from small_init.runs.table import by_seed
from small_init.stats.documents import DocumentBootstrap, deciles
from small_init.stats.intervals import paired_difference

LOOKS = {STANDARD: look(5), ADJUSTED: look(3), MATCHED: look(6)}  # the first two as in Figure 1

READS = ("paper/claims.yaml", "results/{profile}/tokens")


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = [TokenRun(run.folder, run.metrics) for run in load(NAME)]
    data, matched, text = measure(runs)
    return save_figure(draw(data, matched), NAME, data, runs, text)


def measure(runs: list[TokenRun]) -> tuple[pd.DataFrame, Control | None, str]:
    """Every number of the figure, the comparison at equal loss, and the caption."""
    frame = arms_of(runs)
    targets = load_targets(runs[0].profile)
    read = Reader(runs, targets)
    first_U = targets.first_U
    bootstrap = DocumentBootstrap(targets.document_N[first_U], targets.source_N[first_U])

    found = full_pair(frame, ADJUSTED)
    if found is None:
        raise UserError(
            f"{NAME} compares γ = {USUAL:g} and {SMALL:g} in the {ADJUSTED} variant at the largest "
            "width; its index lacks one of them: name both in configs/experiments/."
        )
    pair = read.pair(ADJUSTED, *found)
    decile_SU = decile_bins(pair)
    rows = curve_rows(pair, decile_SU, bootstrap) + contrast_rows(pair, decile_SU, bootstrap)
    rows += group_rows(pair, decile_SU, targets, bootstrap)
    rows += naive_rows(pair, bootstrap) + single_token_rows(runs, targets, found)
    standard = full_pair(frame, STANDARD)
    matched = control(frame, read)
    others = [read.pair(STANDARD, *standard)] if standard else []
    for other in [*others, matched.pair] if matched else others:
        bins = decile_bins(other)
        rows += curve_rows(other, bins, bootstrap) + contrast_rows(other, bins, bootstrap)
    data = pd.DataFrame(rows)
    gain = paired_difference(by_seed(found[1]), by_seed(found[0]))
    assert gain is not None
    return data, matched, caption(data, pair, targets, gain, matched)


def draw(data: pd.DataFrame, matched: Control | None) -> Figure:
    fig = plt.figure(figsize=(PAGE, 4.9))
    grid = fig.add_gridspec(2, 3, width_ratios=[1, 1, 0.95])
    a, b, d, e = (fig.add_subplot(grid[i, j]) for i in (0, 1) for j in (0, 1))
    c = fig.add_subplot(grid[:, 2])
    draw_gain(a, data)
    draw_gap(b, data)
    draw_groups(c, data)
    draw_matched(d, data, matched)
    draw_naive(e, data)
    gap = r"$\Delta_{\mathrm{sym}}$"
    titles = [
        "gain in loss",
        f"symmetric gap {gap}",
        f"{gap} by kind of text",
        "at equal loss",
        "how difficulty is measured",
    ]
    panel_titles([a, b, c, d, e], titles)
    return fig


# --- further numbers -----------------------------------------------------------------------------


def naive_rows(pair: Pair, bootstrap: DocumentBootstrap) -> list[dict[str, Any]]:
    """What a difficulty from the compared runs themselves would have shown."""
    rows = []
    for gamma, log_p_SU in ((USUAL, pair.usual_SU), (SMALL, pair.small_SU)):
        bins = np.stack([deciles(-row) for row in log_p_SU])
        rows += curve_rows(pair, bins, bootstrap, OWN[gamma])
        rows += contrast_rows(pair, bins, bootstrap, OWN[gamma])
    return rows


def single_token_rows(
    runs: list[TokenRun], targets: Targets, found: tuple[pd.DataFrame, pd.DataFrame]
) -> list[dict[str, Any]]:
    """The contrasts with every token a unit of its own, pieces of characters too."""
    pair = Reader(runs, targets, by_unit=False).pair(ADJUSTED, *found)
    bootstrap = DocumentBootstrap(targets.document_N, targets.source_N)
    rows = contrast_rows(pair, decile_bins(pair), bootstrap)
    return [row | {"unit": "token"} for row in rows]


# --- drawing -------------------------------------------------------------------------------------


def draw_curve(
    ax: Axes,
    curve: pd.DataFrame,
    style: dict[str, Any],
    label: str,
    aside: float = 0.0,
    seeds: bool = True,
    thin: bool = False,
) -> None:
    """Means by decile, bars for the interval over documents, every seed a point."""
    means = curve[curve["seed"].isna()].sort_values("decile")
    x = means["decile"] + aside
    width = 0.8 if thin else 1.3
    ax.plot(x, means["value"], **style, linewidth=width, markersize=3, label=label)
    ax.vlines(
        x, means["documents_low"], means["documents_high"], color=style["color"], linewidth=width
    )
    if seeds:
        points = curve[curve["seed"].notna()]
        ax.plot(
            points["decile"] + aside + 0.22, points["value"], ".", color=style["color"],
            markersize=3.2, markeredgewidth=0,
        )  # fmt: skip


def of(
    data: pd.DataFrame, comparison: str, quantity: str, source: str = CROSS_FITTED
) -> pd.DataFrame:
    chosen = (data["kind"] == "decile") & (data["comparison"] == comparison)
    return data[chosen & (data["quantity"] == quantity) & (data["difficulty_from"] == source)]


def prepare(ax: Axes, ylabel: str) -> None:
    first, last = middle_deciles(claim())
    ax.axvspan(first - 0.5, last + 0.5, color="0.93", linewidth=0, zorder=0)
    ax.axhline(0, color="0.6", linewidth=0.6, zorder=0)
    ax.set_xticks(range(1, 11))
    ax.set_xlabel("difficulty decile")
    ax.set_ylabel(ylabel)


def draw_variants(ax: Axes, data: pd.DataFrame, quantity: str) -> None:
    for variant, aside in ((STANDARD, 0.1), (ADJUSTED, -0.1)):
        curve = of(data, variant, quantity)
        if not curve.empty:
            usual = variant == STANDARD
            draw_curve(ax, curve, LOOKS[variant], variant, aside, seeds=not usual, thin=usual)
    ax.legend(loc="best")


def draw_gain(ax: Axes, data: pd.DataFrame) -> None:
    """Under each decile its mean loss, which says what difficult means."""
    prepare(ax, f"L({USUAL:g}) − L({SMALL:g}) (nats per token)")
    draw_variants(ax, data, GAIN)
    difficulty = of(data, ADJUSTED, "difficulty")
    means = difficulty[difficulty["seed"].isna()].sort_values("decile")["value"]
    ax.set_xticks(range(1, 11), [f"{n}\n{m:.1f}" for n, m in enumerate(means, 1)], fontsize=6)
    ax.set_xlabel("difficulty decile, its mean loss (nats)")


def draw_gap(ax: Axes, data: pd.DataFrame) -> None:
    prepare(ax, r"mean $\Delta_{\mathrm{sym}}$")
    draw_variants(ax, data, GAP)


def draw_matched(ax: Axes, data: pd.DataFrame, matched: Control | None) -> None:
    prepare(ax, r"mean $\Delta_{\mathrm{sym}}$")
    draw_curve(
        ax, of(data, ADJUSTED, GAP), LOOKS[ADJUSTED], "full length", -0.1, seeds=False, thin=True
    )
    if matched:
        label = f"γ = {SMALL:g} on {compact(matched.tokens)} tokens"
        draw_curve(ax, of(data, MATCHED, GAP), LOOKS[MATCHED], label, 0.1)
    ax.legend(loc="best")


def draw_naive(ax: Axes, data: pd.DataFrame) -> None:
    prepare(ax, r"mean $\Delta_{\mathrm{sym}}$")
    for gamma, label in OWN.items():
        draw_curve(
            ax, of(data, ADJUSTED, GAP, label), gamma_look(gamma), label, seeds=False, thin=True
        )
    draw_curve(ax, of(data, ADJUSTED, GAP), LOOKS[ADJUSTED], CROSS_FITTED, seeds=False)
    ax.legend(loc="best")


def draw_groups(ax: Axes, data: pd.DataFrame) -> None:
    """A line per group: mean, interval over documents, seeds, and what difficulty would give."""
    groups = data[(data["kind"] == "group") & (data["quantity"] == GAP)]
    place, ticks, names = 0.0, list[float](), list[str]()
    color = LOOKS[ADJUSTED]["color"]
    for _, division in groups.groupby("division", sort=False):
        for name, group in division.groupby("group", sort=False):
            mean = group[group["seed"].isna()].iloc[0]
            seeds = group[group["seed"].notna()]["value"]
            ax.plot(seeds, [place] * len(seeds), "|", color="0.45", markersize=4, zorder=1)
            if pd.notna(mean["documents_low"]):
                span = (mean["documents_low"], mean["documents_high"])
                ax.hlines(place, *span, color=color, linewidth=1.3)
            ax.plot(mean["value"], place, "^", color=color, markersize=3.5)
            ax.plot(
                mean["expected"], place, "o", markerfacecolor="none", markeredgecolor="black",
                markeredgewidth=0.6, markersize=5,
            )  # fmt: skip
            ticks.append(place)
            names.append(str(name))
            place += 1
        place += 0.7
    ax.axvline(0, color="0.6", linewidth=0.6, zorder=0)
    ax.set_yticks(ticks, names, fontsize=6)
    ax.set_ylim(place - 0.5, -1)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("mean $\\Delta_{\\mathrm{sym}}$\n○ from difficulty alone")


if __name__ == "__main__":
    main()
