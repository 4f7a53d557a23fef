"""The lowest point of a measured curve, with how well it is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from small_init.stats.fits import quadratic_minimum


@dataclass(frozen=True)
class Vertex:
    """loss(x) = y + curvature·ln(x/best)² about the best x.

    `error` is the standard error of ln(best), from the noise of a point; `miss` the loss that an
    uncertainty of that size is expected to cost, curvature·error². Both are None where the noise
    is not known or the best point is the first or the last (`edge`): it may lie beyond.
    """

    x: float
    y: float
    edge: bool
    curvature: float | None = None
    error: float | None = None
    miss: float | None = None


def log_vertex(x: Sequence[float], y: Sequence[float], noise: float | None) -> Vertex:
    """The vertex of the parabola in ln x through the lowest point and its two neighbours.

    `noise` is the standard deviation of one y. The error is by the delta method: with y = a·u² +
    b·u + c in u = ln x, the vertex −b/2a has the gradient (b/2a², −1/2a) in (a, b).
    """
    log_x = np.log(np.asarray(x, dtype=float))
    found = quadratic_minimum(log_x.tolist(), y)
    if found.edge:
        return Vertex(math.exp(found.x), found.y, True)
    order = np.argsort(log_x)
    middle = int(np.argmin(np.asarray(y, dtype=float)[order]))
    near = order[middle - 1 : middle + 2]
    u = log_x[near] - found.x  # about the vertex b is 0
    design = np.vander(u, 3)
    a = float(np.linalg.solve(design, np.asarray(y, dtype=float)[near])[0])
    if noise is None:
        return Vertex(math.exp(found.x), found.y, False, a)
    variance = noise**2 * np.linalg.inv(design.T @ design)[1, 1] / (4 * a * a)
    return Vertex(math.exp(found.x), found.y, False, a, math.sqrt(variance), a * variance)


def interaction_noise(curves: Sequence[Mapping[int, Sequence[float]]]) -> float | None:
    """The standard deviation of one measurement about its curve, seeds apart, pooled over curves.

    Each curve is seed → y at the same x. What is left of y after the mean of its seed and the mean
    of its x: (seeds − 1)·(points − 1) degrees of freedom a curve. None where no curve has two
    seeds.
    """
    squares, freedom = 0.0, 0
    for curve in curves:
        table = np.asarray(list(curve.values()), dtype=float)
        if len(table) < 2 or table.shape[1] < 2:
            continue
        left = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
        squares += float((left**2).sum())
        freedom += (table.shape[0] - 1) * (table.shape[1] - 1)
    return math.sqrt(squares / freedom) if freedom else None
