"""Calibrated peak learning rates, as the plan takes them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from small_init.config_files import load_yaml


@dataclass(frozen=True)
class Rate:
    """One line of the calibration: the best peak learning rate of one γ at one width."""

    gated: bool
    d_model: int
    gamma: float
    lr: float
    edge: bool  # the best rate tried was the lowest or the highest


@dataclass(frozen=True)
class RateTable:
    """Calibrated peak learning rates: `configs/calibration/<profile>.yaml`.

    Written by `small-init calibrate` from the calibration's records. The width with most γ gives
    the shape over γ; another width shifts it, by what its own γ say. log(rate) is linear between γ
    and in log(width), beyond the calibrated widths too: rates fall with width, and the nearest one
    would be too high. Outside the calibrated γ the nearest entry holds.
    """

    rates: tuple[Rate, ...]

    @classmethod
    def load(cls, path: Path) -> RateTable:
        return cls(tuple(Rate(**OmegaConf.to_container(row)) for row in load_yaml(path).rates))  # type: ignore[arg-type]

    def _by_width(self, gated: bool) -> dict[int, dict[float, float]]:
        """Width → γ → log(rate), the width with most γ first."""
        widths: dict[int, dict[float, float]] = {}
        for rate in self.rates:
            if rate.gated == gated:
                widths.setdefault(rate.d_model, {})[rate.gamma] = math.log(rate.lr)
        return dict(sorted(widths.items(), key=lambda item: (-len(item[1]), item[0])))

    def at(self, gated: bool, gamma: float, d_model: int) -> float:
        widths = self._by_width(gated)
        shape = next(iter(widths.values()))
        by_width = []
        for width, found in widths.items():
            shifts = [(g, found[g] - _interpolate(sorted(shape.items()), g)) for g in sorted(found)]
            rate = _interpolate(sorted(shape.items()), gamma) + _interpolate(shifts, gamma)
            by_width.append((math.log(width), rate))
        log_rate = _interpolate(sorted(by_width), math.log(d_model), extrapolate=True)
        return float(f"{math.exp(log_rate):.2g}")

    def covers(self, gated: bool, gamma: float, d_model: int) -> bool:
        """Whether `at` interpolates between optima that their grids bracket: at this width, or at
        the calibrated ones on both sides of it, γ lies within those that were tried there."""
        widths = self._by_width(gated)
        if any(rate.edge for rate in self.rates if rate.gated == gated):
            return False
        below = max((width for width in widths if width <= d_model), default=None)
        above = min((width for width in widths if width >= d_model), default=None)
        return (
            below is not None
            and above is not None
            and all(min(widths[w]) <= gamma <= max(widths[w]) for w in (below, above))
        )


def _interpolate(nodes: list[tuple[float, float]], x: float, extrapolate: bool = False) -> float:
    """Linear through sorted nodes; beyond them the nearest value, or the end pieces prolonged."""
    if len(nodes) == 1:
        return nodes[0][1]
    if not extrapolate:
        x = min(max(x, nodes[0][0]), nodes[-1][0])
    pieces = list(itertools.pairwise(nodes))
    (x0, y0), (x1, y1) = next((piece for piece in pieces if x <= piece[1][0]), pieces[-1])
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
