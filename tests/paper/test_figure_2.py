"""Figure 2 on synthetic records: the ratio, the axis, the control, the steps per token class."""

from pathlib import Path

import pandas as pd
import pytest

from small_init.claims.criteria import load_claims
from tests.paper.conftest import PAPER, Arm, arm, write_project

FOLDER = Path("results/cpu/figures")
ALL = {"train": {"probes": "all"}}


def ungated(gamma: float, eps: float, loss: float, name: str, **init: float) -> Arm:
    more = {"model": {"gate": "none", "norm_eps": eps}, "init": init}
    return arm(64, gamma, "epsilon", (10, 11), lambda s: loss + s / 100, f"-{name}", more=more)


def arms() -> list[Arm]:
    """γ = 1 pays 0.3 for the matched ε, unless its embedding is drawn with γ = 0.5."""
    return [
        arm(64, 1.0, "standard", (10, 11), lambda s: 3.8 + s / 100, more=ALL),
        arm(64, 1.0, "adjusted", (10, 11), lambda s: 3.0),
        ungated(1.0, 1e-12, 3.5, "small"),
        ungated(1.0, 1e-5, 3.6, "literal"),
        ungated(1.0, 1e-12, 3.45, "small-embedding", embedding=0.5),
        ungated(1.0, 2.56e-3, 3.47, "large-embedding", embedding=0.5),
        ungated(0.5, 1e-12, 3.4, "half"),  # one ε alone: no curve
    ]


def draw(script, some: list[Arm]) -> tuple[pd.DataFrame, str]:
    write_project({"figure-2": some})
    script("figure_2").make()
    return pd.read_csv(FOLDER / "figure-2.csv"), (FOLDER / "figure-2.md").read_text()


def test_numbers_and_words(project, script) -> None:
    data, caption = draw(script, arms())
    # The ratio is that of the embedding.
    runs = data[data["kind"] == "run"].set_index("arm")
    ratio = runs["eps_over_variance"]
    assert ratio["cpu-d64-g100-standard"].iloc[0] == pytest.approx(2.56e-3 * 64**2)
    assert ratio["cpu-d64-g100-epsilon-large-embedding"].iloc[0] == pytest.approx(2.56e-3 * 64)
    assert runs["norm_rms"].to_numpy() == pytest.approx(runs["norm_rms_theory"].to_numpy())
    assert "differ by at most 0.0%" in caption

    # The axis and the control say what a large ε costs.
    assert "γ = 1: +0.100 at 0.041, literal, [" in caption
    assert "+0.300 at 10.5, matched, [" in caption
    assert "γ = 0.5: +" not in caption
    control = data[data["kind"] == "control"]
    assert sorted(set(control["gamma_embedding"])) == [0.5, 1.0]
    # Not the literal ε, which no embedding of its own was run with.
    assert set(control["norm_eps"]) == {1e-12, 2.56e-3}
    assert "so the large ε costs +0.020" in caption
    assert "so the large ε costs +0.300" in caption

    delays = data[(data["kind"] == "delay") & (data["seed"] == 10)].set_index("token_class")["step"]
    # In the synthetic records class c is sensed from step 10^(c/2) on; recorded are 0, 10, 100, …
    assert delays.loc[[0, 2, 3, 4]].tolist() == [10, 10, 100, 100]
    assert delays.isna().loc[7]
    assert "rarest eighth not within the run" in caption


def test_a_token_class_has_arrived_when_it_stays(script) -> None:
    numbers = script("figure_2.numbers")
    back = pd.DataFrame(
        {
            "arm": "a", "seed": 0, "gamma": 1.0, "token_class": 0, "share": 0.5,
            "step": [0, 10, 100, 1000], "saturation": [0.3, 0.97, 0.9, 0.99],
        }
    )  # fmt: skip
    assert numbers.delay_table(back)["step"].tolist() == [1000]


def test_without_control_axis_or_classes_it_says_so(project, script) -> None:
    _, caption = draw(script, [arm(64, 1.0, "standard", (10,), lambda s: 3.0)])
    assert "No γ was run at two ε." in caption
    assert "The control with an embedding γ of its own was not run." in caption
    assert "No run of the standard variant recorded its token classes." in caption


def test_the_threshold_is_that_of_the_claim(script) -> None:
    claim = load_claims(PAPER / "claims.yaml")["C2"]
    assert claim.thresholds["saturated"] == script("figure_2.numbers").SENSES
