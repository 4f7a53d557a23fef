"""Figure S3 on synthetic records: shares by γ, weight decay and depth, and the words on them."""

import json
from pathlib import Path

import pandas as pd
import pytest

from small_init.data.composite import CompositeConfig, validation_sources
from small_init.errors import UserError
from small_init.files import json_text, write_text
from small_init.runs.paths import record_folder
from tests.paper import conftest
from tests.paper.conftest import Arm, arm, write_project

FOLDER = Path("results/cpu/figures")


def one(gamma: float, decay: float, layers: int, suffix: str = "", seeds=(10, 11)) -> Arm:
    more = {
        "model": {"n_layers": layers, "context": 10, "norm_eps": 1e-12},
        "train": {"corpus": "composite", "tokens": 4_000, "batch_tokens": 400},
    }
    key = f"-wd-{decay:g}-l{layers}{suffix}".replace(".", "p")
    return arm(
        64, gamma, "epsilon", seeds, lambda s: 0.5, key, more=more, lr=3e-3, weight_decay=decay
    )


@pytest.fixture
def with_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that also hold shares: small γ memorises, large γ composes; decay 0 learns little."""
    write = conftest.write_record

    def write_record(arm: Arm, seed: int) -> None:
        write(arm, seed)
        path = record_folder("cpu", arm.key, seed) / "metrics.json"
        metrics = json.loads(path.read_text())
        gamma = arm.overrides["init"]["gamma"]
        metrics["final"]["accuracy_by_source"] = {
            "seen-pairs": 0.5 if arm.overrides["optimizer"]["weight_decay"] == 0 else 0.98,
            "conflict": 0.97,
            "held-out-composed": gamma - 0.4 + 0.02 * (seed - 10),
            "held-out-mirrored": 1 - gamma,
        }
        write_text(path, json_text(metrics))

    monkeypatch.setattr(conftest, "write_record", write_record)


def grid(**more) -> list[Arm]:
    return [one(g, w, n, **more) for g in (0.5, 1.0) for w in (0.0, 0.1) for n in (2, 4)]


def test_shares_and_words(project, script, with_shares) -> None:
    write_project({"figure-s3": grid()})
    script("figure_s3").make()
    data = pd.read_csv(FOLDER / "figure-s3.csv")
    assert len(data) == 16
    cell = data[(data["gamma"] == 1.0) & (data["n_layers"] == 4) & (data["weight_decay"] == 0.1)]
    assert cell["held-out-composed"].tolist() == [0.60, 0.62]
    caption = (FOLDER / "figure-s3.md").read_text()
    assert "8 of 16 runs reach an accuracy of 0.9 on seen pairs; what the others" in caption
    # γ = 1 composes 0.6 of its answers; γ = 0.5 mirrors just half of them.
    assert "inputs 8 runs give the composed answer, 0 the mirrored one and 8 neither." in caption
    assert "10 steps of 40 sequences, peak learning rate 0.003 for every γ, ε = 1e-12." in caption
    assert caption.count("γ = 1 with decay 0.1: 0.61, 0.00 (0.98)") == 2
    assert caption.count("γ = 0.5 with decay 0: 0.11, 0.50 (0.50)") == 2
    assert "PILOT" not in caption


def test_a_pilot_is_marked_and_gives_the_same_bytes_twice(project, script, with_shares) -> None:
    write_project({"figure-s3": grid(seeds=(0,))})
    module = script("figure_s3")

    def drawn() -> dict[str, bytes]:
        module.make()
        return {path.name: path.read_bytes() for path in FOLDER.glob("figure-s3.*")}

    first = drawn()
    assert len(first) == 4
    assert b"PILOT" in first["figure-s3.md"]
    assert drawn() == first


def test_two_arms_of_one_setting_are_refused(project, script, with_shares) -> None:
    write_project({"figure-s3": [*grid(), one(1.0, 0.1, 2, suffix="-again")]})
    with pytest.raises(UserError, match="two arms for one point"):
        script("figure_s3").make()


def test_the_panels_are_the_sources_of_the_task(script) -> None:
    tiny = CompositeConfig(train_sequences=1, val_sequences=1)
    assert list(script("figure_s3").SOURCES) == list(validation_sources(tiny))
