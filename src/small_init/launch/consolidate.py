"""`small-init consolidate`: the weights in a run's newest checkpoint as one safetensors file.

A run that several processes train leaves a folder with each one's part; here a single process reads
the weights out of it, whole, and starts nothing. Optimizer states are left on the disk.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save
from torch import Tensor
from torch.distributed.checkpoint import CheckpointException

from small_init.config import ArmConfig
from small_init.errors import UserError
from small_init.files import write_bytes
from small_init.model.transformer import Transformer
from small_init.runs.paths import weights_file
from small_init.runs.plan import load_plan

_NAMES = ("last.ckpt", ".last.ckpt.old")  # the second where a kill came between two renames
_OTHER_RUN = (RuntimeError, KeyError, CheckpointException)  # no such weight, or not of this shape


def consolidate(arm: str, seed: int | None = None, out: Path | None = None) -> Path:
    """Write the weights of the newest checkpoint of `arm` (of `seed`, else of any) to `out`.

    The file has the names and types of a finished run's weights, and the step in its metadata.
    Returns its path (default: scratch/consolidated/<arm>/seed-<n>.safetensors). Raises UserError
    for an unknown arm, no checkpoint, or one of another configuration.
    """
    plan = load_plan()
    if arm not in plan.arms:
        raise UserError(f"Arm '{arm}' is not in params.json; `dvc stage list` shows the names.")
    checkpoint, seed = newest(arm, seed)
    while True:
        version = _version(checkpoint)
        weights, step = read(checkpoint, plan.arms[arm])
        if _version(checkpoint) == version:
            break  # else the run has saved its next one meanwhile
    out = out or Path("scratch/consolidated") / weights_file(arm, seed).relative_to("models")
    described = {"arm": arm, "seed": str(seed), "step": str(step)}
    write_bytes(out, save(weights, described))
    return out


def newest(arm: str, seed: int | None) -> tuple[Path, int]:
    """The checkpoint of `arm` that was written last, and its seed."""
    pattern = f"seed-{'*' if seed is None else seed}-*"
    runs = Path("scratch/runs") / arm
    found = [path for name in _NAMES for path in runs.glob(f"{pattern}/{name}")]
    if not found:
        raise UserError(
            f"There is no checkpoint in {runs / pattern}; a run keeps one until its record is "
            f"written, and a finished run's weights are in {weights_file(arm, 0).parent}."
        )
    path = max(found, key=lambda found: found.stat().st_mtime)
    seed_text = re.match(r"seed-(\d+)-", path.parent.name)
    assert seed_text is not None
    return path, int(seed_text[1])


def _version(checkpoint: Path) -> tuple[int, int]:
    status = checkpoint.stat()
    return status.st_ino, status.st_mtime_ns


def read(checkpoint: Path, arm: ArmConfig) -> tuple[dict[str, Tensor], int]:
    """The whole weights, float32, by name, and the step; one process, whoever wrote them."""
    with torch.device("meta"):
        model = Transformer(arm.model)
    names = [name for name, _ in model.named_parameters()]
    try:
        if checkpoint.is_dir():
            empty = {n: torch.empty(p.shape, dtype=p.dtype) for n, p in model.named_parameters()}
            state: dict[str, Any] = {f"model.{name}": weight for name, weight in empty.items()}
            dcp.load({"state_dict": state}, checkpoint_id=checkpoint, no_dist=True)
            rest = torch.load(checkpoint / "meta.pt", map_location="cpu", weights_only=True)
        else:
            rest = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
            state = rest["state_dict"]
        weights = {name: state[f"model.{name}"].contiguous() for name in names}
        model.load_state_dict(weights, strict=False, assign=True)  # their shapes, checked
    except _OTHER_RUN as error:
        raise UserError(
            f"{checkpoint} is of another configuration than the arm has now "
            f"({str(error).splitlines()[0]}); write params.json as it was when the run began."
        ) from None
    return weights, rest["global_step"]
