"""The numbers of Figure 5: which tokens γ = 1 predicts better, by difficulty and by kind.

A pair is γ = 1 and γ = 0.5 under the same seeds. Everything is per unit: a token, or a character
that the vocabulary spells in several. S seeds, U units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from paper.shared.runs import table
from small_init.claims.contrasts.tokens import EASY, HARD, MIDDLE, contrast_bins
from small_init.claims.criteria import Claim, load_claims
from small_init.errors import UserError
from small_init.files import sha256
from small_init.measure.targets import Frequency, Kind, Targets, load_log_probabilities
from small_init.runs.paths import targets_file, tokens_file
from small_init.runs.record import Run
from small_init.runs.table import by_seed, demand_one_arm_each
from small_init.stats.documents import (
    Array,
    BinMeans,
    DocumentBootstrap,
    Estimate,
    cross_fitted_difficulty,
    deciles,
    symmetric_gap,
)
from small_init.stats.intervals import Interval, paired_difference

NAME = "figure-5"
SMALL, USUAL = 1.0, 0.5
STANDARD, ADJUSTED, MATCHED = "standard", "adjusted", "loss-matched"
CROSS_FITTED = "other seeds"
OWN = {USUAL: f"own run, γ = {USUAL:g}", SMALL: f"own run, γ = {SMALL:g}"}
GAP, GAIN = "delta_sym", "loss_gain"
MIN_UNITS = 100  # in each bin, for a contrast within a group


@dataclass(frozen=True)
class TokenRun(Run):
    """A run together with what it says of each token, so that the stamp covers both."""

    def hashes(self) -> dict[str, str]:
        files = {
            "targets": targets_file(self.profile),
            "tokens": tokens_file(self.profile, self.arm, self.seed),
        }
        return super().hashes() | {name: sha256(path) for name, path in files.items()}


@dataclass(frozen=True)
class Pair:
    """Log-probabilities of the same units under γ = 1 and γ = 0.5, a row per seed."""

    name: str
    arms: tuple[str, str]  # γ = 1, γ = 0.5
    seeds: tuple[int, ...]
    small_SU: Array
    usual_SU: Array

    @property
    def values(self) -> dict[str, Array]:
        """Positive where γ = 1 is better."""
        return {
            GAP: symmetric_gap(self.small_SU, self.usual_SU),
            GAIN: self.small_SU - self.usual_SU,
        }

    @property
    def difficulty_SU(self) -> Array:
        return cross_fitted_difficulty(-self.small_SU, -self.usual_SU)


@dataclass(frozen=True)
class Control:
    """A shorter complete run of γ = 1 that ends near the loss of γ = 0.5."""

    pair: Pair
    tokens: int  # it was trained on
    residual: Interval  # L(0.5) − L(1, shorter) that is left, nats per token
    bracketed: bool  # one shorter run ends above the loss of γ = 0.5 and one below


def arms_of(runs: Sequence[TokenRun]) -> pd.DataFrame:
    """The runs of the largest width in the two γ, one row each."""
    frame = table(runs)
    frame = frame[(frame["d_model"] == frame["d_model"].max())]
    frame = frame[frame["gamma"].isin([USUAL, SMALL]) & frame["variant"].isin([STANDARD, ADJUSTED])]
    demand_one_arm_each(frame, ["variant", "gamma", "tokens"], NAME)
    return frame


class Reader:
    """Log-probabilities per unit of the runs asked for, each file read once."""

    def __init__(self, runs: Sequence[TokenRun], targets: Targets, by_unit: bool = True) -> None:
        self.runs = {(run.arm, run.seed): run for run in runs}
        self.targets = targets
        self.by_unit = by_unit

    def __call__(self, arm: str, seed: int) -> Array:
        values_N = load_log_probabilities(self.runs[arm, seed].profile, arm, seed, self.targets)
        return self.targets.by_unit(values_N) if self.by_unit else values_N.astype(np.float64)

    def pair(self, name: str, small: pd.DataFrame, usual: pd.DataFrame) -> Pair:
        """Over the seeds both arms have."""
        seeds = tuple(sorted(set(small["seed"]) & set(usual["seed"])))
        arms = (str(small["arm"].iloc[0]), str(usual["arm"].iloc[0]))
        if len(seeds) < 2:
            raise UserError(
                f"{NAME} takes the difficulty of a token from other seeds, and {arms[0]} and "
                f"{arms[1]} share {len(seeds)} of them; name two or more in configs/experiments/."
            )
        log_p = [np.stack([self(arm, seed) for seed in seeds]) for arm in arms]
        return Pair(name, arms, seeds, *log_p)


def full_pair(frame: pd.DataFrame, variant: str) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """The rows of γ = 1 and γ = 0.5 at the full length of a variant."""
    cell = frame[frame["variant"] == variant]
    usual = cell[cell["gamma"] == USUAL]
    usual = usual[usual["tokens"] == usual["tokens"].max()]
    small = cell[(cell["gamma"] == SMALL) & cell["tokens"].isin(usual["tokens"])]
    return None if small.empty else (small, usual)


def control(frame: pd.DataFrame, read: Reader) -> Control | None:
    """The shorter run whose loss, on average over the shared seeds, is nearest to γ = 0.5's."""
    found = full_pair(frame, ADJUSTED)
    assert found is not None
    _, usual = found
    cell = frame[(frame["variant"] == ADJUSTED) & (frame["gamma"] == SMALL)]
    shorter = cell[cell["tokens"] < usual["tokens"].max()]
    residuals = {}
    for length, arm in shorter.groupby("tokens"):
        left = paired_difference(by_seed(usual), by_seed(arm))
        if left is not None:
            residuals[length] = left
    if not residuals:
        return None
    length = min(residuals, key=lambda tokens: abs(residuals[tokens].estimate))
    signs = {left.estimate > 0 for left in residuals.values()}
    pair = read.pair(MATCHED, shorter[shorter["tokens"] == length], usual)
    return Control(pair, int(length), residuals[length], len(signs) == 2)


# --- means and contrasts -------------------------------------------------------------------------


def decile_bins(pair: Pair) -> Array:
    return np.stack([deciles(row) for row in pair.difficulty_SU])


@cache
def claim() -> Claim:
    """C6, whose deciles and contrasts these are."""
    return load_claims()["C6"]


CONTRASTS: dict[str, Callable[[Array], Array]] = {
    "middle − decile 1": lambda mean: mean[..., MIDDLE] - mean[..., EASY],
    "middle − decile 10": lambda mean: mean[..., MIDDLE] - mean[..., HARD],
}


def contrasts(values_SU: Array, decile_SU: Array, bootstrap: DocumentBootstrap) -> list[Estimate]:
    """The two differences of claim C6."""
    means = bootstrap.bin_means(values_SU, contrast_bins(decile_SU, claim()), 3)
    return [means.estimate(statistic) for statistic in CONTRASTS.values()]


def groups_of(targets: Targets) -> dict[str, tuple[list[str], Array]]:
    """Division → the names of its groups, and the group of each unit."""
    first_U = targets.first_U
    source_U = targets.source_N[first_U].astype(np.int64)
    languages = sorted(set(targets.languages.tolist()))
    # Units in pieces have no frequency; nearly all of them are a kind of their own.
    bands = [band.value for band in Frequency if band is not Frequency.pieces]
    band_U = targets.frequency_U.astype(np.int64)
    language_of = np.array([languages.index(name) for name in targets.languages])
    return {
        "language": (languages, language_of[source_U]),
        "source": (targets.sources.tolist(), source_U),
        "kind": ([kind.value for kind in Kind], targets.kind_U),
        "frequency": (bands, np.where(band_U < len(bands), band_U, -1)),
    }


def expected_from_difficulty(by_decile: BinMeans, decile_SU: Array, member_U: Array) -> float:
    """A group's mean if each of its tokens did as its decile does, averaged over seeds."""
    means = [
        row[bins[member_U]].mean() for row, bins in zip(by_decile.mean_SK, decile_SU, strict=True)
    ]
    return float(np.mean(means))


# --- rows of the CSV -----------------------------------------------------------------------------


def rows_of(
    kind: str, found: Estimate, seeds: Sequence[int], **labels: Any
) -> list[dict[str, Any]]:
    """A mean with its two intervals, and a row for each seed."""
    head = {"kind": kind, **labels}
    mean = {
        "seeds": found.over_seeds.n,
        "value": found.mean,
        "low": found.over_seeds.low,
        "high": found.over_seeds.high,
        "documents_low": found.documents_low,
        "documents_high": found.documents_high,
    }
    by_run = zip(seeds, found.by_seed, strict=True)
    return [head | mean, *(head | {"seed": s, "value": float(v)} for s, v in by_run)]


def curve_rows(
    pair: Pair, decile_SU: Array, bootstrap: DocumentBootstrap, difficulty: str = CROSS_FITTED
) -> list[dict[str, Any]]:
    """Both quantities and the mean difficulty by decile."""
    rows = []
    for quantity, values_SU in {**pair.values, "difficulty": pair.difficulty_SU}.items():
        means = bootstrap.bin_means(values_SU, decile_SU, 10)
        for number in range(10):
            rows += rows_of(
                "decile", means.bin(number), pair.seeds, comparison=pair.name,
                difficulty_from=difficulty, quantity=quantity, decile=number + 1,
            )  # fmt: skip
    return rows


def contrast_rows(
    pair: Pair, decile_SU: Array, bootstrap: DocumentBootstrap, difficulty: str = CROSS_FITTED
) -> list[dict[str, Any]]:
    rows = []
    for quantity, values_SU in pair.values.items():
        found = contrasts(values_SU, decile_SU, bootstrap)
        for name, one in zip(CONTRASTS, found, strict=True):
            rows += rows_of(
                "contrast", one, pair.seeds, comparison=pair.name, difficulty_from=difficulty,
                quantity=quantity, contrast=name,
            )  # fmt: skip
    return rows


def group_rows(
    pair: Pair, decile_SU: Array, targets: Targets, bootstrap: DocumentBootstrap
) -> list[dict[str, Any]]:
    """Each group's mean beside what its difficulty alone would give, and its own contrasts."""
    rows = []
    for quantity, values_SU in pair.values.items():
        by_decile = bootstrap.bin_means(values_SU, decile_SU, 10)
        for division, (names, group_U) in groups_of(targets).items():
            bins_SU = np.broadcast_to(group_U, values_SU.shape)
            means = bootstrap.bin_means(values_SU, bins_SU, len(names))
            for number, name in enumerate(names):
                member_U = group_U == number
                if not member_U.any():
                    continue
                labels = {
                    "comparison": pair.name, "difficulty_from": CROSS_FITTED, "quantity": quantity,
                    "division": division, "group": name, "units": int(member_U.sum()),
                    "documents": int(means.documents_K[number]),
                }  # fmt: skip
                expected = expected_from_difficulty(by_decile, decile_SU, member_U)
                rows += rows_of("group", means.bin(number), pair.seeds, **labels, expected=expected)
                if division in ("language", "kind"):
                    own_SU = np.where(member_U, decile_SU, -2)
                    if _smallest_bin(contrast_bins(own_SU, claim())) >= MIN_UNITS:
                        own = contrasts(values_SU, own_SU, bootstrap)
                        for contrast, found in zip(CONTRASTS, own, strict=True):
                            rows += rows_of(
                                "contrast", found, pair.seeds, **labels, contrast=contrast
                            )
    return rows


def _smallest_bin(bins_SU: Array) -> int:
    return min(int((row == number).sum()) for row in bins_SU for number in (EASY, MIDDLE, HARD))
