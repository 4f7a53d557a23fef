"""The kind of machine a run was made on: what decides whether its record comes back bit for bit."""

from __future__ import annotations

import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_CPUS = Path("/proc/cpuinfo")


def cpu_vendor() -> str:
    """Who made the processor, `AuthenticAMD` or `GenuineIntel`: matrix products are computed by
    libraries that choose their code by it. Where the system does not say, what it calls the CPU."""
    found = re.search(r"vendor_id\s*:\s*(\S+)", _CPUS.read_text()) if _CPUS.is_file() else None
    return found[1] if found else platform.processor() or platform.machine()


@dataclass(frozen=True)
class Machine:
    """What a record's perf.json tells of its machine; None for what it does not tell."""

    torch: str | None  # with its build: 2.13.0+cpu
    cpu_capability: str | None  # torch's instruction set
    cpu_vendor: str | None
    device: str | None  # the architecture

    @classmethod
    def of(cls, performance: dict[str, Any]) -> Machine:
        return cls(**{name: performance.get(name) for name in cls.__dataclass_fields__})

    def unlike(self, other: Machine) -> list[str]:
        """In what two machines are not known to be the same kind, in words; empty: bit for bit."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{name} is not recorded"
            if None in (mine[name], theirs[name])
            else f"{name} {mine[name]} and {theirs[name]}"
            for name in mine
            if mine[name] is None or mine[name] != theirs[name]
        ]
