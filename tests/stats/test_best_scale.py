"""The best standard deviation at a width, and the exponent over widths."""

import math

import numpy as np
import pytest

from small_init.stats.best_scale import BestStd, best_std, exponent

STDS = [2.0**-power for power in (9, 7.5, 6, 4.5, 3)]


def curve(best: float, curvature: float = 0.02, level: float = 3.0) -> list[float]:
    return [level + curvature * math.log(std / best) ** 2 for std in STDS]


def noisy(best: float, seeds: int, noise: float, random: np.random.Generator):
    return {
        seed: (np.array(curve(best)) + noise * random.standard_normal(5)).tolist()
        for seed in range(seeds)
    }


def test_the_vertex_is_found_back_in_any_order():
    found = best_std(64, STDS, {0: curve(0.011), 1: curve(0.011, level=3.4)})
    assert found.std == pytest.approx(0.011)
    assert found.loss == pytest.approx(3.2)
    assert found.error == pytest.approx(0.0, abs=1e-9)  # a seed's level moves no vertex
    assert (found.edge, found.n) == (False, 2)
    assert best_std(64, STDS[::-1], {0: curve(0.011)[::-1]}).std == pytest.approx(0.011)


def test_one_seed_has_no_error():
    assert best_std(64, STDS, {0: curve(0.011)}).error is None


@pytest.mark.parametrize("best", [1e-4, 1.0])
def test_an_edge_has_no_error(best):
    found = best_std(64, STDS, {0: curve(best), 1: curve(best)})
    assert found.edge
    assert found.error is None
    assert found.std == pytest.approx(min(STDS) if best < 0.01 else max(STDS))


def test_the_jackknife_error_is_what_repeated_samples_give():
    random = np.random.default_rng(0)
    samples = [best_std(64, STDS, noisy(0.0156, 5, 0.003, random)) for _ in range(1500)]
    spread = np.std([math.log(found.std) for found in samples])
    said = np.sqrt(np.mean([found.error**2 for found in samples]))
    assert said == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize("rule", [0.0, 0.5, 1.0])
def test_the_exponent_of_a_rule_is_its_gamma(rule):
    found = [BestStd(width, 0.5 * width**-rule, 3.0, False, 0.01, 5) for width in (32, 64, 128)]
    assert exponent(found).value == pytest.approx(rule)


def test_the_exponents_error_by_hand():
    found = [BestStd(32, 0.03, 3.0, False, 0.1, 5), BestStd(128, 0.01, 3.0, False, 0.2, 3)]
    estimate = exponent(found)
    step = math.log(4)
    assert estimate.value == pytest.approx(math.log(3) / step)
    assert estimate.error == pytest.approx(math.hypot(0.1, 0.2) / step)
    a, b = 0.1**2, 0.2**2
    assert estimate.freedom == pytest.approx((a + b) ** 2 / (a**2 / 4 + b**2 / 2))
    assert estimate.n == 3


def test_the_interval_covers_the_true_exponent():
    random = np.random.default_rng(1)
    hits, tries = 0, 600
    for _ in range(tries):
        widths = [best_std(d, STDS, noisy(0.5 / d, 5, 0.003, random)) for d in (32, 64, 128)]
        interval = exponent(widths).interval()
        hits += interval.low <= 1.0 <= interval.high
    assert 0.92 <= hits / tries <= 0.99


def test_without_an_error_everywhere_there_is_no_exponent():
    good = BestStd(32, 0.03, 3.0, False, 0.1, 5)
    assert exponent([good]) is None
    assert exponent([good, BestStd(64, 0.03, 3.0, True, None, 5)]) is None
