"""Calibrated peak learning rates, as the plan takes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from omegaconf import OmegaConf

from small_init.config import ArmConfig
from small_init.config_files import load_yaml, merged
from small_init.files import fingerprint

LITERAL_EPS = 1e-5  # the ε of the paper's standard setting
# A run's length, and what it records, are no part of what a rate is calibrated for.
_LENGTH_AND_RECORD = ("tokens", "curve_points", "curve_tokens", "final_tokens", "probes")


def matched_eps(gamma: float, width_ratio: float) -> float:
    """The ε that saturates a small model as 1e-5 does one `width_ratio` times as wide.

    What counts is ε·d^(2γ), the ratio of ε to the embedding's variance; see Figure 2.
    """
    return float(f"{LITERAL_EPS * width_ratio ** (2 * gamma):.6g}")


def condition(arm: ArmConfig, width_ratio: float) -> str:
    """What a learning rate is calibrated for, γ apart: a fingerprint of all of the configuration
    but γ, the rate, the run's length and what is recorded. A matched ε follows γ and counts as
    one."""
    identity = arm.identity()
    del identity["optimizer"]["lr"], identity["init"]["gamma"]
    for name in _LENGTH_AND_RECORD:
        del identity["train"][name]
    if math.isclose(arm.model.norm_eps, matched_eps(arm.init.gamma, width_ratio), rel_tol=1e-5):
        identity["model"]["norm_eps"] = "matched"
    return fingerprint(identity)


@dataclass
class Rate:
    """One line of the calibration: the best peak learning rate of one γ under one condition."""

    label: str = ""  # the condition in words
    condition: str = ""  # as `condition` says
    gamma: float = 0.0
    lr: float = 0.0
    edge: bool = False  # the best rate tried was the lowest or the highest
    curvature: float | None = None  # c of loss = lowest + c·ln(rate/best)², nats
    error: float | None = None  # standard error of ln(lr)
    miss: float | None = None  # nats that a rate so uncertain is expected to cost: c·error²


@dataclass(frozen=True)
class RateTable:
    """Calibrated peak learning rates: `configs/calibration/<profile>.yaml`.

    Written by `small-init calibrate` from the calibration's records.
    """

    rates: tuple[Rate, ...]

    @classmethod
    def load(cls, path: Path) -> RateTable:
        rows = (OmegaConf.to_container(row) for row in load_yaml(path).rates)
        return cls(tuple(merged(Rate(), row, where=str(path)) for row in rows))

    def at(self, condition: str, gamma: float) -> Rate | None:
        """The rate of this γ; between two calibrated γ of the condition, log(rate) is linear in γ
        and the worse known of the two says how well. None beyond them, or without any."""
        rows = sorted((r for r in self.rates if r.condition == condition), key=lambda r: r.gamma)
        for rate in rows:
            if math.isclose(rate.gamma, gamma, abs_tol=1e-9):
                return rate
        for low, high in pairwise(rows):
            if low.gamma < gamma < high.gamma:
                share = (gamma - low.gamma) / (high.gamma - low.gamma)
                log_rate = (1 - share) * math.log(low.lr) + share * math.log(high.lr)
                worse = max(low, high, key=lambda rate: rate.miss or 0.0)
                return Rate(
                    low.label, condition, gamma, float(f"{math.exp(log_rate):.3g}"),
                    low.edge or high.edge, worse.curvature, worse.error, worse.miss,
                )  # fmt: skip
        return None
