"""From records of the calibration to the table of rates."""

import math

import pytest

from small_init.claims.calibration import grids, label, noise_of
from small_init.config import ArmConfig
from small_init.config_files import merged
from small_init.runs.rates import condition
from tests.records import run_of

RATES = (6e-3, 1.2e-2, 2.4e-2)


def runs(gamma: float, best: float, seeds=(0,), rates=RATES, **changes):
    for rate in rates:
        config = merged(
            ArmConfig(), {"init": {"gamma": gamma}, "optimizer": {"lr": rate}}, changes, where=""
        )
        for seed in seeds:
            loss = 3 + 0.1 * math.log(rate / best) ** 2 + 0.5 * seed
            arm = f"cpu-d64-g{round(100 * gamma):03d}-adjusted-lr-{rate}"
            yield run_of(config, arm=arm, seed=seed, loss=loss)


def test_every_gamma_has_its_own_best_rate():
    found = grids([*runs(0.5, 9e-3), *runs(1.0, 1.5e-2)], "cpu", 16.0)
    assert [grid.gamma for grid in found] == [0.5, 1.0]
    assert len({grid.condition for grid in found}) == 1
    bests = [grid.vertex(0.01) for grid in found]
    assert [best.x for best in bests] == pytest.approx([9e-3, 1.5e-2])
    assert all(best.curvature == pytest.approx(0.1) for best in bests)


def test_two_seeds_halve_the_variance():
    (one,) = grids(runs(1.0, 1.2e-2), "cpu", 16.0)
    (two,) = grids(runs(1.0, 1.2e-2, seeds=(0, 1)), "cpu", 16.0)
    assert two.vertex(0.01).error == pytest.approx(one.vertex(0.01).error / math.sqrt(2))


def test_a_seed_that_only_one_rate_has_is_left_out():
    extra = next(iter(runs(1.0, 1.2e-2, seeds=(3,))))
    (grid,) = grids([*runs(1.0, 1.2e-2), extra], "cpu", 16.0)
    assert list(grid.by_seed()) == [0]


def test_confirmatory_seeds_calibrate_nothing():
    assert grids(runs(1.0, 1.2e-2, seeds=(10,)), "cpu", 16.0) == []


def test_two_rates_are_no_calibration():
    assert grids(runs(1.0, 1.2e-2, rates=RATES[:2]), "cpu", 16.0) == []


def test_the_longest_runs_count_where_several_lengths_were_tried():
    long = {"train": {"tokens": 4_096_000}}
    found = grids([*runs(1.0, 1.2e-2), *runs(1.0, 8e-3, **long)], "cpu", 16.0)
    assert [grid.tokens for grid in found] == [4_096_000]


def test_another_recipe_is_another_condition():
    found = grids([*runs(1.0, 1.2e-2), *runs(1.0, 1e-2, model={"qk_norm": True})], "cpu", 16.0)
    assert len({grid.condition for grid in found}) == 2
    arm = merged(ArmConfig(), {"model": {"qk_norm": True}}, where="")
    assert condition(arm, 16.0) in {grid.condition for grid in found}


def test_noise_comes_from_grids_with_two_seeds():
    one = grids(runs(1.0, 1.2e-2), "cpu", 16.0)
    two = grids(runs(0.5, 1.2e-2, seeds=(0, 1)), "cpu", 16.0)
    assert noise_of(one) is None
    assert noise_of([*one, *two]) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ("cpu-d64-g050-standard-lr-1p2e-2", "d64-standard"),
        ("cpu-d64-g050-standard-warmup-600-lr-6e-3", "d64-standard-warmup-600"),
        ("cpu-d32-e8-g100-adjusted-lr-2p4e-2", "d32-e8-adjusted"),
        ("cpu-d32-g100-adjusted-qk-norm-true-lr-0p1", "d32-adjusted-qk-norm-true"),
    ],
)
def test_a_condition_is_named_by_what_its_arms_share(arm, words):
    assert label(arm, "cpu") == words
