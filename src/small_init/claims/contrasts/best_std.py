"""Is it the rule or just a smaller number: claim S, the best standard deviation by width."""

from __future__ import annotations

import math
from collections.abc import Sequence

from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import PairedLosses, of_one_context, of_the_rule
from small_init.claims.verdicts import EstimateCondition, Evidence
from small_init.runs.record import Run
from small_init.stats.best_scale import MIN_POINTS, BestStd, best_std, exponent

VARIANT = "adjusted"


def best_stds(losses: PairedLosses) -> list[BestStd]:
    """σ* at every width that ran three γ or more of the adjusted variant; σ is d^(−γ), the standard
    deviation of the weights with fan-in d. Over the σ that all of these widths ran, where there are
    three, and the seeds that have all of them."""
    widths = sorted({d for v, _, d in losses.runs if v == VARIANT})
    ran = {width: losses.gammas(VARIANT, width) for width in widths}
    ran = {width: gammas for width, gammas in ran.items() if len(gammas) >= MIN_POINTS}
    steps = [{_step(width, gamma) for gamma in gammas} for width, gammas in ran.items()]
    common = set.intersection(*steps) if steps else set()
    found = []
    for width, gammas in ran.items():
        if len(common) >= MIN_POINTS:
            gammas = [gamma for gamma in gammas if _step(width, gamma) in common]
        settings = [(VARIANT, gamma, width) for gamma in gammas]
        seeds = losses.seeds(settings)
        if seeds:
            curves = {seed: [losses.loss(place, seed) for place in settings] for seed in seeds}
            found.append(best_std(width, [width**-gamma for gamma in gammas], curves))
    return found


def _step(width: int, gamma: float) -> float:
    """−ln σ, coarse enough to be the same at every width."""
    return round(gamma * math.log(width), 3)


def std_text(best: BestStd) -> str:
    """σ* as a number and as the γ that gives it."""
    gamma = -math.log(best.std) / math.log(best.width)
    text = f"σ* = {best.std:.4f}, which is γ = {gamma:.2f}"
    return f"{text}, at an edge of the grid" if best.edge else f"{text}, n = {best.n}"


def best_std_exponent(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """S: does the best standard deviation fall with the width as d^(−1)?

    γ* (no unit) of the `exponent` over all widths. Replicated if its interval lies above `usual`
    and holds `rule`; against it if the interval lies wholly below or above `rule`. Not testable
    with fewer than `widths` widths. Where σ* lies at an edge of some width's grid, or a width has
    one seed, there is no interval and nothing is decided.
    """
    found = best_stds(PairedLosses(of_one_context(of_the_rule(runs))))
    beside = {f"best standard deviation, d = {best.width}": std_text(best) for best in found}
    pairs = min((best.n for best in found), default=0)
    least = int(claim.thresholds["widths"])
    if len(found) < least:
        reason = f"{len(found)} widths were run at three σ, fewer than {least}"
        return Evidence(pairs, not_testable=reason, beside=beside)
    gamma = exponent(found)
    usual, rule, c = claim.thresholds["usual"], claim.thresholds["rule"], rules.confidence
    name = "exponent γ* of the best standard deviation"
    if gamma is None:
        edges = [best.width for best in found if best.edge]
        reason = f"σ* lies at an edge of the grid at d = {edges[0]}" if edges else "one seed"
        return Evidence(
            pairs, points={f"{name}: no interval, {reason}": (0.0, False)}, beside=beside
        )
    interval = gamma.interval(c)
    assert interval.low is not None
    assert interval.high is not None
    holds = interval.low <= rule <= interval.high
    return Evidence(
        pairs,
        required=[EstimateCondition(name, {}, "above", usual, c, gamma)],
        points={f"the interval of γ* holds {rule:g}": (gamma.value, holds)},
        against=[
            EstimateCondition(name, {}, "below", rule, c, gamma),
            EstimateCondition(name, {}, "above", rule, c, gamma),
        ],
        beside=beside,
    )
