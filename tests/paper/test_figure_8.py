"""Figure 8 on synthetic records: changes of the recipe, rates, run length; and with a few arms."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from small_init.errors import UserError
from tests.paper.conftest import Arm, arm, write_project

FOLDER = Path("results/cpu/figures")
NAMES = ("figure-8", "figure-8b", "figure-8c")
RATE = {0.5: 0.03, 1.0: 0.02}  # of the recipe
SEEDS = (0,)


def changed(
    gain: float,
    suffix: str = "",
    seeds: tuple[int, ...] = SEEDS,
    rate: float | None = None,
    gammas: tuple[float, ...] = (0.5, 1.0),
    usual: float = 3.8,
    **parts: dict[str, Any],
) -> list[Arm]:
    """The arms of a change: γ = 0.5 ends at `usual`, γ = 1 by `gain` below, more with the seed."""
    optimizer = parts.pop("optimizer", {})

    def loss(gamma: float) -> Callable[[int], float]:
        return lambda seed: usual - (gain + 0.01 * (seed - seeds[0]) if gamma == 1.0 else 0.0)

    return [
        arm(32, gamma, "adjusted", seeds, loss(gamma), suffix=suffix, more=parts,
            **{"lr": rate or RATE[gamma]} | optimizer)
        for gamma in gammas
    ]  # fmt: skip


def curve(gamma: float, best: float, usual: float, scheme: str = "gamma") -> list[Arm]:
    """A parabola in ln(rate), its vertex at `best`."""
    return [
        arm(32, gamma, "adjusted", SEEDS, suffix=f"-{scheme}-lr-{i}", more={"init": {
            "gamma": gamma, "scheme": scheme}}, lr=rate,
            loss=lambda s, rate=rate: usual + 0.1 * math.log(rate / best) ** 2)
        for i, rate in enumerate((6e-3, 1.2e-2, 2.4e-2, 4.8e-2))
    ]  # fmt: skip


def everything(seeds: tuple[int, ...] = SEEDS) -> list[Arm]:
    return [
        *changed(0.08, seeds=seeds),
        *changed(0.05, "-wd", seeds, optimizer={"weight_decay": 0.3}),
        *changed(-0.02, "-norm", seeds, model={"norm": "layernorm"}),
        *changed(0.06, "-long", seeds, usual=3.6, train={"tokens": 16_384_000}),
        *changed(0.07, "-longer", seeds, usual=3.7, train={"tokens": 4_096_000}),
        *changed(0.0, "-mlp", seeds, gammas=(0.5,), usual=3.75, init={"gamma": 0.5, "mlp": 1.0}),
        *curve(0.5, 2.4e-2, 3.8),
        *curve(1.0, 1.2e-2, 3.7),
        *curve(0.5, 6e-3, 3.75, "gpt2"),
    ]


def draw(arms: list[Arm], script) -> dict[str, tuple[pd.DataFrame, str]]:
    """Name of a page → its numbers and its caption."""
    write_project({"figure-8": arms})
    script("figure_8").make()
    return {
        name: (pd.read_csv(FOLDER / f"{name}.csv"), (FOLDER / f"{name}.md").read_text())
        for name in NAMES
    }


def test_all_pages(project, script) -> None:
    pages = draw(everything((0, 1)), script)
    data, caption = pages["figure-8"]
    gains = data[data["kind"] == "gain"].set_index("change")["gain"]
    assert gains.to_dict() == pytest.approx(
        {"recipe unchanged": 0.085, "weight decay 0.3": 0.055, "LayerNorm": -0.015,
         "2 × the tokens": 0.075, "8 × the tokens": 0.065}
    )  # fmt: skip
    assert list(gains.index)[-2:] == ["2 × the tokens", "8 × the tokens"]
    assert "The difference is positive under 3 of 4 changes" in caption
    groups = data[data["kind"] == "group"].set_index("group")["gain"]
    assert groups.to_dict() == pytest.approx({"feed-forward": 0.05, "all at γ = 1": 0.085})

    data, caption = pages["figure-8b"]
    best = data[data["kind"] == "best"].set_index("said")
    rates = {"γ = 0.5": 2.4e-2, "γ = 1": 1.2e-2, "GPT-2": 6e-3}
    assert best["lr"].to_dict() == pytest.approx(rates)
    assert best["edge"].astype(bool).to_list() == [False, False, True]
    assert 0.03 not in set(data["lr"])  # the recipe's own rate is on no grid
    (aligned,) = data[data["kind"] == "alignment"].to_dict("records")
    # From γ = 0.5 to 1 the best rate halves, d^γ grows √32-fold.
    assert aligned["power"] == pytest.approx(math.log(2) / math.log(math.sqrt(32)), abs=1e-4)
    assert aligned["spread_rate"] == pytest.approx(math.log(2) / math.sqrt(2), abs=1e-4)
    assert "a factor of 0.50; equal relative steps would ask for 0.18" in caption
    assert "GPT-2: 3.750 at 0.006, at the edge of its grid of 4" in caption

    data, caption = pages["figure-8c"]
    equal = data[data["kind"] == "equal loss"].set_index(["gamma", "length"])
    # γ = 0.5 ends at 3.8, 3.7, 3.6 and γ = 1, in the mean over seeds, at 3.715, 3.625, 3.535.
    assert equal["method"].to_dict() == {
        (1.0, 2_048_000): "curve", (1.0, 4_096_000): "complete", (1.0, 16_384_000): "complete",
        (0.5, 2_048_000): "complete", (0.5, 4_096_000): "complete",
    }  # fmt: skip
    needed = equal.loc[(1.0, 4_096_000), "tokens_needed"]
    assert math.log2(needed / 2_048_000) == pytest.approx((3.715 - 3.7) / (3.715 - 3.625), abs=1e-4)
    assert "at 8 times the tokens it is 0.76 times that of the shortest" in caption
    assert "γ = 1 has the shorter code in 7 of 9 pairs" in caption  # 5 changes, 4 equal rates


def test_the_arms_of_the_smoke_profile_are_enough(project, script) -> None:
    """One seed, a rate without a grid for another start, a context at another width."""
    wide = [arm(48, g, "adjusted", SEEDS, lambda s: 3.0, suffix="-context", lr=RATE[g],
                more={"model": {"context": 16}}) for g in (0.5, 1.0)]  # fmt: skip
    rates = [one for i in (1, 2) for one in changed(0.1, f"-lr-{i}", rate=1e-3 * i)]
    fixed = changed(0.0, "-fixed", gammas=(0.5,), init={"gamma": 0.5, "scheme": "fixed"})
    no_decay = changed(0.02, "-wd", optimizer={"weight_decay": 0.0})
    pages = draw([*changed(0.08), *no_decay, *rates, *fixed, *wide], script)
    for data, caption in pages.values():
        assert "PILOT" in caption
        assert "Exploratory: no claim is judged by it." in caption
        assert data.filter(["low", "high"]).isna().all(axis=None)
    assert "n = 1: no interval" in pages["figure-8"][1]
    assert "context" not in pages["figure-8"][1]
    assert "fixed 0.02: 3.800 at 0.03, the only rate run" in pages["figure-8b"][1]
    norms = pages["figure-8c"][0].query("kind == 'norm' and change == 'weight decay 0'")
    assert set(norms["gamma"]) == {0.5, 1.0}
    assert norms["share"].isna().all()  # no decay, no equilibrium
    first = {path: path.read_bytes() for path in FOLDER.iterdir()}
    assert len(first) == 4 * len(NAMES)
    script("figure_8").make()
    assert {path: path.read_bytes() for path in FOLDER.iterdir()} == first


def test_what_was_not_run_is_left_out_with_a_sentence(project, script) -> None:
    pages = draw(changed(0.08), script)
    assert "No change of the recipe was run with both γ." in pages["figure-8"][1]
    assert "B: no group of weights was run alone." in pages["figure-8"][1]
    assert "No two learning rates of the recipe were run." in pages["figure-8b"][1]
    assert "no other length was run" in pages["figure-8c"][1]


def test_two_arms_of_one_change_are_refused(project, script) -> None:
    twice = changed(0.1, "-again", optimizer={"weight_decay": 0.3})
    write_project({"figure-8": [*everything(), *twice]})
    with pytest.raises(UserError, match="two arms for one point"):
        script("figure_8").make()


def test_the_norm_is_over_all_matrices_of_the_blocks(project, script) -> None:
    write_project({"figure-8": changed(0.08)})
    runs = script("shared.runs").load("figure-8")
    rms = script("figure_8.training_numbers").block_rms(runs[0])
    entries = 2 * (2 * 32 * 88 + 32 * 32)  # three matrices in each of two blocks, all of norm 1
    assert rms.to_list() == pytest.approx([math.sqrt(6 / entries)] * 4)
