"""One process of torchrun for tests/train/test_sharding.py: trains the runs its argument asks for.

The argument is JSON:
    runs           list of [key, changes of the arm, changes of the layout]
    checkpoint_seconds
    kill           [rank, step]: this process dies by SIGKILL at this step
    kill_in_save   [rank, number]: it dies when it has to write the checkpoint of this number
    preempt        [rank, step]: the torchrun of this process is sent SIGTERM
"""

import json
import os
import signal
import sys
import time
import warnings

import torch
import torch.distributed as dist
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException

from small_init.config import ParallelConfig
from small_init.config_files import merged
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import train
from tests.train.test_sharding import arm_of

RANK = int(os.environ["RANK"])
NEVER = [-1, -1]


def wait_for_sigterm(cause) -> None:
    """Call `cause`, and wait until this process is told to stop for it."""
    handler, came = signal.getsignal(signal.SIGTERM), []
    signal.signal(signal.SIGTERM, lambda *what: (came.append(what), handler(*what)))
    cause()
    while not came:
        time.sleep(0.02)


def main(task: dict) -> None:
    steps: list[int] = []

    def progress(step: int, loss: float) -> None:
        if not steps and RANK == 0:
            print("first step:", step, flush=True)
        steps.append(step)
        if [RANK, step] == task.get("kill", NEVER):
            os.kill(os.getpid(), signal.SIGKILL)
        if [RANK, step] == task.get("preempt", NEVER):
            wait_for_sigterm(lambda: os.kill(os.getppid(), signal.SIGTERM))

    save, saves = ModelParallelStrategy.save_checkpoint, []

    def dying(strategy, checkpoint, path, storage_options=None):
        saves.append(path)
        if [RANK, len(saves)] == task.get("kill_in_save", NEVER):
            os.kill(os.getpid(), signal.SIGKILL)
        save(strategy, checkpoint, path, storage_options)

    ModelParallelStrategy.save_checkpoint = dying
    for key, changes, layout in task["runs"]:
        parallel = merged(ParallelConfig(), layout, where="")
        spec = RunSpec("test", "pretrain", key, arm_of(changes), 0, parallel)
        try:
            train(spec, progress, task.get("checkpoint_seconds", 1e9))
        except SIGTERMException:
            sys.exit(143)
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    # Memory that nobody has written to is NaN: a forgotten weight or table would show.
    torch.use_deterministic_algorithms(True, warn_only=True)
    main(json.loads(sys.argv[1]))
