"""The best standard deviation of the weights at a width, and how it moves with the width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from small_init.stats.intervals import Estimate

MIN_POINTS = 3  # of a parabola


@dataclass(frozen=True)
class BestStd:
    """Where the mean loss over ln σ is lowest at one width.

    `error` is the standard error of ln(std), None with one seed or at an edge of the grid, beyond
    which the minimum may lie.
    """

    width: int
    std: float
    loss: float  # there, nats per token
    edge: bool
    error: float | None
    n: int  # seeds


def best_std(width: int, stds: Sequence[float], by_seed: Mapping[int, Sequence[float]]) -> BestStd:
    """The vertex of the parabola in ln σ through the lowest point of the mean curve and its two
    neighbours; `by_seed` holds per seed the losses (nats per token) at `stds`, three or more.

    The error is the jackknife's over seeds, about the same three points: which of them is lowest
    must not change with the seed left out, or the error would be that of the choice.
    """
    order = np.argsort(stds)
    log_std = np.log(np.asarray(stds, dtype=float))[order]
    losses = np.asarray(list(by_seed.values()), dtype=float)[:, order]
    mean = losses.mean(0)
    lowest = int(np.argmin(mean))
    if lowest in (0, len(mean) - 1):
        std = float(math.exp(log_std[lowest]))
        return BestStd(width, std, float(mean[lowest]), True, None, len(losses))
    near = slice(lowest - 1, lowest + 2)
    x, _ = vertex = _vertex(log_std[near], mean[near])
    error = None
    if len(losses) > 1:
        n = len(losses)
        left_out = np.array(
            [_vertex(log_std[near], np.delete(losses, s, 0).mean(0)[near])[0] for s in range(n)]
        )
        error = math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))
    return BestStd(width, math.exp(x), vertex[1], False, error, len(losses))


def _vertex(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    a, b, c = np.polyfit(x - x[1], y, 2)
    return float(x[1] - b / (2 * a)), float(c - b * b / (4 * a))


def exponent(found: Sequence[BestStd]) -> Estimate | None:
    """γ* with σ* ∝ d^(−γ*): minus the least-squares slope of ln σ* on ln d, all widths alike.

    Its error adds up those of the widths, with Welch and Satterthwaite's degrees of freedom. None
    with fewer than two widths, or where one has no error.
    """
    if len(found) < 2 or any(best.error is None for best in found):
        return None
    log_width = np.log([best.width for best in found])
    away = log_width - log_width.mean()
    weights = -away / (away**2).sum()
    value = float(weights @ np.log([best.std for best in found]))
    parts = (weights * np.array([best.error for best in found], dtype=float)) ** 2
    variance = float(parts.sum())
    smallest = min(best.n for best in found)
    if variance == 0:
        return Estimate(value, 0.0, float(smallest - 1), smallest)
    freedom = variance**2 / float((parts**2 / [best.n - 1 for best in found]).sum())
    return Estimate(value, math.sqrt(variance), freedom, smallest)
