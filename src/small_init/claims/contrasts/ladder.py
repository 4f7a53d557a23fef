"""What becomes of the gain of γ = 1 as the model grows: claims C1 and C4."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import binomtest

from small_init.claims.contrasts.condensation import share_of_random
from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import SMALL, USUAL, PairedLosses, both_gammas, gain_texts
from small_init.claims.verdicts import Condition, Evidence
from small_init.config import Probes
from small_init.runs.record import Run
from small_init.stats.fits import SizeRatio, effective_size_interval, slopes
from small_init.stats.intervals import Interval


def gain_slopes(losses: PairedLosses, variant: str) -> dict[int, float]:
    """Seed → least-squares slope of Δ on ln N, nats per token and e-fold of N.

    Over the widths at which the variant has both γ, and the seeds that have all of these; empty
    with fewer than two widths.
    """
    widths = losses.widths(variant)
    if len(widths) < 2:
        return {}
    seeds = losses.seeds(both_gammas([variant], widths))
    sizes = [losses.size(variant, width) for width in widths]
    return slopes(sizes, {s: [losses.gain(variant, d, s) for d in widths] for s in seeds})


def effective_sizes(losses: PairedLosses, variant: str) -> dict[int, SizeRatio]:
    """Width → N'/N of γ = 1 in units of γ = 0.5: the size N' at which γ = 0.5 has its loss.

    Interpolated in ln N, seed by seed, between all widths at which the variant was run with
    γ = 0.5, over the seeds that have all of these; refused where it would extrapolate.
    """
    baseline_widths = sorted(d for v, g, d in losses.runs if (v, g) == (variant, USUAL))
    settings = [(variant, USUAL, width) for width in baseline_widths]
    sizes = [losses.size(variant, width) for width in baseline_widths]
    baseline = {
        seed: [losses.loss(setting, seed) for setting in settings]
        for seed in losses.seeds(settings)
    }
    return {
        width: effective_size_interval(
            sizes, baseline, losses.by_seed((variant, SMALL, width)), losses.size(variant, width)
        )
        for width in losses.widths(variant)
    }


def shrinking_gain(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C1: does Δ shrink from the smallest to the largest size of the standard variant?

    In nats per token: the change of Δ over the ladder, `gain_slopes` times ln(N largest / N
    smallest), of the seeds that have both γ at every width; Δ at the smallest and at the largest
    width, of the seeds that have both γ there. Replicated if the change is below −smallest_effect,
    the first Δ above smallest_effect and the last above −smallest_effect: an advantage that
    reverses is another finding. Against it if one of the first two lies on the other side. Not
    testable with fewer than three widths.
    """
    losses, least = PairedLosses(runs), rules.smallest_effect
    widths = losses.widths("standard")
    beside = gain_texts(losses, "standard", widths)
    seeds = losses.seeds(both_gammas(["standard"], widths))
    if len(widths) < 3:
        too_few = f"the standard variant was run at {len(widths)} widths, fewer than three"
        return Evidence(len(seeds), not_testable=too_few, beside=beside)
    sizes = [losses.size("standard", width) for width in widths]
    span = math.log(max(sizes) / min(sizes))
    change = {seed: span * slope for seed, slope in gain_slopes(losses, "standard").items()}
    first, last = (losses.gains("standard", width) for width in (widths[0], widths[-1]))
    c = rules.confidence
    over = f"change of Δ from d = {widths[0]} to {widths[-1]}, standard"
    at = f"Δ at d = {widths[0]}, standard"
    end = Condition(f"Δ at d = {widths[-1]}, standard", last, "above", -least, c)
    if seeds:
        beside["as the model grows"] = course(change, end.interval)
        beside |= collapse_texts(losses, "standard", widths, claim.thresholds["collapsed"])
    return Evidence(
        len(seeds),
        required=[
            Condition(over, change, "below", -least, c),
            Condition(at, first, "above", least, c),
            end,
        ],
        against=[
            Condition(over, change, "above", -least, c),
            Condition(at, first, "below", least, c),
        ],
        beside=beside,
    )


def course(change: Mapping[int, float], last: Interval) -> str:
    """What becomes of the advantage, in a word, with a sign test over seeds beside the slope."""
    if last.high is not None and last.high < 0:
        word = "the advantage reverses: at the largest width γ = 1 is worse"
    elif last.low is not None and last.low > 0:
        word = "an advantage is left at the largest width"
    else:
        word = "at the largest width neither γ is better beyond the spread of seeds"
    falls = sum(value < 0 for value in change.values())
    p = binomtest(falls, len(change)).pvalue
    return (
        f"{word}; Δ falls over the ladder on {falls} of {len(change)} seeds (sign test p = {p:.2g})"
    )


def collapse_texts(
    losses: PairedLosses, variant: str, widths: Sequence[int], collapsed: float
) -> dict[str, str]:
    """At each width the share of γ = 1 runs whose up projections' stable rank falls below
    `collapsed` of a random matrix's, and a warning where it is more than half."""
    out, worst = {}, 0.0
    for width in widths:
        runs = losses.runs.get((variant, SMALL, width), {}).values()
        dips = [
            share_of_random(run).min() for run in runs if run.config.train.probes is not Probes.none
        ]
        if dips:
            share = sum(dip < collapsed for dip in dips) / len(dips)
            worst = max(worst, share)
            out[f"runs of γ = 1 that dip below {collapsed:g} of random, {variant}, d = {width}"] = (
                f"{sum(dip < collapsed for dip in dips)} of {len(dips)}"
            )
    if worst > 0.5:
        out["in the collapse regime"] = "at some width more than half of the runs of γ = 1 do"
    return out


def widened_gain(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C4: is Δ larger in the adjusted variant than in the standard one, and there at every size?

    Nats per token, of the seeds that have both variants and both γ at every width: Δ(adjusted) −
    Δ(standard), mean over widths, and Δ(adjusted) at each width. Replicated if the first is above
    smallest_effect and each of the others above 0; against it if the first is below
    smallest_effect or one of the others below 0. Not testable with fewer than two widths.
    """
    losses, c, least = PairedLosses(runs), rules.confidence, rules.smallest_effect
    variants = ("standard", "adjusted")
    widths = sorted(set.intersection(*(set(losses.widths(variant)) for variant in variants)))
    seeds = losses.seeds(both_gammas(variants, widths))
    beside = gain_texts(losses, "adjusted", widths) | effective_size_texts(losses, widths)
    if len(widths) < 2:
        return Evidence(
            len(seeds),
            not_testable="the two variants were not run with both γ at two widths",
            beside=beside,
        )
    gains = {d: {seed: losses.gain("adjusted", d, seed) for seed in seeds} for d in widths}
    extra = {
        seed: float(np.mean([gains[d][seed] - losses.gain("standard", d, seed) for d in widths]))
        for seed in seeds
    }
    name = "Δ(adjusted) − Δ(standard), mean over widths"
    return Evidence(
        len(seeds),
        required=[
            Condition(name, extra, "above", least, c),
            *(Condition(f"Δ(adjusted), d = {d}", g, "above", 0.0, c) for d, g in gains.items()),
        ],
        against=[
            Condition(name, extra, "below", least, c),
            *(Condition(f"Δ(adjusted), d = {d}", g, "below", 0.0, c) for d, g in gains.items()),
        ],
        beside=beside,
    )


def effective_size_texts(losses: PairedLosses, widths: Sequence[int]) -> dict[str, str]:
    """N'/N − 1 of the adjusted variant at each width, or why there is none."""
    ratios = effective_sizes(losses, "adjusted")
    out = {}
    for width in widths:
        name, ratio = f"effective size, adjusted, d = {width}", ratios[width]
        if ratio.interval is None:
            out[name] = f"refused: {ratio.reason}"
            continue
        found = ratio.interval
        text = f"N'/N − 1 = {100 * (found.estimate - 1):+.0f} %"
        if found.low is not None and found.high is not None:
            text += f" [{100 * (found.low - 1):+.0f}, {100 * (found.high - 1):+.0f}]"
        out[name] = f"{text}, n = {found.n}"
    return out
