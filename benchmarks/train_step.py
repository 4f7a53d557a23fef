"""Training speed on one CPU thread, as ratios measured alternately in one process.

    python benchmarks/train_step.py [--rounds 30] [--out benchmarks/train_step.json]

Our step (forward, backward, clipping, AdamW; 6·N·D operations with the readout) against the rate
of the machine's own matrix products at the model's shapes, and against a `transformers` Llama of
the same shape trained the same way. Also the time from starting a process to a run's first step.
Run it with nothing else at work: a busy neighbour changes the ratios.
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
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from small_init.config import Gate, InitConfig, ModelConfig
from small_init.init import initialise_
from small_init.model import Transformer
from small_init.pretrain import flops_per_token

WINDOWS, CONTEXT = 16, 128
SHAPE = ModelConfig(d_model=128, n_layers=4, n_heads=4, d_ff=344, context=CONTEXT, gate=Gate.none)
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
from small_init.config import ArmConfig, merged
from small_init.pretrain import train
from small_init.records import RunSpec
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
arm = merged(ArmConfig(), {"model": {"vocab_size": 64, "context": 16},
    "train": {"tokens": 64, "batch_tokens": 64, "curve_tokens": 256, "final_tokens": 256},
    "optimizer": {"warmup_steps": 0}}, where="benchmark")
train(RunSpec("test", "pretrain", "bench", arm, 0), lambda *_: os._exit(0))
"""


def step_of(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], None]:
    """One optimizer step on a fixed batch; the same clipping and optimizer for every model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, SHAPE.vocab_size, (WINDOWS, CONTEXT + 1), generator=generator)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step() -> None:
        loss(inputs, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def ours() -> tuple[Transformer, Callable[[], None]]:
    model = Transformer(SHAPE)
    initialise_(model, InitConfig(), SHAPE, seed=0)
    return model, step_of(model, model)


def llama() -> Callable[[], None]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=SHAPE.vocab_size, hidden_size=SHAPE.d_model, num_hidden_layers=SHAPE.n_layers,
        num_attention_heads=SHAPE.n_heads, num_key_value_heads=SHAPE.n_heads,
        intermediate_size=SHAPE.d_ff, max_position_embeddings=CONTEXT, use_cache=False,
        tie_word_embeddings=False, attn_implementation="sdpa",
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    # Targets are shifted already, so they go in beside the labels' own shift.
    loss = lambda x, y: nn.functional.cross_entropy(
        model(input_ids=x).logits.flatten(0, 1), y.flatten()
    )
    return step_of(model, loss)


def products() -> tuple[Callable[[], None], float]:
    """The forward products of one step at the model's shapes, and their operations."""
    d, f, rows = SHAPE.d_model, SHAPE.d_ff, WINDOWS * CONTEXT
    shapes = [(d, d)] * 4 * SHAPE.n_layers + [(d, f), (d, f), (f, d)] * SHAPE.n_layers
    shapes.append((d, SHAPE.vocab_size))
    pairs = [(torch.randn(rows, a), torch.randn(b, a)) for a, b in shapes]

    def multiply() -> None:
        for x, w in pairs:
            x @ w.T

    return multiply, sum(2.0 * rows * a * b for a, b in shapes)


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def start_seconds(scratch: Path) -> float:
    tests = Path(__file__).parents[1] / "tests"
    command = [sys.executable, "-W", "ignore", "-c", _START, str(tests), str(scratch)]
    return seconds(lambda: subprocess.run(command, check=True, stderr=subprocess.DEVNULL))


def measure(rounds: int, scratch: Path) -> dict[str, object]:
    torch.set_num_threads(1)
    model, step = ours()
    peer = llama()
    multiply, operations = products()
    times: dict[str, list[float]] = {"ours": [], "llama": [], "products": []}
    for number in range(rounds + 3):
        for name, work in (("ours", step), ("products", multiply), ("llama", peer)):
            taken = seconds(work)
            if number >= 3:  # after warming up
                times[name].append(taken)
    median = {name: statistics.median(values) for name, values in times.items()}
    rate = operations / median["products"]
    achieved = flops_per_token(model) * WINDOWS * CONTEXT / median["ours"]
    return {
        "shape": "d 128, 4 layers, V 2048, T 128, 16 windows, float32, one thread",
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "rounds": rounds,
        "matrix_products_gflops": round(rate / 1e9, 1),
        "ours_gflops": round(achieved / 1e9, 1),
        "ours_share_of_matrix_products": round(achieved / rate, 3),
        "ours_ms": round(1e3 * median["ours"], 1),
        "llama_ms": round(1e3 * median["llama"], 1),
        "speed_over_llama": round(median["llama"] / median["ours"], 2),
        "start_to_first_step_seconds": round(min(start_seconds(scratch) for _ in range(3)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        found = measure(arguments.rounds, Path(scratch))
    text = json.dumps(found, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    checks = {
        f"at least {LEAST_SHARE:.0%} of the matrix-product rate": (
            found["ours_share_of_matrix_products"] >= LEAST_SHARE  # type: ignore[operator]
        ),
        "no slower than the transformers Llama": found["speed_over_llama"] >= 1.0,  # type: ignore[operator]
        f"first step within {MOST_START_SECONDS:g} s": (
            found["start_to_first_step_seconds"] <= MOST_START_SECONDS  # type: ignore[operator]
        ),
    }
    for name, holds in checks.items():
        print(f"{'holds' if holds else 'MISSED':6}  {name}")
    sys.exit(not all(checks.values()))


if __name__ == "__main__":
    main()
