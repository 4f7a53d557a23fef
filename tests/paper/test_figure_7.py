"""Figure 7 on synthetic records: gains by model, routing, what a few arms leave out."""

from pathlib import Path

import pandas as pd
import pytest

from small_init.errors import UserError
from tests.paper.conftest import Arm, arm, write_project

FOLDER = Path("results/cpu/figures")
GAIN = {"dense": 0.08, "mixture": 0.05}


def arms(seeds: tuple[int, ...], variants: tuple[str, ...] = ("standard", "adjusted")) -> list[Arm]:
    """Dense models gain 0.08, mixtures 0.05, each a little more with the seed."""

    def loss(model: str, gamma: float, seed: int) -> float:
        return 3.8 - (GAIN[model] + 0.01 * (seed - seeds[0]) if gamma == 1.0 else 0.0)

    experts = {"model": {"n_experts": 4}, "train": {"probes": "all"}}
    return [
        arm(32, g, v, seeds, lambda s, m=m, g=g: loss(m, g, s),
            suffix="-e4" if m == "mixture" else "", more=experts if m == "mixture" else None)
        for v in variants
        for m in GAIN
        for g in (0.5, 1.0)
    ]  # fmt: skip


def draw(arms: list[Arm], script) -> tuple[pd.DataFrame, str]:
    write_project({"figure-7": arms})
    script("figure_7").make()
    return pd.read_csv(FOLDER / "figure-7.csv"), (FOLDER / "figure-7.md").read_text()


def test_gains_are_paired_within_a_model(project, script) -> None:
    data, caption = draw(arms((10, 11)), script)
    gains = data[data["kind"] == "gain"].set_index(["variant", "model"])["gain"]
    for variant in ("standard", "adjusted"):
        assert gains[variant, "dense"] == pytest.approx(0.085)
        assert gains[variant, "mixture"] == pytest.approx(0.055)
        assert gains[variant, "mixture − dense"] == pytest.approx(-0.03)
    assert "mixture in adjusted +0.055 ([" in caption
    assert "Mixtures of 4 experts, 2 a token" in caption
    assert "PILOT" not in caption


def test_load_and_entropy_are_relative_to_the_even_ones(project, script) -> None:
    data, caption = draw(arms((0,), variants=("adjusted",)), script)
    routing = data[(data["kind"] == "routing") & (data["gamma"] == 1.0)]
    last, first = (routing[routing["step"] == step] for step in (1000, 0))
    assert len(last) == 4  # a row per layer
    assert last["busiest"].to_numpy() == pytest.approx([1.5] * 4)
    assert last["idlest"].to_numpy() == pytest.approx([0.5] * 4)
    assert last["load_spread"].to_numpy() == pytest.approx([0.5] * 4)
    assert first["busiest"].to_numpy() == pytest.approx([1.0] * 4)
    assert "load 0.50 to 1.50 of the even share (highest before: 1.5), its" in caption
    assert "its standard deviation 50%" in caption
    assert "router entropy 75% of ln 4" in caption
    assert "n = 1: no interval" in caption
    assert "PILOT" in caption


def test_mixtures_alone_are_drawn(project, script) -> None:
    data, caption = draw([a for a in arms((0,), ("adjusted",)) if a.key.endswith("-e4")], script)
    assert set(data.loc[data["kind"] == "gain", "model"]) == {"mixture"}
    assert "a token meets" not in caption


def test_no_mixture_is_one_sentence(project, script) -> None:
    write_project({"figure-7": [a for a in arms((0,)) if not a.key.endswith("-e4")]})
    with pytest.raises(UserError, match=r"moe\.yaml"):
        script("figure_7").make()
