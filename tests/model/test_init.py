"""The γ rule: stds, pairing, coverage."""

import hashlib
import math

import numpy as np
import pytest
import torch
from torch import nn

from small_init.config import Gate, InitConfig, ModelConfig, Norm, Scheme
from small_init.model.init import (
    classify,
    draw,
    initialise_,
    weight_record,
    weight_table,
)
from small_init.model.transformer import Transformer
from small_init.rule.draws import canonical, standard_normal

CONFIG = ModelConfig(
    d_model=64, n_layers=3, n_heads=4, d_ff=96, vocab_size=512, context=16,
    gate=Gate.elementwise, qk_norm=True,
)  # fmt: skip


def drawn(init: InitConfig, config: ModelConfig = CONFIG, seed: int = 0) -> Transformer:
    model = Transformer(config)
    initialise_(model, init, config, seed)
    return model


@pytest.mark.parametrize("gamma", [0.25, 0.5, 1.0, 1.5])
def test_every_matrix_has_the_std_of_the_rule(gamma):
    model = drawn(InitConfig(gamma=gamma))
    seen = 0
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            assert torch.equal(weight, torch.ones_like(weight)), name
            continue
        expected = weight.shape[1] ** -gamma  # fan-in; the hidden size for the embedding
        error = 5 / math.sqrt(2 * weight.numel())
        assert weight.std().item() == pytest.approx(expected, rel=error), name
        seen += 1
    assert seen == 2 + CONFIG.n_layers * 8


def test_gammas_of_groups_stand_alone():
    init = InitConfig(gamma=0.5, embedding=1.0, mlp=0.75)
    for weight in weight_table(Transformer(CONFIG), init, CONFIG):
        gamma = {"embedding": 1.0, "mlp": 0.75, "norm": None}.get(weight.group.value, 0.5)
        if gamma is not None:
            assert weight.std == pytest.approx(weight.fan_in**-gamma), weight.name


@pytest.mark.parametrize(
    ("scheme", "hidden", "output"),
    [
        (Scheme.fixed, 0.02, 0.02),
        (Scheme.gpt2, 0.02, 0.02 / math.sqrt(6)),
        (Scheme.zero_out, 1 / 64, 0.0),
    ],
)
def test_other_schemes(scheme, hidden, output):
    stds = {
        w.name: w.std for w in weight_table(Transformer(CONFIG), InitConfig(scheme=scheme), CONFIG)
    }
    assert stds["blocks.0.attention.query.weight"] == pytest.approx(hidden)
    assert stds["blocks.1.attention.output.weight"] == pytest.approx(output)
    assert stds["blocks.2.mlp.down.weight"] == pytest.approx(output)
    assert stds["embedding.weight"] == pytest.approx(hidden)


def test_depth_scaling_touches_output_projections_alone():
    plain = {w.name: w.std for w in weight_table(Transformer(CONFIG), InitConfig(), CONFIG)}
    for weight in weight_table(Transformer(CONFIG), InitConfig(depth_scaled=True), CONFIG):
        ratio = weight.std / plain[weight.name] if plain[weight.name] else 1.0
        is_output = weight.name.endswith(("attention.output.weight", "mlp.down.weight"))
        assert ratio == pytest.approx(1 / math.sqrt(6) if is_output else 1.0), weight.name


def test_gammas_share_their_draws():
    half, one = drawn(InitConfig(gamma=0.5)), drawn(InitConfig(gamma=1.0))
    for a, b in zip(half.parameters(), one.parameters(), strict=True):
        if a.ndim > 1:
            torch.testing.assert_close(a / a.shape[1] ** -0.5, b / b.shape[1] ** -1.0)


def test_draws_depend_on_seed_and_name_and_not_on_order():
    first = standard_normal(0, "a.weight", (8, 8))
    standard_normal(0, "b.weight", (4, 4))
    assert np.array_equal(first, standard_normal(0, "a.weight", (8, 8)))
    assert not np.array_equal(first, standard_normal(1, "a.weight", (8, 8)))
    assert not np.array_equal(first, standard_normal(0, "b.weight", (8, 8)))


def test_draws_are_the_published_ones():
    """Published records rest on these numbers; numpy may change its streams between versions."""
    values = standard_normal(0, "embedding.weight", (64, 64))
    digest = hashlib.sha256(values.tobytes()).hexdigest()[:16]
    assert digest == "ed0ac0ceb594f5d8", (
        f"numpy {np.__version__} draws other normals than the published runs: pin numpy as in "
        "requirements.lock, or retrain every arm and put the new digest here."
    )


def test_adding_a_gate_keeps_the_other_weights():
    gated = drawn(InitConfig())
    bare = drawn(InitConfig(), ModelConfig(**{**vars(CONFIG), "gate": Gate.none}))
    with_gate = dict(gated.named_parameters())
    for name, weight in bare.named_parameters():
        assert torch.equal(weight, with_gate[name]), name


def test_unknown_weight_is_refused_by_name():
    model = Transformer(CONFIG)
    model.adapter = nn.Linear(4, 4)
    with pytest.raises(ValueError, match=r"adapter\.weight"):
        initialise_(model, InitConfig(), CONFIG, 0)


def test_wrapper_prefixes_do_not_change_a_name():
    assert canonical("blocks.0._orig_mod.mlp._checkpoint_wrapped_module.up.weight") == (
        "blocks.0.mlp.up.weight"
    )
    assert classify("blocks.11.mlp.down.weight")[1]


def test_tied_weights_are_drawn_once_as_the_embedding():
    config = ModelConfig(**{**vars(CONFIG), "tied": True})
    model = drawn(InitConfig(), config)
    assert model.readout.weight.data_ptr() == model.embedding.weight.data_ptr()
    names = [weight.name for weight in weight_table(model, InitConfig(), config)]
    assert "embedding.weight" in names
    assert "readout.weight" not in names


def test_layernorm_gains_are_one():
    config = ModelConfig(**{**vars(CONFIG), "norm": Norm.layernorm})
    model = drawn(InitConfig(), config)
    assert all(torch.all(p == 1) for p in model.parameters() if p.ndim == 1)


def test_record_tells_std_and_hash_of_what_is_there():
    model = drawn(InitConfig())
    record = weight_record(model, InitConfig(), CONFIG)["blocks.0.mlp.up.weight"]
    weight = model.blocks[0].mlp.up.weight.detach()
    assert record["shape"] == [96, 64]
    assert record["std_asked"] == pytest.approx(1 / 64)
    assert record["sha256"] == hashlib.sha256(weight.numpy().tobytes()).hexdigest()
    again = weight_table(model, InitConfig(), CONFIG)
    assert torch.equal(
        draw(next(w for w in again if w.name.endswith("0.mlp.up.weight")), 0), weight
    )
