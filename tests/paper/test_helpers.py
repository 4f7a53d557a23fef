"""The parts under the scripts: which runs count, how objects are stamped, what theory says."""

import math
import warnings
from pathlib import Path

import pytest
import torch
from conftest import arm, write_project

from small_init import init, probes, records
from small_init.config import Gate, InitConfig, ModelConfig
from small_init.errors import UserError
from small_init.model import Transformer


def test_pilots_of_a_confirmed_arm_are_left_out(project, script) -> None:
    both = arm(32, 1.0, "adjusted", (0, 1, 10), lambda s: 3.0)
    only = arm(32, 0.5, "adjusted", (0,), lambda s: 3.0)
    write_project({"figure-1": [both, only]})
    kept = script("runs").load("figure-1")
    assert [(run.arm, run.seed) for run in kept] == [(both.key, 10), (only.key, 0)]


def test_two_arms_in_one_cell_are_refused(project, script) -> None:
    twice = [
        arm(32, 1.0, "adjusted", (10,), lambda s: 3.0, suffix=suffix, lr=rate)
        for suffix, rate in (("-a", 1e-3), ("-b", 2e-3))
    ]
    write_project({"table-1": twice})
    with pytest.raises(UserError, match=r"two arms for one point .*-a and .*-b"):
        script("table_1").make()


def test_an_empty_index_says_where_to_name_arms(project, script) -> None:
    write_project({"figure-1": []})
    with pytest.raises(UserError, match="configs/experiments"):
        script("runs").load("figure-1")


def test_the_stamp_follows_the_records(project, script) -> None:
    one = arm(32, 1.0, "adjusted", (10, 11, 12, 20), lambda s: 3.0)
    write_project({"figure-1": [one]})
    style = script("style")
    runs = records.load_runs("figure-1")
    before = style.provenance(runs)
    assert before.startswith("profile cpu · seeds 10–12, 20 · inputs ")
    curve = runs[0].folder / "curve.csv"
    curve.write_text(curve.read_text().replace("0.5", "0.6"))
    assert style.provenance(runs) != before
    assert style.provenance(runs[::-1]) == style.provenance(runs)


def test_a_missing_glyph_is_an_error(project, script) -> None:
    write_project({"figure-1": [arm(32, 1.0, "adjusted", (10,), lambda s: 3.0)]})
    style = script("style")
    fig, ax = style.plt.subplots()
    ax.set_title("\u6c49")
    with warnings.catch_warnings(), pytest.raises(UserWarning, match=r"[Gg]lyph"):
        style.save_figure(fig, "figure-1", None, records.load_runs("figure-1"), "")
    assert not Path("results/cpu/figures").exists()


def test_fonts_are_embedded_and_no_date_is_written(project, script) -> None:
    write_project({"figure-1": [arm(32, g, "adjusted", (10,), lambda s: 3.0) for g in (0.5, 1.0)]})
    content = script("figure_1").make().with_suffix(".pdf").read_bytes()
    assert b"/FontFile2" in content
    assert b"CreationDate" not in content


def test_swiglu_flow_at_the_width_of_the_facts(script) -> None:
    theory = script("theory")
    flows = [theory.mlp_flow(g, 1024, 4096, 1e-12, attention=0.0) for g in (0.5, 0.75, 1.0)]
    assert flows == pytest.approx([19, 0.36, 0.008], rel=0.03)
    # ½·(d_ff/d)^(1/2−γ)·d^(3/2−2γ) where pre-activations are small
    assert flows[2] == pytest.approx(0.5 * 4**-0.5 * 1024**-0.5, rel=1e-3)


def test_gate_and_silu_limits(script) -> None:
    theory = script("theory")
    assert theory.gate_rms(1e-3) == pytest.approx(0.5, abs=1e-6)
    assert theory.gate_rms(1.0) == pytest.approx(0.5416, abs=1e-4)
    assert theory.silu_rms(1e-3) / 1e-3 == pytest.approx(0.5, abs=1e-6)
    assert theory.uniform_average(1) == 1
    assert theory.attention_flow(0.75, 1024, 1e-12, False, 1) == pytest.approx(1024**0.25)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("gamma", [0.75, 1.0, 1.25])
def test_theory_agrees_with_the_model(gamma: float, gated: bool, script) -> None:
    theory = script("theory")
    config = ModelConfig(
        d_model=128, d_ff=352, n_layers=1, n_heads=4, vocab_size=4096, context=64,
        norm_eps=1e-12 if gated else 1e-4, gate=Gate.elementwise if gated else Gate.none,
    )  # fmt: skip
    rule = InitConfig(gamma=gamma)
    model = Transformer(config)
    init.initialise_(model, rule, config, seed=3)
    ids = torch.randperm(4096, generator=torch.Generator().manual_seed(0)).view(64, 64)
    flow = probes.residual_flow(model, ids)
    given = (gamma, config.d_model, config.norm_eps, gated)
    assert flow["attention_single"][0] == pytest.approx(theory.attention_flow(*given, 1), rel=0.1)
    assert flow["attention"][0] == pytest.approx(theory.attention_flow(*given, 64), rel=0.1)
    predicted = theory.mlp_flow(gamma, 128, 352, config.norm_eps, flow["attention"][0])
    assert math.isclose(flow["mlp"][0], predicted, rel_tol=0.05)
