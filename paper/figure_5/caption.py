"""The caption of Figure 5, computed from its numbers."""

from __future__ import annotations

from typing import Any

import pandas as pd

from paper.figure_5.numbers import (
    ADJUSTED,
    CONTRASTS,
    CROSS_FITTED,
    GAIN,
    GAP,
    MATCHED,
    OWN,
    SMALL,
    STANDARD,
    USUAL,
    Control,
    Pair,
    claim,
)
from paper.shared.style import compact, limits, signed
from small_init.claims.contrasts.tokens import middle_deciles
from small_init.measure.targets import Targets
from small_init.stats.documents import DRAWS, MIN_DOCUMENTS
from small_init.stats.intervals import Interval


def caption(
    data: pd.DataFrame,
    pair: Pair,
    targets: Targets,
    gain: Interval,
    matched: Control | None,
) -> str:
    first, last = middle_deciles(claim())
    shared = (targets.unit_N >= 0).sum() - len(targets.kind_U)
    opening = f"""
What γ = {SMALL:g} changes token by token, {ADJUSTED} variant at the largest width ({pair.arms[0]}
against {pair.arms[1]}). Δ_sym = (p_1 − p_0.5)/(p_1 + p_0.5), p the probability of the token that
comes. Difficulty of a token: its mean loss over the other seeds of both γ, in equal number; deciles
of all {len(targets.kind_U):,} units, the grey band is deciles {first} to
{last}. A unit is a token, or a character that the vocabulary spells in several
({shared:,} tokens more than units). Bars: 95 % bootstrap over documents ({DRAWS:,} draws within
each source, not shown below {MIN_DOCUMENTS} documents); dots and ticks: seeds. In brackets the 95 %
t interval over {len(pair.seeds)} seeds, then the one over documents.
""".strip().replace("\n", " ")
    parts = [
        opening,
        f"*Gain over all tokens* (final validation): L({USUAL:g}) − L({SMALL:g}) = "
        f"{signed(gain.estimate)} {limits(gain.low, gain.high, gain.n)} nats.",
        f"*Contrast of claim C6* (A, B), Δ_sym of deciles {first} to {last} "
        f"less that of decile 1 and of decile 10: "
        f"{contrast_text(data, comparison=ADJUSTED)}. In nats: "
        f"{contrast_text(data, GAIN, comparison=ADJUSTED)}. With every token its own unit: "
        f"{contrast_text(data, comparison=ADJUSTED, unit='token')}.",
    ]
    if (data["comparison"] == STANDARD).any():
        parts.append(f"*{STANDARD} variant*: {contrast_text(data, comparison=STANDARD)}.")
    parts += [group_text(data), matched_text(data, matched), naive_text(data)]
    return "\n\n".join(parts)


def group_text(data: pd.DataFrame) -> str:
    """Each language, and the groups that do most and least beside their difficulty."""
    groups = data[(data["kind"] == "group") & (data["quantity"] == GAP) & data["seed"].isna()]
    languages = groups[groups["division"] == "language"]
    each = "; ".join(f"{row['group']} {number(row)}" for _, row in languages.iterrows())
    off = (groups["value"] - groups["expected"])[groups["division"].isin(["source", "kind"])]
    most, least = (str(groups.at[index, "group"]) for index in (off.idxmax(), off.idxmin()))
    return (
        f"*C*: Δ_sym by language: {each}. An open circle is what a group would have if each of its "
        f"tokens did as its decile does; most above it is {most} ({signed(off.max())}), most below "
        f"{least} ({signed(off.min())})."
    )


def matched_text(data: pd.DataFrame, matched: Control | None) -> str:
    if matched is None:
        return f"*D*: no shorter run of γ = {SMALL:g} shares a seed: no comparison at equal loss."
    left = matched.residual
    sides = "" if matched.bracketed else " (the shorter runs lie on one side of it)"
    return (
        f"*D*: a shorter complete run of γ = {SMALL:g}, {compact(matched.tokens)} tokens with the "
        f"whole learning-rate schedule, of those here the nearest to the loss of γ = {USUAL:g}"
        f"{sides}; what is "
        f"left of L({USUAL:g}) − L({SMALL:g}) is {signed(left.estimate)} "
        f"{limits(left.low, left.high, left.n)} nats. Difficulty from the other seeds of these two "
        f"arms. {contrast_text(data, comparison=MATCHED)}."
    )


def naive_text(data: pd.DataFrame) -> str:
    """What a reader would have been told without cross-fitting."""
    shown = "; ".join(
        f"{label}: {contrast_text(data, comparison=ADJUSTED, difficulty_from=label)}"
        for label in OWN.values()
    )
    return (
        "*E*: the same pairs with the difficulty from one of the two runs that are compared, "
        f"which picks up that run's own luck. {shown}."
    )


def one(data: pd.DataFrame, **where: Any) -> pd.Series:
    """The mean row that fits."""
    rows = data[data["seed"].isna()]
    for name, value in where.items():
        rows = rows[rows[name].isna()] if value is None else rows[rows[name] == value]
    return rows.iloc[0]


def number(row: pd.Series, digits: int = 3) -> str:
    """Mean, interval over seeds, interval over documents."""
    low, high, documents_low, documents_high = (
        None if pd.isna(row[name]) else float(row[name])
        for name in ("low", "high", "documents_low", "documents_high")
    )
    over_seeds = limits(low, high, int(row["seeds"]), digits)
    over_documents = "too few"
    if documents_low is not None and documents_high is not None:
        over_documents = f"[{signed(documents_low, digits)}, {signed(documents_high, digits)}]"
    return f"{signed(row['value'], digits)} {over_seeds}, documents {over_documents}"


def contrast_text(data: pd.DataFrame, quantity: str = GAP, **where: Any) -> str:
    labels = {"difficulty_from": CROSS_FITTED, "division": None, "unit": None} | where
    return "; ".join(
        f"{name} {number(one(data, kind='contrast', quantity=quantity, contrast=name, **labels))}"
        for name in CONTRASTS
    )
