"""Writing tokens in files of one size."""

import hashlib
from pathlib import Path
from typing import Any

from numpy.typing import NDArray


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
