"""Statistics over tokens: difficulty from other seeds, deciles, bootstrap over documents.

Tokens of one document are alike, so the document and not the token is what is drawn again. Seeds
are not: with five of them a bootstrap would be too narrow, and they have their t interval.
Shapes: S seeds, U units (tokens), D documents, K bins, B draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from small_init.stats.intervals import CONFIDENCE, Interval, mean_interval

Array = NDArray[Any]
DRAWS = 2_000
MIN_DOCUMENTS = 10  # with fewer, drawing them again says little of other documents


def symmetric_gap(log_p_a: Array, log_p_b: Array) -> Array:
    """Δ_sym = (p_a − p_b)/(p_a + p_b), in [−1, 1]: the tanh of half the difference of the logs."""
    return np.tanh((log_p_a - log_p_b) / 2)


def cross_fitted_difficulty(loss_a_SU: Array, loss_b_SU: Array) -> Array:
    """Mean loss of each token over the *other* seeds of both arms, (S, U).

    A token that a run happened to get wrong looks difficult to that run, and the other run, less
    unlucky there, looks better on "difficult" tokens: regression to the mean, which a difficulty
    from runs that are not compared does not have. Both arms count alike, since a difficulty from
    one of them alone would call difficult what this one is bad at.
    """
    if len(loss_a_SU) != len(loss_b_SU) or len(loss_a_SU) < 2:
        raise ValueError("cross-fitting needs at least two seeds, the same in both arms")
    both_SU = loss_a_SU + loss_b_SU
    return (both_SU.sum(0) - both_SU) / (2 * (len(both_SU) - 1))


def deciles(difficulty_U: Array) -> NDArray[np.int64]:
    """0 for the easiest tenth … 9 for the hardest, all of one size; ties in the order given."""
    rank_U = np.argsort(np.argsort(difficulty_U, kind="stable"), kind="stable")
    return rank_U * 10 // len(rank_U)


@dataclass(frozen=True)
class BinMeans:
    """Means of a quantity per seed and bin, as they are and with documents drawn again."""

    mean_SK: Array
    draws_BSK: Array
    documents_K: Array  # documents with a token in the bin

    def estimate(self, statistic: Callable[[Array], Array]) -> Estimate:
        """`statistic` takes means (…, K) to (…); seeds and documents each give an interval."""
        by_seed = statistic(self.mean_SK)
        draws_B = statistic(self.draws_BSK).mean(-1)
        tail = (1 - CONFIDENCE) / 2
        low, high = np.nanquantile(draws_B, [tail, 1 - tail])
        return Estimate(by_seed, mean_interval(by_seed), float(low), float(high))

    def bin(self, number: int) -> Estimate:
        """The mean of one bin; no interval over documents where they are too few."""
        found = self.estimate(lambda mean: mean[..., number])
        if self.documents_K[number] >= MIN_DOCUMENTS:
            return found
        return Estimate(found.by_seed, found.over_seeds, None, None)


@dataclass(frozen=True)
class Estimate:
    """A number with two intervals at `CONFIDENCE`, for two questions.

    Over seeds (Student's t): would other runs say the same of these documents? Over documents
    (percentiles of the bootstrap): would these runs say the same of other documents?
    """

    by_seed: Array
    over_seeds: Interval
    documents_low: float | None
    documents_high: float | None

    @property
    def mean(self) -> float:
        return self.over_seeds.estimate


class DocumentBootstrap:
    """Resamplings of the documents, the same for every quantity and seed: differences are paired.

    Documents are drawn within their source, as the validation set fixes each source's share; a
    source of a single document therefore adds nothing to an interval.
    """

    def __init__(self, document_U: Array, source_U: Array, draws: int = DRAWS) -> None:
        names_D, first_D, self.document_U = np.unique(
            document_U, return_index=True, return_inverse=True
        )
        self.documents = len(names_D)
        source_D = source_U[first_D]
        generator = np.random.default_rng(0)
        self.weights_BD = np.empty((draws, self.documents))
        for source in np.unique(source_D):
            mine = np.flatnonzero(source_D == source)
            shares = np.full(len(mine), 1 / len(mine))
            self.weights_BD[:, mine] = generator.multinomial(len(mine), shares, size=draws)

    def bin_means(self, values_SU: Array, bins_SU: Array, bins: int) -> BinMeans:
        """Mean of `values_SU` over the tokens of each bin; −1 in `bins_SU` leaves a token out."""
        means, draws, present = [], [], np.zeros((self.documents, bins), dtype=bool)
        for values_U, bins_U in zip(values_SU, bins_SU, strict=True):
            counted = bins_U >= 0
            place = self.document_U[counted] * bins + bins_U[counted]
            size = self.documents * bins
            sums_DK = np.bincount(place, values_U[counted], size).reshape(-1, bins)
            counts_DK = np.bincount(place, minlength=size).reshape(-1, bins)
            present |= counts_DK > 0
            with np.errstate(invalid="ignore"):  # a bin whose documents were not drawn is NaN
                means.append(sums_DK.sum(0) / counts_DK.sum(0))
                draws.append((self.weights_BD @ sums_DK) / (self.weights_BD @ counts_DK))
        return BinMeans(np.stack(means), np.stack(draws, axis=1), present.sum(0))
