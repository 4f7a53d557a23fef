"""The model: causality, norms at small variance, the loss and its gradient, equivalences."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from small_init.config import Gate, InitConfig, ModelConfig, Norm
from small_init.model.init import initialise_
from small_init.model.loss import mean_loss, token_losses
from small_init.model.transformer import (
    LayerNorm,
    RMSNorm,
    Transformer,
    parameter_counts,
    rotary_tables,
    rotate,
)

SMALL = ModelConfig(d_model=32, n_layers=2, n_heads=4, d_ff=48, vocab_size=97, context=12)
VARIANTS = [
    {"gate": Gate.none},
    {"gate": Gate.headwise},
    {"gate": Gate.elementwise},
    {"norm": Norm.layernorm},
    {"qk_norm": True},
    {"tied": True},
]


def build(**changes) -> Transformer:
    config = ModelConfig(**{**vars(SMALL), **changes})
    model = Transformer(config)
    initialise_(model, InitConfig(gamma=0.5), config, seed=3)
    return model


def batch(rows: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 97, (rows, 13), generator=generator)
    return ids[:, :-1], ids[:, 1:]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_no_position_sees_a_later_one(changes):
    model = build(**changes)
    x = model.embedding(batch()[0]).detach().requires_grad_()
    tables = model.tables[:, : x.shape[1]]
    hidden = x
    for block in model.blocks:
        hidden = block(hidden, tables)
    hidden[:, 5].square().sum().backward()
    assert x.grad[:, 6:].abs().max() == 0
    assert (x.grad[:, :6].abs().sum(-1) > 0).all()


def test_fewer_targets_are_those_of_the_last_positions():
    model, (ids, targets) = build(), batch()
    losses = model(ids, targets, per_token=True)
    assert torch.equal(model(ids, targets[:, -3:], per_token=True), losses[:, -3:])
    mean = model(ids, targets[:, -3:])
    assert mean.item() == pytest.approx(losses[:, -3:].mean().item(), rel=1e-6)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_every_parameter_gets_a_gradient(changes):
    model = build(**changes)
    model(*batch()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_loss_is_torchs_cross_entropy(changes):
    model = build(**changes)
    inputs, targets = batch()
    reference = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction="none")
    torch.testing.assert_close(model(inputs, targets), reference.mean())
    per_token = model(inputs, targets, per_token=True)
    torch.testing.assert_close(per_token.flatten(), reference)


def test_loss_gradients_are_torchs_over_many_blocks(monkeypatch):
    monkeypatch.setattr("small_init.model.loss._CPU_BLOCK", 16 * 61)  # 16 rows at a time
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(50, 8, generator=generator).requires_grad_()
    w = torch.randn(61, 8, generator=generator).requires_grad_()
    targets = torch.randint(0, 61, (50,), generator=generator)
    (3 * mean_loss(x, w, targets)).backward()
    grads = x.grad.clone(), w.grad.clone()
    x.grad = w.grad = None
    (3 * F.cross_entropy(x @ w.T, targets)).backward()
    torch.testing.assert_close(grads[0], x.grad)
    torch.testing.assert_close(grads[1], w.grad)
    assert len(token_losses(x, w, targets)) == 50


def test_loss_survives_large_logits():
    x, w = torch.full((4, 2), 300.0), torch.tensor([[300.0, 0.0], [0.0, -300.0]])
    assert token_losses(x, w, torch.tensor([0, 0, 1, 1])).tolist() == [0, 0, 180000, 180000]


@pytest.mark.parametrize("eps", [1e-5, 1e-12])
def test_rmsnorm_saturates_as_epsilon_says(eps):
    """rms of the output is 1/sqrt(1 + ε/σ²): where σ ≈ sqrt(ε) the norm passes 0.707."""
    norm = RMSNorm(256, eps)
    for scale in (10.0, 1.0, 0.1):
        x = torch.randn(64, 256) * math.sqrt(eps) * scale
        own = x.square().mean(-1)
        expected = (own / (own + eps)).sqrt()
        torch.testing.assert_close(norm(x).square().mean(-1).sqrt(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("kind", [RMSNorm, LayerNorm])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_compute_in_float32(kind, dtype):
    """|x| ≈ sqrt(ε) in a low precision: squares and ε must meet in float32."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(8, 64, generator=generator) * 1e-3).to(dtype)
    exact = x.double()
    if kind is LayerNorm:
        exact = exact - exact.mean(-1, keepdim=True)
    exact = exact / (exact.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    low = kind(64, 1e-6)(x)
    assert low.dtype == dtype
    torch.testing.assert_close(low.double(), exact, rtol=2**-7, atol=1e-3)


def test_rotation_keeps_length_and_depends_on_distance_alone():
    tables = rotary_tables(SMALL, 12)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 8, generator=generator).expand(2, 1, 1, 12, 8)
    turned_q, turned_k = rotate(q, tables), rotate(k, tables)
    torch.testing.assert_close(turned_q.norm(dim=-1), q.norm(dim=-1))
    scores = (turned_q @ turned_k.transpose(-1, -2))[0, 0]
    for distance in range(12):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-5)


def test_rotation_gradient_is_numerical():
    tables = rotary_tables(SMALL, 3).double()
    x = torch.randn(1, 2, 3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: rotate(value, tables), (x,))


@pytest.mark.parametrize("gate", [Gate.headwise, Gate.elementwise])
def test_a_gate_of_zero_weights_halves_the_attention_output(gate):
    gated, bare = build(gate=gate), build(gate=Gate.none)
    x = torch.randn(2, 12, 32)
    nn.init.zeros_(gated.blocks[0].attention.gate.weight)
    halved = gated.blocks[0].attention(x, gated.tables)
    torch.testing.assert_close(2 * halved, bare.blocks[0].attention(x, bare.tables))


def test_parameter_counts():
    counts = parameter_counts(build(gate=Gate.elementwise))
    block = 5 * 32 * 32 + 3 * 32 * 48 + 2 * 32
    assert counts["non_embedding"] == 2 * block + 32
    assert counts["embedding_and_readout"] == 2 * 97 * 32
    assert parameter_counts(build(tied=True))["embedding_and_readout"] == 97 * 32
