"""How long a run takes on this profile's machine, from the records of runs that were made there."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from statistics import median

import numpy as np

from small_init.config import ArmConfig, ParallelConfig
from small_init.errors import UserError
from small_init.runs.cost import run_cost
from small_init.runs.paths import PERFORMANCE_FILE, results_folder
from small_init.runs.record import read_metrics


def flops_per_token(arm: ArmConfig) -> float:
    """Of training, those of the attention scores included."""
    cost = run_cost(arm, ParallelConfig())
    return (cost.flops + cost.score_flops) / cost.tokens


@dataclass(frozen=True)
class Pace:
    """Seconds per training token, validation and probes included, at some numbers of FLOPs."""

    flops: tuple[float, ...]  # per token, ascending
    seconds: tuple[float, ...]  # per token
    runs: int  # whose records say so

    def hours(self, arm: ArmConfig) -> float:
        """Of one run: between measured models linear in FLOPs per token; beyond them in proportion,
        at the nearest one's speed."""
        asked = flops_per_token(arm)
        per_token = float(np.interp(asked, self.flops, self.seconds))
        nearest = min(max(asked, self.flops[0]), self.flops[-1])
        return per_token * asked / nearest * arm.train.tokens / 3600


def measured_pace(profile: str) -> Pace | None:
    """From the records in results/<profile>; None without any that can be read."""
    found: dict[float, list[float]] = defaultdict(list)
    for path in (results_folder(profile) / "runs").glob(f"*/seed-*/{PERFORMANCE_FILE}"):
        try:
            config = read_metrics(path.with_name("metrics.json")).config
            seconds = json.loads(path.read_text())["seconds"]
        except (UserError, ValueError, KeyError):
            continue  # an estimate does without it; whoever needs the record will say what is wrong
        found[flops_per_token(config)].append(seconds / config.train.tokens)
    if not found:
        return None
    pairs = sorted((flops, median(values)) for flops, values in found.items())
    flops, seconds = zip(*pairs, strict=True)
    return Pace(flops, seconds, sum(map(len, found.values())))


def run_hours(
    arm: ArmConfig, parallel: ParallelConfig, mfu: float | None, pace: Pace | None
) -> float | None:
    """Device-hours of one run: by the peak that the profile states, else by what was measured."""
    by_peak = run_cost(arm, parallel, mfu).device_hours
    return by_peak if by_peak is not None or pace is None else pace.hours(arm)
