"""One source's documents as lines of JSON, counted and hashed while they are written."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from small_init.data.corpus.documents import Document
from small_init.data.corpus.generated import Tally


@dataclass
class SourceRecord:
    """A source's line in the manifest; counts are documents after cutting."""

    source: str
    package: str
    version: str
    file_sha256: str
    licence: str
    language: str
    domain: str
    group: str
    read: int = 0
    dropped_exact: int = 0
    dropped_near: int = 0
    documents: dict[str, int] = field(default_factory=lambda: {"train": 0, "val": 0})
    bytes: dict[str, int] = field(default_factory=lambda: {"train": 0, "val": 0})
    sha256: str = ""
    families: dict[str, Tally] = field(default_factory=dict)  # of generated problems


class SourceFile:
    """Writes a source's file, and its documents, bytes and hash into its record when closed."""

    def __init__(self, path: Path, record: SourceRecord) -> None:
        path.touch()
        self._file = path.open("r+b")
        self._digest = hashlib.sha256()
        self.record = record
        self.size = 0  # bytes

    def __enter__(self) -> "SourceFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not error:
            # An earlier run may have written more.
            self._file.truncate(self.size)
        self._file.close()
        self.record.sha256 = self._digest.hexdigest()

    def replay(self, size: int) -> Iterator[str]:
        """Go on after the first `size` bytes of the file as it is; yields the texts in them."""
        while self.size < size:
            data = self._file.readline()
            line = json.loads(data)
            self._count(data, line)
            yield line["text"]
        self._file.seek(size)

    def write(self, key: str, document: Document, split: str) -> None:
        """Append a document."""
        line: dict[str, Any] = {
            "id": key,
            "text": document.text,
            "split": split,
            "language": document.language,
            "domain": document.domain,
            "fields": document.fields,
        }
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode()
        self._file.write(data)
        self._count(data, line)

    def to_disk(self) -> None:
        """What was written until now stays, whatever happens."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def _count(self, data: bytes, line: dict[str, Any]) -> None:
        self._digest.update(data)
        self.size += len(data)
        self.record.documents[line["split"]] += 1
        self.record.bytes[line["split"]] += len(line["text"].encode())
