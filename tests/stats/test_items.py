"""Intervals over items and seeds: by hand, and by what they promise."""

import math

import numpy as np
import pytest

from small_init.stats.items import Task, accuracy_limits, item_scores, paired_items


def test_scores_of_a_record():
    assert item_scores("0110").tolist() == [0, 1, 1, 0]


def test_one_seed_is_a_paired_t_interval_over_items():
    random = np.random.default_rng(0)
    a, b = random.integers(0, 2, (2, 200)).astype(float)
    found = paired_items([Task({10: a}, {10: b})])
    error = (b - a).std(ddof=1) / math.sqrt(200)
    assert found.estimate == pytest.approx((b - a).mean())
    assert found.high - found.estimate == pytest.approx(1.972 * error, rel=1e-3)
    assert (found.seeds, found.items) == (1, 200)
    assert found.detectable == pytest.approx((1.972 + 0.843) * error, rel=1e-3)


def test_items_of_a_group_count_once():
    score = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    zeros = np.zeros(5)
    single = paired_items([Task({1: zeros}, {1: score})])
    copied = paired_items(
        [Task({1: np.zeros(20)}, {1: np.repeat(score, 4)}, groups=np.repeat(range(5), 4).tolist())]
    )
    assert (copied.low, copied.high) == pytest.approx((single.low, single.high))


def test_seeds_that_differ_widen_the_interval():
    random = np.random.default_rng(1)
    a = {s: (random.random(500) < 0.5).astype(float) for s in range(5)}
    same = {s: (random.random(500) < 0.6).astype(float) for s in range(5)}
    apart = {s: (random.random(500) < 0.4 + 0.1 * s).astype(float) for s in range(5)}
    narrow, wide = paired_items([Task(a, same)]), paired_items([Task(a, apart)])
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_only_shared_seeds_count():
    scores = {10: np.ones(4), 11: np.zeros(4)}
    found = paired_items([Task({10: np.zeros(4), 12: np.zeros(4)}, scores)])
    assert (found.estimate, found.seeds) == (1.0, 1)
    assert paired_items([Task({1: np.zeros(4)}, scores)]) is None


def test_mean_over_tasks_has_the_variance_of_a_mean():
    random = np.random.default_rng(2)
    tasks = [
        Task({1: random.integers(0, 2, 400).astype(float)},
             {1: random.integers(0, 2, 400).astype(float)})
        for _ in range(4)
    ]  # fmt: skip
    single = [paired_items([task]) for task in tasks]
    together = paired_items(tasks)
    assert together.estimate == pytest.approx(np.mean([d.estimate for d in single]))
    squares = sum(((d.high - d.low) / 2) ** 2 for d in single)
    assert (together.high - together.low) / 2 == pytest.approx(math.sqrt(squares) / 4, rel=0.01)


def test_the_interval_covers_as_often_as_it_says():
    """Seeds and items both drawn anew; 95 % within what 400 trials can tell."""
    random = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        seeds, items = 0.05 * random.standard_normal((5, 1)), random.standard_normal(150)
        difference = 0.1 + seeds + 0.3 * items + random.standard_normal((5, 150))
        task = Task({s: np.zeros(150) for s in range(5)}, dict(enumerate(difference)))
        found = paired_items([task])
        covered += found.low <= 0.1 <= found.high
    assert 0.92 <= covered / 400 <= 0.985


def test_wilsons_limits():
    low, high = accuracy_limits(0.5, 100)
    assert (low, high) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert accuracy_limits(0.0, 100)[0] == pytest.approx(0.0, abs=1e-12)
