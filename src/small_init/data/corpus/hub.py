"""Documents from `datasets`: a hub data set, or a local folder of files in the same schema."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from small_init.data.corpus.config import HubSource
from small_init.data.corpus.documents import Document, tidy
from small_init.errors import UserError

# Local files by the builder that reads them.
BUILDERS = {".parquet": "parquet", ".jsonl": "json"}


def stay_offline(sources: list[HubSource]) -> None:
    """Forbid `datasets` the network if every source is a local folder.

    Local files can make it ask the hub all the same; it reads these variables when it is first
    imported, and that happens in `HubStream`.
    """
    if sources and all(Path(source.path).is_dir() for source in sources):
        os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"


class HubStream:
    """A data set's documents in its own order; nothing but the current rows is in memory."""

    def __init__(self, source: HubSource) -> None:
        self.source = source
        self._place: dict[str, Any] = {"rows": 0, "stream": None}
        self._rows: Any = None

    def go_on_from(self, place: dict[str, Any]) -> None:
        """Begin at a `place` of an earlier stream of the same source."""
        self._place = place

    def place(self) -> dict[str, Any]:
        """Where to go on after the document that was given last; JSON values."""
        return self._place | {"stream": self._rows.state_dict()}

    def __iter__(self) -> Iterator[Document]:
        """The documents.

        Raises:
            UserError: nothing to read at the path, no such column, or a hub that does not answer.
        """
        source = self.source
        try:
            self._rows = _open(source)
            if self._place["stream"]:
                # Files read to their end are not opened again; in the next one rows are skipped.
                self._rows.load_state_dict(self._place["stream"])
            for row in self._rows:
                if source.max_documents and self._place["rows"] >= source.max_documents:
                    return
                self._place["rows"] += 1
                yield _document(source, self._place["rows"] - 1, row)
        except (OSError, ValueError) as fault:
            reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
            raise UserError(
                f"Hub source '{source.name}' ({source.path}) cannot be read ({reason}): check "
                "path, revision, config and split, log in if it is gated, or give a local folder "
                "instead. The same command goes on from what is read."
            ) from fault


def local_files(source: HubSource) -> list[list[Any]]:
    """Path, bytes and time of change of a local folder's files; none for a hub id."""
    if not Path(source.path).is_dir():
        return []
    found = [(Path(file), Path(file).stat()) for file in _local_files(source)[1]]
    return [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in found]


def _open(source: HubSource) -> Any:
    from datasets import load_dataset

    if Path(source.path).is_dir():
        builder, files = _local_files(source)
        return load_dataset(builder, data_files={"all": files}, split="all", streaming=True)
    return load_dataset(
        source.path,
        source.config or None,
        data_dir=source.data_dir or None,
        split=source.split,
        revision=source.revision,
        streaming=True,
    )


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
