"""The vertex of a measured curve, and how well it is known."""

import math

import numpy as np
import pytest

from small_init.stats.vertex import interaction_noise, log_vertex

RATES = [6e-3, 1.2e-2, 2.4e-2]


def bowl(best: float, curvature: float, rates=RATES) -> list[float]:
    return [3.0 + curvature * math.log(rate / best) ** 2 for rate in rates]


def test_a_parabola_is_found_back():
    found = log_vertex(RATES, bowl(1e-2, 0.08), 0.01)
    assert found.x == pytest.approx(1e-2)
    assert found.y == pytest.approx(3.0)
    assert found.curvature == pytest.approx(0.08)
    assert not found.edge
    assert found.miss == pytest.approx(found.curvature * found.error**2)


def test_the_order_of_the_rates_does_not_matter():
    shuffled, losses = [RATES[2], RATES[0], RATES[1]], bowl(1e-2, 0.08)
    other = log_vertex(shuffled, [losses[2], losses[0], losses[1]], 0.01)
    assert other == log_vertex(RATES, losses, 0.01)


def test_the_error_is_what_repeated_noise_gives():
    random = np.random.default_rng(0)
    noise, clean = 0.004, np.array(bowl(1.3e-2, 0.1))
    said = log_vertex(RATES, clean.tolist(), noise)
    found = [
        math.log(log_vertex(RATES, (clean + noise * random.standard_normal(3)).tolist(), None).x)
        for _ in range(4000)
    ]
    assert np.std(found) == pytest.approx(said.error, rel=0.1)


@pytest.mark.parametrize("best", [2e-3, 6e-2])
def test_an_edge_has_no_error(best):
    found = log_vertex(RATES, bowl(best, 0.1), 0.01)
    assert found.edge
    assert found.x == pytest.approx(RATES[0] if best < RATES[0] else RATES[2])
    assert (found.curvature, found.error, found.miss) == (None, None, None)


def test_noise_is_what_seed_and_rate_do_not_explain():
    random = np.random.default_rng(1)
    curves = []
    for level in range(200):
        base = np.array(bowl(1e-2, 0.1)) + level
        curves.append(
            {
                seed: (base + 5 * seed + 0.01 * random.standard_normal(3)).tolist()
                for seed in range(2)
            }
        )
    assert interaction_noise(curves) == pytest.approx(0.01, rel=0.15)


def test_without_a_second_seed_the_noise_is_not_known():
    assert interaction_noise([{0: [1.0, 2.0, 3.0]}]) is None
    assert interaction_noise([]) is None
