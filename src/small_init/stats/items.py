"""Differences of accuracy with their intervals, over seeds and over items.

Two runs of a pair answer the same items, so everything is computed from the differences per item.
Both the seeds and the items are samples: another seed would give other weights, other items another
test. Items of one group (cut from one document) are drawn together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE, POWER = 0.95, 0.8


@dataclass(frozen=True)
class Difference:
    """Mean of b − a over items and pairs of seeds.

    Attributes:
        seeds: pairs; with one of them the interval is over items alone.
        detectable: the difference that would be found with probability 0.8.
    """

    estimate: float
    low: float
    high: float
    seeds: int
    items: int
    detectable: float


def item_scores(digits: str) -> np.ndarray:
    """A record's `correct` as numbers, (items,)."""
    return np.frombuffer(digits.encode(), np.uint8).astype(float) - ord("0")


@dataclass(frozen=True)
class Task:
    """The same items answered by pairs of runs; `groups` has the group of every item, if any."""

    a: Mapping[int, np.ndarray]  # seed → score of every item
    b: Mapping[int, np.ndarray]
    groups: Sequence[int] | None = None


def paired_items(tasks: Sequence[Task]) -> Difference | None:
    """b − a, averaged over tasks of different items; None where they share no seed.

    With seed effects s, group effects g and a residual the variance of a task's mean is
    var(s)/S + var(g)/G + var(rest)/(S·G). The variance of the seeds' means over S estimates the
    first and last terms, that of the groups' means over G the second and last, and the residual's
    share, which both hold, is taken off once (Owen, arXiv 0712.1111). Degrees of freedom by
    Satterthwaite. Seeds affect all tasks together, items only their own.
    """
    seeds = sorted(set.intersection(*({*task.a} & {*task.b} for task in tasks)))
    if not seeds:
        return None
    parts = [_parts(task, seeds) for task in tasks]
    means_S = np.mean([part.means_S for part in parts], axis=0)
    terms = [(part.between_groups / len(tasks) ** 2, part.freedom) for part in parts]
    rest = sum(part.rest for part in parts) / len(tasks) ** 2
    if len(seeds) > 1:
        terms.append((float(means_S.var(ddof=1)) / len(seeds), len(seeds) - 1))
    by_seeds = terms[-1][0] if len(seeds) > 1 else 0.0
    total = sum(variance for variance, _ in terms)
    variance = max(total - rest, total - by_seeds, by_seeds)
    squares = sum(v**2 / f for v, f in terms)
    freedom = total**2 / squares if squares else math.inf
    error = math.sqrt(variance)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    mean = float(means_S.mean())
    return Difference(
        mean,
        mean - half,
        mean + half,
        len(seeds),
        sum(part.items for part in parts),
        half + float(stats.t.ppf(POWER, freedom)) * error,
    )


@dataclass(frozen=True)
class _Parts:
    means_S: np.ndarray
    items: int
    between_groups: float
    freedom: int
    rest: float


def _parts(task: Task, seeds: Sequence[int]) -> _Parts:
    d_SI = np.stack([task.b[seed] - task.a[seed] for seed in seeds])
    sizes_G = _group_sums(np.ones((1, d_SI.shape[1])), task.groups)[0]
    count_s, count_g = len(seeds), len(sizes_G)
    # Where groups differ in size the mean is a ratio: a group counts by how far its sum is from
    # what its size would give.
    r_SG = _group_sums(d_SI, task.groups) - d_SI.mean() * sizes_G
    r_SG /= sizes_G.mean()
    rest = 0.0
    if count_s > 1:
        rest_SG = r_SG - r_SG.mean(0) - r_SG.mean(1, keepdims=True) + r_SG.mean()
        rest = float((rest_SG**2).sum()) / ((count_s - 1) * (count_g - 1)) / (count_s * count_g)
    between = float(r_SG.mean(0).var(ddof=1)) / count_g
    return _Parts(d_SI.mean(1), d_SI.shape[1], between, count_g - 1, rest)


def _group_sums(d_SI: np.ndarray, groups: Sequence[int] | None) -> np.ndarray:
    if groups is None:
        return d_SI
    d_SG = np.zeros((len(d_SI), max(groups) + 1))
    for row, values in zip(d_SG, d_SI, strict=True):
        np.add.at(row, np.asarray(groups), values)
    return d_SG


def accuracy_limits(correct: float, items: int) -> tuple[float, float]:
    """Wilson's interval of a share of `items`."""
    z = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    middle = (correct + z**2 / (2 * items)) / (1 + z**2 / items)
    half = z * math.sqrt(correct * (1 - correct) / items + z**2 / (4 * items**2))
    half /= 1 + z**2 / items
    return middle - half, middle + half
