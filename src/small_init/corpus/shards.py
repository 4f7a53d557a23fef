"""Reading documents by their place in the corpus, and writing tokens in files of one size."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Index:
    """Where each document of one split lies: its source's position and its line's offset."""

    source: NDArray[np.int32]
    offset: NDArray[np.int64]


def index_split(files: list[Path], split: str) -> Index:
    """One pass over the corpus, keeping only where each document of the split begins."""
    mark = f'"split": "{split}"'.encode()
    sources: list[NDArray[np.int32]] = []
    offsets: list[NDArray[np.int64]] = []
    for at, path in enumerate(files):
        found, position = [], 0
        with path.open("rb") as file:
            for line in file:
                # The text could hold the mark too, with its quotes escaped: not the same bytes.
                if mark in line:
                    found.append(position)
                position += len(line)
        offsets.append(np.array(found, dtype=np.int64))
        sources.append(np.full(len(found), at, dtype=np.int32))
    return Index(np.concatenate(sources), np.concatenate(offsets))


class Shards:
    """Writes tokens into files of `size` tokens each; a document may go on in the next file."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._size = size
        self._done: list[dict[str, Any]] = []
        self._open()

    def _open(self) -> None:
        self._path = self._folder / f"train-{len(self._done):05d}.bin"
        self._file = self._path.open("wb")
        self._digest = hashlib.sha256()
        self._tokens = 0

    def _finish(self) -> None:
        self._file.close()
        self._done.append(
            {
                "file": self._path.name,
                "tokens": self._tokens,
                "sha256": self._digest.hexdigest(),
            }
        )

    def write(self, tokens: NDArray[Any]) -> None:
        """Append tokens, opening the next file where one is full."""
        while len(tokens):
            if self._tokens == self._size:
                self._finish()
                self._open()
            part = tokens[: self._size - self._tokens]
            data = part.tobytes()
            self._file.write(data)
            self._digest.update(data)
            self._tokens += len(part)
            tokens = tokens[len(part) :]

    def close(self) -> list[dict[str, Any]]:
        """End the last file; returns file, tokens and SHA-256 of each."""
        self._finish()
        return self._done
