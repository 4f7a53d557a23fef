"""Runs that several processes train together, which torchrun starts.

`small-init pretrain` in a process of torchrun is one of them. Started plainly, where the profile
divides a run over the devices of one machine, it starts torchrun itself, one arm after the other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from small_init.config import Accelerator, ParallelConfig
from small_init.cores import gpus_of, prepare, slot
from small_init.errors import UserError
from small_init.launch.pool import SAVED
from small_init.launch.publish import lock_of, publish
from small_init.runs.spec import RunSpec

_SAY_SECONDS = 30.0  # between two lines on a run
_GRACE_SECONDS = 120  # how long the processes of an interrupted run may take to save its state


def is_one_of_many() -> bool:
    """Whether torchrun started this process, as one of those that train each run together."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def train_together(specs: Iterable[RunSpec]) -> None:
    """As one process of torchrun: train the runs one after the other, and publish each.

    SIGTERM saves the run's state first; the process then ends with exit code 143.
    """
    # torchrun passes on what it is sent, Ctrl-C too.
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    prepare()
    first = os.environ["RANK"] == "0"
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    from small_init.train.pretrain import train

    for spec in specs:
        said = time.monotonic()

        def say(step: int, loss: float, spec: RunSpec = spec) -> None:
            nonlocal said
            if first and time.monotonic() - said > _SAY_SECONDS:
                said = time.monotonic()
                run = f"{spec.arm_key} seed {spec.seed}"
                print(f"{run}: step {step} of {spec.arm.steps}, loss {loss:.3f}", file=sys.stderr)

        try:
            with lock_of(spec) if first else nullcontext():
                scratch = train(spec, say)
        except SIGTERMException:
            sys.exit(SAVED)
        if first:
            publish(spec, scratch)


def is_divided(parallel: ParallelConfig) -> bool:
    """Whether a run of this layout takes several devices."""
    return parallel.devices * parallel.nodes > 1


def train_divided(specs: list[RunSpec]) -> dict[tuple[str, int], Path]:
    """Train runs that are divided over this machine's devices, an arm at a time, under torchrun.

    Returns the scratch folder of each, as `pool.train_runs` does, and like it finishes the other
    arms where one fails. Raises UserError for a layout of several nodes and for too few GPUs.
    """
    waiting = list(dict.fromkeys(spec.arm_key for spec in specs if not spec.finished()))
    failed = []
    if waiting:
        _check_layout(specs[0].parallel, waiting)
        with slot(1):  # of the pool that all commands share
            for key in waiting:
                code, stopped = run_to_end(torchrun(specs[0].parallel.devices, key))
                if stopped:
                    raise UserError(
                        f"Stopped by {signal.Signals(stopped).name}; the state of {key} is saved, "
                        "if nothing above says otherwise. Run the same command to go on."
                    )
                if code:
                    failed.append(key)
    if failed:
        raise UserError(
            f"Training {', '.join(failed)} failed; its processes say why above. The last "
            "checkpoint and all finished runs are kept. Run the same command to go on."
        )
    folders = {(spec.arm_key, spec.seed): spec.finished() for spec in specs}
    return {run: folder for run, folder in folders.items() if folder}


def _check_layout(parallel: ParallelConfig, waiting: list[str]) -> None:
    nodes, devices = parallel.nodes, parallel.devices
    if nodes > 1:
        raise UserError(
            f"This profile trains on {nodes} nodes of {devices} devices, which a command on one "
            f"machine cannot start. Use `sbatch --nodes {nodes} --gpus-per-node {devices} "
            f"launch/slurm.sh {' '.join(waiting)}`, then this command again."
        )
    if parallel.accelerator is Accelerator.cuda and (there := len(gpus_of(parallel))) < devices:
        raise UserError(
            f"This profile divides a run over {devices} GPUs and there are {there}; "
            f"`launch/torchrun.sh {' '.join(waiting)}` trains on those, with the same numbers."
        )


def torchrun(processes: int, key: str) -> list[str]:
    """The command that trains an arm on so many devices; as launch/torchrun.sh, on one machine."""
    return [
        sys.executable, "-m", "torch.distributed.run",
        "--standalone", "--nproc-per-node", str(processes),
        "--shutdown-timeout", str(_GRACE_SECONDS),
        "-m", "small_init", "pretrain", "--arm", key,
    ]  # fmt: skip


def run_to_end(command: list[str]) -> tuple[int, int]:
    """Run a command that saves its state when it is told to stop, and wait until it has.

    Ctrl-C reaches it as well; SIGTERM is passed on. Returns its exit code, and the number of the
    signal that came (0: none).
    """
    process, came = subprocess.Popen(command), 0

    def pass_on(number: int, _: Any) -> None:
        nonlocal came
        came = number
        if number == signal.SIGTERM:
            process.terminate()

    previous = {s: signal.signal(s, pass_on) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return code, came
