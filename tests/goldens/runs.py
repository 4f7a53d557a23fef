"""The golden runs: tiny, and together they go through every module that decides a run's numbers.

What is pinned of a run is the SHA-256 of each file of its record and of its weights, its final
loss, and the steps that each attempt at it reported: a run that begins again instead of going on
gives the same record.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.utilities.exceptions import SIGTERMException

from small_init.config import (
    ArmConfig,
    Corpus,
    Gate,
    InitConfig,
    ModelConfig,
    Norm,
    Optimizer,
    OptimizerConfig,
    ParallelConfig,
    Precision,
    Probes,
    Schedule,
    Scheme,
    TrainConfig,
)
from small_init.runs.machine import cpu_vendor
from small_init.runs.paths import PERFORMANCE_FILE
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import train
from tests import tiny

PINS = Path(__file__).with_name("goldens.json")
STEPS = 12  # more than the 10 between two looks at the loss
WINDOWS = 4  # of a batch
NEVER = 1e9  # seconds between checkpoints


class Killed(Exception):
    """Ends an attempt where it stands, with nothing saved."""


def attempt(spec: RunSpec, reported: list[list[int]], **options: Any) -> Path:
    """Train, and add the steps that were reported."""
    steps: list[int] = []
    reported.append(steps)
    at_step: dict[int, Callable[[], None]] = options.pop("at_step", {})

    def progress(step: int, loss: float) -> None:
        steps.append(step)
        at_step.get(step, lambda: None)()

    return train(spec, progress, **{"checkpoint_seconds": NEVER} | options)


def in_one_go(spec: RunSpec, reported: list[list[int]]) -> Path:
    return attempt(spec, reported)


def interrupted(spec: RunSpec, reported: list[list[int]]) -> Path:
    """Told to stop at step 4, goes on with a checkpoint a step, dies at step 7, goes on again."""

    def die() -> None:
        raise Killed

    with contextlib.suppress(SIGTERMException):
        attempt(spec, reported, at_step={4: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    with contextlib.suppress(Killed):
        attempt(spec, reported, at_step={7: die}, checkpoint_seconds=0)
    return attempt(spec, reported)


def by_torchrun(spec: RunSpec, reported: list[list[int]]) -> Path:
    """As the one process of a torchrun: a group of its own, weights sharded over it."""
    before = dict(os.environ)
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "golden", "MASTER_ADDR": "localhost", "MASTER_PORT": "0",
        "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0",
        "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1",
    }  # fmt: skip
    try:
        return attempt(spec, reported)
    finally:
        os.environ.clear()
        os.environ.update(before)
        if dist.is_initialized():
            dist.destroy_process_group()


@dataclass(frozen=True)
class GoldenRun:
    """`data` are arguments of `tiny.write_packed`, `meta` further entries of its meta.json."""

    arm: ArmConfig
    made: Callable[[RunSpec, list[list[int]]], Path] = in_one_go
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    data: dict[str, int] = field(default_factory=dict)
    meta: dict[str, int] = field(default_factory=dict)
    loss_tolerance: float = 1e-4  # between kinds of machine


MODEL = ModelConfig(
    d_model=16, n_layers=2, n_heads=2, d_ff=32, vocab_size=tiny.VOCAB, context=16,
    gate=Gate.elementwise,
)  # fmt: skip
OPTIMIZER = OptimizerConfig(warmup_steps=3, lr=1e-2, clip=0.8)
TRAIN = TrainConfig(
    tokens=STEPS * WINDOWS * 16, batch_tokens=WINDOWS * 16, curve_points=4,
    curve_tokens=256, final_tokens=512,
)  # fmt: skip
BASE = ArmConfig(model=MODEL, optimizer=OPTIMIZER, train=TRAIN)

RUNS = {
    # ε so large that it matters; an `up` with more rows than a snapshot keeps; more validation
    # windows than a batch of them holds.
    "dense": GoldenRun(
        replace(
            BASE,
            model=replace(MODEL, d_ff=144, norm_eps=1e-3),
            train=replace(TRAIN, probes=Probes.all, final_tokens=1600),
        )
    ),
    # A γ of its own for every group.
    "mixture": GoldenRun(
        replace(
            BASE,
            model=replace(MODEL, n_experts=4, balance_weight=0.1, z_weight=0.01),
            init=InitConfig(
                embedding=0.6, attention=0.7, mlp=0.9, router=0.5, gate=0.4, readout=1.1
            ),
            train=replace(TRAIN, probes=Probes.all),
        )
    ),
    # A vocabulary so large that the embedding is drawn, and the loss taken, in several blocks.
    "layernorm": GoldenRun(
        replace(
            BASE,
            model=replace(
                MODEL,
                norm=Norm.layernorm,
                norm_eps=1e-5,
                gate=Gate.headwise,
                qk_norm=True,
                tied=True,
                vocab_size=16_500,
            ),
            init=InitConfig(gamma=0.5, depth_scaled=True),
            optimizer=replace(OPTIMIZER, clip=None),
            train=replace(TRAIN, probes=Probes.all, curve_tokens=64, final_tokens=256),
        ),
        data={"vocab": 16_500},
    ),
    # A task whose windows end in answers, the only targets; two epochs of it.
    "answers": GoldenRun(
        replace(
            BASE,
            model=replace(MODEL, gate=Gate.none),
            init=InitConfig(scheme=Scheme.gpt2),
            train=replace(TRAIN, corpus=Corpus.composite, probes=Probes.none),
        ),
        data={"train_tokens": 500},
        meta={"answers": 2, "length": 16},
    ),
    "bf16": GoldenRun(
        replace(
            BASE,
            init=InitConfig(scheme=Scheme.zero_out),
            train=replace(TRAIN, precision=Precision.bf16, probes=Probes.all),
        ),
        loss_tolerance=1e-2,
    ),
    "bf16-mixture": GoldenRun(
        replace(
            BASE,
            model=replace(MODEL, n_experts=4),
            train=replace(TRAIN, precision=Precision.bf16),
        ),
        loss_tolerance=1e-2,
    ),
    "interrupted": GoldenRun(
        replace(
            BASE,
            init=InitConfig(scheme=Scheme.fixed),
            train=replace(TRAIN, probes=Probes.all, curve_points=7),
        ),
        interrupted,
    ),
    # What labs train with today instead of AdamW and cosine; stopped and gone on with, since two
    # optimizers save their states.
    "recipe": GoldenRun(
        replace(
            BASE,
            model=replace(MODEL, d_model=48, n_heads=4, d_ff=80),
            optimizer=replace(
                OPTIMIZER, name=Optimizer.muon, schedule=Schedule.wsd, width_rates=True
            ),
            train=replace(TRAIN, curve_points=7),
        ),
        interrupted,
    ),
    "torchrun": GoldenRun(
        replace(BASE, model=replace(MODEL, n_experts=4, tied=True)),
        by_torchrun,
        ParallelConfig(checkpoint_activations=True),
    ),
}


def make(name: str, folder: Path) -> dict[str, Any]:
    """Make a golden run in the empty `folder`; returns what is pinned of it."""
    golden = RUNS[name]
    spec = RunSpec("golden", "pretrain", name, golden.arm, 0, golden.parallel)
    torch.set_num_threads(1)
    with contextlib.chdir(folder):
        meta = tiny.write_packed(spec.data_folder, **golden.data) / "meta.json"
        meta.write_text(json.dumps(json.loads(meta.read_text()) | golden.meta))
        reported: list[list[int]] = []
        made = golden.made(spec, reported)
        files = {path.name: _sha256(path) for path in _pinned_files(made)}
        loss = json.loads((made / "record/metrics.json").read_text())["final"]["loss"]
    return {"final_loss": loss, "reported_steps": reported, "files": files}


def _pinned_files(made: Path) -> Iterator[Path]:
    record = sorted((made / "record").iterdir())
    yield from (path for path in record if path.name != PERFORMANCE_FILE)
    yield made / "weights.safetensors"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differences(found: dict[str, Any], pinned: dict[str, Any]) -> list[str]:
    """The names of the files, and of what else is pinned of a run, that are not the same."""
    files = sorted(found["files"].keys() | pinned["files"].keys())
    rest = ("final_loss", "reported_steps")
    return [name for name in files if found["files"].get(name) != pinned["files"].get(name)] + [
        name for name in rest if found[name] != pinned[name]
    ]


def machine(name: str) -> str:
    """What the last digits of a run depend on: torch version, CPU capability, processor vendor.

    Products in bfloat16 are oneDNN's where the processor has AVX-512, whatever ATen is told.
    """
    version = torch.__version__.split("+")[0]
    kind = f"torch {version}, {torch.backends.cpu.get_cpu_capability()}, {cpu_vendor()}"
    by_onednn = (
        RUNS[name].arm.train.precision is Precision.bf16
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    return f"{kind}, oneDNN bfloat16" if by_onednn else kind


def read_pins() -> dict[str, dict[str, Any]]:
    """Golden run → kind of machine → what is pinned of it."""
    return json.loads(PINS.read_text())
