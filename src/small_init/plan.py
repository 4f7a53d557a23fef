"""From experiments to arms: `configs/experiments/*.yaml` become `params.json`.

An experiment names grids of settings; each combination is an arm, a unique configuration with one
home stage, and an object reads any arm. `params.json` holds each arm's differences from the
defaults in `config.py`, so that DVC sees exactly what changes.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from small_init.claims import CLAIMS, load_claims
from small_init.config import (
    PILOT_SEEDS,
    ArmConfig,
    Gate,
    ParallelConfig,
    Probes,
    check,
    differences,
    fingerprint,
    load_yaml,
    merged,
)
from small_init.errors import UserError
from small_init.records import PARAMS, write_text

CONFIGS = Path("configs")
LITERAL_EPS = 1e-5  # the ε of the paper's standard setting
# Home stages, in the order in which an arm that several experiments want finds its home. The
# calibration comes first: a later arm that happens to have its rate reads its record.
STAGES = (
    "calibrate", "pretrain", "ablate-gamma", "ablate-epsilon", "ablate-factors", "sink", "moe",
    "ablate-robust", "reason",
)  # fmt: skip
# Objects that exist; an experiment that names another is refused.
OBJECTS = (
    "table-1", "table-2", "table-3", "table-4", "figure-1", "figure-2", "figure-3", "figure-4",
    "figure-5", "figure-6", "figure-7", "figure-8", "figure-s1", "figure-s2",
    "figure-s3",
)  # fmt: skip


@dataclass
class Profile:
    """A scale: `configs/profiles/<name>.yaml`."""

    name: str
    width_ratio: float = 1.0  # the paper's width over ours, for the matched ε
    calibrated: bool = False  # rates come from configs/calibration/<name>.yaml
    base: dict[str, Any] = field(default_factory=dict)  # what all arms of the profile share
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    seeds: dict[str, list[int]] = field(default_factory=dict)  # named lists of seeds


@dataclass
class Grid:
    """All combinations of the listed values; every list has at least one."""

    model: list[str] = field(default_factory=list)  # names in configs/models/
    gamma: list[float] = field(default_factory=list)
    variant: list[str] = field(default_factory=list)  # names in configs/variants.yaml
    seeds: str = "pilot"  # a name in the profile's seeds
    probes: Probes = Probes.weights  # what the runs record at least; no part of an arm's key
    fields: dict[str, list[Any]] = field(default_factory=dict)  # dotted arm field → values


@dataclass
class Experiment:
    """`configs/experiments/<name>.yaml`: why, for which objects, and its grids per profile."""

    question: str = ""
    stage: str = ""
    objects: list[str] = field(default_factory=list)
    profiles: dict[str, Any] = field(default_factory=dict)  # profile → list of grids


def matched_eps(gamma: float, width_ratio: float) -> float:
    """The ε that saturates a small model as 1e-5 does one `width_ratio` times as wide.

    What counts is ε·d^(2γ), the ratio of ε to the embedding's variance; see Figure 2.
    """
    return float(f"{LITERAL_EPS * width_ratio ** (2 * gamma):.6g}")


def trained(arm: ArmConfig) -> dict[str, Any]:
    """What makes two arms one: everything but the probes, which change no number of training.

    A run that records more serves every experiment that asks for less, so the arm is trained once,
    with the most that any experiment asks for.
    """
    identity = arm.identity()
    del identity["train"]["probes"]
    return identity


# Words of an arm key for fields whose own name is long.
_SHORT = {"warmup_steps": "warmup", "weight_decay": "wd", "batch_tokens": "batch"}


def _label(name: str, value: Any) -> str:
    """A field's value in an arm key, which may hold only [a-z0-9-]: `lr-1p5e-3`, `warmup-400`."""
    leaf = name.split(".")[-1]
    text = "none" if value is None else str(value)
    if isinstance(value, float):
        mantissa, exponent = f"{value:.3e}".split("e")
        small = 0 < abs(value) < 0.1
        text = f"{float(mantissa):g}e{int(exponent)}" if small else f"{value:g}"
    word = f"{_SHORT.get(leaf, leaf)}-{text}".lower()
    return word.replace("_", "-").replace(".", "p").replace("+", "")


class Planner:
    """Reads configs/ for one profile and collects arms and objects."""

    def __init__(self, profile: str) -> None:
        path = CONFIGS / "profiles" / f"{profile}.yaml"
        self.profile = merged(Profile(name=profile), load_yaml(path), where=str(path))
        self.variants = load_yaml(CONFIGS / "variants.yaml")
        rates = CONFIGS / "calibration" / f"{profile}.yaml"
        self.rates = RateTable.load(rates) if rates.is_file() else None
        self.arms: dict[str, ArmConfig] = {}
        self.stages: dict[str, str] = {}
        self.names: dict[str, str] = {}  # fingerprint of a configuration → its arm
        self.objects: dict[str, list[str]] = {name: [] for name in OBJECTS}

    def read(self, path: Path) -> Experiment:
        experiment = merged(Experiment(), load_yaml(path), where=str(path))
        if experiment.stage not in STAGES:
            raise UserError(f"{path}: stage '{experiment.stage}' is none of {', '.join(STAGES)}.")
        if unknown := set(experiment.objects) - set(OBJECTS):
            raise UserError(f"{path}: object '{min(unknown)}' is none of {', '.join(OBJECTS)}.")
        return experiment

    def add(self, experiment: Experiment, path: Path) -> None:
        for entry in experiment.profiles.get(self.profile.name, []):
            grid = merged(Grid(), entry, where=str(path))
            for name, arm in self.expand(grid, path):
                key = self.keep(name, arm, experiment.stage, path)
                for item in experiment.objects:
                    if key not in self.objects[item]:
                        self.objects[item].append(key)

    def expand(self, grid: Grid, path: Path) -> list[tuple[str, ArmConfig]]:
        if self.profile.calibrated and self.rates is None and "optimizer.lr" not in grid.fields:
            return []  # planned as soon as their rates are calibrated, and not at a guess
        axes: list[list[Any]] = [grid.model, grid.gamma, grid.variant, *grid.fields.values()]
        if not all(axes):
            raise UserError(f"{path}: a grid needs model, gamma and variant, and no empty list.")
        return [
            self.arm(model, gamma, variant, dict(zip(grid.fields, values, strict=True)), grid, path)
            for model, gamma, variant, *values in itertools.product(*axes)
        ]

    def arm(
        self, model: str, gamma: float, variant: str, values: dict[str, Any], grid: Grid, path: Path
    ) -> tuple[str, ArmConfig]:
        if variant not in self.variants:
            raise UserError(f"{path}: variant '{variant}' is not in configs/variants.yaml.")
        if grid.seeds not in self.profile.seeds:
            raise UserError(f"{path}: seeds '{grid.seeds}' are not in the profile's seeds.")
        setting = OmegaConf.to_container(self.variants[variant])
        assert isinstance(setting, dict)
        if setting["norm_eps"] == "matched":
            setting["norm_eps"] = matched_eps(gamma, self.profile.width_ratio)
        size = load_yaml(CONFIGS / "models" / f"{model}.yaml")
        explicit = OmegaConf.create({})
        for name, value in values.items():
            OmegaConf.update(explicit, name, value)
        arm = merged(
            ArmConfig(), self.profile.base, {"model": size}, {"model": setting},
            {"variant": variant, "init": {"gamma": gamma}, "seeds": self.profile.seeds[grid.seeds]},
            {"train": {"probes": grid.probes}},
            where=str(path),
        )  # fmt: skip
        if self.rates is not None and "optimizer.lr" not in values:
            place = (arm.model.gate is not Gate.none, gamma, arm.model.d_model)
            if set(arm.seeds) - set(PILOT_SEEDS) and not self.rates.covers(*place):
                raise UserError(
                    f"{path}: the learning rate of {model}, γ {gamma:g}, {variant} is not "
                    "bracketed by the calibration; calibrate it before confirmatory seeds."
                )
            arm.optimizer.lr = self.rates.at(*place)
        arm = merged(arm, explicit, where=str(path))
        labels = [_label(name, value) for name, value in values.items()]
        key = "-".join([self.profile.name, model, f"g{round(100 * gamma):03d}", variant, *labels])
        check(arm, where=f"{path}: arm {key}")
        return key, arm

    def keep(self, key: str, arm: ArmConfig, stage: str, path: Path) -> str:
        """Add an arm, or the seeds and probes it lacks; returns the name it is known by.

        A configuration that is already planned keeps its name and home: its runs serve both.
        """
        key = self.names.setdefault(fingerprint(trained(arm)), key)
        if key not in self.arms:
            self.arms[key], self.stages[key] = arm, stage
            return key
        old = self.arms[key]
        if trained(old) != trained(arm):
            raise UserError(f"{path}: arm {key} is already planned with another configuration.")
        old.seeds = sorted({*old.seeds, *arm.seeds})
        old.train.probes = max(old.train.probes, arm.train.probes, key=list(Probes).index)
        return key

    def params(self) -> dict[str, Any]:
        arms: dict[str, dict[str, Any]] = {stage: {} for stage in STAGES}
        for key, arm in sorted(self.arms.items()):
            arms[self.stages[key]][key] = differences(arm, ArmConfig()) | {"seeds": arm.seeds}
        parallel = differences(self.profile.parallel, ParallelConfig())
        return {
            "profile": self.profile.name,
            **({"parallel": parallel} if parallel else {}),
            "arms": arms,
            "objects": {name: sorted(keys) for name, keys in self.objects.items()},
        }


@dataclass(frozen=True)
class Rate:
    """One line of the calibration: the best peak learning rate of one γ at one width."""

    gated: bool
    d_model: int
    gamma: float
    lr: float
    edge: bool  # the best rate tried was the lowest or the highest


@dataclass(frozen=True)
class RateTable:
    """Calibrated peak learning rates: `configs/calibration/<profile>.yaml`.

    Written by `small-init calibrate` from the calibration's records. The width with most γ gives
    the shape over γ; another width shifts it, by what its own γ say. log(rate) is linear between γ
    and in log(width), beyond the calibrated widths too: rates fall with width, and the nearest one
    would be too high. Outside the calibrated γ the nearest entry holds.
    """

    rates: tuple[Rate, ...]

    @classmethod
    def load(cls, path: Path) -> RateTable:
        return cls(tuple(Rate(**OmegaConf.to_container(row)) for row in load_yaml(path).rates))  # type: ignore[arg-type]

    def _by_width(self, gated: bool) -> dict[int, dict[float, float]]:
        """Width → γ → log(rate), the width with most γ first."""
        widths: dict[int, dict[float, float]] = {}
        for rate in self.rates:
            if rate.gated == gated:
                widths.setdefault(rate.d_model, {})[rate.gamma] = math.log(rate.lr)
        return dict(sorted(widths.items(), key=lambda item: (-len(item[1]), item[0])))

    def at(self, gated: bool, gamma: float, d_model: int) -> float:
        widths = self._by_width(gated)
        shape = next(iter(widths.values()))
        by_width = []
        for width, found in widths.items():
            shifts = [(g, found[g] - _interpolate(sorted(shape.items()), g)) for g in sorted(found)]
            rate = _interpolate(sorted(shape.items()), gamma) + _interpolate(shifts, gamma)
            by_width.append((math.log(width), rate))
        log_rate = _interpolate(sorted(by_width), math.log(d_model), extrapolate=True)
        return float(f"{math.exp(log_rate):.2g}")

    def covers(self, gated: bool, gamma: float, d_model: int) -> bool:
        """Whether `at` interpolates between optima that their grids bracket: at this width, or at
        the calibrated ones on both sides of it, γ lies within those that were tried there."""
        widths = self._by_width(gated)
        if any(rate.edge for rate in self.rates if rate.gated == gated):
            return False
        below = max((width for width in widths if width <= d_model), default=None)
        above = min((width for width in widths if width >= d_model), default=None)
        return (
            below is not None
            and above is not None
            and all(min(widths[w]) <= gamma <= max(widths[w]) for w in (below, above))
        )


def _interpolate(nodes: list[tuple[float, float]], x: float, extrapolate: bool = False) -> float:
    """Linear through sorted nodes; beyond them the nearest value, or the end pieces prolonged."""
    if len(nodes) == 1:
        return nodes[0][1]
    if not extrapolate:
        x = min(max(x, nodes[0][0]), nodes[-1][0])
    pieces = list(itertools.pairwise(nodes))
    (x0, y0), (x1, y1) = next((piece for piece in pieces if x <= piece[1][0]), pieces[-1])
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def make_params(profile: str) -> str:
    """The text of params.json for a profile."""
    planner = Planner(profile)
    paths = sorted((CONFIGS / "experiments").glob("*.yaml"))
    experiments = [(planner.read(path), path) for path in paths]
    for experiment, path in sorted(experiments, key=lambda e: STAGES.index(e[0].stage)):
        planner.add(experiment, path)
    # The verdicts read whatever the claims' own objects read.
    claims = load_claims().claims if CLAIMS.is_file() else []
    judged = {claim.object for claim in claims} & set(OBJECTS)
    planner.objects["table-4"] = list({key for name in judged for key in planner.objects[name]})
    return json.dumps(planner.params(), indent=1, ensure_ascii=False) + "\n"


def dump(value: Any) -> str:
    """YAML whose numbers every reader of this project's files takes for the same numbers."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Floats as `3.0e-03`: which PyYAML, OmegaConf and DVC (YAML 1.2) read as one number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _float(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e", 1)
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(float, _float)


def write_params(profile: str) -> None:
    write_text(PARAMS, make_params(profile))
