"""What `small-init plan` prints of costs, and what it warns of."""

import re
from dataclasses import replace

import pytest

from small_init import cli
from small_init.config import Accelerator, ArmConfig, Corpus, ParallelConfig
from small_init.config_files import merged
from small_init.data.corpus.config import CorpusConfig
from small_init.runs import cost_table
from small_init.runs.cost import run_cost
from small_init.runs.plan import Plan
from tests import ROOT

CORPUS = CorpusConfig(profile="x", train_tokens=3_000_000, val_tokens=1_000_000)
GPU = ParallelConfig(Accelerator.cuda, device_tflops=100.0, device_memory=80.0)
LOW = {"train": {"precision": "bf16"}}


def plan_of(arms: dict[str, ArmConfig], parallel: ParallelConfig = GPU) -> Plan:
    return Plan("x", dict.fromkeys(arms, "pretrain"), arms, {}, parallel)


def arm(seeds: int = 1, **changes) -> ArmConfig:
    base = ArmConfig(seeds=list(range(seeds)))
    return merged(base, LOW, changes, where="test")


def faults(parallel: ParallelConfig = GPU, **changes) -> list[str]:
    return cost_table.warnings(plan_of({"x-d64-g100-adjusted": arm(**changes)}, parallel), CORPUS)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("x-d64-g100-adjusted", "d64"),
        ("x-d32-e8-g050-standard-lr-3e-3", "d32-e8"),
        ("x-g10m-g025-epsilon", "g10m"),
    ],
)
def test_an_arms_key_names_its_model(key, name):
    assert cost_table.model_name("x", key) == name


def test_arms_of_one_model_and_length_share_a_line():
    plain = arm(3, model={"gate": "none"})
    arms = {
        "x-d64-g050-standard": plain,
        "x-d64-g100-adjusted": arm(2),
        "x-d64-g100-adjusted-tokens-1024000": arm(train={"tokens": 1_024_000}),
    }
    short, full = cost_table.lines(plan_of(arms), None)
    assert (short.arms, short.runs, full.arms, full.runs) == (1, 1, 2, 5)
    costs = [run_cost(arms["x-d64-g050-standard"], GPU), run_cost(arms["x-d64-g100-adjusted"], GPU)]
    assert full.largest == costs[1]  # the gated one needs more
    assert full.device_hours == pytest.approx(3 * costs[0].device_hours + 2 * costs[1].device_hours)
    assert len(cost_table.lines(plan_of(arms), None, every_arm=True)) == 3


def test_hours_are_left_out_where_no_peak_is_stated():
    plan = plan_of({"x-d64-g100-adjusted": arm()}, ParallelConfig())
    (line,) = cost_table.lines(plan, 0.3)
    assert line.device_hours is None
    assert "No hours" in cost_table.totals([line], plan, CORPUS, 0.3)


def test_totals_by_hand():
    plan = plan_of({"x-d64-g100-adjusted": arm(4)}, replace(GPU, devices=4))
    (line,) = cost_table.lines(plan, 0.5)
    # 2.048M tokens · 6 · (4 blocks · (5·64² + 3·64·176) + 2048·64) over 0.5 · 1e14 FLOP/s
    spent = 4 * 2_048_000 * 6 * (4 * (5 * 64**2 + 3 * 64 * 176) + 2048 * 64) / 0.5e14 / 3600
    assert line.device_hours == pytest.approx(spent)
    text = cost_table.totals([line], plan, CORPUS, 0.5)
    assert f"{cost_table.hours_text(spent)} GPU-hours at 50%" in text
    assert f"{cost_table.hours_text(spent / 4)} hours on 4" in text
    assert "8 MB of packed tokens" in text  # 4M tokens of 2 bytes


def test_an_arm_that_fits_is_not_warned_of():
    assert faults() == []
    assert faults(ParallelConfig(), train={"precision": "fp32"}) == []


@pytest.mark.parametrize(
    ("parallel", "changes", "words"),
    [
        (replace(GPU, devices=3), {}, "16 windows does not divide over 3 devices"),
        (replace(GPU, device_memory=0.05), {}, "checkpoint_activations"),
        (GPU, {"train": {"tokens": 6_144_000}}, "6.14M tokens read the corpus 2.0 times over"),
        (GPU, {"model": {"d_ff": 170}}, "d_ff 170: no multiple of 8"),
        (GPU, {"model": {"n_heads": 16}}, "d_model / n_heads 4: no multiple of 8"),
    ],
)
def test_what_does_not_fit_is_named(parallel, changes, words):
    (warning,) = faults(parallel, **changes)
    assert warning.startswith("d64 (1 arm): ")
    assert words in warning


def test_checkpointing_is_not_advised_twice():
    (warning,) = faults(replace(GPU, device_memory=0.02, checkpoint_activations=True))
    assert "more devices" in warning


def test_generated_tokens_are_no_part_of_the_corpus():
    assert faults(train={"tokens": 6_144_000, "corpus": Corpus.backcopy}) == []


def test_a_warning_stands_once_for_all_arms_of_a_model():
    arms = {f"x-d64-g100-adjusted-lr-{i}e-3": arm(train={"tokens": 6_144_000}) for i in (1, 2)}
    (warning,) = cost_table.warnings(plan_of(arms), CORPUS)
    assert warning.startswith("d64 (2 arms): ")


def test_plan_prints_arms_and_costs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("profiles", "models", "variants.yaml", "corpus", "experiments/ladder.yaml"):
        link = tmp_path / "configs" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(ROOT / "configs" / name)
    cli.main(["plan", "--profile", "smoke"])
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"params.json: profile smoke, \d+ arms, \d+ runs\.", lines[0])
    assert any(line.startswith("d24") for line in lines)
    cli.main(["plan", "--arms"])
    assert "smoke-d24-g100-adjusted " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="--mfu is 40"):
        cli.main(["plan", "--mfu", "40"])


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (24_660_000, "24.7M"), (1.5e15, "1,500T")],
)
def test_counts_are_short(number, text):
    assert cost_table.count_text(number) == text
