"""Figure 3 on synthetic records: shares beside uniform, and whether any head is a sink."""

from pathlib import Path

import pandas as pd
import pytest

from small_init.claims.criteria import load_claims
from small_init.errors import UserError
from small_init.measure.activations import SINK_ABOVE
from tests.paper.conftest import PAPER, Arm, arm, write_project

FOLDER = Path("results/cpu/figures")
GATES = {"epsilon": "none", "headwise": "headwise", "adjusted": "elementwise"}


def one(
    gamma: float, variant: str, corpus: str = "packed", layers: int = 4, lr: float = 3e-3
) -> Arm:
    more = {
        "model": {"gate": GATES[variant], "norm_eps": 1e-12, "n_layers": layers},
        "train": {"probes": "all", "corpus": corpus},
    }
    key = f"-{corpus}-{layers}-{lr:g}"
    return arm(64, gamma, variant, (10, 11), lambda s: 3.0, key, more=more, lr=lr)


def language() -> list[Arm]:
    return [one(gamma, variant) for gamma in (0.5, 1.0) for variant in GATES]


def test_shares_by_layer_and_the_verdict(project, script) -> None:
    write_project({"figure-3": [*language(), one(1.0, "epsilon", "backcopy", 2)]})
    script("figure_3").make()
    data = pd.read_csv(FOLDER / "figure-3.csv")
    end = data[(data["step"] == 1000) & (data["layer"] == 3) & (data["task"] == "packed")]
    # Every other head of the last layer has grown by 0.2.
    assert sorted(set(end["share"].round(6))) == [0.01, 0.21]
    assert set(data["uniform_share"]) == {0.01}
    caption = (FOLDER / "figure-3.md").read_text()
    assert "not testable at this scale" in caption
    assert "α₀ = 0.240 (uniform 0.040;" in caption
    assert "T = 128, uniform share 0.0100" in caption
    assert "(2410.13835; 2 layers" in caption


def test_rates_of_the_task_are_told_apart(project, script) -> None:
    shared = [one(g, v, "backcopy", 1, lr=1e-2) for g in (0.5, 1.0) for v in GATES]
    slower = [one(g, "epsilon", "backcopy", 1, lr=1e-3) for g in (0.5, 1.0)]
    write_project({"figure-3": [*language(), *shared, *slower]})
    script("figure_3").make()
    caption = (FOLDER / "figure-3.md").read_text()
    assert "peak learning rate 0.01)" in caption
    assert "γ = 1 0.001: 0.24 and 0.24, 0.01: 0.24 and 0.24" in caption


def test_a_sink_is_counted(project, script) -> None:
    write_project({"figure-3": language()})
    module = script("figure_3")
    data = module.head_table(script("shared.runs").load("figure-3")[0])
    strong = data.assign(alpha=data["alpha"] + 0.2)
    words = module.verdict(strong, "these runs")
    assert "reaches α₀ = 0.440" in words
    # At the end 2 of 4 heads of each of the 4 layers have grown by 0.05 · layer.
    assert "γ = 0.5, no gate: 38%" in words
    assert "not testable" not in words


def test_two_runs_of_one_cell_are_refused(project, script) -> None:
    twice = [one(1.0, "epsilon"), arm(
        32, 1.0, "epsilon", (10,), lambda s: 3.0, more={
            "model": {"gate": "none", "norm_eps": 1e-12}, "train": {"probes": "all"}},
    )]  # fmt: skip
    write_project({"figure-3": twice})
    with pytest.raises(UserError, match="two arms for one point"):
        script("figure_3").make()


def test_what_counts_as_a_sink_is_the_same_everywhere(script) -> None:
    claim = load_claims(PAPER / "claims.yaml")["C3"]
    assert script("figure_3").SINK == SINK_ABOVE == claim.thresholds["sink"]
