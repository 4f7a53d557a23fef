"""One scripted check of a machine with a GPU, in at most 8 minutes.

    python benchmarks/gpu.py --out benchmarks/gpu.json

    tests      the tests that need a GPU (pytest -m cuda)
    precision  the first loss in float32, in bfloat16, and in bfloat16 compiled: nearly the same
    pair       γ = 0.5 and 1, trained for a moment on synthetic tokens by the code of real runs
    speed      tokens per second of a training step, and share of the device's peak (MFU, 6·N·D),
               with and without compilation; the peers that are installed likewise (`peers`)
    memory     peak of a training step by model (`memory`)

What was found is written after each part. A part that fails does not stop the others; the exit code
tells. `--device cpu --tiny` tries the script itself out.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import memory
import pandas as pd
import torch
from peers import Setting, Step, installed, tiny

from small_init.config import (
    Accelerator,
    ArmConfig,
    Gate,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    Precision,
    TrainConfig,
)
from small_init.runs.code_identity import run_digest
from small_init.runs.paths import PERFORMANCE_FILE
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import flops_per_token, train

ROOT = Path(__file__).parents[1]
# 135M parameters: the upper end of what one GPU trains in minutes.
MODEL = ModelConfig(
    d_model=768, n_layers=12, n_heads=12, d_ff=2048, vocab_size=32_768, context=1024, gate=Gate.none
)
# Dense bfloat16 peak in TFLOPS by the vendors' data sheets; the first name that fits counts.
PEAKS = {
    "H100 PCIe": 756, "H100": 989, "H200": 989, "B200": 2250, "A100": 312, "L40S": 362, "L4": 121,
    "4090": 165, "3090": 71, "A10": 125,
}  # fmt: skip
MOST_MINUTES = 8.0
CLOSE = 2e-2  # relative difference of losses that bfloat16 may make


@dataclass(frozen=True)
class Task:
    setting: Setting
    peers: list[str]
    peak_tflops: float | None
    timed_steps: int
    pair_steps: int


def tests(_: Task) -> dict[str, Any]:
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "tests/train/test_cuda.py"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout)
    counts = re.findall(r"(\d+) (passed|skipped)", done.stdout.splitlines()[-1])
    return {kind: int(count) for count, kind in counts}


def precision(task: Task) -> dict[str, Any]:
    ways = {
        "float32": replace(task.setting, bf16=False),
        "bfloat16": task.setting,
        "bfloat16_compiled": replace(task.setting, compiled=True),
    }
    losses = {}
    for name, setting in ways.items():
        losses[name] = float(Step("ours", setting)())
        forget()
    if not all(math.isclose(loss, losses["float32"], rel_tol=CLOSE) for loss in losses.values()):
        raise RuntimeError(f"the first losses differ: {losses}")
    return {name: round(loss, 5) for name, loss in losses.items()}


def speed(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for compiled in (False, True):
        setting = replace(task.setting, compiled=compiled)
        rates = {}
        for name in ("ours", *task.peers):
            step = Step(name, setting)
            rates[name] = setting.tokens / seconds(step, task.timed_steps)
            if name == "ours":
                achieved = rates[name] * flops_per_token(step.model) / 1e12
            del step
            forget()
        found["compiled" if compiled else "eager"] = {
            "tokens_per_second": {name: round(rate) for name, rate in rates.items()},
            "ours_tflops": round(achieved, 1),
            "ours_mfu": round(achieved / task.peak_tflops, 3) if task.peak_tflops else None,
            "speed_over": {name: round(rates["ours"] / rates[name], 2) for name in task.peers},
        }
    return found


def seconds(step: Step, times: int) -> float:
    """Mean time of a step, after three to warm up; reading the loss waits for the device."""
    for _ in range(3):
        float(step())
    start = time.perf_counter()
    for _ in range(times):
        loss = step()
    if not math.isfinite(float(loss)):
        raise RuntimeError(f"the loss is {float(loss)} after {times} steps")
    return (time.perf_counter() - start) / times


def forget() -> None:
    """Free what the last model held, compiled code as well."""
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def peaks(task: Task) -> dict[str, Any]:
    return memory.compare(task.setting, ["ours", "logits", *task.peers])


def pair(task: Task) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "tests"))
    from tiny import write_packed

    shape = replace(task.setting.shape, gate=Gate.elementwise)
    tokens = task.setting.tokens
    amount = {"tokens": tokens * task.pair_steps, "batch_tokens": tokens}
    arm = ArmConfig(
        model=shape,
        optimizer=OptimizerConfig(lr=1e-3, warmup_steps=task.pair_steps // 4),
        train=TrainConfig(
            **amount, precision=Precision.bf16, curve_points=4, curve_tokens=tokens,
            final_tokens=tokens,
        ),
    )  # fmt: skip
    parallel = ParallelConfig(
        accelerator=Accelerator(torch.device(task.setting.device).type),
        device_tflops=task.peak_tflops,
    )
    found: dict[str, Any] = {"shape": str(task.setting), "steps": task.pair_steps}
    with tempfile.TemporaryDirectory() as scratch, chdir(scratch):
        write_packed(Path("data/gpu/packed"), 2 * amount["tokens"], 4 * tokens, shape.vocab_size)
        for gamma in (0.5, 1.0):
            arm.init.gamma = gamma
            key = f"gamma-{gamma:g}"
            record = train(RunSpec("gpu", "pretrain", key, arm, 0, parallel)) / "record"
            metrics = json.loads((record / "metrics.json").read_text())
            performance = json.loads((record / PERFORMANCE_FILE).read_text())
            first = pd.read_csv(record / "curve.csv").val_loss[0]
            kept = {name: performance.get(name) for name in ("seconds", "tokens_per_second", "mfu")}
            last = metrics["final"]["loss"]
            found[key] = {"first_loss": round(first, 4), "loss": round(last, 4)} | kept
            if not last < first:
                raise RuntimeError(f"the loss did not fall: {found}")
    return found


PARTS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "tests": tests, "precision": precision, "pair": pair, "speed": speed, "memory": peaks,
}  # fmt: skip


def machine(device: str) -> dict[str, Any]:
    on_gpu = device != "cpu"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else platform.machine(),
        "devices": torch.cuda.device_count(), "cuda": torch.version.cuda,
        "torch": torch.__version__, "python": platform.python_version(),
        "code": run_digest(),
    }  # fmt: skip


def check(task: Task, minutes: float, out: Path | None) -> bool:
    """Every part that begins in time; whether all went well."""
    deadline = time.monotonic() + 60 * minutes
    found: dict[str, Any] = machine(task.setting.device) | {"shape": str(task.setting)}
    well = True
    for name, part in PARTS.items():
        start = time.monotonic()
        if start > deadline:
            found[name] = {"left_out": f"the {minutes:g} minutes were over"}
        else:
            try:
                found[name] = part(task)
            except Exception:
                found[name], well = {"failed": traceback.format_exc()}, False
            found[name]["part_seconds"] = round(time.monotonic() - start, 1)
            forget()
        print(json.dumps({name: found[name]}, indent=1), flush=True)
        if out:
            out.write_text(json.dumps(found, indent=1) + "\n")
    return well


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="a model of no size")
    parser.add_argument("--peak-tflops", type=float, help="of the device, if it is not known")
    parser.add_argument("--minutes", type=float, default=MOST_MINUTES)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(words)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch finds no GPU on this machine, so there is nothing to check.")
    name = machine(arguments.device)["device"]
    setting = Setting(MODEL, windows=32, device=arguments.device, bf16=True)
    task = Task(
        tiny(setting) if arguments.tiny else setting,
        installed(),
        arguments.peak_tflops or next((v for k, v in PEAKS.items() if k in name), None),
        timed_steps=2 if arguments.tiny else 20,
        pair_steps=20 if arguments.tiny else 100,
    )
    sys.exit(not check(task, arguments.minutes, arguments.out))


if __name__ == "__main__":
    main()
