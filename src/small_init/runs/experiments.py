"""From experiments to arms: `configs/experiments/*.yaml` become `params.json`.

An experiment names grids of settings; each combination is an arm, a unique configuration with one
home stage, and an object reads any arm. `params.json` holds each arm's differences from the
defaults in `config.py`, so that DVC sees exactly what changes.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from small_init.config import (
    PILOT_SEEDS,
    ArmConfig,
    ParallelConfig,
    Probes,
    differences,
)
from small_init.config_files import load_yaml, merged
from small_init.config_limits import check
from small_init.errors import UserError
from small_init.files import fingerprint
from small_init.runs.objects import object_names
from small_init.runs.paths import CLAIMS, CONFIGS
from small_init.runs.rates import RateTable, condition, matched_eps
from small_init.runs.stages import RUN_STAGES


@dataclass
class Profile:
    """A scale: `configs/profiles/<name>.yaml`."""

    name: str
    width_ratio: float = 1.0  # the paper's width over ours, for the matched ε
    calibrated: bool = False  # rates come from configs/calibration/<name>.yaml, arm by arm
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


def trained(arm: ArmConfig) -> dict[str, Any]:
    """What makes two arms one: everything but the probes, which change no number of training.

    A run that records more serves every experiment that asks for less, so the arm is trained once,
    with the most that any experiment asks for.
    """
    identity = arm.identity()
    del identity["train"]["probes"]
    return identity


def _pilot(arm: ArmConfig) -> bool:
    return set(arm.seeds) <= set(PILOT_SEEDS)


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


def read_profile(name: str) -> Profile:
    path = CONFIGS / "profiles" / f"{name}.yaml"
    return merged(Profile(name=name), load_yaml(path), where=str(path))


class Planner:
    """Reads configs/ for one profile and collects arms and objects."""

    def __init__(self, profile: str) -> None:
        self.profile = read_profile(profile)
        self.variants = load_yaml(CONFIGS / "variants.yaml")
        rates = CONFIGS / "calibration" / f"{profile}.yaml"
        self.rates = RateTable.load(rates) if rates.is_file() else RateTable(())
        self.arms: dict[str, ArmConfig] = {}
        self.stages: dict[str, str] = {}
        self.names: dict[str, str] = {}  # fingerprint of a configuration → its arm
        self.objects: dict[str, list[str]] = {name: [] for name in object_names()}
        self.waiting: dict[str, ArmConfig] = {}  # arms that no calibrated rate suits yet
        self.asked: dict[tuple[str, int], str] = {}  # run → the experiment that asked for it first

    def read(self, path: Path) -> Experiment:
        experiment = merged(Experiment(), load_yaml(path), where=str(path))
        if experiment.stage not in RUN_STAGES:
            raise UserError(
                f"{path}: stage '{experiment.stage}' is none of {', '.join(RUN_STAGES)}."
            )
        if unknown := set(experiment.objects) - set(object_names()):
            raise UserError(
                f"{path}: object '{min(unknown)}' is none of {', '.join(object_names())}."
            )
        return experiment

    def add(self, experiment: Experiment, path: Path) -> None:
        for entry in experiment.profiles.get(self.profile.name, []):
            grid = merged(Grid(), entry, where=str(path))
            for name, arm in self.expand(grid, path):
                key = self.keep(name, arm, experiment.stage, path)
                for seed in arm.seeds:
                    self.asked.setdefault((key, seed), path.stem)
                for item in experiment.objects:
                    if key not in self.objects[item]:
                        self.objects[item].append(key)

    def expand(self, grid: Grid, path: Path) -> list[tuple[str, ArmConfig]]:
        axes: list[list[Any]] = [grid.model, grid.gamma, grid.variant, *grid.fields.values()]
        if not all(axes):
            raise UserError(f"{path}: a grid needs model, gamma and variant, and no empty list.")
        found = []
        for model, gamma, variant, *values in itertools.product(*axes):
            fields = dict(zip(grid.fields, values, strict=True))
            key, arm, ready = self.arm(model, gamma, variant, fields, grid, path)
            if ready:
                found.append((key, arm))
            else:
                self.waiting[key] = arm
                for seed in arm.seeds:
                    self.asked.setdefault((key, seed), path.stem)
        return found

    def arm(
        self, model: str, gamma: float, variant: str, values: dict[str, Any], grid: Grid, path: Path
    ) -> tuple[str, ArmConfig, bool]:
        """The key, the arm, and whether it has its learning rate or waits for it."""
        usual = self._configuration(model, gamma, variant, grid, path)
        explicit = OmegaConf.create({})
        for name, value in values.items():
            OmegaConf.update(explicit, name, value)
        arm = merged(usual, explicit, where=str(path))
        labels = [_label(name, value) for name, value in values.items()]
        key = "-".join([self.profile.name, model, f"g{round(100 * gamma):03d}", variant, *labels])
        check(arm, where=f"{path}: arm {key}")
        if self.profile.calibrated and "optimizer.lr" not in values:
            lr = self._rate(arm, key, path) or self._rate_of_usual(usual, model, grid, path)
            if lr is None:
                return key, arm, False
            arm.optimizer.lr = lr
        return key, arm, True

    def _configuration(
        self, model: str, gamma: float, variant: str, grid: Grid, path: Path
    ) -> ArmConfig:
        """An arm of the profile, with no field of its own."""
        if variant not in self.variants:
            raise UserError(f"{path}: variant '{variant}' is not in configs/variants.yaml.")
        if grid.seeds not in self.profile.seeds:
            raise UserError(f"{path}: seeds '{grid.seeds}' are not in the profile's seeds.")
        setting = OmegaConf.to_container(self.variants[variant])
        assert isinstance(setting, dict)
        setting.pop("rates_of", None)
        if setting["norm_eps"] == "matched":
            setting["norm_eps"] = matched_eps(gamma, self.profile.width_ratio)
        size = load_yaml(CONFIGS / "models" / f"{model}.yaml")
        return merged(
            ArmConfig(), self.profile.base, {"model": size}, {"model": setting},
            {"variant": variant, "init": {"gamma": gamma}, "seeds": self.profile.seeds[grid.seeds]},
            {"train": {"probes": grid.probes}},
            where=str(path),
        )  # fmt: skip

    def _rate(self, arm: ArmConfig, key: str, path: Path) -> float | None:
        """The rate calibrated for this very configuration, None without one.

        Raises:
            UserError: confirmatory seeds at a rate that its grid does not bracket.
        """
        found = self.rates.at(condition(arm, self.profile.width_ratio), arm.init.gamma)
        if found is None:
            return None
        if found.edge and not _pilot(arm):
            raise UserError(
                f"{path}: the learning rate of {key} lies at an edge of its grid in "
                f"configs/calibration/{self.profile.name}.yaml; widen the grid and calibrate it "
                "before confirmatory seeds."
            )
        return found.lr

    def _rate_of_usual(self, usual: ArmConfig, model: str, grid: Grid, path: Path) -> float | None:
        """For pilot seeds alone: the rate of the arm without its own fields, else that of the
        variant that `rates_of` names."""
        if not _pilot(usual):
            return None
        variants = [usual.variant, self.variants[usual.variant].get("rates_of")]
        for variant in filter(None, variants):
            other = self._configuration(model, usual.init.gamma, variant, grid, path)
            found = self.rates.at(condition(other, self.profile.width_ratio), usual.init.gamma)
            if found is not None:
                return found.lr
        return None

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
        arms: dict[str, dict[str, Any]] = {stage: {} for stage in RUN_STAGES}
        for key, arm in sorted(self.arms.items()):
            arms[self.stages[key]][key] = differences(arm, ArmConfig()) | {"seeds": arm.seeds}
        parallel = differences(self.profile.parallel, ParallelConfig())
        return {
            "profile": self.profile.name,
            **({"parallel": parallel} if parallel else {}),
            "arms": arms,
            "objects": {name: sorted(keys) for name, keys in self.objects.items()},
        }

    def text(self) -> str:
        """params.json."""
        return json.dumps(self.params(), indent=1, ensure_ascii=False) + "\n"


def planned(profile: str) -> Planner:
    """All experiments of a profile, read."""
    planner = Planner(profile)
    paths = sorted((CONFIGS / "experiments").glob("*.yaml"))
    experiments = [(planner.read(path), path) for path in paths]
    for experiment, path in sorted(experiments, key=lambda e: list(RUN_STAGES).index(e[0].stage)):
        planner.add(experiment, path)
    # The verdicts read whatever the claims' own objects read.
    claims = load_yaml(CLAIMS).claims if CLAIMS.is_file() else []
    named = {name for claim in claims for name in (claim.object, *claim.get("also", []))}
    judged = named & set(object_names())
    planner.objects["table-4"] = list({key for name in judged for key in planner.objects[name]})
    return planner


def make_params(profile: str) -> str:
    """The text of params.json for a profile."""
    return planned(profile).text()
