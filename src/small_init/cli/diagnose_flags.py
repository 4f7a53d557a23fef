"""From the command line to what `diagnose` is asked: flags, our configurations, a config.json."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from small_init.config import ArmConfig, Gate, InitConfig, ModelConfig, TrainConfig
from small_init.config_files import load_yaml, merged
from small_init.config_limits import check
from small_init.diagnosis.architectures import config_file, from_hugging_face, from_model_config
from small_init.diagnosis.setting import Setting
from small_init.errors import UserError
from small_init.rule.groups import DRAWN_GROUPS
from small_init.runs.paths import PARAMS
from small_init.runs.plan import load_plan

_GROUPS = [group.value for group in DRAWN_GROUPS]
_SHAPE = ("d_model", "n_layers", "n_heads", "d_ff", "vocab_size", "context")
_USUAL_EPS = 1e-5  # of a model described by flags alone, as is the absence of a gate


def gammas_of(pairs: list[str]) -> dict[str, float]:
    """`attention=0.5` … as a mapping.

    Raises:
        UserError: no such group, or not a γ.
    """
    found = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in _GROUPS:
            known = ", ".join(_GROUPS)
            raise UserError(f"--group {pair}: groups are {known}, as in attention=0.5.")
        try:
            found[name] = float(value)
        except ValueError:
            raise UserError(
                f"--group {pair}: γ is missing or no number, as in {name}=0.5."
            ) from None
        check_gamma(found[name], f"--group {pair}")
    return found


def check_gamma(gamma: float, where: str) -> None:
    if not 0 <= gamma < math.inf:
        raise UserError(f"{where}: γ must not be negative, and finite.")


def setting_of(arguments: argparse.Namespace) -> Setting:
    """What the user asks about.

    Raises:
        UserError: no model, two models, or values that no model can have.
    """
    sources = [name for name in ("config", "model", "arm") if getattr(arguments, name)]
    flags = [_flag(name) for name in _SHAPE[:4] if getattr(arguments, name) is not None]
    if len(sources) + bool(flags and not sources) != 1:
        raise UserError(
            "name one model: --config config.json, --model FILE.yaml, --arm KEY, or its shape by "
            f"{' '.join(map(_flag, _SHAPE))}."
        )
    if sources and flags:
        raise UserError(
            f"{flags[0]} cannot be combined with --{sources[0]}; the shape comes from there."
        )
    _check_numbers(arguments)
    if arguments.gamma is not None:
        check_gamma(arguments.gamma, "--gamma")
    if arguments.config:
        return _from_hugging_face(arguments)
    return _from_own(arguments)


def _flag(name: str) -> str:
    return "--" + {"vocab_size": "vocab"}.get(name, name).replace("_", "-")


def _check_numbers(arguments: argparse.Namespace) -> None:
    for name in (*_SHAPE, "norm_eps", "adam_eps", "lr", "batch_tokens"):
        value = getattr(arguments, name)
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{_flag(name)} is {value:g}; it must be above 0 and finite.")
    if arguments.warmup_steps is not None and arguments.warmup_steps < 0:
        raise UserError(f"--warmup-steps is {arguments.warmup_steps}; it must not be negative.")


def _from_hugging_face(arguments: argparse.Namespace) -> Setting:
    if arguments.gate or arguments.qk_norm or arguments.tied:
        raise UserError(
            "--gate, --qk-norm and --tied describe our own model; with --config they come from "
            "the file, and describe the shape by flags to try them."
        )
    path = Path(arguments.config)
    arch = from_hugging_face(path)
    changed = {
        name: getattr(arguments, name)
        for name in ("norm_eps", "vocab_size", "context")
        if getattr(arguments, name) is not None
    }
    arch = replace(arch, **changed)
    gammas = gammas_of(arguments.group)
    if "gate" in gammas or ("router" in gammas and arch.n_experts == 1):
        name = "gate" if "gate" in gammas else "router"
        raise UserError(f"--group {name}: a {arch.family.value} of this shape has none.")
    if arch.tied and "readout" in gammas:
        raise UserError("--group readout: it is tied to the embedding; set the embedding's γ.")
    gamma = 1.0 if arguments.gamma is None else arguments.gamma
    own: dict[str, Any] = dict(gammas)
    setting = Setting(
        source=arch.family.value,
        arch=arch,
        init=InitConfig(gamma=gamma, **own),
        config_json=config_file(path),
        seed=arguments.seed,
    )
    return _with_training(setting, arguments)


def _from_own(arguments: argparse.Namespace) -> Setting:
    source, arm = _own_arm(arguments)
    model = {
        name: getattr(arguments, name)
        for name in (*_SHAPE, "norm_eps")
        if getattr(arguments, name) is not None
    }
    if arguments.gate:
        model["gate"] = Gate[arguments.gate]
    for name in ("qk_norm", "tied"):
        if getattr(arguments, name):
            model[name] = True
    gammas = gammas_of(arguments.group)
    if "router" in gammas:
        raise UserError("--group router: our own model has none.")
    init = dict(gammas) | ({} if arguments.gamma is None else {"gamma": arguments.gamma})
    arm = replace(arm, model=replace(arm.model, **model), init=replace(arm.init, **init))
    # `check` looks at the whole of an arm; only the model and its weights are of interest here.
    one = arm.model.context
    window = TrainConfig(tokens=one, batch_tokens=one, curve_tokens=one, final_tokens=one)
    plain = replace(arm.optimizer, warmup_steps=0)
    check(replace(arm, train=window, optimizer=plain), source)
    setting = Setting(
        source=source, arch=from_model_config(arm.model), init=arm.init, seed=arguments.seed
    )
    if arguments.arm:
        setting = replace(
            setting,
            lr=arm.optimizer.lr,
            warmup_steps=arm.optimizer.warmup_steps,
            adam_eps=arm.optimizer.eps,
            batch_tokens=arm.train.batch_tokens,
        )
    return _with_training(setting, arguments)


def _own_arm(arguments: argparse.Namespace) -> tuple[str, ArmConfig]:
    """A name for the report, and the configuration before the flags."""
    if arguments.arm:
        arms = load_plan().arms
        if arguments.arm not in arms:
            raise UserError(f"{PARAMS} has no arm {arguments.arm}; see its keys under `arms`.")
        return arguments.arm, arms[arguments.arm]
    if arguments.model:
        size = {"model": load_yaml(Path(arguments.model))}
        return arguments.model, merged(ArmConfig(), size, where=arguments.model)
    missing = [_flag(name) for name in _SHAPE if getattr(arguments, name) is None]
    if missing:
        raise UserError(f"{' '.join(missing)} missing: a model by flags needs its whole shape.")
    model = ModelConfig(norm_eps=_USUAL_EPS, gate=Gate.none)
    return "model", replace(ArmConfig(), model=model)


def _with_training(setting: Setting, arguments: argparse.Namespace) -> Setting:
    told = {
        name: getattr(arguments, name)
        for name in ("lr", "warmup_steps", "adam_eps", "batch_tokens", "dtype")
        if getattr(arguments, name) is not None
    }
    return replace(setting, **told)
