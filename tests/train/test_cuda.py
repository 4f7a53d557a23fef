"""What only a GPU can show; every test here skips where there is none (`make gpu-check`)."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from small_init.config import (
    Accelerator,
    ArmConfig,
    InitConfig,
    ModelConfig,
    ParallelConfig,
    Precision,
)
from small_init.config_files import merged
from small_init.model.init import initialise_
from small_init.model.loss import mean_loss
from small_init.model.transformer import Transformer
from small_init.rule.gamma import gamma_init_
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import train
from small_init.train.sharding import Ranks
from tests.train.test_sharding import Result, arm_of, work

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and torch finds none"),
    pytest.mark.filterwarnings("ignore"),
]
DENSE = ModelConfig(d_model=128, n_layers=2, n_heads=4, d_ff=256, vocab_size=512, context=64)
MIXTURE = ModelConfig(**{**vars(DENSE), "n_experts": 8, "d_ff": 128})
CUDA = ParallelConfig(accelerator=Accelerator.cuda)


def build(config: ModelConfig, device: str) -> Transformer:
    model = Transformer(config).to(device)
    initialise_(model, InitConfig(gamma=0.5), config, seed=3)
    return model


def batch(config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (8, config.context + 1), generator=generator)
    return ids[:, :-1].cuda(), ids[:, 1:].cuda()


def bf16() -> torch.autocast:
    return torch.autocast("cuda", torch.bfloat16)


@pytest.mark.parametrize("config", [DENSE, MIXTURE], ids=["dense", "mixture"])
def test_first_weights_are_bitwise_those_of_the_cpu(config):
    mine, other = build(config, "cuda"), build(config, "cpu")
    for (name, weight), expected in zip(mine.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(weight.cpu(), expected), name


def test_the_rule_for_any_model_is_bitwise_that_of_the_cpu():
    models = [torch.nn.TransformerEncoderLayer(32, 4, 64).to(device) for device in ("cuda", "cpu")]
    for model in models:
        gamma_init_(model, 1.0, seed=5)
    for mine, expected in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(mine.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_blockwise_loss_is_that_of_whole_logits(dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = ((300, 64), (1000, 64))
    x, w = (torch.randn(s, generator=generator, device="cuda", requires_grad=True) for s in shapes)
    targets = torch.randint(0, 1000, (300,), generator=generator, device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype is torch.bfloat16):
        loss = mean_loss(x, w, targets)
    mine = torch.autograd.grad(loss, (x, w))
    expected = F.cross_entropy(x @ w.T, targets)
    close = 2e-2 if dtype is torch.bfloat16 else 1e-4
    torch.testing.assert_close(loss, expected, rtol=close, atol=0)
    for grad, other in zip(mine, torch.autograd.grad(expected, (x, w)), strict=True):
        assert (grad - other).norm() <= close * other.norm()


@pytest.mark.parametrize("config", [DENSE, MIXTURE], ids=["dense", "mixture"])
def test_bfloat16_is_near_float32(config):
    """A mixture's products are grouped ones in bfloat16, and in float32 too."""
    model = build(config, "cuda")
    loss = model(*batch(config))
    with bf16():
        low = model(*batch(config))
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, loss, rtol=1e-2, atol=0)
    grads = [torch.autograd.grad(each, tuple(model.parameters())) for each in (low, loss)]
    for (name, _), mine, other in zip(model.named_parameters(), *grads, strict=True):
        assert torch.isfinite(mine).all(), name
        assert F.cosine_similarity(mine.flatten(), other.flatten(), dim=0) > 0.95, name


def test_float32_on_the_gpu_is_that_of_the_cpu():
    inputs, targets = batch(DENSE)
    loss = build(DENSE, "cuda")(inputs, targets)
    expected = build(DENSE, "cpu")(inputs.cpu(), targets.cpu())
    torch.testing.assert_close(loss.cpu(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_compiled_blocks_are_the_same_model(checkpointed):
    layout = merged(CUDA, {"compile": True, "checkpoint_activations": checkpointed}, where="test")
    model, plain = (Ranks(way).build(ArmConfig(model=DENSE)).cuda() for way in (layout, CUDA))
    for built in (model, plain):
        initialise_(built, InitConfig(), DENSE, 3)
    losses = [each(*batch(DENSE)) for each in (model, plain)]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=0)
    for loss in losses:
        loss.backward()
    for (name, mine), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert (mine.grad - other.grad).norm() <= 1e-3 * other.grad.norm(), name
    with bf16():
        torch.testing.assert_close(
            *(each(*batch(DENSE)) for each in (model, plain)), rtol=1e-2, atol=0
        )


@pytest.mark.parametrize("kind", [Precision.fp32, Precision.bf16])
def test_a_run_is_near_that_of_the_cpu(project, kind):
    arm = merged(arm_of({}), {"train": {"precision": kind}}, where="test")
    runs = [
        train(RunSpec("test", "pretrain", key, arm, 0, layout))
        for key, layout in (("cpu", ParallelConfig()), ("cuda", CUDA))
    ]
    expected, found = (json.loads((run / "record/metrics.json").read_text()) for run in runs)
    assert found["final"]["loss"] == pytest.approx(expected["final"]["loss"], rel=1e-2)
    weights = [json.loads((run / "record/init.json").read_text())["weights"] for run in runs]
    assert weights[0] == weights[1]


def test_processes_of_torchrun_train_on_gpus(project):
    """As many as there are GPUs, up to two, over NCCL."""
    processes = min(2, torch.cuda.device_count())
    code, output = work(processes, runs=[["many", {}, {"accelerator": "cuda"}]])
    assert code == 0, output
    plain = train(RunSpec("test", "pretrain", "plain", arm_of({}), 0))
    loss = json.loads((plain / "record/metrics.json").read_text())["final"]["loss"]
    assert Result("many").metrics["final"]["loss"] == pytest.approx(loss, rel=1e-3)
    assert not list(Path("scratch/runs/many").glob("*/last.*"))
