"""params.json as it is read: the profile, every arm, and which arms each object reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from small_init.config import ArmConfig, ParallelConfig
from small_init.config_files import load_yaml, merged
from small_init.config_limits import check
from small_init.errors import UserError
from small_init.runs.paths import PARAMS


@dataclass(frozen=True)
class Plan:
    """params.json: the profile, every arm, and which arms each object reads."""

    profile: str
    stages: dict[str, str]  # arm → its home stage
    arms: dict[str, ArmConfig]
    objects: dict[str, list[str]]
    parallel: ParallelConfig = field(default_factory=ParallelConfig)

    def runs(self) -> list[tuple[str, int]]:
        return [(key, seed) for key, arm in self.arms.items() for seed in arm.seeds]


def load_plan(path: Path = PARAMS) -> Plan:
    """Read params.json; every arm is checked against the configuration's schema."""
    return read_plan(load_yaml(path), str(path))


def read_plan(node: Any, where: str) -> Plan:
    """A plan from its OmegaConf node; `where` names its origin in errors."""
    missing = [name for name in ("profile", "arms", "objects") if not node.get(name)]
    if missing:
        raise UserError(f"{where} has no {missing[0]}; write it again with `small-init plan`.")
    arms, stages = {}, {}
    for stage, group in node.arms.items():
        for key, overrides in (group or {}).items():
            of_arm = f"{where}: arm {key}"
            arms[key] = merged(ArmConfig(), overrides, where=of_arm)
            check(arms[key], of_arm)
            stages[key] = stage
    objects = {name: list(keys or []) for name, keys in node.objects.items()}
    parallel = merged(ParallelConfig(), node.get("parallel") or {}, where=f"{where}: parallel")
    return Plan(node.profile, stages, arms, objects, parallel)
