"""The optimizers: which weights they treat how, and that two save and go on as one."""

import contextlib
import io
import os
import signal

import pytest
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import nn
from torch.distributed.tensor import DeviceMesh, Replicate, distribute_tensor

from small_init.config import ArmConfig, Optimizer, OptimizerConfig, Probes
from small_init.config_files import merged
from small_init.config_limits import check
from small_init.errors import UserError
from small_init.model.transformer import Transformer
from small_init.runs.spec import RunSpec
from small_init.train.optimizer import optimizer_of
from small_init.train.pretrain import train
from tests import tiny

pytestmark = pytest.mark.filterwarnings("ignore")

MUON = {"optimizer": {"name": "muon", "schedule": "wsd", "width_rates": True}}


def groups(arm: ArmConfig) -> dict[str, dict]:
    """Weight → the parameter group it is in, of an optimizer of a new model of the arm."""
    model = Transformer(arm.model)
    names = {id(p): name for name, p in model.named_parameters()}
    made = optimizer_of(model, arm.optimizer)
    found = [(names[id(p)], g) for g in made.param_groups for p in g["params"]]
    assert len(found) == len(dict(found)) == len(names)
    return dict(found)


def test_only_matrices_decay(tiny_arm):
    model = Transformer(tiny_arm.model)
    found = groups(tiny_arm)
    for name, parameter in model.named_parameters():
        assert found[name]["weight_decay"] == (0.1 if parameter.ndim > 1 else 0.0)
        assert found[name]["lr"] == tiny_arm.optimizer.lr


def test_rates_by_width_follow_each_matrix_own_fan_in(tiny_arm):
    arm = merged(tiny_arm, {"optimizer": {"width_rates": True}}, where="")
    found = groups(arm)
    lr, d_model, d_ff = arm.optimizer.lr, arm.model.d_model, arm.model.d_ff
    assert found["embedding.weight"]["lr"] == lr
    assert found["blocks.0.mlp_norm.weight"]["lr"] == lr
    assert found["blocks.0.mlp.up.weight"]["lr"] == pytest.approx(lr * 32 / d_model)
    assert found["blocks.0.mlp.down.weight"]["lr"] == pytest.approx(lr * 32 / d_ff)
    assert found["readout.weight"]["lr"] == pytest.approx(lr * 32 / d_model)


def test_muon_has_the_matrices_of_the_blocks_and_adamw_the_rest(tiny_arm):
    found = groups(merged(tiny_arm, {"optimizer": {"name": "muon"}}, where=""))
    for name, group in found.items():
        of_block = name.startswith("blocks.") and "norm" not in name
        assert ("momentum" in group) == of_block, name
        assert ("betas" in group) != of_block, name
        assert group["weight_decay"] == (0.1 if "norm" not in name else 0.0), name


def test_a_step_of_muon_turns_the_update_of_a_matrix_orthogonal(tiny_arm):
    arm = merged(
        tiny_arm, {"optimizer": {"name": "muon", "weight_decay": 0.0, "lr": 0.01}}, where=""
    )
    torch.manual_seed(0)
    model = Transformer(arm.model)
    up, embedding = model.blocks[0].mlp.up.weight, model.embedding.weight
    before = up.detach().clone(), embedding.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer_of(model, arm.optimizer).step()
    change = (before[0] - up.detach()).double()
    # 0.2 · sqrt(larger side) · rate is the size of each singular value, within Newton and
    # Schulz's approximation of 1 by 0.7 to 1.2.
    singular = torch.linalg.svdvals(change) / (0.01 * 0.2 * max(change.shape) ** 0.5)
    assert singular.min() > 0.6
    assert singular.max() < 1.3
    # AdamW's first step has the size of the rate everywhere.
    torch.testing.assert_close(
        (before[1] - embedding.detach()).abs(), torch.full_like(embedding, 0.01), rtol=1e-2, atol=0
    )


def test_the_state_of_two_optimizers_comes_back_through_a_file(tiny_arm):
    arm = merged(tiny_arm, MUON, where="")

    def some_steps(model, optimizer, count):
        for number in range(count):
            generator = torch.Generator().manual_seed(number)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimizer.step()

    torch.manual_seed(0)
    first = Transformer(arm.model)
    optimizer = optimizer_of(first, arm.optimizer)
    some_steps(first, optimizer, 3)
    for group in optimizer.param_groups:  # what a schedule does
        group["lr"] *= 0.5
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    second = Transformer(arm.model)
    second.load_state_dict(first.state_dict())
    other = optimizer_of(second, arm.optimizer)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert [g["lr"] for g in other.param_groups] == [g["lr"] for g in optimizer.param_groups]
    for group in (*optimizer.param_groups, *other.param_groups):
        group["lr"] *= 0.5
    some_steps(first, optimizer, 2)
    some_steps(second, other, 2)
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )


def test_a_run_with_two_optimizers_goes_on_as_if_it_had_not_stopped(project, tiny_arm):
    arm = merged(tiny_arm, MUON, where="")
    spec = RunSpec("test", "pretrain", "test-recipe", arm, 0)
    folder = train(spec)
    names = ["weights.safetensors", "record/metrics.json", "record/curve.csv"]
    in_one_go = {name: (folder / name).read_bytes() for name in names}
    folder.rename(project / "in-one-go")

    def stop(step: int, loss: float) -> None:
        if step == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    with contextlib.suppress(SIGTERMException):
        train(spec, stop)
    assert not (folder / "record").exists()
    again = train(spec)
    assert {name: (again / name).read_bytes() for name in names} == in_one_go


def test_muon_refuses_a_sharded_model(tiny_arm, tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        mesh = DeviceMesh("cpu", [0])
        model = Transformer(tiny_arm.model)
        up = model.blocks[0].mlp.up
        up.weight = nn.Parameter(distribute_tensor(up.weight.detach(), mesh, [Replicate()]))
        with pytest.raises(UserError, match="set shard to none, or the optimizer to adamw"):
            optimizer_of(model, OptimizerConfig(name=Optimizer.muon))
    finally:
        torch.distributed.destroy_process_group()


def test_probes_of_one_rate_refuse_rates_by_width():
    arm = ArmConfig(
        model=tiny.tiny_arm().model, optimizer=OptimizerConfig(width_rates=True, warmup_steps=0)
    )
    arm.train.probes = Probes.all
    with pytest.raises(UserError, match="set probes to weights, or"):
        check(arm, where="arm x")
