"""Which code a run was made by: a digest over what decides the bytes of its record.

`code.json`, which `small-init plan` writes, holds the same digests for DVC: an arm depends on the
entry `run`, so that a comment or a moved file makes no arm stale and a changed default all of them.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from small_init.files import fingerprint
from small_init.runs.code_meaning import Name, Reached, reach

# What a run is made by: its training, and the arithmetic that its process is pinned to.
RUN_ENTRIES = (Name("small_init.train.pretrain", "train"), Name("small_init.cores", "ARITHMETIC"))
# What a run reaches and what decides no byte of its record: sentences, places, what TensorBoard
# shows, and the naming of the code itself.
LEFT_OUT = (
    "small_init.errors",
    "small_init.measure.scalars",
    "small_init.runs.code_identity",
    "small_init.runs.code_meaning",
    "small_init.runs.paths",
    "small_init.runs.spec",
)
# Packages that compute a run's numbers; torch's build (+cpu, +cu130) is a property of the machine.
VERSIONS = ("numpy", "torch")


def installed() -> dict[str, str]:
    return {name: version(name).split("+")[0] for name in VERSIONS}


@cache
def run_code() -> dict[str, Any]:
    """The run's code as of the first call: `digest`, 16 hex digits; per module, and versions."""
    reached: Reached = reach(RUN_ENTRIES, but=LEFT_OUT)
    versions = installed()
    return {
        "digest": fingerprint([reached.digest(), versions]),
        "modules": reached.by_module(),
        "versions": versions,
    }


def run_digest() -> str:
    return run_code()["digest"]
