"""An object reads what its stage depends on, and nothing else.

DVC redraws an object when a dependency changes: a file that a script reads without saying so would
leave an old figure standing. So while a script draws, every file it opens is compared with the
index and the records it may read, and with its READS (`small_init.runs.objects`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from small_init.errors import UserError

WATCHED = ("configs", "data", "paper", "results")  # where inputs lie; code is followed by import
FREE = ("runs", "index")  # of results/<profile>/: an object's index names the records it reads


def watch(reads: tuple[str, ...]) -> None:
    """From now on, opening an input that `reads` does not cover is a UserError."""
    root = Path.cwd()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | Path):
            return
        path, mode = arguments[0], arguments[1]
        if isinstance(mode, str) and not set(mode) & set("wax+") and undeclared(path, root, reads):
            raise UserError(
                f"The script reads {path}, which its READS does not name; add it there and run "
                "`small-init plan`."
            )

    sys.addaudithook(hook)


def undeclared(path: str | Path, root: Path, reads: tuple[str, ...]) -> bool:
    """Whether a file is an input that is neither free to read nor among `reads`."""
    full = Path(path) if Path(path).is_absolute() else root / path
    parts = full.relative_to(root).parts if full.is_relative_to(root) else ()
    if not parts or parts[0] not in WATCHED or full.suffix in (".py", ".pyc"):
        return False
    if parts[0] == "results" and len(parts) > 2 and parts[2] in FREE:
        return False
    declared = [tuple(read.split("/")) for read in reads]
    return not any(_covers(read, parts) for read in declared)


def _covers(read: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether a declared file or folder holds the path; `{profile}` stands for any profile."""
    return len(read) <= len(parts) and all(
        wanted.replace("{profile}", part.partition(".")[0]) == part
        for wanted, part in zip(read, parts, strict=False)
    )
