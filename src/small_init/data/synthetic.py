"""Generated sequences as packed tokens, in the format of `corpus.pack`: one sequence a window."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from small_init.data.corpus.pack import META, token_dtype
from small_init.data.corpus.tokenizer import EOT_ID
from small_init.files import json_text, replace_folder, sha256, write_text


def write_sequences(
    out: Path,
    vocab_size: int,
    train: Iterable[NDArray[np.int64]],
    sources: Mapping[str, NDArray[np.int64]],
    task: Mapping[str, Any],
) -> None:
    """Write `out`, replaced as a whole.

    No token stands for text, so `token_bytes.bin` is 0 throughout and runs have no bits per byte.

    Args:
        out: the folder.
        vocab_size: token ids are below it.
        train: chunks of training sequences, (sequences, length) token ids, in their order.
        sources: validation sequences, likewise, by the name of their source.
        task: further entries of `meta.json`.
    """
    dtype = token_dtype("auto", vocab_size)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)

    digest, tokens = hashlib.sha256(), 0
    shard = partial / "train-00000.bin"
    with shard.open("wb") as file:
        for chunk in train:
            data = chunk.astype(dtype).tobytes()
            file.write(data)
            digest.update(data)
            tokens += chunk.size
    np.concatenate(list(sources.values())).astype(dtype).tofile(partial / "val.bin")
    np.zeros(vocab_size, dtype=np.uint16).tofile(partial / "token_bytes.bin")
    segments: list[dict[str, Any]] = []
    end = 0
    for source, sequences in sources.items():
        start, end = end, end + sequences.size
        segments.append(
            {"source": source, "language": "none", "domain": "generated",
             "start": start, "end": end}
        )  # fmt: skip
    meta = {
        "schema": 1,
        "vocab_size": vocab_size,
        "eot": EOT_ID,
        "dtype": dtype.name,
        "token_bytes": {"file": "token_bytes.bin", "sha256": sha256(partial / "token_bytes.bin")},
        "train": {
            "tokens": tokens,
            "shards": [{"file": shard.name, "tokens": tokens, "sha256": digest.hexdigest()}],
        },
        "val": {
            "file": "val.bin", "tokens": end, "sha256": sha256(partial / "val.bin"),
            "segments": segments,
        },
        **task,
    }  # fmt: skip
    write_text(partial / META, json_text(meta))
    replace_folder(partial, out)
