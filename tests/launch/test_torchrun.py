"""A profile that divides a run over several devices: one plain command trains it with torchrun."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from small_init.cli import main
from small_init.config import ParallelConfig
from small_init.launch import torchrun
from small_init.runs.paths import PARAMS
from small_init.runs.record import load_run
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import train
from tests import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")


def write_params(arm, parallel: dict, keys=("a",)) -> None:
    arms = {"pretrain": {key: arm.identity() for key in keys}}
    objects = {"table-1": list(keys)}
    params = {"profile": "test", "parallel": parallel, "arms": arms, "objects": objects}
    PARAMS.write_text(json.dumps(params))


def test_one_command_trains_an_arm_on_two_devices(project, tiny_arm, monkeypatch):
    write_params(tiny_arm, {"devices": 2})
    started = []

    def run_to_end(command: list[str]) -> tuple[int, int]:
        started.append(command)
        return subprocess.run(command, check=False).returncode, 0

    monkeypatch.setattr(torchrun, "run_to_end", run_to_end)
    main(["pretrain", "--arm", "a"])
    main(["pretrain", "--arm", "a"])
    assert started == [torchrun.torchrun(2, "a")], "a finished run is not started again"
    plain = train(RunSpec("test", "pretrain", "plain", tiny_arm, 0))
    expected = json.loads((plain / "record/metrics.json").read_text())["final"]["loss"]
    assert load_run("test", "a", 0).val_loss == pytest.approx(expected, rel=1e-4)


def test_a_failing_arm_does_not_stop_the_next(project, tiny_arm, monkeypatch):
    write_params(tiny_arm, {"devices": 2}, keys=("a", "b"))
    started = []

    def fail(processes: int, key: str) -> list[str]:
        started.append((processes, key))
        return [sys.executable, "-c", "raise SystemExit(3)"]

    monkeypatch.setattr(torchrun, "torchrun", fail)
    with pytest.raises(SystemExit, match="Training a, b failed; its processes say why above"):
        main(["pretrain", "--arm", "a", "b"])
    assert started == [(2, "a"), (2, "b")]


def test_several_nodes_are_left_to_the_cluster(project, tiny_arm):
    write_params(tiny_arm, {"devices": 8, "nodes": 4}, keys=("a", "b"))
    expected = r"`sbatch --nodes 4 --gpus-per-node 8 launch/slurm\.sh a b`, then this command again"
    with pytest.raises(SystemExit, match=expected):
        main(["pretrain", "--arm", "a", "b"])


def test_too_few_gpus_are_said_before_anything_starts(project, tiny_arm, monkeypatch):
    write_params(tiny_arm, {"devices": 8, "accelerator": "cuda"})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(SystemExit, match=r"over 8 GPUs and there are 4; `launch/torchrun\.sh a`"):
        main(["pretrain", "--arm", "a"])


def test_the_command_is_that_of_the_launch_script():
    """Only the address differs: one machine needs none."""
    script = (ROOT / "launch/torchrun.sh").read_text()
    command = torchrun.torchrun(2, "a")
    assert command[1:3] == ["-m", "torch.distributed.run"]
    assert "-m torch.distributed.run" in script
    assert f"--shutdown-timeout {command[command.index('--shutdown-timeout') + 1]}" in script
    assert " ".join(command[-5:-1]) in script


def test_a_command_that_is_told_to_stop_may_finish_first(project):
    """SIGTERM to the parent reaches the child, which ends in its own time."""
    child = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); "
        "open('ready', 'w').close(); time.sleep(60)"
    )
    body = (
        "import sys; from small_init.launch.torchrun import run_to_end; "
        "print(*run_to_end([sys.executable, '-c', sys.argv[1]]))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", body, child], stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not Path("ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    parent.terminate()
    output, _ = parent.communicate(timeout=60)
    assert output.split() == ["7", "15"]


def test_one_node_and_one_device_need_no_torchrun():
    assert not torchrun.is_divided(ParallelConfig())
    assert torchrun.is_divided(ParallelConfig(devices=2))
