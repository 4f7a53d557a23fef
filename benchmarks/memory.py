"""Peak memory of a training step, each model in a fresh process.

    python benchmarks/memory.py

Counted is what a process grows by: its peak over two steps (the second has AdamW's states already)
above what it held just before the first, with weights, batch and libraries in place and after a
step of a tiny model, so that nothing loaded once is counted. On a CPU these are resident pages, on
a GPU what torch has allocated. A step's growth holds the gradients and AdamW's two states of every
weight, three times the weights, which no loss can save; the growth of the loss alone (forward and
backward on given states of the last layer) holds the gradients of the readout and of these states.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peers import Setting, Step, installed, tiny, whole_loss

from small_init.config import Gate, ModelConfig, plain
from small_init.config_files import merged
from small_init.model.loss import mean_loss
from small_init.model.transformer import Transformer, parameter_counts

# The paper's vocabulary at the width of a small run: 2048 tokens, whose logits are 0.5 GB.
LARGE_VOCABULARY = Setting(
    ModelConfig(d_model=128, n_layers=4, n_heads=4, d_ff=344, vocab_size=60_416, gate=Gate.none)
)
LEAST_RATIO = 3.0  # of the growth with whole logits over ours
_STATUS = Path("/proc/self/status")


def _resident(name: str) -> int:
    """Bytes: VmRSS, resident now, or VmHWM, the most so far. Without /proc both are the most so
    far. (ru_maxrss would not do for both: on Linux a process inherits its parent's.)"""
    if _STATUS.exists():
        return 1024 * int(re.findall(rf"{name}:\s+(\d+) kB", _STATUS.read_text())[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def growth(work: Callable[[], Any], device: str) -> int:
    """Bytes by which memory grows while `work` is done twice."""
    if device == "cpu":
        before, peak = _resident("VmRSS"), lambda: _resident("VmHWM")
    else:
        torch.cuda.reset_peak_memory_stats()
        before, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated
    for _ in range(2):
        work()
    return peak() - before


def step_growth(name: str, setting: Setting) -> int:
    Step(name, tiny(setting))()
    return growth(Step(name, setting), setting.device)


def loss_growth(name: str, setting: Setting) -> int:
    """Of `ours`, or of whole `logits`."""

    def step(setting: Setting) -> Callable[[], None]:
        shape, device = setting.shape, setting.device
        x_ND = torch.randn(setting.tokens, shape.d_model, device=device, requires_grad=True)
        w_VD = torch.randn(shape.vocab_size, shape.d_model, device=device, requires_grad=True)
        targets_N = torch.randint(0, shape.vocab_size, (setting.tokens,), device=device)

        def work() -> None:
            with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=setting.bf16):
                if name == "ours":
                    loss = mean_loss(x_ND, w_VD, targets_N)
                else:
                    loss = whole_loss((x_ND @ w_VD.T)[None], targets_N[None])
            loss.backward()
            x_ND.grad = w_VD.grad = None

        return work

    step(tiny(setting))()
    return growth(step(setting), setting.device)


def in_fresh_process(part: str, name: str, setting: Setting) -> float:
    """MB (10^6 bytes) that `part` (step or loss) of a model grows by."""
    task = json.dumps([part, name, plain(setting)])
    command = [sys.executable, "-W", "ignore", __file__, task]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return round(int(done.stdout) / 1e6, 1)


def compare(setting: Setting, names: Sequence[str]) -> dict[str, Any]:
    """The growth of one training step by model, and the part that no loss can save."""
    with torch.device("meta"):
        weights = parameter_counts(Transformer(setting.shape))["total"]
    return {
        "shape": str(setting),
        "step_mb": {name: in_fresh_process("step", name, setting) for name in names},
        "gradients_and_optimizer_mb": round(3 * 4 * weights / 1e6, 1),
    }


def compare_vocabulary(peers: Sequence[str], setting: Setting = LARGE_VOCABULARY) -> dict[str, Any]:
    """As `compare`, where logits decide; also of the loss alone, and whole logits over ours."""
    found = compare(setting, ["ours", "logits", *peers])
    loss = {name: in_fresh_process("loss", name, setting) for name in ("ours", "logits")}
    step = found["step_mb"]
    return found | {
        "loss_mb": loss,
        "step_logits_over_ours": round(step["logits"] / step["ours"], 2),
        "loss_logits_over_ours": round(loss["logits"] / loss["ours"], 2),
    }


def main() -> None:
    if len(sys.argv) > 1:
        part, name, setting = json.loads(sys.argv[1])
        torch.set_num_threads(1)
        measure = {"step": step_growth, "loss": loss_growth}[part]
        print(measure(name, merged(Setting(), setting, where="benchmark")))
        return
    print(json.dumps(compare_vocabulary(installed()), indent=1))


if __name__ == "__main__":
    main()
