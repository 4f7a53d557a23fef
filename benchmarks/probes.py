"""What the probes cost on one CPU thread, as a share of training, measured in one process.

    python benchmarks/probes.py [--rounds 15] [--out benchmarks/probes.json]

The shape of the cpu profile's runs: d 64, 4 layers, 1000 steps of 2048 tokens, 18 curve points.
A training step (forward, backward, clipping, AdamW) alternates with what a point of the curve adds
under `train.probes: weights` and `all`; validation is no probe and in neither. Run it with nothing
else at work: a busy neighbour changes the ratios.
"""

from __future__ import annotations

import os

os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from small_init.config import InitConfig, ModelConfig
from small_init.measure.activations import forward_rows
from small_init.measure.recorder import PROBE_WINDOWS
from small_init.measure.scalars import heat_map
from small_init.measure.spectra import (
    embedding_saturation,
    matrices,
    snapshot,
    snapshot_weights,
    token_classes,
    weight_spectra,
    weight_type_norms,
)
from small_init.model.init import initialise_
from small_init.model.transformer import Transformer
from small_init.runs.schedule import curve_steps, snapshot_steps

WINDOWS, STEPS, POINTS = 16, 1000, 18
SHAPE = ModelConfig()
MOST_SHARE = 0.05  # of the time that training takes


class Costs:
    """A model in training, and what a point of the curve does to it."""

    def __init__(self) -> None:
        self.model = Transformer(SHAPE)
        initialise_(self.model, InitConfig(), SHAPE, seed=0)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, SHAPE.vocab_size, (WINDOWS, SHAPE.context + 1), generator=generator)
        self.inputs, self.targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        self.probed = self.inputs[:PROBE_WINDOWS]
        self.classes = token_classes(np.arange(SHAPE.vocab_size))
        self.before: dict[str, Tensor] = {}

    def step(self) -> None:
        self.model(self.inputs, self.targets).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self) -> None:
        weight_spectra(self.model, InitConfig(), SHAPE, seed=0)

    def spectra(self) -> None:
        weight_spectra(self.model, InitConfig(), SHAPE, seed=0, decay_left=0.9)

    def forward(self) -> None:
        forward_rows(self.model, self.probed, all_contexts=False)

    def contexts(self) -> None:
        forward_rows(self.model, self.probed, all_contexts=True)

    def rest(self) -> None:
        self.before = {name: p.detach().clone() for name, p in matrices(self.model)}
        weight_type_norms(self.model, self.before)
        embedding_saturation(self.model, SHAPE, self.classes)

    def snapshots(self) -> None:
        parameters = dict(matrices(self.model))
        for name in snapshot_weights(SHAPE):
            heat_map(snapshot(parameters[name]))


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(rounds: int) -> dict[str, object]:
    torch.set_num_threads(1)
    costs = Costs()
    names = ("step", "weights", "spectra", "forward", "contexts", "rest", "snapshots")
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 2):
        for name in names:
            taken = seconds(getattr(costs, name))
            if number >= 2:  # after warming up
                times[name].append(taken)
    median = {name: statistics.median(values) for name, values in times.items()}
    points, ends = len(curve_steps(STEPS, POINTS)), 2
    everything = (
        points * (median["spectra"] + median["rest"])
        + (points - ends) * median["forward"]
        + ends * median["contexts"]
        + len(snapshot_steps(STEPS, POINTS)) * median["snapshots"]
    )
    training = STEPS * median["step"]
    return {
        "shape": f"d {SHAPE.d_model}, {SHAPE.n_layers} layers, V {SHAPE.vocab_size}, "
        f"T {SHAPE.context}, {WINDOWS} windows, {STEPS} steps, {points} points, one thread",
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "rounds": rounds,
        "milliseconds": {name: round(1e3 * value, 1) for name, value in median.items()},
        "weights_share_of_training": round(points * median["weights"] / training, 4),
        "all_share_of_training": round(everything / training, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = measure(options.rounds)
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if options.out:
        options.out.write_text(text)
    if float(str(result["all_share_of_training"])) > MOST_SHARE:
        sys.exit(f"The probes cost more than {MOST_SHARE:.0%} of training.")


if __name__ == "__main__":
    main()
