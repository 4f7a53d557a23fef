"""A document, and what is done to every document whatever its source."""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import Progress


@dataclass(frozen=True)
class Document:
    """A cleaned text and where it stands.

    Attributes:
        key: unique within its source, readable (a title, a headword, a path).
        parent: what must not be torn over training and validation: all chapters of one law, the
            lead and the full article of one title. Empty = the text itself.
        fields: what a task can ask about the text (its topic, its law), kept beside it.
    """

    text: str
    source: str
    language: str
    domain: str
    key: str
    parent: str = ""
    fields: dict[str, str] = field(default_factory=dict)


def stable_hash(text: str) -> int:
    """64 bits of SHA-256: the same on every machine and in every process, unlike `hash`."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def split_of(document: Document, val_fraction: float) -> str:
    """`train` or `val` by a hash of the parent, so that it never depends on other documents."""
    share = stable_hash(f"split\n{document.parent or document.text}") / 2**64
    return "val" if share < val_fraction else "train"


def tidy(text: str) -> str:
    """One kind of line break, no trailing blanks, at most one empty line, no control characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ufeff\ufffd\ue000-\uf8ff]", "", text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def cut(text: str, max_characters: int) -> Iterator[str]:
    """Pieces of at most `max_characters`, cut at empty lines, else lines, else anywhere."""
    while len(text) > max_characters:
        # An early boundary would leave a stub, so only the second half is searched.
        floor = max_characters // 2
        at = text.rfind("\n\n", floor, max_characters)
        if at < 0:
            at = text.rfind("\n", floor, max_characters)
        if at < 0:
            at = max_characters
        if piece := text[:at].rstrip():
            yield piece
        text = text[at:].lstrip("\n")
    if text.strip():
        yield text


@contextmanager
def atomic(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` that takes its name only when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
        with os.fdopen(handle, mode, **text) as file:  # type: ignore[call-overload]
            yield file
        temporary.chmod(0o644)  # mkstemp keeps the file from everyone else
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def progress_bar() -> Progress:
    """A progress bar on stderr; silent where nobody watches (logs, pipes, DVC)."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)
