"""Figure 4's later panels on synthetic records: flow at the end, and context length."""

from pathlib import Path

import pandas as pd
import pytest

from small_init.rule.theory import attention_flow
from tests.paper.conftest import Arm, arm, write_project

FOLDER = Path("results/cpu/figures")
ALL = {"train": {"probes": "all"}}


def sweep(width: int, vertex: float, context: int = 128) -> list[Arm]:
    more = {"model": {"context": context}, **ALL}
    suffix = "" if context == 128 else f"-context-{context}"
    return [
        arm(
            width,
            g,
            "adjusted",
            (10, 11),
            lambda s, g=g: 3.5 + (g - vertex) ** 2,
            suffix,
            more=more,
        )
        for g in (0.5, 0.75, 1.0, 1.25)
    ]


def draw(script, arms: list[Arm]) -> tuple[pd.DataFrame, str]:
    write_project({"figure-4": arms})
    script("figure_4").make()
    return pd.read_csv(FOLDER / "figure-4.csv"), (FOLDER / "figure-4.md").read_text()


def test_flow_at_the_end(project, script) -> None:
    data, caption = draw(script, sweep(64, 0.9))
    end = data[data["kind"] == "flow at the end"].set_index(["gamma", "seed"])
    row = end.loc[(0.5, 10)]
    # The synthetic flow halves during training; at T it is divided by √T.
    assert row["step"] == 1000
    assert row["attention_single"] == pytest.approx(64**0.5 / 2)
    assert row["attention"] == pytest.approx(64**0.5 / 2 / 128**0.5)
    assert row["mlp"] == pytest.approx(64**0.5 / 20)
    assert pd.isna(row["attention_theory"])
    assert "then ranges from 0.016 to 0.35 (attention)" in caption


def test_contexts_have_curves_and_minima_of_their_own(project, script) -> None:
    arms = [*sweep(32, 1.0), *sweep(32, 0.8, 16), *sweep(32, 1.1, 512), *sweep(64, 1.0)]
    data, caption = draw(script, arms)
    minima = data[data["kind"] == "minimum"].set_index(["d_model", "context"])["gamma"]
    assert minima[32, 16] == pytest.approx(0.8)
    assert minima[32, 512] == pytest.approx(1.1)
    assert minima[64, 128] == pytest.approx(1.0)
    assert "adjusted, d = 32, T = 16: γ = 0.80" in caption
    assert "adjusted, d = 32: γ = 1.00" in caption
    windows = data[data["kind"] == "flow by context"]
    assert set(windows["context"]) == {512}  # of the longest alone
    assert set(windows["d_model"]) == {32}
    assert sorted(set(windows["window"])) == [1, 4, 16, 64, 512]
    start = windows[(windows["step"] == 0) & (windows["gamma"] == 1.0) & (windows["window"] == 16)]
    assert start["attention_theory"].to_numpy() == pytest.approx(
        attention_flow(1.0, 32, 1e-12, True, 16)
    )


def test_runs_of_the_usual_probes_alone_are_enough(project, script) -> None:
    arms = [arm(32, g, "standard", (10,), lambda s, g=g: 3 + g) for g in (0.5, 1.0)]
    data, caption = draw(script, arms)
    assert set(data["kind"]) == {"run", "mean", "flow"}
    assert "No run recorded its flow at the end." in caption
