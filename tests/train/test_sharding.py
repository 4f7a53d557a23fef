"""Real processes train one run together; their numbers are those of one plain process."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from small_init.config import ArmConfig, ParallelConfig, Shard
from small_init.config_files import merged
from small_init.data.packed import PackedTokens
from small_init.errors import UserError
from small_init.measure.activations import residual_flow
from small_init.measure.validation import validate
from small_init.model.init import initialise_
from small_init.model.transformer import Transformer
from small_init.runs.paths import weights_file
from small_init.runs.plan import load_plan
from small_init.runs.record import load_run
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import train
from small_init.train.sharding import Ranks
from tests import ROOT, tiny

WORKER = Path(__file__).with_name("sharded_worker.py")
LAUNCH = ROOT / "launch"
# 20 steps of 6 windows, which divide over 1, 2 and 3 processes; the curve has every step.
BASE = {
    "optimizer": {"clip": 0.8},
    "train": {"tokens": 1920, "batch_tokens": 96, "curve_points": 200},
}
DENSE: dict = {}
MIXTURE = {"model": {"n_experts": 4, "d_ff": 16, "balance_weight": 0.1}}
TIED = {"model": {"tied": True}}
BF16 = {"train": {"precision": "bf16"}}


def arm_of(changes: dict) -> ArmConfig:
    return merged(tiny.tiny_arm(), BASE, changes, where="")


def plain_run(key: str, changes: dict) -> RunSpec:
    return RunSpec("test", "pretrain", key, arm_of(changes), 0)


def torchrun(processes: int, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    return subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def work(processes: int, **task) -> tuple[int, str]:
    process = torchrun(processes, "--standalone", str(WORKER), json.dumps(task))
    output, _ = process.communicate(timeout=250)
    return process.returncode, output


class Result:
    """A finished run, as its scratch folder has it."""

    def __init__(self, key: str) -> None:
        (record,) = Path("scratch/runs", key).glob("seed-0-*/record")
        self.curve = pd.read_csv(record / "curve.csv")
        self.metrics = json.loads((record / "metrics.json").read_text())
        self.init = json.loads((record / "init.json").read_text())
        self.weights = load_file(record.with_name("weights.safetensors"))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The project's root, with one plain run of each kind; the current directory."""
    home, before = tmp_path_factory.mktemp("project"), Path.cwd()
    tiny.write_packed(home / "data/test/packed")
    os.chdir(home)
    torch.set_num_threads(1)
    kinds = {"dense": DENSE, "mixture": MIXTURE, "tied": TIED, "bf16": BF16}
    for kind, changes in kinds.items():
        train(plain_run(f"plain-{kind}", changes))
    yield home
    os.chdir(before)


def assert_same_run(key: str, plain: str) -> None:
    """The same first weights bit for bit, and the same losses, norms, clipping and last weights to
    the rounding of 20 steps in float32."""
    mine, other = Result(key), Result(plain)
    assert mine.curve.step.tolist() == list(range(21))
    pd.testing.assert_frame_equal(mine.curve, other.curve, rtol=1e-5, atol=1e-6)
    assert mine.init["weights"] == other.init["weights"]
    for name, flow in other.init["residual_flow"].items():
        assert mine.init["residual_flow"][name] == pytest.approx(flow, rel=1e-5), name
    assert 0 < other.metrics["clipped_share"] < 1
    for name in ("clipped_share", "flops", "parameters", "prequential"):
        assert mine.metrics[name] == pytest.approx(other.metrics[name], rel=1e-5), name
    final, expected = mine.metrics["final"], other.metrics["final"]
    for name in ("loss", "tokens", "bits_per_byte", "by_source"):
        assert final[name] == pytest.approx(expected[name], rel=1e-5), name
    assert list(mine.weights) == list(other.weights)
    for name, weight in mine.weights.items():
        torch.testing.assert_close(weight, other.weights[name], rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_any_number_of_processes_gives_the_run_of_one(home, processes):
    keys = {f"dense-{processes}": DENSE, f"mixture-{processes}": MIXTURE}
    code, output = work(processes, runs=[[key, changes, {}] for key, changes in keys.items()])
    assert code == 0, output
    for key in keys:
        assert_same_run(key, f"plain-{key.split('-')[0]}")
    # The gathered weights load in one process and give the recorded loss.
    result = Result(f"mixture-{processes}")
    model = Transformer(arm_of(MIXTURE).model)
    model.load_state_dict(result.weights)
    loss = validate(model, PackedTokens(home / "data/test/packed"), 16, 512)["loss"]
    assert loss == pytest.approx(result.metrics["final"]["loss"], abs=1e-6)


def test_layouts_change_no_number(home):
    """Repeated weights, tied weights, recomputed activations; bfloat16 is near its plain run."""
    runs = [
        ["tied-full", TIED, {"checkpoint_activations": True}],
        ["mixture-none", MIXTURE, {"shard": "none", "checkpoint_activations": True}],
        ["bf16-full", BF16, {}],
    ]
    code, output = work(2, runs=runs)
    assert code == 0, output
    assert_same_run("tied-full", "plain-tied")
    assert_same_run("mixture-none", "plain-mixture")
    mine, other = Result("bf16-full"), Result("plain-bf16")
    assert mine.init["weights"] == other.init["weights"]
    pd.testing.assert_series_equal(mine.curve.val_loss, other.curve.val_loss, rtol=2e-3)


def test_kill_9_and_another_number_of_processes_leave_no_trace(home):
    """Two processes, one killed at some step; then three, one killed in a save; then one."""
    run, step = ["killed", MIXTURE, {}], random.randrange(3, 15)
    code, output = work(2, runs=[run], checkpoint_seconds=0, kill=[1, step])
    assert code != 0, output
    assert "first step: 1\n" in output
    code, output = work(3, runs=[run], checkpoint_seconds=0, kill_in_save=[2, 3])
    assert code != 0, output
    assert f"first step: {step}\n" in output, "it did not go on from the last whole checkpoint"
    code, output = work(1, runs=[run])
    assert code == 0, output
    assert f"first step: {step + 2}\n" in output
    assert_same_run("killed", "plain-mixture")
    assert not list(Path("scratch/runs/killed").glob("*/last.*")), "a checkpoint was left"


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def ended(nodes: list[subprocess.Popen]) -> list[tuple[int, str]]:
    outputs = [node.communicate(timeout=250)[0] for node in nodes]
    return [(node.returncode, output) for node, output in zip(nodes, outputs, strict=True)]


def test_two_nodes_are_preempted_and_go_on(home):
    """Two torchruns on one machine. SIGTERM to one saves the state of both; launch/torchrun.sh then
    goes on from it, and publishes the record."""
    layout = {"shard": "hybrid"}
    task = {"runs": [["nodes", DENSE, layout]], "preempt": [1, 8]}
    address = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    script = [str(WORKER), json.dumps(task)]
    (first, output), (second, _) = ended(
        [torchrun(1, *address, f"--node-rank={node}", *script) for node in (0, 1)]
    )
    assert first != 0, output
    assert second != 0
    assert len(list(Path("scratch/runs/nodes").glob("*/last.ckpt"))) == 1, output
    params = {
        "profile": "test",
        "parallel": layout,
        "arms": {"pretrain": {"nodes": arm_of(DENSE).identity()}},
        "objects": {"table-1": ["nodes"]},
    }
    Path("params.json").write_text(json.dumps(params))
    shutil.copytree(LAUNCH, "launch")
    python = Path(".venv/bin/python")
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    settings = {"NODES": "2", "DEVICES": "1", "MASTER_PORT": free_port()}
    nodes = [
        subprocess.Popen(
            ["launch/torchrun.sh", "nodes"], env=os.environ | settings | {"NODE_RANK": str(node)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for node in (0, 1)
    ]  # fmt: skip
    for code, output in ended(nodes):
        assert code == 0, output
    assert_same_run("nodes", "plain-dense")
    assert load_run("test", "nodes", 0).metrics.plain() == Result("nodes").metrics
    assert load_file(weights_file("nodes", 0)).keys() == Result("nodes").weights.keys()


@pytest.mark.parametrize("changes", [DENSE, MIXTURE, TIED])
def test_a_plain_process_builds_the_same_model(changes):
    arm = arm_of(changes)
    built, whole = Ranks(ParallelConfig()).build(arm), Transformer(arm.model)
    for parameter in built.parameters():  # whatever was in its memory
        parameter.data.fill_(torch.nan)
    for model in (built, whole):
        initialise_(model, arm.init, arm.model, 3)
    assert list(built.state_dict()) == list(whole.state_dict())
    for (name, mine), other in zip(
        built.state_dict().items(), whole.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, other), name
    assert torch.equal(built.tables, whole.tables)
    assert (built.readout.weight is built.embedding.weight) == arm.model.tied


@pytest.mark.parametrize(("kind", "checkpointed"), [("dense", True), ("mixture", False)])
def test_compiled_blocks_are_the_same_model(monkeypatch, kind, checkpointed):
    # A dense block is one graph; a mixture is not, as long as its products are in float32.
    compile_ = partial(torch.compile, backend="aot_eager", fullgraph=kind == "dense")
    monkeypatch.setattr(torch, "compile", compile_)
    arm = merged(
        arm_of({"dense": DENSE, "mixture": MIXTURE}[kind]), {"model": {"n_layers": 1}}, where=""
    )
    layout = ParallelConfig(compile=True, checkpoint_activations=checkpointed)
    model, plain = Ranks(layout).build(arm), Ranks(ParallelConfig()).build(arm)
    for built in (model, plain):
        initialise_(built, arm.init, arm.model, 0)
    assert list(model.state_dict()) == list(plain.state_dict())
    ids = torch.randint(0, 64, (2, 17), generator=torch.Generator().manual_seed(0))
    losses = [m(ids[:, :-1], ids[:, 1:]) for m in (model, plain)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    for (name, mine), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-6, msg=name)
    # Probes hook into blocks that have been compiled without the hooks.
    flows = [residual_flow(m, ids[:, :-1])["mlp"] for m in (model, plain)]
    assert flows[0] == pytest.approx(flows[1])


def test_the_layout_is_no_part_of_a_run(home):
    arm = arm_of(DENSE)
    wide = RunSpec("test", "pretrain", "key", arm, 0, ParallelConfig(devices=8, shard=Shard.none))
    assert wide.scratch("data") == plain_run("key", DENSE).scratch("data")


def test_the_plan_carries_the_layout(tmp_path):
    params = {"profile": "test", "arms": {"pretrain": {"a": {}}}, "objects": {"table-1": ["a"]}}
    path = tmp_path / "params.json"
    path.write_text(json.dumps(params))
    assert load_plan(path).parallel == ParallelConfig()
    path.write_text(json.dumps(params | {"parallel": {"shard": "hybrid", "devices": 8}}))
    assert load_plan(path).parallel == ParallelConfig(shard=Shard.hybrid, devices=8)
    path.write_text(json.dumps(params | {"parallel": {"gpus": 8}}))
    with pytest.raises(UserError, match="gpus"):
        load_plan(path)


def test_a_layout_that_this_machine_cannot_have_is_refused():
    with pytest.raises(UserError, match=r"2 x 4 devices; start it with launch/torchrun\.sh"):
        Ranks(ParallelConfig(devices=4, nodes=2))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named():
    with pytest.raises(UserError, match="torch finds none"):
        Ranks(merged(ParallelConfig(), {"accelerator": "cuda"}, where=""))


def test_a_plain_process_does_not_take_up_a_divided_checkpoint(home):
    spec = plain_run("other-way", DENSE)
    tokens = PackedTokens(spec.data_folder)
    (spec.scratch(tokens.sha256) / "last.ckpt").mkdir(parents=True)
    with pytest.raises(UserError, match="saved by processes of torchrun; go on in the same way"):
        train(spec)
