"""Encoded documents in their final order: files of one size, each written by one process.

An order is an int64 array (2, documents): the first token of each document among the pieces, and
where it ends in the final stream. A block of the stream is filled in the order in which its
documents lie on the disk, then written: no file is mapped into memory, and few are open.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from small_init.data.corpus.documents import sha256_of
from small_init.data.corpus.encode import Pieces
from small_init.data.corpus.stage_work import durable
from small_init.data.corpus.tokenizer import EOT_ID

BLOCK_TOKENS = 8_000_000


def gather(order: NDArray[np.int64], pieces: Pieces, begin: int, stop: int) -> NDArray[Any]:
    """Tokens [begin, stop) of the final stream.

    Each document's last token becomes end-of-text, which changes those alone that were cut short.
    """
    first = int(np.searchsorted(order[1], begin, "right"))
    last = int(np.searchsorted(order[1], stop, "left")) + 1
    end = np.array(order[1, first:last])
    start = np.concatenate([order[1, first - 1 : first] if first else [0], end[:-1]])
    low = np.maximum(start, begin)
    size = np.minimum(end, stop) - low
    place = order[0, first:last] + low - start

    tokens = np.empty(stop - begin, dtype=pieces.dtype)
    memory, item = tokens.data.cast("B"), tokens.itemsize
    by_place = np.argsort(place)
    piece = np.searchsorted(pieces.ends, place[by_place], "right")
    for members in np.split(by_place, np.flatnonzero(np.diff(piece)) + 1):
        number = int(np.searchsorted(pieces.ends, place[members[0]], "right"))
        offset = (place[members] - (pieces.ends[number - 1] if number else 0)) * item
        target = (low[members] - begin) * item
        with pieces.file(number).open("rb", buffering=0) as file:
            for at, to, count in zip(
                offset.tolist(), target.tolist(), (size[members] * item).tolist(), strict=True
            ):
                file.seek(at)
                file.readinto(memory[to : to + count])
    tokens[end[end <= stop] - 1 - begin] = EOT_ID
    return tokens


def write_shard(path: Path, order: Path, pieces: Pieces, begin: int, stop: int) -> dict[str, Any]:
    """Write tokens [begin, stop) to `path` unless it is there; returns its entry in the meta file.

    Args:
        order: the .npy file of the order.
    """
    if not path.exists():
        rows = np.load(order, mmap_mode="r")
        with durable(path) as file:
            for at in range(begin, stop, BLOCK_TOKENS):
                file.write(gather(rows, pieces, at, min(at + BLOCK_TOKENS, stop)).data)
    return {"file": path.name, "tokens": stop - begin, "sha256": sha256_of(path)}
