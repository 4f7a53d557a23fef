"""The sources page: what the model reads, where it comes from and under which licence."""

from pathlib import Path
from typing import Any

from small_init.corpus.build import LEFT_OUT
from small_init.corpus.config import CorpusConfig
from small_init.corpus.documents import atomic

COLUMNS = (
    "source",
    "package",
    "language",
    "domain",
    "licence",
    "documents train / val",
    "bytes",
    "tokens train / val",
    "share",
    "sha256 of the file",
)


def write_page(
    path: Path, config: CorpusConfig, records: list[dict[str, Any]], meta: dict[str, Any]
) -> None:
    """Write the Markdown table of sources, one row each, from the manifest and the meta file."""
    train: dict[str, int] = meta["train"]["sources"]
    val = {part["source"]: part["end"] - part["start"] for part in meta["val"]["segments"]}
    total = meta["train"]["tokens"]
    rows = []
    for record in records:
        name = record["source"]
        documents, size = record["documents"], sum(record["bytes"].values())
        rows.append(
            f"| {name} | {record['package']}=={record['version']} | {record['language']} "
            f"| {record['domain']} | {record['licence']} "
            f"| {documents['train']:,} / {documents['val']:,} | {size:,} "
            f"| {train.get(name, 0):,} / {val.get(name, 0):,} "
            f"| {train.get(name, 0) / total:.1%} | `{record['file_sha256'] or 'generated'}` |"
        )
    left_out = "; ".join(LEFT_OUT)
    with atomic(path) as file:
        file.write(
            f"""# Sources of the text

Written by the `pack` stage for profile `{config.profile}`; do not edit. Documents and bytes are
what is left after cleaning, cutting and duplicate removal; tokens are what was packed, at a
vocabulary of {meta["vocab_size"]:,}; the share is of the {total:,} training tokens. No document
is used twice.

"""
        )
        file.write("\n".join([f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|", *rows]))
        file.write(
            f"""

Dictionary entries are held to {config.dictionary_share:.0%} of the Chinese tokens: they are short
and nearly free of context. Left out: {left_out}.
"""
        )
