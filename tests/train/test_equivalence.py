"""γ = 1 is γ = 0.5 with output multipliers and another optimizer per weight: the losses agree.

W is a weight of the γ = 1 model, d its fan-in. The other model holds V = √d·W, drawn with
γ = 0.5, and every linear map's output (and the embedding's) is multiplied by 1/√d:

    forward     x·W = (x·V)/√d, so the losses are equal and  ∂V = ∂W/√d
    Adam        m and √v scale as the gradient, so  m/(√v + ε)  is unchanged for  ε_V = ε/√d
    step        V must move √d times as far:  LR_V = √d·LR
    decay       LR_V·WD_V = LR·WD:  WD_V = WD/√d
    clipping    the norm is that of the gradients of W: √d·∂V

The two runs therefore differ in the relative step alone, not in what the initial values are: what
the γ rule changes can be had by either. The multipliers are exact in binary where √d is a power
of two, and then the whole run must agree bit for bit.
"""

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from small_init.config import ArmConfig, Gate, InitConfig, ModelConfig, OptimizerConfig, TrainConfig
from small_init.train.pretrain import Pretraining

STEPS = 50
VOCAB = 64


def arm(gamma: float, d_model: int, d_ff: int) -> ArmConfig:
    return ArmConfig(
        model=ModelConfig(
            d_model=d_model, n_layers=2, n_heads=2, d_ff=d_ff, vocab_size=VOCAB, context=16,
            gate=Gate.elementwise,
        ),
        init=InitConfig(gamma=gamma),
        # ε of the size of the Q and K gradients at γ = 1, weight decay and clipping that bite.
        optimizer=OptimizerConfig(lr=1e-2, warmup_steps=5, eps=1e-5, weight_decay=1.0, clip=1.0),
        train=TrainConfig(tokens=64 * STEPS, batch_tokens=64),
    )  # fmt: skip


def batch(step: int) -> tuple[Tensor, Tensor]:
    steps = torch.randint(1, 4, (4, 17), generator=torch.Generator().manual_seed(step))
    ids = steps.cumsum(1) % VOCAB
    return ids[:, :-1], ids[:, 1:]


def multiply_outputs(model: nn.Module) -> dict[nn.Parameter, float]:
    """Hook 1/√d to every linear map and the embedding; returns √d per weight."""
    roots = {}
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            root = math.sqrt(module.weight.shape[1])
            roots[module.weight] = root
            # The loss multiplies by the readout's weight itself: the factor goes to its input.
            at = model.norm if module is model.readout else module
            at.register_forward_hook(lambda _, __, out, root=root: out / root)
    return roots


class Trajectory(NamedTuple):
    losses: list[float]
    clipped: float  # share of steps


def train(config: ArmConfig, equivalent: bool = False, mistake: str = "") -> Trajectory:
    """Some steps of the real module with the real optimizer; `equivalent` applies the
    multipliers and rescales all settings but `mistake`."""
    run = Pretraining(config, seed=2)
    run.configure_model()
    made = run.configure_optimizers()
    optimizer, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    roots = multiply_outputs(run.model) if equivalent else {}
    if equivalent:
        groups = []
        for group in optimizer.param_groups:
            for weight in group["params"]:
                root = roots.get(weight, 1.0)
                scale = {"lr": root, "eps": 1 / root, "weight_decay": 1 / root}
                scale |= {mistake: 1.0} if mistake in scale else {}
                asked = {"lr": group["initial_lr"]} | {k: group[k] for k in ("eps", "weight_decay")}
                groups.append({"params": weight} | {k: asked[k] * scale[k] for k in scale})
        optimizer = torch.optim.AdamW(groups, betas=optimizer.defaults["betas"], fused=True)
        schedule = LambdaLR(optimizer, schedule.lr_lambdas[0])
    clipping_roots = {} if mistake == "clip" else roots
    out = []
    for step in range(STEPS):
        loss = run.training_step(batch(step), step)
        loss.backward()
        for weight, root in clipping_roots.items():
            weight.grad *= root
        run.configure_gradient_clipping(optimizer)
        for weight, root in clipping_roots.items():
            weight.grad /= root
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        out.append(loss.item())
    return Trajectory(out, float(run.metric("clipped").compute()))


def gap(a: Trajectory, b: Trajectory) -> float:
    return max(abs(x - y) for x, y in zip(a.losses, b.losses, strict=True))


@pytest.mark.parametrize(("d_model", "d_ff", "tolerance"), [(24, 40, 1e-4), (16, 64, 0.0)])
def test_small_init_is_a_multiplier_and_a_relative_step(d_model, d_ff, tolerance):
    small = train(arm(1.0, d_model, d_ff))
    assert small.losses[-1] < small.losses[0] - 0.5  # it learns
    assert 0 < small.clipped < 1
    assert gap(small, train(arm(0.5, d_model, d_ff), equivalent=True)) <= tolerance


def test_without_multipliers_the_losses_differ():
    assert gap(train(arm(1.0, 24, 40)), train(arm(0.5, 24, 40))) > 0.05


@pytest.mark.parametrize("mistake", ["lr", "eps", "weight_decay", "clip"])
def test_each_rescaling_is_needed(mistake):
    small = train(arm(1.0, 24, 40))
    assert gap(small, train(arm(0.5, 24, 40), equivalent=True, mistake=mistake)) > 1e-3
