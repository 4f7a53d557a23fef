"""Statistics over tokens against brute force, and what they are there to prevent."""

import numpy as np
import pytest

from small_init.stats.documents import (
    MIN_DOCUMENTS,
    DocumentBootstrap,
    cross_fitted_difficulty,
    deciles,
    symmetric_gap,
)
from small_init.stats.intervals import mean_interval


def test_the_symmetric_gap_is_its_definition() -> None:
    p_a, p_b = np.array([0.9, 0.2, 1e-9, 0.5]), np.array([0.1, 0.3, 1e-12, 0.5])
    gap = symmetric_gap(np.log(p_a), np.log(p_b))
    assert gap == pytest.approx((p_a - p_b) / (p_a + p_b))
    assert symmetric_gap(np.array([-1.0]), np.array([-900.0])) == pytest.approx(1.0)


def test_difficulty_is_the_mean_over_the_other_seeds_of_both_arms() -> None:
    random = np.random.default_rng(0)
    a, b = random.random((3, 5)), random.random((3, 5))
    by_hand = [np.mean([arm[s] for arm in (a, b) for s in range(3) if s != k], 0) for k in range(3)]
    assert cross_fitted_difficulty(a, b) == pytest.approx(np.stack(by_hand))


def test_cross_fitting_needs_two_seeds_of_each_arm() -> None:
    with pytest.raises(ValueError, match="two seeds"):
        cross_fitted_difficulty(np.ones((1, 4)), np.ones((1, 4)))
    with pytest.raises(ValueError, match="the same in both"):
        cross_fitted_difficulty(np.ones((2, 4)), np.ones((3, 4)))


def test_deciles_are_of_one_size_whatever_the_ties() -> None:
    assert deciles(np.array([3.0, 1.0, 2.0, 0.0] * 5)).tolist() == [
        7, 2, 5, 0, 8, 3, 5, 0, 8, 3, 6, 1, 9, 4, 6, 1, 9, 4, 7, 2
    ]  # fmt: skip
    assert np.bincount(deciles(np.zeros(1_000))).tolist() == [100] * 10


def test_own_difficulty_makes_an_effect_where_there_is_none() -> None:
    """Two arms of the same models with luck of their own: only cross-fitting finds nothing."""
    random = np.random.default_rng(0)
    true = random.gamma(2.0, 1.5, 20_000)
    a, b = (true + 0.3 * random.standard_normal((3, 20_000)) for _ in "ab")
    bootstrap = DocumentBootstrap(np.arange(20_000) // 50, np.zeros(20_000), draws=200)

    def hardest(bins) -> float:
        return bootstrap.bin_means(b - a, np.stack(bins), 10).bin(9).mean

    assert abs(hardest([deciles(row) for row in cross_fitted_difficulty(a, b)])) < 0.01
    assert hardest([deciles(row) for row in b]) > 0.03
    assert hardest([deciles(row) for row in a]) < -0.03


def test_means_leave_out_what_is_in_no_bin() -> None:
    bootstrap = DocumentBootstrap(np.array([0, 0, 1, 1]), np.zeros(4), draws=5)
    values = np.array([[1.0, 2.0, 4.0, 100.0], [0.0, 2.0, 6.0, -9.0]])
    bins = np.array([[0, 0, 1, -1], [0, 1, 1, -1]])
    found = bootstrap.bin_means(values, bins, 3)
    assert found.mean_SK[:, :2].tolist() == [[1.5, 4.0], [0.0, 4.0]]
    assert np.isnan(found.mean_SK[:, 2]).all()
    assert found.documents_K.tolist() == [1, 2, 0]
    one = found.bin(0)
    assert one.over_seeds == mean_interval([1.5, 0.0])
    assert one.documents_low is None  # fewer documents than MIN_DOCUMENTS


def test_the_interval_over_documents_is_that_of_their_means() -> None:
    """With documents of one size the bootstrap's spread is the standard error of their means."""
    random = np.random.default_rng(1)
    documents, tokens = 400, 25
    of_document = random.standard_normal(documents)
    values = np.repeat(of_document, tokens) + 0.1 * random.standard_normal(documents * tokens)
    number = np.repeat(np.arange(documents), tokens)
    bootstrap = DocumentBootstrap(number, np.zeros_like(number))
    found = bootstrap.bin_means(values[None], np.zeros((1, len(values)), dtype=int), 1).bin(0)
    means = values.reshape(documents, tokens).mean(1)
    half = 1.96 * means.std() / np.sqrt(documents)
    assert found.mean == pytest.approx(values.mean())
    assert found.documents_low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert found.documents_high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_documents_are_drawn_within_their_source() -> None:
    """Differences between sources are fixed by the mixture and widen no interval."""
    number = np.repeat(np.arange(40), 5)
    source = np.repeat([0, 1], 100)
    values = np.where(source == 0, 0.0, 10.0)[None]
    bootstrap = DocumentBootstrap(number, source, draws=50)
    assert bootstrap.weights_BD[:, :20].sum(1).tolist() == [20] * 50
    found = bootstrap.bin_means(values, np.zeros((1, 200), dtype=int), 1).bin(0)
    assert (found.documents_low, found.documents_high) == (5.0, 5.0)
    assert MIN_DOCUMENTS <= 40


def test_contrasts_are_paired_over_draws() -> None:
    """A level that a document shares over all bins cancels in a difference of two bins."""
    random = np.random.default_rng(2)
    number = np.repeat(np.arange(50), 2)
    level = np.repeat(random.standard_normal(50), 2)
    bins = np.tile([0, 1], 50)[None]
    values = (level + np.tile([0.0, 1.0], 50))[None]
    means = DocumentBootstrap(number, np.zeros(100)).bin_means(values, bins, 2)
    found = means.estimate(lambda mean: mean[..., 1] - mean[..., 0])
    assert found.mean == pytest.approx(1.0)
    assert found.documents_low == pytest.approx(1.0)
    assert found.documents_high == pytest.approx(1.0)
