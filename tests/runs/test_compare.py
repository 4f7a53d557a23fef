"""Two runs side by side: what differs, with signs, and how a run is named."""

from pathlib import Path

import pytest

from small_init.errors import UserError
from small_init.runs.compare import compare, find_run
from tests import records


def write(arm: str, seed: int, gamma: float, loss: float) -> None:
    config = records.config_of({"init": {"gamma": gamma}})
    curve = [{"tokens": t, "val_loss": loss + 1 / (1 + t)} for t in (0, 1024)]
    ranks = [
        {"step": step, "weight": f"blocks.{layer}.mlp.up.weight", "stable_rank": rank + layer}
        for step, rank in ((0, 30.0), (10, 10.0), (20, 20.0))
        for layer in (0, 1)
    ]
    records.write(records.metrics_of(config, arm, seed, loss), curve=curve, spectra=ranks)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("half", 0, 0.5, 3.5)
    write("one", 2, 1.0, 3.25)
    write("one", 10, 1.0, 3.2)


def test_what_differs_is_shown_with_its_sign(runs: None) -> None:
    text = compare(find_run("half", "cpu"), find_run("one/seed-2", "cpu"))
    lines = {line.split("  ")[1].strip(): line for line in text.splitlines() if "  " in line}
    assert lines["init.gamma"].split()[1:] == ["0.5", "1"]
    assert "optimizer.lr" not in text
    assert lines["validation loss (nats per token)"].split()[-3:] == ["3.5", "3.25", "-0.25"]
    assert lines["mlp.up"].count("30.5 → 10.5 → 20.5") == 2
    assert lines["1,024"].endswith("-0.25")


def test_a_run_is_named_by_arm_by_seed_or_by_path(runs: None) -> None:
    assert find_run("one", "cpu").seed == 2
    assert find_run("one/seed-10", "cpu").seed == 10
    assert find_run("results/cpu/runs/one/seed-10", "cpu").seed == 10
    with pytest.raises(UserError, match="no run 'two'"):
        find_run("two", "cpu")
