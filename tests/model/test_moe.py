"""The mixture of experts: against a loop over tokens, its losses, γ, counts and probes."""

import json
import math

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from small_init.config import ArmConfig, Gate, InitConfig, ModelConfig, Precision
from small_init.config_files import merged
from small_init.config_limits import check
from small_init.errors import UserError
from small_init.model.init import initialise_, weight_table
from small_init.model.moe import MixtureOfExperts, routing
from small_init.model.transformer import Transformer, parameter_counts
from small_init.rule.groups import Group
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import Pretraining, flops_per_token, train

SMALL = ModelConfig(
    d_model=16, n_layers=2, n_heads=2, d_ff=24, vocab_size=97, context=12, gate=Gate.none,
    n_experts=6, experts_per_token=2,
)  # fmt: skip


def build(gamma: float = 0.5, **changes) -> Transformer:
    config = ModelConfig(**{**vars(SMALL), **changes})
    model = Transformer(config)
    initialise_(model, InitConfig(gamma=gamma), config, seed=3)
    return model


def tokens(rows: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, 97, (rows, 13), generator=torch.Generator().manual_seed(0))
    return ids[:, :-1], ids[:, 1:]


def mixture(**changes) -> MixtureOfExperts:
    return build(**changes).blocks[0].mlp


def states(rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, 12, 16, generator=torch.Generator().manual_seed(1))


def by_hand(layer: MixtureOfExperts, x_BTD: torch.Tensor) -> torch.Tensor:
    """The definition, one token and one expert at a time."""
    outputs = []
    for x_D in x_BTD.flatten(0, 1):
        p_E = (layer.router.weight @ x_D).softmax(0)
        best = p_E.argsort(descending=True)[: layer.config.experts_per_token]
        y_D = torch.zeros_like(x_D)
        for e in best:
            inner = F.silu(layer.experts.gate[e] @ x_D) * (layer.experts.up[e] @ x_D)
            y_D = y_D + p_E[e] / p_E[best].sum() * (layer.experts.down[e] @ inner)
        outputs.append(y_D)
    return torch.stack(outputs).view_as(x_BTD)


@pytest.mark.parametrize("chosen", [2, 3, 6])
def test_output_and_gradients_are_the_definitions(chosen):
    layer, x = mixture(experts_per_token=chosen).eval(), states()
    weight = torch.randn_like(x)
    found = []
    for function in (layer, lambda x: by_hand(layer, x)):
        own = x.clone().requires_grad_()
        layer.zero_grad()
        y = function(own)
        (y * weight).sum().backward()
        found.append([y, own.grad, *(p.grad.clone() for p in layer.parameters())])
    for fast, slow in zip(*found, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-6)


def test_no_token_is_dropped_when_all_choose_the_same_experts():
    layer = mixture().eval()
    with torch.no_grad():
        layer.router.weight.zero_()
        layer.router.weight[[1, 4], 0] = torch.tensor([9.0, 8.0])
        x = states()
        x[..., 0] = 1.0
    torch.testing.assert_close(layer(x), by_hand(layer, x), rtol=1e-4, atol=1e-6)


def test_router_loss_is_one_when_even_and_e_over_k_when_all_choose_the_same():
    layer = mixture(balance_weight=1.0, z_weight=0.0)
    ends = torch.arange(1, 7, dtype=torch.int32) * 4
    assert float(layer.router_loss(torch.zeros(12, 6), ends)) == pytest.approx(1.0)
    logits = torch.full((12, 6), -50.0)
    logits[:, :2] = 50.0
    ends = torch.tensor([12, 24, 24, 24, 24, 24], dtype=torch.int32)
    assert float(layer.router_loss(logits, ends)) == pytest.approx(3.0)
    layer = mixture(balance_weight=0.0, z_weight=1.0)
    expected = math.log(6) ** 2
    assert float(layer.router_loss(torch.zeros(12, 6), ends)) == pytest.approx(expected)


def test_router_losses_train_the_router_but_are_in_no_reported_number():
    model = build(balance_weight=0.5, z_weight=0.25)
    silent = build(balance_weight=0.0, z_weight=0.0)
    inputs, targets = tokens()
    loss = model(inputs, targets)
    loss.backward()
    assert torch.equal(loss, silent(inputs, targets))
    added = 0.0
    inputs_of = {}
    for layer, block in enumerate(silent.blocks):
        block.mlp.register_forward_pre_hook(lambda _, x, n=layer: inputs_of.update({n: x[0]}))
    total = silent(inputs, targets)
    for layer, block in enumerate(silent.blocks):
        logits_NE = F.linear(inputs_of[layer].flatten(0, 1), block.mlp.router.weight)
        p_NE = logits_NE.softmax(-1)
        chosen = p_NE.topk(2).indices.flatten()
        share_E = torch.bincount(chosen, minlength=6) / len(chosen)
        added += 0.5 * 6 * (share_E * p_NE.mean(0)).sum()
        added += 0.25 * logits_NE.logsumexp(-1).square().mean()
    (total + added).backward()
    for (name, mine), other in zip(model.named_parameters(), silent.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-7, msg=name)


def test_a_divided_batch_has_the_balance_of_the_whole():
    """With the shares averaged over parts, the mean of the parts' gradients is the batch's."""
    layer, x = mixture(balance_weight=1.0), states(4)
    whole = layer.router_loss(*_logits_and_ends(layer, x))
    (expected,) = torch.autograd.grad(whole, layer.router.weight)
    parts = [_logits_and_ends(layer, part) for part in x.chunk(2)]
    counts = [ends.diff(prepend=ends.new_zeros(1)).float() for _, ends in parts]
    layer.over_ranks = lambda _: sum(count / count.sum() for count in counts) / 2
    losses = [layer.router_loss(*part) for part in parts]
    (found,) = torch.autograd.grad(sum(losses) / 2, layer.router.weight)
    torch.testing.assert_close(found, expected)


def _logits_and_ends(layer, x):
    logits, _, chosen = layer.route(x.flatten(0, 1))
    return logits, torch.bincount(chosen.flatten(), minlength=6).cumsum(0).int()


def test_no_position_sees_a_later_one():
    model = build().eval()  # the balance loss of training couples all tokens, its output does not
    x = model.embedding(tokens()[0]).detach().requires_grad_()
    hidden = x
    for block in model.blocks:
        hidden = block(hidden, model.tables)
    hidden[:, 5].square().sum().backward()
    assert x.grad[:, 6:].abs().max() == 0
    assert (x.grad[:, :6].abs().sum(-1) > 0).all()


def test_every_parameter_gets_a_gradient():
    model = build()
    model(*tokens(8)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


def test_bfloat16_is_near_float32():
    """At the same routing: close calls of the router may fall differently."""
    model, (inputs, targets) = build(experts_per_token=6), tokens()
    exact = model(inputs, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(inputs, targets)
    low.backward()
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=1e-2, atol=0)


def test_gamma_scales_experts_by_their_own_fan_in_and_the_router_apart():
    model = build()
    init = InitConfig(gamma=1.0, router=0.25)
    weights = {weight.name: weight for weight in weight_table(model, init, SMALL)}
    router, up, down = (
        weights[f"blocks.1.mlp.{name}"] for name in ("router.weight", "experts.up", "experts.down")
    )
    assert (router.group, up.group, down.group) == (Group.router, Group.mlp, Group.mlp)
    assert (router.std, up.std, down.std) == pytest.approx((16**-0.25, 1 / 16, 1 / 24))
    initialise_(model, init, SMALL, seed=0)
    drawn = model.blocks[1].mlp.experts.up.detach()
    assert float(drawn.std()) == pytest.approx(1 / 16, rel=0.06)
    assert not torch.equal(drawn[0], drawn[1])


def test_counts_and_flops_are_of_the_experts_a_token_meets():
    model = build()
    counts = parameter_counts(model)
    expert = 3 * 16 * 24
    shared = 2 * (4 * 16 * 16 + 6 * 16 + 2 * 16) + 16 + 2 * 97 * 16
    assert counts["total"] == shared + 2 * 6 * expert
    assert counts["active"] == shared + 2 * 2 * expert
    vectors = 5 * 16
    assert flops_per_token(model) == 6 * (counts["active"] - vectors - 97 * 16)


def test_matrices_of_experts_decay(tiny_arm):
    arm = merged(tiny_arm, {"model": {"n_experts": 4}}, where="")
    module = Pretraining(arm, 0)
    module.configure_model()
    decayed, plain = module.configure_optimizers()["optimizer"].param_groups
    assert {p.ndim for p in decayed["params"]} == {2, 3}
    assert {p.ndim for p in plain["params"]} == {1}


def test_routing_rows():
    model = build(gamma=1.0)
    with torch.no_grad():
        model.blocks[0].mlp.router.weight.zero_()
    rows = pd.DataFrame(routing(model, tokens()[0]))
    assert list(rows.columns) == ["probe", "layer", "part", "context", "value"]
    loads = rows[rows.probe == "expert_load"]
    assert loads.groupby("layer").value.sum().tolist() == pytest.approx([1, 1])
    assert loads.groupby("layer").size().tolist() == [6, 6]
    entropy = rows[rows.probe == "router_entropy"].set_index("layer").value
    assert entropy[0] == pytest.approx(math.log(6))
    assert 0 < entropy[1] < math.log(6)
    assert (rows.context == 12).all()
    assert not model.blocks[0].mlp._forward_hooks
    assert routing(build(n_experts=0), tokens()[0]) == []


def test_a_mixture_trains_from_end_to_end(project, tiny_arm):
    changes = {"model": {"n_experts": 4, "d_ff": 16}, "init": {"router": 0.5}}
    arm = merged(tiny_arm, changes, where="")
    folder = train(RunSpec("test", "moe", "test-moe", arm, 0))
    metrics = json.loads((folder / "record/metrics.json").read_text())
    curve = pd.read_csv(folder / "record/curve.csv")
    assert metrics["final"]["loss"] < curve.val_loss[0] - 0.2
    assert metrics["parameters"]["total"] - metrics["parameters"]["active"] == 2 * 2 * 3 * 16 * 16
    spectra = pd.read_csv(folder / "record/spectra.csv")
    experts = spectra[spectra.weight == "blocks.0.mlp.experts.up"]
    assert (experts.stable_rank > 1).all()
    saved = load_file(folder / "weights.safetensors")["blocks.0.mlp.experts.up"].double()
    last = experts.norm.iloc[-1]
    assert last == pytest.approx(float(saved.flatten(1).norm(dim=1).mean()), rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"experts_per_token": 1}, "2 or more"),
        ({"experts_per_token": 7}, "at most model.n_experts"),
        ({"d_ff": 42}, "multiples of 4"),
        ({"balance_weight": -1.0}, "must not be negative"),
    ],
)
def test_wrong_mixtures_are_refused(changes, sentence):
    arm = merged(ArmConfig(), {"model": {"n_experts": 6} | changes}, where="")
    with pytest.raises(UserError, match=sentence):
        check(arm, where="here")
    check(merged(arm, {"model": {"n_experts": 0}}, where=""), where="here")


def test_bfloat16_wants_wider_rows():
    arm = merged(ArmConfig(), {"model": {"n_experts": 6, "d_ff": 44}}, where="")
    check(arm, where="here")
    arm.train.precision = Precision.bf16
    with pytest.raises(UserError, match="multiples of 8"):
        check(arm, where="here")
