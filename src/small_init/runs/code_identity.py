"""Which code a run was made by."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

# The modules that decide a run's numbers: dvc.yaml's arm stages depend on these, and an
# interrupted run is only resumed by the same code.
RUN_MODULES = (
    "activations.py", "config.py", "data.py", "draws.py", "evaluation.py", "init.py", "loss.py",
    "model.py", "moe.py", "pretrain.py", "probes.py", "recorder.py", "resume.py", "schedule.py",
    "sharding.py",
)  # fmt: skip


@cache
def code_fingerprint() -> str:
    """16 hex digits over the modules that decide a run's numbers, as of the first call."""
    digest = hashlib.sha256()
    for module in RUN_MODULES:
        digest.update(module.encode() + (Path(__file__).parent / module).read_bytes())
    return digest.hexdigest()[:16]
