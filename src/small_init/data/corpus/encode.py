"""Text → tokens: pieces of the corpus, each encoded by one process into files of its own.

Byte-pair encoding takes nine tenths of the time, parsing JSON and taking the tokens over into
Python the rest. With the threads of `tokenizers` that rest would be serial, and more than ten cores
of no use: so processes do all of it, one thread each. A piece is read from front to back.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress
from tokenizers import Tokenizer

from small_init.data.corpus.stage_work import durable
from small_init.data.corpus.tokenizer import EOT_ID, load_tokenizer

PIECE_BYTES = 16_000_000  # of a .jsonl file; what a killed process has to do again
BATCH_BYTES = 200_000  # of lines encoded at once: an encoding takes hundreds of bytes a token


@dataclass(frozen=True)
class Piece:
    """The documents whose lines begin in [start, stop) of a source's file."""

    number: int
    source: int  # position in the manifest
    file: Path
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stop - self.start


@dataclass(frozen=True)
class Pieces:
    """The tokens of the whole corpus, in its order, end-of-text after each document."""

    folder: Path
    dtype: np.dtype[Any]
    ends: NDArray[np.int64]  # per piece: tokens of the corpus up to its end

    def file(self, number: int) -> Path:
        """The tokens of one piece."""
        return _tokens(self.folder, number)


@dataclass(frozen=True)
class Documents:
    """A row per document in the corpus's order, 17 bytes each."""

    source: NDArray[np.int32]  # position in the manifest
    length: NDArray[np.uint32]  # tokens, end-of-text included
    start: NDArray[np.int64]  # first token among those of the corpus
    val: NDArray[np.bool_]


def encode_corpus(
    files: list[Path],
    tokenizer: Path,
    dtype: np.dtype[Any],
    folder: Path,
    pool: ProcessPoolExecutor,
    bar: Progress,
) -> tuple[Documents, Pieces, int]:
    """Encode what `folder` does not hold yet; the tokens do not depend on the pool.

    Returns:
        The index, where the tokens lie, and how many bytes of the files were encoded now.
    """
    folder.mkdir(exist_ok=True)
    pieces = plan_pieces(files)
    left = [piece for piece in pieces if not _index(folder, piece.number).exists()]
    total, now = (sum(piece.size for piece in some) for some in (pieces, left))
    task = bar.add_task("tokens", total=total, completed=total - now)
    running = {pool.submit(encode_piece, piece, tokenizer, dtype, folder): piece for piece in left}
    for done in as_completed(running):
        done.result()
        bar.advance(task, running[done].size)
    return *_read_index(pieces, folder, dtype), now


def plan_pieces(files: list[Path]) -> list[Piece]:
    """Every file in pieces of `PIECE_BYTES`, the last one smaller."""
    pieces: list[Piece] = []
    for source, file in enumerate(files):
        size = file.stat().st_size
        for start in range(0, size, PIECE_BYTES):
            stop = min(start + PIECE_BYTES, size)
            pieces.append(Piece(len(pieces), source, file, start, stop))
    return pieces


def encode_piece(piece: Piece, tokenizer: Path, dtype: np.dtype[Any], folder: Path) -> None:
    """Write the tokens of a piece, then its index: a piece with an index is whole."""
    encoder = _encoder(tokenizer)
    documents: list[tuple[int, bool]] = []
    with durable(_tokens(folder, piece.number)) as file:
        for batch in _batches(piece):
            texts = [document["text"] for document in batch]
            for document, encoding in zip(batch, encoder.encode_batch_fast(texts), strict=True):
                tokens = np.array([*encoding.ids, EOT_ID], dtype=dtype)
                file.write(tokens.data)
                documents.append((len(tokens), document["split"] == "val"))
    with durable(_index(folder, piece.number)) as file:
        np.save(file, np.array(documents, dtype=np.uint32).reshape(-1, 2).T)


def _batches(piece: Piece) -> Iterator[list[dict[str, Any]]]:
    """The piece's documents, `BATCH_BYTES` of lines at a time."""
    with piece.file.open("rb") as file:
        position = piece.start
        if piece.start:
            # The line that crosses the start belongs to the piece before.
            file.seek(piece.start - 1)
            position += len(file.readline()) - 1
        lines: list[bytes] = []
        size = 0
        for line in file:
            if position >= piece.stop:
                break
            lines.append(line)
            position += len(line)
            size += len(line)
            if size >= BATCH_BYTES:
                yield [json.loads(line) for line in lines]
                lines, size = [], 0
        if lines:
            yield [json.loads(line) for line in lines]


@cache
def _encoder(tokenizer: Path) -> Tokenizer:
    return load_tokenizer(tokenizer)


def _tokens(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.bin"


def _index(folder: Path, number: int) -> Path:
    """uint32 (2, documents): tokens, and 1 for validation."""
    return folder / f"{number:06d}.npy"


def _read_index(
    pieces: list[Piece], folder: Path, dtype: np.dtype[Any]
) -> tuple[Documents, Pieces]:
    parts = [np.load(_index(folder, piece.number)) for piece in pieces]
    counts = [part.shape[1] for part in parts]
    sources = np.array([piece.source for piece in pieces], dtype=np.int32)
    length = np.concatenate([part[0] for part in parts])
    val = np.concatenate([part[1].astype(bool) for part in parts])
    start = np.cumsum(length, dtype=np.int64) - length
    ends = np.cumsum([part[0].sum(dtype=np.int64) for part in parts])
    return Documents(np.repeat(sources, counts), length, start, val), Pieces(folder, dtype, ends)
