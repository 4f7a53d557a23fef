"""Where the loss over γ is lowest: claim C5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from small_init.claims.contrasts.best_std import best_stds, std_text
from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import (
    SMALL,
    PairedLosses,
    of_one_context,
    of_the_rule,
    widths_of_scale,
)
from small_init.claims.verdicts import Condition, EstimateCondition, Evidence
from small_init.runs.record import Run
from small_init.stats.best_scale import exponent
from small_init.stats.fits import quadratic_minimum
from small_init.stats.intervals import CONFIDENCE, Interval, mean_interval

WIDTHS = (32, 64)  # that paper/claims.yaml names; see `widths_of_scale`
AROUND = (0.75, SMALL, 1.25)  # γ without which the claim cannot be asked


@dataclass(frozen=True)
class LowestLoss:
    """Where one variant's loss at one width is lowest over γ."""

    gamma: float  # mean of the seeds' own vertices; at an edge for some seed that of the mean loss
    loss: float  # there, nats per token
    interval: Interval | None  # of `gamma` over seeds; None where some seed is lowest at an edge
    edge: bool  # the lowest mean loss is that of the first or the last γ


def lowest_loss(
    gammas: Sequence[float],
    by_seed: Mapping[int, Sequence[float]],
    confidence: float = CONFIDENCE,
) -> LowestLoss:
    """`by_seed` holds per seed the losses (nats per token) at `gammas`; one seed at least.

    An edge only bounds where a seed's minimum is, and a mean over such bounds would be false.
    """
    vertices = [quadratic_minimum(gammas, losses) for losses in by_seed.values()]
    of_mean = quadratic_minimum(gammas, np.mean(list(by_seed.values()), axis=0).tolist())
    if any(vertex.edge for vertex in vertices):
        return LowestLoss(of_mean.x, of_mean.y, None, of_mean.edge)
    interval = mean_interval([vertex.x for vertex in vertices], confidence)
    loss = float(np.mean([vertex.y for vertex in vertices]))
    return LowestLoss(interval.estimate, loss, interval, of_mean.edge)


def critical_scale(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C5: is the loss of the adjusted variant lowest at γ = 1, and higher beyond?

    L(1.25) − L(1) at each of two widths, nats per token, over the seeds that have every γ run
    there; and γ* (no unit), the exponent with which the best standard deviation falls over all
    widths (`best_std`), since at one width γ and a number are the same thing. Replicated if every
    difference is above 0 and the interval of γ* lies in [low, high]. Against it is a difference
    below 0, an interval of γ* that excludes 1, or a loss at an edge of the γ run at a width that is
    below its neighbour's. Not testable where γ = 0.75, 1 and 1.25 were not run at both widths.
    """
    losses = PairedLosses(of_one_context(of_the_rule(runs)))
    c, low, high = rules.confidence, claim.thresholds["low"], claim.thresholds["high"]
    widths = widths_of_scale(losses, WIDTHS)
    needed = [("adjusted", gamma, width) for gamma in AROUND for width in widths]
    if len(widths) < len(WIDTHS) or not losses.has(needed):
        return Evidence(
            len(losses.seeds(needed)),
            not_testable="γ = 0.75, 1 and 1.25 were not run at both widths",
        )
    required: list[Condition] = []
    against: list[Condition] = []
    pairs = []
    for width in widths:
        gammas = losses.gammas("adjusted", width)
        seeds = losses.seeds([("adjusted", gamma, width) for gamma in gammas])
        pairs.append(len(seeds))
        if not seeds:
            continue

        def difference(gamma: float, other: float, width: int = width) -> dict[int, float]:
            places = [("adjusted", g, width) for g in (gamma, other)]
            return {
                seed: losses.loss(places[0], seed) - losses.loss(places[1], seed)
                for seed in losses.seeds(places)
            }

        over, name = difference(1.25, SMALL), f"L(1.25) − L(1), d = {width}"
        required.append(Condition(name, over, "above", 0.0, c))
        against.append(Condition(name, over, "below", 0.0, c))
        for edge, beside_it in ((gammas[0], gammas[1]), (gammas[-1], gammas[-2])):
            quantity = f"L({edge:g}) − L({beside_it:g}) at an edge of the grid, d = {width}"
            if edge not in (SMALL, 1.25):
                against.append(Condition(quantity, difference(edge, beside_it), "below", 0.0, c))
    best = best_stds(losses)
    gamma, name = exponent(best), "exponent γ* of the best standard deviation"
    beside = {f"best standard deviation, d = {b.width}": std_text(b) for b in best}
    points = {}
    if gamma is None:
        points[f"{name}: no interval"] = (0.0, False)
    else:
        required += [
            EstimateCondition(name, {}, "above", low, c, gamma),
            EstimateCondition(name, {}, "below", high, c, gamma),
        ]
        against += [
            EstimateCondition(name, {}, side, SMALL, c, gamma) for side in ("below", "above")
        ]
    return Evidence(min(pairs), required, points, against, beside=beside)
