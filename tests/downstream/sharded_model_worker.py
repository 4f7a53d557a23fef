"""One process of torchrun for test_sharded_model.py: asks checkpoints, then calls the command line.

The argument is JSON: `arms`, `requests` (kind → list of arguments), `command` (of small-init), and
`out`, where the first process writes arm → kind → answers, and the share of the blocks it holds.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from lm_eval.api.instance import Instance
from torch.distributed.tensor import DTensor

from small_init import cli
from small_init.downstream import checkpoint
from small_init.downstream.evaluate import lm_of


def answers(arm: str, requests: dict[str, list]) -> dict[str, list]:
    lm = lm_of(checkpoint.of_run("cpu", arm, 0))
    found = {
        kind: getattr(lm, kind)([Instance(kind, {}, tuple(a), n) for n, a in enumerate(asked)])
        for kind, asked in requests.items()
    }
    weights = list(lm.model.blocks.parameters())
    mine = sum((w.to_local() if isinstance(w, DTensor) else w).numel() for w in weights)
    return found | {"share": mine / sum(w.numel() for w in weights)}


def main(task: dict) -> None:
    found = {arm: answers(arm, task["requests"]) for arm in task["arms"]}
    if os.environ["RANK"] == "0":
        Path(task["out"]).write_text(json.dumps(found))
    cli.main(task["command"])
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    # Memory that nobody has written to is NaN: a forgotten weight would show.
    torch.use_deterministic_algorithms(True, warn_only=True)
    main(json.loads(sys.argv[1]))
