"""What the tables and figures compute from final losses: pairs, intervals, sizes, fits, minima.

Runs with the same seed share their data order and their normal draws whatever γ, so every
comparison is made seed by seed and the interval is a t interval over the seeds. Where a number
cannot be had (one seed, a size outside the ladder) the answer is None and a reason, never a guess.
Losses are in nats per token, sizes in parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over `n` seeds with its confidence limits, None where `n` is 1."""

    estimate: float
    low: float | None
    high: float | None
    n: int


def mean_interval(values: Iterable[float], confidence: float = CONFIDENCE) -> Interval:
    """Student's t interval of the mean of one value per seed."""
    x = np.asarray(list(values), dtype=float)
    if x.size == 0:
        raise ValueError("an interval needs at least one value")
    mean = float(x.mean())
    if x.size == 1:
        return Interval(mean, None, None, 1)
    half = stats.t.ppf((1 + confidence) / 2, x.size - 1) * x.std(ddof=1) / math.sqrt(x.size)
    return Interval(mean, float(mean - half), float(mean + half), x.size)


def p_value(values: Sequence[float], bound: float = 0.0) -> float:
    """Two-sided p of Student's t test that the mean of one value per seed is `bound`."""
    x = np.asarray(values, dtype=float)
    if x.size < 2:
        return 1.0
    if np.ptp(x) == 0:  # no spread: the t statistic is infinite, or undefined at the bound itself
        return 0.0 if x[0] != bound else 1.0
    return float(stats.ttest_1samp(x, bound).pvalue)


def paired_difference(
    a: Mapping[int, float], b: Mapping[int, float], confidence: float = CONFIDENCE
) -> Interval | None:
    """The mean of a − b over the seeds both have; None where they share no seed."""
    shared = sorted(a.keys() & b.keys())
    return mean_interval([a[s] - b[s] for s in shared], confidence) if shared else None


def noise_floor(groups: Iterable[Sequence[float]]) -> float | None:
    """How far two runs of one arm differ by their seed alone, as a standard deviation.

    √2 times the seeds' standard deviation pooled over the arms; `groups` holds the losses of each
    arm's seeds. None where no arm has two seeds.
    """
    arms = [np.asarray(group, dtype=float) for group in groups]
    freedom = sum(len(arm) - 1 for arm in arms if len(arm) > 1)
    if freedom == 0:
        return None
    squares = sum(float(((arm - arm.mean()) ** 2).sum()) for arm in arms if len(arm) > 1)
    return math.sqrt(2 * squares / freedom)


def minimum_detectable_effect(
    sd: float, n: int, confidence: float = CONFIDENCE, power: float = 0.8
) -> float | None:
    """The mean difference that a two-sided t test over `n` pairs finds with probability `power`.

    `sd` is the standard deviation of the paired differences. None for fewer than two pairs.
    """
    if n < 2:
        return None
    return sd / math.sqrt(n) * noncentrality(n - 1, confidence, power)


def noncentrality(freedom: float, confidence: float = CONFIDENCE, power: float = 0.8) -> float:
    """By how many of its standard errors a true value must lie from the bound for a two-sided t
    test with `freedom` degrees of freedom to find it with probability `power`."""
    critical = stats.t.ppf((1 + confidence) / 2, freedom)

    def shortfall(away: float) -> float:
        # The other tail adds nothing that shows once the power is above one half.
        return float(stats.nct.sf(critical, freedom, away)) - power

    return float(optimize.brentq(shortfall, 0.0, 3 * critical + 10))


@dataclass(frozen=True)
class Estimate:
    """A number computed from several samples, with its standard error and degrees of freedom."""

    value: float
    error: float
    freedom: float
    n: int  # seeds of the smallest sample

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        half = float(stats.t.ppf((1 + confidence) / 2, self.freedom)) * self.error
        return Interval(self.value, self.value - half, self.value + half, self.n)

    def p_value(self, bound: float) -> float:
        """Two-sided, that the true value is `bound`."""
        if self.error == 0:
            return 0.0 if self.value != bound else 1.0
        away = abs(self.value - bound) / self.error
        return 2 * float(stats.t.sf(away, self.freedom))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down adjustment, which bounds the chance of any false rejection (Holm, 1979)."""
    adjusted, largest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda k: p_values[k])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}
