"""The calibrated peak learning rates, from the records of the calibration arms (Figure S1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean

from small_init.config import PILOT_SEEDS
from small_init.config_files import dump
from small_init.errors import UserError
from small_init.files import write_text
from small_init.runs.experiments import read_profile
from small_init.runs.paths import CONFIGS
from small_init.runs.plan import Plan
from small_init.runs.rates import Rate, condition
from small_init.runs.record import Run, load_run
from small_init.stats.vertex import Vertex, interaction_noise, log_vertex

OBJECT = "figure-s1"  # the object whose arms are the calibration
MIN_RATES = 3  # a parabola's points
HEAD = """\
# Written by `small-init calibrate` from the calibration's records: the peak learning rate of every
# condition (a configuration without γ, rate and length) and γ. `curvature` c: missing the best
# rate by a factor f costs c·ln(f)² nats. `error`: the standard error of ln(lr); `miss`: what that
# is expected to cost, nats. `edge`: the best rate tried was the first or last of its grid.
"""


def rates_file(profile: str) -> Path:
    return CONFIGS / "calibration" / f"{profile}.yaml"


@dataclass
class Grid:
    """The runs of one condition, γ and length, over their learning rates."""

    label: str
    condition: str
    gamma: float
    tokens: int
    losses: dict[float, dict[int, float]] = field(default_factory=dict)  # rate → seed → loss

    @property
    def rates(self) -> list[float]:
        return sorted(self.losses)

    def by_seed(self) -> dict[int, list[float]]:
        """Seed → losses at `rates`, of the seeds that every rate has: one that another experiment
        gave more seeds is no better known than the others."""
        seeds = set.intersection(*(set(self.losses[rate]) for rate in self.rates))
        if not seeds:
            raise UserError(
                f"The calibration of {self.label}, γ {self.gamma:g} has no seed at every rate."
            )
        return {seed: [self.losses[rate][seed] for rate in self.rates] for seed in sorted(seeds)}

    def vertex(self, noise: float | None) -> Vertex:
        """`noise` is one run's standard deviation about the curve."""
        curves = self.by_seed()
        means = [mean(values) for values in zip(*curves.values(), strict=True)]
        return log_vertex(self.rates, means, None if noise is None else noise / len(curves) ** 0.5)


def grids(runs: Iterable[Run], profile: str, width_ratio: float) -> list[Grid]:
    """The grids of three rates or more among the pilot runs, a condition's and γ's longest where
    it was tried at several lengths."""
    found: dict[tuple[str, float, int], Grid] = {}
    for run in runs:
        arm = run.config
        if run.seed not in PILOT_SEEDS:
            continue
        key = (condition(arm, width_ratio), arm.init.gamma, arm.train.tokens)
        grid = found.setdefault(key, Grid(label(run.arm, profile), *key))
        grid.losses.setdefault(arm.optimizer.lr, {})[run.seed] = run.val_loss
    longest: dict[tuple[str, float], Grid] = {}
    for grid in sorted(found.values(), key=lambda grid: grid.tokens):
        if len(grid.losses) >= MIN_RATES:
            longest[grid.condition, grid.gamma] = grid
    return sorted(longest.values(), key=lambda grid: (_natural(grid.label), grid.gamma))


def label(arm: str, profile: str) -> str:
    """An arm's key without profile, γ and rate: `d64-standard`."""
    return re.sub(rf"^{re.escape(profile)}-|-g\d{{3}}(?=-)|-lr-[0-9a-z]+(-\d+)?", "", arm)


def _natural(text: str) -> list[int | str]:
    parts = re.split(r"(\d+)", text)
    return [int(part) if part.isdigit() else part for part in parts]


def noise_of(found: list[Grid]) -> float | None:
    """One run's standard deviation about its grid's curve, from the grids that have two seeds."""
    return interaction_noise([grid.by_seed() for grid in found])


def calibrated(plan: Plan) -> list[Rate]:
    """The table's rows from the records of the calibration.

    Raises:
        UserError: no arm of the calibration at this scale, or no record of one.
    """
    runs = [
        load_run(plan.profile, key, seed)
        for key in plan.objects[OBJECT]
        for seed in plan.arms[key].seeds
    ]
    found = grids(runs, plan.profile, read_profile(plan.profile).width_ratio)
    if not found:
        raise UserError(
            f"No arms of profile {plan.profile} serve {OBJECT} with {MIN_RATES} learning rates of "
            "one condition: nothing to calibrate."
        )
    noise = noise_of(found)
    return [_row(grid, grid.vertex(noise)) for grid in found]


def _row(grid: Grid, best: Vertex) -> Rate:
    short = [
        None if value is None else float(f"{value:.3g}")
        for value in (best.curvature, best.error, best.miss)
    ]
    return Rate(grid.label, grid.condition, grid.gamma, float(f"{best.x:.3g}"), best.edge, *short)


def rates_text(plan: Plan) -> str:
    return HEAD + dump({"rates": [asdict(rate) for rate in calibrated(plan)]})


def write_rates(plan: Plan) -> None:
    write_text(rates_file(plan.profile), rates_text(plan))
