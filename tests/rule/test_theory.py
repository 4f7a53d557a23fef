"""What the γ rule predicts at step 0, against the facts it is derived from and the model."""

import math

import pytest
import torch

from small_init.config import Gate, InitConfig, ModelConfig
from small_init.measure import activations
from small_init.model import init
from small_init.model.transformer import Transformer
from small_init.rule import theory


def test_swiglu_flow_at_the_width_of_the_facts() -> None:
    flows = [theory.mlp_flow(g, 1024, 4096, 1e-12, attention=0.0) for g in (0.5, 0.75, 1.0)]
    assert flows == pytest.approx([19, 0.36, 0.008], rel=0.03)
    # ½·(d_ff/d)^(1/2−γ)·d^(3/2−2γ) where pre-activations are small
    assert flows[2] == pytest.approx(0.5 * 4**-0.5 * 1024**-0.5, rel=1e-3)


def test_gate_and_silu_limits() -> None:
    assert theory.gate_rms(1e-3) == pytest.approx(0.5, abs=1e-6)
    assert theory.gate_rms(1.0) == pytest.approx(0.5416, abs=1e-4)
    assert theory.silu_rms(1e-3) / 1e-3 == pytest.approx(0.5, abs=1e-6)
    assert theory.uniform_average(1) == 1
    assert theory.attention_flow(0.75, 1024, 1e-12, False, 1) == pytest.approx(1024**0.25)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("gamma", [0.75, 1.0, 1.25])
def test_theory_agrees_with_the_model(gamma: float, gated: bool) -> None:
    config = ModelConfig(
        d_model=128, d_ff=352, n_layers=1, n_heads=4, vocab_size=4096, context=64,
        norm_eps=1e-12 if gated else 1e-4, gate=Gate.elementwise if gated else Gate.none,
    )  # fmt: skip
    rule = InitConfig(gamma=gamma)
    model = Transformer(config)
    init.initialise_(model, rule, config, seed=3)
    ids = torch.randperm(4096, generator=torch.Generator().manual_seed(0)).view(64, 64)
    flow = activations.residual_flow(model, ids)
    given = (gamma, config.d_model, config.norm_eps, gated)
    assert flow["attention_single"][0] == pytest.approx(theory.attention_flow(*given, 1), rel=0.1)
    assert flow["attention"][0] == pytest.approx(theory.attention_flow(*given, 64), rel=0.1)
    predicted = theory.mlp_flow(gamma, 128, 352, config.norm_eps, flow["attention"][0])
    assert math.isclose(flow["mlp"][0], predicted, rel_tol=0.05)
