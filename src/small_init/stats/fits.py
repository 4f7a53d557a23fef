"""Loss against size and against a knob: effective sizes, scaling fits, minima."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from small_init.stats.intervals import CONFIDENCE, Interval, mean_interval


def slopes(sizes: Sequence[float], by_seed: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """Seed → slope of a quantity on ln N, a least-squares line per seed (quantity per e-fold).

    `by_seed` holds per seed the quantity at `sizes`, two at least.
    """
    log_size = np.log(np.asarray(sizes, dtype=float))
    return {seed: float(np.polyfit(log_size, y, 1)[0]) for seed, y in by_seed.items()}


@dataclass(frozen=True)
class EffectiveSize:
    """The baseline's size that reaches a loss (parameters), or the reason why there is none."""

    size: float | None
    reason: str | None = None


def effective_size(
    sizes: Sequence[float], losses_baseline: Sequence[float], loss_other: float
) -> EffectiveSize:
    """N' with L_baseline(N') = `loss_other`, interpolated linearly in ln N between measured sizes.

    Refused outside the measured losses (that would extrapolate) and where the baseline does not
    fall with size (N' would not be unique).
    """
    order = np.argsort(np.asarray(sizes, dtype=float))
    size = np.asarray(sizes, dtype=float)[order]
    loss = np.asarray(losses_baseline, dtype=float)[order]
    if len(size) < 2:
        return EffectiveSize(None, "fewer than two sizes of the baseline")
    if not (np.diff(loss) < 0).all():
        return EffectiveSize(None, "the baseline's loss does not fall with size")
    if loss_other < loss[-1]:
        return EffectiveSize(None, "better than the largest baseline measured")
    if loss_other > loss[0]:
        return EffectiveSize(None, "worse than the smallest baseline measured")
    return EffectiveSize(float(np.exp(np.interp(-loss_other, -loss, np.log(size)))))


@dataclass(frozen=True)
class SizeRatio:
    """N'/N with its interval, or the reason why there is none."""

    interval: Interval | None
    reason: str | None = None


def effective_size_interval(
    sizes: Sequence[float],
    baseline: Mapping[int, Sequence[float]],
    other: Mapping[int, float],
    size: float,
    confidence: float = CONFIDENCE,
) -> SizeRatio:
    """N'/N of the runs `other` (seed → loss) of `size` parameters; t interval on ln(N'/N).

    `baseline` holds per seed the losses at `sizes`. One refused seed refuses the whole: leaving it
    out would keep only the seeds with the smaller gain.
    """
    shared = sorted(baseline.keys() & other.keys())
    if not shared:
        return SizeRatio(None, "no seed is shared with the baseline at every size")
    logs = []
    for seed in shared:
        found = effective_size(sizes, baseline[seed], other[seed])
        if found.size is None:
            return SizeRatio(None, f"{found.reason} (seed {seed})")
        logs.append(math.log(found.size / size))
    of_logs = mean_interval(logs, confidence)
    low, high = (None if x is None else math.exp(x) for x in (of_logs.low, of_logs.high))
    return SizeRatio(Interval(math.exp(of_logs.estimate), low, high, of_logs.n))


MIN_FIT_SIZES = 4  # three parameters; with three sizes any curve would fit


@dataclass(frozen=True)
class ScalingFit:
    """L(N) = E + A·N^(−α): a description of the sizes measured, no basis for extrapolation."""

    e: float
    a: float
    alpha: float
    rms_residual: float
    at_bound: bool  # the data do not determine E or α: one of them lies on the edge of its range

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        return self.e + self.a * np.asarray(sizes, dtype=float) ** -self.alpha


def fit_scaling(sizes: Sequence[float], losses: Sequence[float]) -> ScalingFit | None:
    """Least squares over all points, E in [0, lowest loss], α in [0.01, 2].

    None with fewer than four different sizes.
    """
    size, loss = np.asarray(sizes, dtype=float), np.asarray(losses, dtype=float)
    if len(np.unique(size)) < MIN_FIT_SIZES:
        return None
    # In units of the middle size the three parameters are of order one and far less correlated.
    middle = math.exp(float(np.log(size).mean()))
    bounds = np.array([[0.0, -12.0, 0.01], [float(loss.min()), 8.0, 2.0]])

    def residuals(p: np.ndarray) -> np.ndarray:
        return p[0] + np.exp(p[1]) * (size / middle) ** -p[2] - loss

    fits = [
        optimize.least_squares(
            residuals,
            [share * loss.min(), math.log(loss.mean() - share * loss.min()), alpha],
            bounds=bounds,
            xtol=1e-14,
            ftol=1e-14,
            gtol=1e-14,
        )
        for share in (0.1, 0.5, 0.9)
        for alpha in (0.1, 0.3, 1.0)
    ]
    best = min(fits, key=lambda fit: fit.cost)
    e, log_b, alpha = best.x
    edge = 1e-3 * (bounds[1] - bounds[0])
    near = np.minimum(best.x - bounds[0], bounds[1] - best.x) < edge
    return ScalingFit(
        e=float(e),
        a=float(math.exp(log_b) * middle**alpha),
        alpha=float(alpha),
        rms_residual=float(np.sqrt(np.mean(best.fun**2))),
        at_bound=bool(near[0] or near[2]),
    )


@dataclass(frozen=True)
class Minimum:
    """Where a curve is lowest; `edge` says that the lowest point measured is the first or last."""

    x: float
    y: float
    edge: bool


def quadratic_minimum(x: Sequence[float], y: Sequence[float]) -> Minimum:
    """The vertex of the parabola through the lowest point and its two neighbours.

    At an edge the lowest point itself: the true minimum may lie outside the grid.
    """
    order = np.argsort(np.asarray(x, dtype=float))
    xs, ys = np.asarray(x, dtype=float)[order], np.asarray(y, dtype=float)[order]
    lowest = int(np.argmin(ys))
    if lowest in (0, len(xs) - 1):
        return Minimum(float(xs[lowest]), float(ys[lowest]), edge=True)
    near = slice(lowest - 1, lowest + 2)
    # Centred, because an uncentred fit of three close points loses digits.
    a, b, c = np.polyfit(xs[near] - xs[lowest], ys[near], 2)
    return Minimum(float(xs[lowest] - b / (2 * a)), float(c - b * b / (4 * a)), edge=False)


def log_minimum(x: Sequence[float], y: Sequence[float]) -> Minimum:
    """As `quadratic_minimum` with the parabola in ln x: the optimum of a learning rate."""
    found = quadratic_minimum(np.log(np.asarray(x, dtype=float)).tolist(), y)
    return Minimum(math.exp(found.x), found.y, found.edge)
