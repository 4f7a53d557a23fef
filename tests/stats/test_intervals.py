"""Golden small cases, planted truths, and the coverage that an interval promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from small_init.stats.fits import (
    Minimum,
    effective_size,
    effective_size_interval,
    fit_scaling,
    log_minimum,
    quadratic_minimum,
    slopes,
)
from small_init.stats.intervals import (
    Interval,
    holm,
    mean_interval,
    minimum_detectable_effect,
    noise_floor,
    p_value,
    paired_difference,
)

LADDER = [1e4, 3e4, 1e5, 3e5]


def test_mean_interval_by_hand() -> None:
    # mean 3, standard deviation √2.5, half-width t(0.975, 4)·√2.5/√5 = 2.7764·0.7071
    interval = mean_interval([1, 2, 3, 4, 5])
    assert interval.estimate == 3
    assert interval.n == 5
    assert interval.low == pytest.approx(3 - 1.96324, abs=1e-4)
    assert interval.high == pytest.approx(3 + 1.96324, abs=1e-4)


def test_half_width_is_1_24_standard_deviations_at_five_seeds_and_2_48_at_three() -> None:
    for n, factor in ((5, 1.24), (3, 2.48)):
        values = np.random.default_rng(0).normal(size=n)
        interval = mean_interval(values)
        assert interval.high is not None
        half = (interval.high - interval.estimate) / values.std(ddof=1)
        assert half == pytest.approx(factor, abs=0.01)


def test_one_seed_has_no_interval() -> None:
    assert mean_interval([2.5]) == Interval(2.5, None, None, 1)


def test_no_value_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        mean_interval([])


def test_pairs_are_matched_by_seed_not_by_position() -> None:
    a = {10: 4.0, 11: 5.0, 12: 6.0, 99: 0.0}
    b = {12: 5.0, 10: 3.0, 11: 4.0}
    assert paired_difference(a, b) == Interval(1.0, 1.0, 1.0, 3)


def test_no_shared_seed_gives_no_difference() -> None:
    assert paired_difference({0: 1.0}, {10: 1.0}) is None


def test_t_interval_covers_what_it_promises() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(1000):
        shared = rng.normal(0, 1, 5)  # what pairing removes
        a = dict(enumerate(shared + rng.normal(0.1, 0.05, 5)))
        b = dict(enumerate(shared + rng.normal(0.0, 0.05, 5)))
        interval = paired_difference(a, b)
        assert interval is not None
        assert interval.low is not None
        assert interval.high is not None
        hits += interval.low <= 0.1 <= interval.high
    assert 920 <= hits <= 980


def test_noise_floor_pools_arms_and_skips_single_seeds() -> None:
    # variances 2 and 8 with one degree of freedom each: pooled 5, a difference of two has 10
    assert noise_floor([[1, 3], [0, 4], [7]]) == pytest.approx(math.sqrt(10))
    assert noise_floor([[1.0], [2.0]]) is None


def test_minimum_detectable_effect() -> None:
    # Standard tables: n = 5 pairs, two-sided 5 %, power 0.8 needs 1.68 standard deviations.
    assert minimum_detectable_effect(1.0, 5) == pytest.approx(1.68, abs=0.01)
    assert minimum_detectable_effect(1.0, 1000) == pytest.approx(2.80 / math.sqrt(1000), rel=0.01)
    assert minimum_detectable_effect(1.0, 1) is None


def test_holm_by_hand() -> None:
    adjusted = holm({"a": 0.04, "b": 0.01, "c": 0.03, "d": 0.005})
    assert list(adjusted) == ["a", "b", "c", "d"]
    assert adjusted == pytest.approx({"d": 0.02, "b": 0.03, "c": 0.06, "a": 0.06})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_and_keeps_the_order(p_values: list[float]) -> None:
    given_p = {str(i): p for i, p in enumerate(p_values)}
    adjusted = holm(given_p)
    assert all(given_p[k] <= adjusted[k] <= 1 for k in given_p)
    by_p = sorted(given_p, key=lambda k: given_p[k])
    assert [adjusted[k] for k in by_p] == sorted(adjusted.values())


def test_slope_per_e_fold_is_recovered() -> None:
    by_seed = {s: [0.5 - 0.03 * math.log(n) + 0.01 * s for n in LADDER] for s in range(3)}
    slope = mean_interval(slopes(LADDER, by_seed).values())
    assert slope.estimate == pytest.approx(-0.03)
    assert slope.n == 3


def planted(n: float) -> float:
    return 5.0 - 0.2 * math.log(n)


def test_effective_size_is_exact_on_a_straight_line_in_log_size() -> None:
    losses = [planted(n) for n in LADDER]
    for target in (1.2e4, 5e4, 2.9e5):
        found = effective_size(LADDER, losses, planted(target))
        assert found.size == pytest.approx(target)
    shuffled = effective_size(LADDER[::-1], losses[::-1], planted(5e4))
    assert shuffled.size == pytest.approx(5e4)


@pytest.mark.parametrize(
    ("losses", "other", "reason"),
    [
        ([4, 3, 2, 1], 0.9, "largest"),
        ([4, 3, 2, 1], 4.1, "smallest"),
        ([4, 3, 3.5, 1], 3.2, "does not fall"),
    ],
)
def test_effective_size_is_refused_with_a_reason(losses, other, reason) -> None:
    found = effective_size(LADDER, losses, other)
    assert found.size is None
    assert found.reason is not None
    assert reason in found.reason


def test_effective_size_interval_on_the_log_ratio() -> None:
    baseline = {s: [planted(n) + 0.1 * s for n in LADDER] for s in (10, 11)}
    # ratios 1.4 and 1.6: the estimate is their geometric mean
    other = {10: planted(1.4e4) + 1.0, 11: planted(1.6e4) + 1.1}
    ratio = effective_size_interval(LADDER, baseline, other, 1e4).interval
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.estimate == pytest.approx(math.sqrt(1.4 * 1.6))
    assert ratio.low * ratio.high == pytest.approx(1.4 * 1.6)  # symmetric in the logarithm
    assert ratio.n == 2


def test_one_seed_out_of_range_refuses_the_ratio() -> None:
    baseline = {s: [planted(n) for n in LADDER] for s in (10, 11)}
    ratio = effective_size_interval(LADDER, baseline, {10: planted(2e5), 11: planted(4e5)}, 1e5)
    assert ratio.interval is None
    assert ratio.reason == "better than the largest baseline measured (seed 11)"


@pytest.mark.parametrize("alpha", [0.076, 0.3, 0.8])
def test_scaling_fit_recovers_planted_exponents(alpha: float) -> None:
    sizes = np.array([1e4, 2e4, 5e4, 1e5, 3e5])
    losses = 1.7 + 0.9 * (sizes / 5e4) ** -alpha
    fit = fit_scaling(sizes.tolist(), losses.tolist())
    assert fit is not None
    assert fit.alpha == pytest.approx(alpha, rel=0.01)
    assert fit.e == pytest.approx(1.7, rel=0.02)
    assert fit(sizes) == pytest.approx(losses, abs=1e-4)
    assert fit.rms_residual < 1e-4
    assert not fit.at_bound


def test_scaling_fit_needs_four_sizes_and_says_when_the_data_do_not_determine_it() -> None:
    assert fit_scaling([1e4, 2e4, 4e4, 4e4], [3, 2, 1.5, 1.5]) is None
    straight = fit_scaling(LADDER, [planted(n) for n in LADDER])
    assert straight is not None
    assert straight.at_bound


def test_quadratic_minimum_finds_the_vertex_in_any_order() -> None:
    x = [1.5, 0.25, 1.25, 0.5, 1.0, 0.75]
    minimum = quadratic_minimum(x, [3 + 2 * (v - 0.93) ** 2 for v in x])
    assert (minimum.x, minimum.y) == pytest.approx((0.93, 3.0))
    assert not minimum.edge


def test_quadratic_minimum_flags_an_edge() -> None:
    assert quadratic_minimum([1, 2, 3], [3, 2, 1]) == Minimum(3, 1, True)
    assert quadratic_minimum([1], [2]).edge
    assert quadratic_minimum([1, 2, 3], [2, 2, 2]).edge  # the first of equal values


def test_log_minimum_finds_a_learning_rate() -> None:
    rates = [1e-3, 2e-3, 4e-3, 8e-3]
    minimum = log_minimum(rates, [4 + 0.1 * math.log(r / 3e-3) ** 2 for r in rates])
    assert (minimum.x, minimum.y) == pytest.approx((3e-3, 4.0))
    edge = log_minimum(rates, [1, 2, 3, 4])
    assert edge.x == pytest.approx(1e-3)
    assert edge.edge


def test_detectable_effect_of_two_pairs_at_a_strict_level() -> None:
    # One degree of freedom: |N(0, 1)| stays below its 80 % quantile 1.28, times t's 127.3.
    found = minimum_detectable_effect(1.0, 2, confidence=0.995)
    assert found == pytest.approx(1.2816 * 127.32 / math.sqrt(2), rel=0.01)


def test_detectable_effect_is_found_four_times_in_five() -> None:
    effect = minimum_detectable_effect(1.0, 5)
    assert effect is not None
    draws = np.random.default_rng(3).normal(effect, 1.0, (1500, 5))
    found = [p_value(row) < 0.05 for row in draws]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def test_holm_rejects_a_true_hypothesis_in_one_family_of_twenty_at_most() -> None:
    p = np.random.default_rng(5).uniform(size=(4000, 10))
    rejecting = [min(holm(dict(enumerate(row))).values()) < 0.05 for row in p]
    assert np.mean(rejecting) == pytest.approx(0.05, abs=0.01)


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5),
    st.floats(-1.0, 6.0, allow_subnormal=False),
)
def test_effective_size_stays_between_measured_sizes_or_is_refused(drops, other) -> None:
    losses = [4.0, *(4.0 - np.cumsum(drops))]
    sizes = [1e4 * 2**k for k in range(len(losses))]
    found = effective_size(sizes, losses, other)
    inside = losses[-1] <= other <= losses[0]
    assert (found.size is not None) == inside == (found.reason is None)
    if found.size is not None:
        assert sizes[0] * (1 - 1e-9) <= found.size <= sizes[-1] * (1 + 1e-9)


def test_size_ratio_covers_the_planted_one() -> None:
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(1000):
        noise = rng.normal(0, 0.01, (5, len(LADDER) + 1))
        shared = rng.normal(0, 0.1, 5)  # of a seed at every size: pairing removes it
        baseline = {
            s: [planted(n) + shared[s] + e for n, e in zip(LADDER, noise[s], strict=False)]
            for s in range(5)
        }
        other = {s: planted(4.2e4) + shared[s] + noise[s, -1] for s in range(5)}
        interval = effective_size_interval(LADDER, baseline, other, 3e4).interval
        assert interval is not None
        assert interval.low is not None
        assert interval.high is not None
        hits += interval.low <= 1.4 <= interval.high
    assert 920 <= hits <= 980
