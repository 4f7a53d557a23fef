"""The table of calibrated rates, and what a rate is calibrated for."""

import pytest

from small_init.config import ArmConfig
from small_init.config_files import dump, merged
from small_init.errors import UserError
from small_init.runs.rates import Rate, RateTable, condition, matched_eps

A, B = "a" * 16, "b" * 16
TABLE = RateTable(
    (
        Rate("d32", A, 1.0, 4e-3, curvature=0.1, error=0.2, miss=0.004),
        Rate("d32", A, 0.5, 1.6e-2, curvature=0.1, error=0.1, miss=0.001),
        Rate("d32", A, 1.25, 3e-3, edge=True),
        Rate("d64", B, 1.0, 1e-3),
    )
)


def arm(gamma: float = 1.0, **changes) -> ArmConfig:
    base = merged(ArmConfig(), {"init": {"gamma": gamma}}, where="")
    return merged(base, changes, where="")


def test_matched_epsilon_saturates_as_the_paper_scale_does():
    """ε·d^(2γ) is that of ε = 1e-5 at 16 times the width, whatever γ."""
    for gamma in (0.25, 0.5, 1.0):
        for width in (32, 96):
            ours = matched_eps(gamma, 16.0) * width ** (2 * gamma)
            papers = 1e-5 * (16 * width) ** (2 * gamma)
            assert ours == pytest.approx(papers, rel=1e-5)
    assert matched_eps(1.0, 16.0) == pytest.approx(2.56e-3)
    assert matched_eps(0.5, 16.0) == pytest.approx(1.6e-4)
    assert matched_eps(1.0, 1.0) == 1e-5


def test_between_two_gammas_the_logarithm_is_linear():
    found = TABLE.at(A, 0.75)
    assert found.lr == pytest.approx(8e-3)
    assert (found.gamma, found.condition, found.edge) == (0.75, A, False)
    assert (found.error, found.miss) == (0.2, 0.004)  # of the one that is known worse


def test_a_calibrated_gamma_has_its_own_rate():
    assert TABLE.at(A, 1.0) is TABLE.rates[0]


def test_an_edge_makes_what_is_interpolated_from_it_one():
    assert TABLE.at(A, 1.1).edge


@pytest.mark.parametrize(("name", "gamma"), [(A, 0.25), (A, 1.5), (B, 0.75), ("c" * 16, 1.0)])
def test_beyond_what_was_tried_there_is_no_rate(name, gamma):
    assert TABLE.at(name, gamma) is None


def test_length_rate_and_probes_are_no_part_of_a_condition():
    usual = condition(arm(), 16.0)
    for changes in (
        {"optimizer": {"lr": 1e-2}},
        {"train": {"tokens": 4_096_000, "probes": "all", "curve_points": 5}},
        {"seeds": [7]},
    ):
        assert condition(arm(**changes), 16.0) == usual


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"d_model": 32}},
        {"model": {"gate": "none"}},
        {"model": {"norm_eps": 1e-5}},
        {"model": {"qk_norm": True}},
        {"optimizer": {"warmup_steps": 50}},
        {"optimizer": {"name": "muon"}},
        {"init": {"scheme": "fixed"}},
        {"init": {"mlp": 0.5}},
        {"train": {"batch_tokens": 1024}},
    ],
)
def test_everything_else_is(changes):
    assert condition(arm(**changes), 16.0) != condition(arm(), 16.0)


def test_gammas_share_a_condition_with_the_epsilon_that_follows_them():
    def matched(gamma: float) -> ArmConfig:
        return arm(gamma, model={"norm_eps": matched_eps(gamma, 16.0)})

    assert condition(matched(0.5), 16.0) == condition(matched(1.0), 16.0)
    assert condition(matched(0.5), 16.0) != condition(arm(0.5), 16.0)
    literal = {"model": {"norm_eps": matched_eps(1.0, 16.0)}}
    assert condition(arm(0.5, **literal), 16.0) != condition(matched(0.5), 16.0)


def test_a_table_is_read_back_as_it_was_written(tmp_path):
    path = tmp_path / "cpu.yaml"
    row = {"label": "d32", "condition": A, "gamma": 1.0, "lr": 4e-3, "edge": False}
    path.write_text(dump({"rates": [row | {"curvature": None, "error": 0.25, "miss": None}]}))
    (rate,) = RateTable.load(path).rates
    assert rate == Rate("d32", A, 1.0, 4e-3, error=0.25)
    path.write_text(dump({"rates": [row | {"gated": True}]}))
    with pytest.raises(UserError, match="gated"):
        RateTable.load(path)
