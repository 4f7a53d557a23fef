"""Where a stage keeps its work until it is whole, so that a killed one goes on from there.

The folder stands beside the stage's out, on the same disk, since DVC deletes outs before a stage
runs. Its name holds a hash of all that decides its content: what was made otherwise is not used.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from small_init.data.corpus.documents import atomic
from small_init.errors import UserError
from small_init.files import recover_folder


@contextmanager
def only_one(out: Path) -> Iterator[None]:
    """Hold the right to write `out`; a killed holder loses it.

    Raises:
        UserError: another command holds it, or the disk is full.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out.with_name(f".{out.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise UserError(f"Another command is writing {out}: wait until it has ended.") from None
    try:
        recover_folder(out)
        yield
    except OSError as fault:
        if fault.errno != errno.ENOSPC:
            raise
        raise UserError(
            f"The disk of {out} is full: free some space and run the same command again, which "
            "goes on from what is done."
        ) from None
    finally:
        lock.release()


@contextmanager
def durable(path: Path) -> Iterator[IO[bytes]]:
    """As `atomic` for bytes; after a power cut, too, the file has its name only if it is whole."""
    with atomic(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def keyed(folder: Path, name: str, *inputs: Any) -> Path:
    """The folder `<name>-<hash of code and inputs>`, made if need be; others of that name, and
    half-written files in it, are deleted.

    Args:
        folder: where it stands.
        name: what is made in it.
        inputs: JSON values that decide what it will hold.
    """
    key = hashlib.sha256(json.dumps([_code(), *inputs], sort_keys=True).encode()).hexdigest()[:16]
    wanted = folder / f"{name}-{key}"
    for other in folder.glob(f"{name}-*"):
        if other != wanted:
            shutil.rmtree(other)
    wanted.mkdir(parents=True, exist_ok=True)
    # Temporary files of `atomic`, whose writer was killed.
    for torn in wanted.rglob(".*"):
        torn.unlink(missing_ok=True)
    return wanted


@cache
def _code() -> str:
    """SHA-256 over the modules of this package."""
    digest = hashlib.sha256()
    for module in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()
