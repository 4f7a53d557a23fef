"""The first values of weights: which numbers, and how they get into a tensor.

W = σ·Z, and Z comes from a counter-based generator (Philox) keyed by the seed and the weight's
name: the same numbers whatever the world size, the device, the order of modules or γ, so that runs
that differ in γ share their draws and can be compared pair by pair.

A rank draws every weight in full, a block of rows at a time, and keeps what its shard holds: nobody
communicates, and no more than the blocks is ever in memory beside the model.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from small_init.errors import UserError

# Names that wrappers put in front of a module; a weight's draw must not depend on them.
_WRAPPERS = re.compile(r"(_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.")
_BLOCK = 1 << 18  # numbers drawn at a time: 1 MiB stays in a core's cache


def canonical(name: str) -> str:
    """The weight's name without the prefixes of compile, checkpoint and sharding wrappers."""
    return _WRAPPERS.sub("", name)


def _stream(seed: int, name: str) -> np.random.Generator:
    key = hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


def standard_normal(seed: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Z ~ N(0, 1) in float32, a pure function of its arguments."""
    return _stream(seed, name).standard_normal(shape, dtype=np.float32)


@dataclass(frozen=True)
class Target:
    """A parameter, or the shard of it that this process holds.

    `box` is the part of the whole weight, one slice per dimension, that `local` stores.
    """

    name: str
    shape: tuple[int, ...]  # of the whole weight
    local: Tensor
    box: tuple[slice, ...]


def target(name: str, parameter: Tensor) -> Target:
    """Where the values of `parameter` go; raises UserError for a sharding it does not know."""
    shape = tuple(parameter.shape)
    value: Any = parameter.detach()
    if not hasattr(value, "placements"):
        return Target(name, shape, value, tuple(slice(0, n) for n in shape))

    from torch.distributed.tensor import Replicate, Shard

    starts, lengths = [0] * len(shape), list(shape)
    mesh = value.device_mesh
    for axis, placement in enumerate(value.placements):
        if type(placement) is Replicate:
            continue
        if type(placement) is not Shard:
            raise UserError(
                f"'{name}' is sharded as {placement}; only Shard and Replicate are known: "
                "initialise before this sharding is applied (before fully_shard where it comes on "
                "top of tensor parallelism)."
            )
        dim, ranks, rank = placement.dim % len(shape), mesh.size(axis), mesh.get_local_rank(axis)
        piece = -(-lengths[dim] // ranks)  # as torch.chunk cuts: the last ones may be empty
        first = min(rank * piece, lengths[dim])
        starts[dim] += first
        lengths[dim] = min(piece, lengths[dim] - first)
    box = tuple(slice(start, start + n) for start, n in zip(starts, lengths, strict=True))
    return Target(name, shape, value.to_local(), box)


def fill_(place: Target, value: float) -> None:
    """Set a whole weight to a constant."""
    place.local.fill_(value)


def fill_row_(place: Target, row: int, value: float) -> None:
    """Set one row of a weight to a constant."""
    if place.box[0].start <= row < place.box[0].stop:
        place.local[row - place.box[0].start].fill_(value)


def draw_(place: Target, std: float, seed: int) -> None:
    """Write σ·Z into this process's part of a weight."""
    if place.local.numel():
        # What comes after the shard need not be drawn.
        shape = (place.box[0].stop, *place.shape[1:])
        _draw_part(_stream(seed, place.name), place.local, shape, place.box, std)


def _draw_part(
    generator: np.random.Generator,
    local: Tensor | None,
    shape: tuple[int, ...],
    box: tuple[slice, ...],
    std: float,
) -> None:
    """Take `shape` numbers off the generator, block by block, and keep those of `box`.

    `local` None keeps none: the numbers of other shards are drawn to get past them.
    """
    rows, *columns = box
    row = math.prod(shape[1:])
    if row > _BLOCK:  # stacked experts: a row is a matrix
        for i in range(shape[0]):
            inside = rows.start <= i < rows.stop
            part = local[i - rows.start] if local is not None and inside else None
            _draw_part(generator, part, shape[1:], box[1:], std)
        return
    step = _BLOCK // row
    for start in range(0, shape[0], step):
        stop = min(start + step, shape[0])
        block = generator.standard_normal((stop - start, *shape[1:]), dtype=np.float32)
        first, last = max(start, rows.start), min(stop, rows.stop)
        if local is not None and first < last:
            kept = torch.from_numpy(block[first - start : last - start])[:, *columns]
            local[first - rows.start : last - rows.start].copy_(kept.mul_(std))


def draw_all_(places: Iterable[tuple[Target, float]], seed: int) -> None:
    """`draw_` for many weights and their stds, on as many threads as torch uses.

    numpy draws outside the interpreter lock, and each weight has its own generator, so the threads
    change no number.
    """
    largest_first = sorted(places, key=lambda item: -math.prod(item[0].shape))
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        for done in [pool.submit(draw_, place, std, seed) for place, std in largest_first]:
            done.result()
