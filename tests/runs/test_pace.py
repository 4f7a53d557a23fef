"""Hours by the records there are, and the table of experiments they are printed in."""

import math

import pytest

from small_init.config import ArmConfig, ParallelConfig
from small_init.config_files import merged
from small_init.runs.cost import run_cost
from small_init.runs.experiments import Planner
from small_init.runs.pace import Pace, flops_per_token, measured_pace, run_hours
from small_init.runs.plan_table import shares
from tests import ROOT
from tests.records import metrics_of, write


def arm(d_model: int = 64, tokens: int = 2_048_000) -> ArmConfig:
    changes = {"model": {"d_model": d_model, "d_ff": 4 * d_model}, "train": {"tokens": tokens}}
    return merged(ArmConfig(), changes, where="")


def test_hours_between_measured_models_are_linear_in_flops():
    small, large = (flops_per_token(arm(width)) for width in (32, 128))
    pace = Pace((small, large), (1e-5, 1e-4), 2)
    assert pace.hours(arm(32, 3_600_000)) == pytest.approx(36 / 3600)
    assert pace.hours(arm(128, 3_600_000)) == pytest.approx(360 / 3600)
    between = flops_per_token(arm(64))
    share = (between - small) / (large - small)
    assert pace.hours(arm(64, 3_600_000)) == pytest.approx((36 + share * 324) / 3600)


def test_beyond_the_measured_models_hours_are_in_proportion():
    flops = flops_per_token(arm(64))
    pace = Pace((flops,), (1e-4,), 1)
    for width in (32, 128):
        asked = arm(width)
        expected = 1e-4 * flops_per_token(asked) / flops * asked.train.tokens / 3600
        assert pace.hours(asked) == pytest.approx(expected)


def test_a_stated_peak_comes_before_what_was_measured():
    pace, peak = Pace((1.0,), (1.0,), 1), ParallelConfig(device_tflops=1.0)
    by_peak = run_cost(arm(), peak, 0.5).device_hours
    assert run_hours(arm(), peak, 0.5, pace) == by_peak
    assert run_hours(arm(), ParallelConfig(), None, pace) == pace.hours(arm())
    assert run_hours(arm(), ParallelConfig(), None, None) is None


def test_the_pace_is_the_median_of_what_the_records_took(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert measured_pace("cpu") is None
    for seed, seconds in enumerate((10.0, 14.0, 100.0)):
        write(metrics_of(arm(), "cpu-a", seed), performance={"seconds": seconds})
    found = measured_pace("cpu")
    assert found.runs == 3
    assert found.flops == (flops_per_token(arm()),)
    assert found.seconds == (14.0 / arm().train.tokens,)


def test_a_run_counts_for_the_experiment_that_asked_first(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    planner = Planner("cpu")
    monkeypatch.chdir(tmp_path)
    planner.arms, planner.waiting = {"cpu-a": arm()}, {"cpu-b": arm(32)}
    planner.asked = {("cpu-a", 0): "x", ("cpu-a", 10): "y", ("cpu-b", 10): "y"}
    write(metrics_of(arm(), "cpu-a", 10))
    pace = Pace((flops_per_token(arm()),), (1e-3,), 1)
    found = shares(planner, None, pace)
    assert (found["x"].pilot, found["x"].confirmatory, found["x"].recorded) == (1, 0, 0)
    assert (found["y"].pilot, found["y"].confirmatory, found["y"].recorded) == (0, 2, 1)
    assert found["y"].arms == {"cpu-a", "cpu-b"}
    assert found["x"].left == found["x"].hours == pytest.approx(pace.hours(arm()))
    assert found["y"].left == pytest.approx(pace.hours(arm(32)))
    assert found["y"].hours == pytest.approx(pace.hours(arm()) + pace.hours(arm(32)))
    assert math.isnan(shares(planner, None, None)["x"].hours)
