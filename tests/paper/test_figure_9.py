"""Figure 9 on planted losses: the exponent, its intervals, and what it says without them."""

import math
from pathlib import Path

import pandas as pd
import pytest

from tests.paper.conftest import Arm, arm, write_project

FOLDER = Path("results/cpu/figures")
POWERS = (9, 7.5, 6, 4.5, 3)


def grid(best, seeds=(10, 11, 12), widths=(32, 64, 128)) -> list[Arm]:
    """Losses lowest at σ = best(d)."""

    def loss(width: int, gamma: float, seed: int) -> float:
        away = math.log(width**-gamma / best(width))
        return 3.0 + 0.05 * away**2 + 0.002 * math.sin(7 * seed + 3 * gamma + width)

    return [
        arm(d, g, "adjusted", seeds, lambda s, d=d, g=g: loss(d, g, s), suffix=f"-{power}")
        for d in widths
        for power in POWERS
        for g in (round(power * math.log(2) / math.log(d), 6),)
    ]


def rivals(seeds=(10, 11, 12)) -> list[Arm]:
    return [
        arm(32, 0.5, "adjusted", seeds, lambda s: 3.4, suffix=f"-{scheme}",
            more={"init": {"scheme": scheme}})
        for scheme in ("fixed", "gpt2")
    ]  # fmt: skip


def drawn(arms: list[Arm], script) -> tuple[pd.DataFrame, str]:
    write_project({"figure-9": arms})
    script("figure_9").make()
    return pd.read_csv(FOLDER / "figure-9.csv"), (FOLDER / "figure-9.md").read_text()


def test_the_exponent_of_the_rule_is_one(project, script) -> None:
    data, caption = drawn([*grid(lambda d: 0.7 / d), *rivals()], script)
    (row,) = data[data["kind"] == "exponent"].to_dict("records")
    assert row["estimate"] == pytest.approx(1.0, abs=0.1)
    assert row["low"] < 1 < row["high"]
    assert f"γ* = {row['estimate']:.2f}" in caption
    best = data[data["kind"] == "best"].set_index("d_model")
    assert best.loc[64, "std"] == pytest.approx(0.7 / 64, rel=0.1)
    assert set(data.loc[data["kind"] == "baseline", "scheme"]) == {"fixed", "gpt2"}
    assert len(data[data["kind"] == "run"]) == 45
    assert "GPT-2's start" in caption
    assert "PILOT" not in caption


def test_a_constant_has_no_exponent_to_speak_of(project, script) -> None:
    data, _ = drawn(grid(lambda d: 0.0156), script)
    (row,) = data[data["kind"] == "exponent"].to_dict("records")
    assert row["estimate"] == pytest.approx(0.0, abs=0.1)


def test_an_edge_is_said_and_has_no_interval(project, script) -> None:
    data, caption = drawn(grid(lambda d: 1e-3 if d == 32 else 0.7 / d), script)
    assert "exponent" not in set(data["kind"])
    assert "cannot be said: some best σ lies at an edge of its grid" in caption
    assert "d = 32: 0.0020 (γ = 1.80, an edge of the grid)" in caption


def test_one_pilot_seed_is_marked_and_has_no_interval(project, script) -> None:
    data, caption = drawn(grid(lambda d: 0.7 / d, seeds=(0,)), script)
    assert "exponent" not in set(data["kind"])
    assert "it takes two widths and two seeds at each" in caption
    assert "PILOT" in caption
