"""Which tokens γ = 1 predicts better: claim C6."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import PairedLosses, Setting, both_gammas, number_text
from small_init.claims.verdicts import Condition, Evidence
from small_init.measure.targets import load_log_probabilities, load_targets
from small_init.runs.record import Run
from small_init.stats.documents import Array, cross_fitted_difficulty, deciles, symmetric_gap
from small_init.stats.intervals import mean_interval

EASY, MIDDLE, HARD = range(3)  # bins of the contrast


def middle_deciles(claim: Claim) -> tuple[int, int]:
    """The first and the last of the deciles, counted from 1, that C6 calls moderate to hard."""
    return int(claim.thresholds["mid_first"]), int(claim.thresholds["mid_last"])


def contrast_bins(decile: Array, claim: Claim) -> Array:
    """EASY for the first decile (0 in `decile`), HARD for the tenth, MIDDLE for the claim's middle
    ones, −1 elsewhere; of the shape of `decile`."""
    first, last = middle_deciles(claim)
    number = decile + 1
    bins = np.full_like(decile, -1)
    bins[number == 1] = EASY
    bins[(number >= first) & (number <= last)] = MIDDLE
    bins[number == 10] = HARD
    return bins


def difficult_tokens(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C6: does γ = 1 gain more on tokens of the middle deciles of difficulty than on the ends?

    Of the adjusted variant at the largest width and full length, over the seeds that both γ have:
    the mean Δ_sym = (p₁ − p₀.₅)/(p₁ + p₀.₅), in [−1, 1], of the middle deciles minus that of the
    easiest, and minus that of the hardest. Replicated if both are above 0, against it if one is
    below. Not testable where Δ over all tokens (nats per token) lies below smallest_effect.
    Over single tokens; Figure 5 draws units and gives both.
    """
    longest = max((run.metrics.tokens for run in runs), default=0)
    losses = PairedLosses(run for run in runs if run.metrics.tokens == longest)
    widths = losses.widths("adjusted")
    if not widths:
        return Evidence(0)
    usual, small = both_gammas(["adjusted"], widths[-1:])
    seeds = losses.seeds([usual, small])
    if len(seeds) < 2:  # difficulty comes from the other seeds
        return Evidence(0)
    small_SN, usual_SN = (_log_probabilities(losses, setting, seeds) for setting in (small, usual))
    gap_SN = symmetric_gap(small_SN, usual_SN)
    decile_SN = np.stack([deciles(d_N) for d_N in cross_fitted_difficulty(-small_SN, -usual_SN)])
    bins_SN = contrast_bins(decile_SN, claim)
    first, last = middle_deciles(claim)
    required, against = [], []
    for end, name in ((EASY, "the easiest"), (HARD, "the hardest")):
        values = {
            seed: float(gap_N[bins_N == MIDDLE].mean() - gap_N[bins_N == end].mean())
            for seed, gap_N, bins_N in zip(seeds, gap_SN, bins_SN, strict=True)
        }
        quantity = f"Δ_sym of deciles {first}–{last} minus that of {name} decile"
        required.append(Condition(quantity, values, "above", 0.0, rules.confidence))
        against.append(Condition(quantity, values, "below", 0.0, rules.confidence))
    gain = mean_interval(losses.gains("adjusted", widths[-1]).values(), rules.confidence)
    none = gain.high is not None and gain.high < rules.smallest_effect
    reason = (
        f"Δ over all tokens is {number_text(gain)}: there is no gain to locate" if none else None
    )
    return Evidence(len(seeds), required, {}, against, {}, reason)


def _log_probabilities(losses: PairedLosses, setting: Setting, seeds: Sequence[int]) -> Array:
    """Of every target, a row per seed: (S, N)."""
    runs = [losses.runs[setting][seed] for seed in seeds]
    targets = load_targets(runs[0].profile)
    return np.stack(
        [
            load_log_probabilities(run.profile, run.arm, run.seed, targets).astype(float)
            for run in runs
        ]
    )
