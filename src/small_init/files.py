"""Files as this project writes them: whole or not at all; the same bytes for the same values."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from small_init.errors import UserError


def fingerprint(value: Any) -> str:
    """16 hex digits of the SHA-256 of a plain value; the same on every machine."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Write through a temporary name, so that a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(
            f"Cannot write {path}: {error.strerror}; nothing was changed there."
        ) from None


def write_text(path: Path, text: str) -> None:
    """As `write_bytes`, in UTF-8 with the line ends as they are."""
    write_bytes(path, text.encode())


def json_text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def rounded(value: Any) -> Any:
    """Floats with 9 significant digits, all the way down: more than float32 arithmetic can say."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of one schema; floats with 7 significant digits, which is what float32 can say."""
    rows = list(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.7g}" if isinstance(v, float) else v for k, v in row.items()})
    return out.getvalue()


def replace_folder(new: Path, old: Path) -> None:
    """Put the folder `new` in the place of `old`; a kill leaves one of the two whole."""
    recover_folder(old)
    aside = old.with_name(f".{old.name}.old")
    old.parent.mkdir(parents=True, exist_ok=True)
    if old.exists():
        old.rename(aside)
    new.rename(old)
    shutil.rmtree(aside, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Undo a `replace_folder` that was killed between its two renames."""
    aside = folder.with_name(f".{folder.name}.old")
    if aside.exists():
        if folder.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(folder)
