"""Figure 6 on synthetic records: dips, maps whose order is found elsewhere, dip against loss."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from small_init.errors import UserError
from tests.paper.conftest import Arm, arm, write_project

FOLDER = Path("results/cpu/figures")
ALL = {"train": {"probes": "all"}}


def main_arms(seeds: tuple[int, ...] = (10, 11)) -> list[Arm]:
    """The random stable rank is 25; γ = 1 dips to 10, γ = 0.5 to 20; both end at 20."""
    return [
        arm(64, g, v, seeds, lambda s: 3.0, lowest_rank=lambda s, g=g: 10.0 if g == 1 else 20.0,
            more=ALL)
        for v in ("standard", "adjusted")
        for g in (0.5, 1.0)
    ]  # fmt: skip


def test_dip_and_rise(project, script) -> None:
    write_project({"figure-6": main_arms()})
    script("figure_6").make_trajectories(script("shared.runs").load("figure-6"))
    data = pd.read_csv(FOLDER / "figure-6.csv")
    dips = data[(data["kind"] == "dip") & (data["type"] == "mlp.up")]
    dips = dips[(dips["variant"] == "adjusted") & (dips["seed"] == 10)]
    dips = dips.set_index(["gamma", "matrix"])
    assert dips.loc[(1.0, "W"), "step_of_lowest"] == 100
    assert dips.loc[(1.0, "W"), "depth"] == pytest.approx(1 - 10 / 25)
    assert dips.loc[(1.0, "W"), "dip_and_rise"] == pytest.approx((20 - 10) / 25)
    assert dips.loc[(0.5, "W"), "dip_and_rise"] == pytest.approx(0)
    assert dips.loc[(1.0, "update"), "dip_and_rise"] == pytest.approx((20 - 10) / 25)
    assert data.loc[data["matrix"] == "update", "step"].min() > 0
    caption = (FOLDER / "figure-6.md").read_text()
    assert "γ = 1: lowest 0.40 at step 100, last 0.80, dip-and-rise +0.40, [" in caption
    assert "difference +0.40, [" in caption


def test_a_dip_that_does_not_rise_again_is_none(script) -> None:
    table = pd.DataFrame(
        {
            "variant": "adjusted", "d_model": 64, "gamma": 1.0, "arm": "a", "seed": 0,
            "type": "mlp.up", "matrix": "W", "step": [0, 10, 100], "stable_rank": [2.0, 20.0, 5.0],
            "stable_rank_random": 20.0,
        }
    )  # fmt: skip
    (found,) = script("figure_6.numbers").dips(table).to_dict("records")
    assert (found["depth"], found["rise"], found["dip_and_rise"]) == (0.75, 0, 0)
    assert found["step_of_lowest"] == 100  # not step 0


def test_an_order_found_on_noise_shows_no_blocks(script) -> None:
    numbers = script("figure_6.numbers")
    null = numbers.gaussian_null((120, 64))
    shown = numbers.ordered_map(null)
    found = numbers.map_numbers(shown)
    assert found["neighbour_abs_cos"] == pytest.approx(found["mean_abs_cos"], abs=0.03)
    # The same columns sorted and shown would make neighbours alike.
    same = np.abs(numbers.cosines(null[:, ::2]))
    order = numbers.row_order(null[:, ::2])
    assert np.diag(same[np.ix_(order, order)], 1).mean() > found["neighbour_abs_cos"] + 0.1


def test_an_order_finds_blocks_that_are_there(script) -> None:
    numbers = script("figure_6.numbers")
    random = np.random.default_rng(1)
    centres = random.standard_normal((4, 64))
    signs = random.choice([-1, 1], size=(40, 1))
    rows = signs * centres[np.arange(40) % 4] + 0.1 * random.standard_normal((40, 64))
    shown = numbers.ordered_map(rows)
    assert np.diag(shown, 1).mean() > 0.85  # 36 of 39 neighbours are of one centre
    assert shown[np.triu_indices(40, 1)].mean() < 0.5


def test_the_update_of_a_snapshot_is_without_the_decayed_start(project, script) -> None:
    write_project({"figure-6": main_arms()})
    numbers = script("figure_6.numbers")
    run = script("shared.runs").load("figure-6")[0]
    found = numbers.snapshots_of(run, "mlp.up")
    first, last = found["W"][0], found["W"][1000]
    config = run.config.optimizer
    left = numbers.decay_left(1000, run.config.steps, config)
    assert 0 < left < 1
    assert np.allclose(found["update"][1000], last - left * first)
    assert set(found["update"]) == {10, 100, 1000}
    # The synthetic weights grow a part of rank one on the start: the update condenses with them.
    script("figure_6").make_maps(script("shared.runs").load("figure-6"))
    maps = pd.read_csv(FOLDER / "figure-6b.csv").set_index(["gamma", "matrix", "step"])
    assert maps.loc[(1.0, "gaussian", 0), "mean_abs_cos"] == pytest.approx(0.14, abs=0.01)
    assert maps.loc[(1.0, "update", 100), "mean_abs_cos"] > 0.9
    assert "neighbours of the null have 0.1" in (FOLDER / "figure-6b.md").read_text()


def test_dip_against_loss_within_width_and_variant(project, script) -> None:
    seeds = (10, 11, 12, 13)
    deep = arm(32, 1.0, "standard", seeds, lambda s: 3 + s / 10, lowest_rank=lambda s: 30.0 - s)
    other = arm(32, 1.0, "adjusted", seeds, lambda s: 3 - s / 10, lowest_rank=lambda s: 30.0 - s)
    few = arm(48, 1.0, "adjusted", seeds[:3], lambda s: 3.0)
    write_project({"figure-6": [*main_arms(), deep, other, few]})
    script("figure_6").make_losses("figure-6c", script("shared.runs").load("figure-6"))
    data = pd.read_csv(FOLDER / "figure-6c.csv")
    assert (data["kind"] == "run").sum() == 8 + 4 + 4 + 3
    found = data[data["kind"] == "correlation"]
    found = found[found["gamma"].isna()].set_index(["d_model", "variant"])["correlation"]
    assert found[32, "standard"] == pytest.approx(1)
    assert found[32, "adjusted"] == pytest.approx(-1)
    assert 48 not in found.index.get_level_values("d_model")
    assert "seeds 10–13" in (FOLDER / "figure-6c.md").read_text()


def test_the_main_pages_take_the_widest_runs_of_every_probe(project, script) -> None:
    narrow = arm(32, 1.0, "adjusted", (10,), lambda s: 3.0, more=ALL)
    own = arm(
        64, 1.0, "standard", (10,), lambda s: 3.0, "-e", more={"init": {"embedding": 0.5}, **ALL}
    )
    between = arm(64, 0.75, "adjusted", (10,), lambda s: 3.0, more=ALL)
    write_project({"figure-6": [*main_arms((10,)), narrow, own, between]})
    chosen = script("figure_6.numbers").condensation_runs(script("shared.runs").load("figure-6"))
    assert {run.arm for run in chosen} == {a.key for a in main_arms()}
    # Each page names the seeds it shows, and the first is what the script reports.
    assert script("figure_6").make() == FOLDER / "figure-6.png"
    kinds = {path.name for path in FOLDER.iterdir()}
    assert kinds == {
        f"figure-6{p}.{k}" for p in ("", "b", "c") for k in ("csv", "md", "pdf", "png")
    }
    write_project({"figure-6": [arm(64, 1.0, "adjusted", (10,), lambda s: 3.0)]})
    with pytest.raises(UserError, match="probes: all"):
        script("figure_6").make()
