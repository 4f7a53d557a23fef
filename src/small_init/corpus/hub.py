"""Documents from `datasets`: a hub data set, or a local folder of files in the same schema."""

import os
from collections.abc import Iterator
from pathlib import Path

from small_init.corpus.config import HubSource
from small_init.corpus.documents import Document, tidy
from small_init.errors import UserError

# Local files by the builder that reads them.
BUILDERS = {".parquet": "parquet", ".jsonl": "json"}


def stay_offline(sources: list[HubSource]) -> None:
    """Forbid `datasets` the network if every source is a local folder.

    Local files can make it ask the hub all the same; it reads these variables when it is first
    imported, and that happens in `read_hub`.
    """
    if sources and all(Path(source.path).is_dir() for source in sources):
        os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"


def read_hub(source: HubSource) -> Iterator[Document]:
    """Stream a data set's documents in its own order; nothing but the current row is in memory.

    Raises:
        UserError: nothing to read at the path, no such column, or a hub that does not answer.
    """
    from datasets import load_dataset

    try:
        if Path(source.path).is_dir():
            builder, files = _local_files(source)
            rows = load_dataset(builder, data_files={"all": files}, split="all", streaming=True)
        else:
            rows = load_dataset(
                source.path,
                source.config or None,
                data_dir=source.data_dir or None,
                split=source.split,
                revision=source.revision,
                streaming=True,
            )
        for number, row in enumerate(rows):
            if source.max_documents and number >= source.max_documents:
                return
            yield _document(source, number, row)
    except (OSError, ValueError) as fault:
        reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        raise UserError(
            f"Hub source '{source.name}' ({source.path}) cannot be read ({reason}): check path, "
            "revision, config and split, log in if it is gated, or give a local folder instead."
        ) from fault


def _local_files(source: HubSource) -> tuple[str, list[str]]:
    folder = Path(source.path) / source.data_dir
    for suffix, builder in BUILDERS.items():
        # Sorted: the order of a folder differs between file systems.
        if files := sorted(str(file) for file in folder.rglob(f"*{suffix}")):
            return builder, files
    raise UserError(
        f"Hub source '{source.name}': {folder} has neither .parquet nor .jsonl files: correct its "
        "path or data_dir."
    )


def _document(source: HubSource, number: int, row: dict[str, object]) -> Document:
    text = row.get(source.text_column)
    if not isinstance(text, str):
        columns = ", ".join(row)
        raise UserError(
            f"Hub source '{source.name}' has no text in column '{source.text_column}': set its "
            f"text_column to one of {columns}."
        )
    return Document(tidy(text), source.name, source.language, source.domain, f"{number:09d}")
