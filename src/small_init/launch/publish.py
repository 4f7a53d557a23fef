"""A finished run's record into results/, whole."""

from __future__ import annotations

import shutil
from pathlib import Path

from filelock import FileLock

from small_init.errors import UserError
from small_init.files import replace_folder
from small_init.runs.paths import record_folder, weights_file
from small_init.runs.spec import RunSpec


def lock_of(spec: RunSpec) -> FileLock:
    """Held while a run trains and while it is published: no two commands touch one run at once."""
    home = Path("scratch/runs") / spec.arm_key
    home.mkdir(parents=True, exist_ok=True)
    return FileLock(home / f"seed-{spec.seed}.lock")


def publish(spec: RunSpec, scratch: Path) -> None:
    """Copy a finished run's record into results/ and its weights into models/, each whole."""
    with lock_of(spec):
        _publish(spec, scratch)


def _publish(spec: RunSpec, scratch: Path) -> None:
    home = record_folder(spec.profile, spec.arm_key, spec.seed)
    weights = weights_file(spec.arm_key, spec.seed)
    draft, draft_weights = home.with_name(f".{home.name}.new"), weights.with_suffix(".tmp")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(scratch / "record", draft)
        weights.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(scratch / "weights.safetensors", draft_weights)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        draft_weights.unlink(missing_ok=True)
        raise UserError(
            f"Cannot write the record {home} ({error.strerror or error}); the published one is "
            "unchanged."
        ) from None
    draft_weights.replace(weights)
    replace_folder(draft, home)
