"""Where the loss over γ is lowest: claim C5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import (
    SMALL,
    PairedLosses,
    number_text,
    of_one_context,
    widths_of_scale,
)
from small_init.claims.verdicts import Condition, Evidence
from small_init.runs.record import Run
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
    """C5: is the loss of the adjusted variant lowest at γ = 1, and higher beyond, at both widths?

    At each width, of the seeds that have every γ run there: L(1.25) − L(1), nats per token, and the
    γ of the `lowest_loss` (no unit). Replicated if every difference is above 0 and every such γ
    lies in [low, high] and at no seed's edge of the grid. Against it is a difference below 0, an
    interval of γ outside [low, high], or a mean loss that is lowest at an edge. Not testable where
    γ = 0.75, 1 and 1.25 were not run at both widths.
    """
    losses, c = PairedLosses(of_one_context(runs)), rules.confidence
    low, high = claim.thresholds["low"], claim.thresholds["high"]
    widths = widths_of_scale(losses, WIDTHS)
    needed = [("adjusted", gamma, width) for gamma in AROUND for width in widths]
    if len(widths) < len(WIDTHS) or not losses.has(needed):
        return Evidence(
            len(losses.seeds(needed)),
            not_testable="γ = 0.75, 1 and 1.25 were not run at both widths",
        )
    required, against = [], []
    points: dict[str, tuple[float, bool]] = {}
    against_points: dict[str, bool] = {}
    beside: dict[str, str] = {}
    pairs = []
    for width in widths:
        settings = [("adjusted", gamma, width) for gamma in losses.gammas("adjusted", width)]
        seeds = losses.seeds(settings)
        pairs.append(len(seeds))
        if not seeds:
            continue
        over = {
            seed: losses.loss(("adjusted", 1.25, width), seed)
            - losses.loss(("adjusted", SMALL, width), seed)
            for seed in seeds
        }
        name = f"L(1.25) − L(1), d = {width}"
        required.append(Condition(name, over, "above", 0.0, c))
        against.append(Condition(name, over, "below", 0.0, c))
        curves = {seed: [losses.loss(setting, seed) for setting in settings] for seed in seeds}
        found = lowest_loss([gamma for _, gamma, _ in settings], curves, c)
        vertex = f"vertex of the loss over γ, d = {width}"
        if found.interval is None:
            points[vertex] = (found.gamma, False)
            beside[vertex] = f"{found.gamma:.2f} of the mean curve; at an edge for some seed"
        else:
            interval = found.interval
            points[vertex] = (interval.estimate, low <= interval.estimate <= high)
            beside[vertex] = number_text(interval, unit="").lstrip("+")
            if interval.low is not None and interval.high is not None:
                against_points[f"{vertex}, interval outside [{low:g}, {high:g}]"] = (
                    interval.low > high or interval.high < low
                )
        against_points[f"lowest mean loss at an edge of the grid, d = {width}"] = found.edge
    return Evidence(min(pairs), required, points, against, against_points, None, beside)
