"""Training speed on one CPU thread, as ratios measured alternately in one process, and memory.

    python benchmarks/train_step.py [--rounds 30] [--out benchmarks/train_step.json]

Our step (forward, backward, clipping, AdamW; 6·N·D operations with the readout) against the rate
of the machine's own matrix products at the model's shapes, and against those peers of the same
shape that are installed (`peers`). Also the time from starting a process to a run's first step, and
the peak memory of a step, in fresh processes (`memory`), at this shape and at a large vocabulary.
Run it with nothing else at work: a busy neighbour changes the ratios of time.
"""

from __future__ import annotations

import os

os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import memory
import torch
from peers import INSTALL, Setting, Step, installed

from small_init.config import Gate, ModelConfig
from small_init.train.pretrain import flops_per_token

SETTING = Setting(ModelConfig(d_model=128, n_layers=4, n_heads=4, d_ff=344, gate=Gate.none))
LEAST_SHARE = 0.55  # of the matrix-product rate
MOST_START_SECONDS = 6.0
_START = """
import os; os.environ["ATEN_CPU_CAPABILITY"] = "avx2"
import logging, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import tiny
os.chdir(sys.argv[2])
tiny.write_packed(Path("data/test/packed"))
from small_init.config import ArmConfig
from small_init.config_files import merged
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import train
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
arm = merged(ArmConfig(), {"model": {"vocab_size": 64, "context": 16},
    "train": {"tokens": 64, "batch_tokens": 64, "curve_tokens": 256, "final_tokens": 256},
    "optimizer": {"warmup_steps": 0}}, where="benchmark")
train(RunSpec("test", "pretrain", "bench", arm, 0), lambda *_: os._exit(0))
"""


def products() -> tuple[Callable[[], None], float]:
    """The forward products of one step at the model's shapes, and their operations."""
    shape, rows = SETTING.shape, SETTING.tokens
    d, f = shape.d_model, shape.d_ff
    shapes = ([(d, d)] * 4 + [(d, f), (d, f), (f, d)]) * shape.n_layers
    shapes.append((d, shape.vocab_size))
    pairs = [(torch.randn(rows, a), torch.randn(b, a)) for a, b in shapes]

    def multiply() -> None:
        for x, w in pairs:
            x @ w.T

    return multiply, sum(2.0 * rows * a * b for a, b in shapes)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def start_seconds(scratch: Path) -> float:
    tests = Path(__file__).parents[1] / "tests"
    command = [sys.executable, "-W", "ignore", "-c", _START, str(tests), str(scratch)]
    return seconds(lambda: subprocess.run(command, check=True, stderr=subprocess.DEVNULL))


def measure(rounds: int, scratch: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    peers = installed()
    ours = Step("ours", SETTING)
    multiply, operations = products()
    works = {"ours": ours, "products": multiply, **{name: Step(name, SETTING) for name in peers}}
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 3):
        for name, work in works.items():
            taken = seconds(work)
            if number >= 3:  # after warming up
                times[name].append(taken)
    median = {name: statistics.median(values) for name, values in times.items()}
    rate = operations / median["products"]
    achieved = flops_per_token(ours.model) * SETTING.tokens / median["ours"]
    found: dict[str, Any] = {
        "shape": f"{SETTING}, one thread",
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "rounds": rounds,
        "matrix_products_gflops": round(rate / 1e9, 1),
        "ours_gflops": round(achieved / 1e9, 1),
        "ours_share_of_matrix_products": round(achieved / rate, 3),
        "ours_ms": round(1e3 * median["ours"], 1),
    }
    for name in peers:
        found[f"{name}_ms"] = round(1e3 * median[name], 1)
        found[f"speed_over_{name}"] = round(median[name] / median["ours"], 2)
    starts = [start_seconds(scratch) for _ in range(3)]
    return found | {
        "peers": {name: version(INSTALL[name][0]) for name in peers},
        "start_to_first_step_seconds": round(min(starts), 2),
        "memory": memory.compare(SETTING, ["ours", *peers]),
        "memory_large_vocabulary": memory.compare_vocabulary(peers),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(arguments.rounds, Path(scratch))
    text = json.dumps(found, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    large = found["memory_large_vocabulary"]
    checks = {
        f"at least {LEAST_SHARE:.0%} of the matrix-product rate": (
            found["ours_share_of_matrix_products"] >= LEAST_SHARE
        ),
        **{f"no slower than {name}": found[f"speed_over_{name}"] >= 1 for name in found["peers"]},
        f"first step within {MOST_START_SECONDS:g} s": (
            found["start_to_first_step_seconds"] <= MOST_START_SECONDS
        ),
        f"whole logits take {memory.LEAST_RATIO:g} times the memory at a large vocabulary": (
            large["step_logits_over_ours"] >= memory.LEAST_RATIO
        ),
    }
    for name, holds in checks.items():
        print(f"{'holds' if holds else 'MISSED':6}  {name}")
    sys.exit(not all(checks.values()))


if __name__ == "__main__":
    main()
