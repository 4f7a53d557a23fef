"""A project in a temporary folder: synthetic records in the real schema, plan and indexes."""

import hashlib
import importlib
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from small_init.config import ArmConfig, Gate, Probes
from small_init.files import write_text
from small_init.runs.paths import index_file
from small_init.runs.record import load_run
from tests import ROOT, records

PAPER = ROOT / "paper"
STEPS = (0, 10, 100, 1000)


@dataclass(frozen=True)
class Arm:
    """A synthetic arm: loss and lowest stable rank are functions of the seed."""

    key: str
    seeds: tuple[int, ...]
    overrides: dict[str, Any]
    loss: Callable[[int], float]
    lowest_rank: Callable[[int], float] = lambda seed: 15.0


def arm(
    width: int,
    gamma: float,
    variant: str,
    seeds: tuple[int, ...],
    loss: Callable[[int], float],
    suffix: str = "",
    lowest_rank: Callable[[int], float] = lambda seed: 15.0,
    more: dict[str, dict[str, Any]] | None = None,
    **optimizer: Any,
) -> Arm:
    """An arm of a variant; `more` holds further fields of `model`, `init` and `train`."""
    gated = variant == "adjusted"
    eps = 1e-12 if gated else 1e-5 * 16 ** (2 * gamma)
    overrides: dict[str, Any] = {
        "variant": variant,
        "model": {
            "d_model": width,
            "d_ff": 11 * width // 4,
            "norm_eps": eps,
            "gate": "elementwise" if gated else "none",
        },
        "init": {"gamma": gamma},
        "optimizer": optimizer,
    }
    for part, fields in (more or {}).items():
        overrides[part] = overrides.get(part, {}) | fields
    key = f"cpu-d{width}-g{round(100 * gamma):03d}-{variant}{suffix}"
    return Arm(key, seeds, overrides, loss, lowest_rank)


def non_embedding(width: int, gated: bool) -> int:
    return 4 * ((5 if gated else 4) * width**2 + 3 * width * (11 * width // 4) + 2 * width) + width


def write_record(arm: Arm, seed: int) -> None:
    settings = records.config_of(arm.overrides)
    model, gamma = settings.model, settings.init.gamma
    own = non_embedding(model.d_model, settings.variant == "adjusted")
    loss = arm.loss(seed)
    metrics = records.metrics_of(settings, arm.key, seed, loss, own)
    curve = [
        {
            "step": step,
            "tokens": step * settings.train.batch_tokens,
            "lr": settings.optimizer.lr,
            "train_loss": loss + 1,
            "val_loss": loss + 1,
            "grad_norm": 0.5,
            "clipped_share": 0.1,
        }
        for step in STEPS
    ]
    all_probes = settings.train.probes is Probes.all
    numbers = ("norm", "spectral_norm", "stable_rank", "mean_abs_cos", "mean_cos")
    prefixes = ("", "change_", "update_") if all_probes else ("", "change_")
    ranks = dict(zip(STEPS, (31.0, 25.0, arm.lowest_rank(seed), 20.0), strict=True))
    spectra = []
    shapes = block_shapes(settings)
    for step in STEPS:
        for layer, offset in ((0, -1.0), (1, 1.0)):  # the mean over layers is `ranks`
            for name in shapes:
                row: dict[str, Any] = {"step": step, "weight": f"blocks.{layer}.{name}"}
                row |= {f"{prefix}{n}": 1.0 for prefix in prefixes for n in numbers}
                if all_probes:
                    row |= {"random_stable_rank": 25.0, "random_mean_abs_cos": 0.1}
                if "up" in name:
                    row |= {f"{prefix}stable_rank": ranks[step] + offset for prefix in prefixes}
                spectra.append(row)
    first = model.d_model ** (1 - gamma)
    shapes = {f"blocks.{n}.{name}": shape for n in (0, 1) for name, shape in shapes.items()}
    shapes |= {"embedding.weight": [model.vocab_size, model.d_model]}
    init = {
        "weights": {
            name: {
                "group": "mlp" if "mlp" in name else "embedding",
                "shape": shape,
                "fan_in": model.d_model,
                "std_asked": model.d_model ** -group_gamma(settings, name),
                "std": model.d_model**-gamma,
                "sha256": hashlib.sha256(f"{arm.key} {name}".encode()).hexdigest(),
            }
            for name, shape in shapes.items()
        },
        "residual_flow": {
            "context": model.context,
            "attention": [0.2 * first] * model.n_layers,
            "attention_single": [first] * model.n_layers,
            "attention_norm_rms": [norm_output(settings)] * model.n_layers,
            "mlp": [0.5 * model.d_model ** (1.5 - 2 * gamma)] * model.n_layers,
        },
    }
    probed: dict[str, Any] = {}
    if all_probes:
        rows = [row for step in STEPS for row in activation_rows(settings, step)]
        probed = {"activations": rows, "snapshots": snapshots(settings, seed)}
    records.write(metrics, curve=curve, spectra=spectra, init=init, **probed)


def block_shapes(settings: ArmConfig) -> dict[str, list[int]]:
    """Three of a block's weights; in a mixture the experts' matrices are stacked."""
    model = settings.model
    shapes = {"up": [model.d_ff, model.d_model], "down": [model.d_model, model.d_ff]}
    if model.n_experts:
        mlp = {f"mlp.experts.{name}": [model.n_experts, *s] for name, s in shapes.items()}
    else:
        mlp = {f"mlp.{name}.weight": shape for name, shape in shapes.items()}
    return mlp | {"attention.value.weight": [model.d_model, model.d_model]}


def group_gamma(settings: ArmConfig, name: str) -> float:
    own = settings.init.embedding if name.startswith("embedding") else None
    return settings.init.gamma if own is None else own


def norm_output(settings: ArmConfig) -> float:
    """What the first norm lets through at step 0."""
    gamma = group_gamma(settings, "embedding.weight")
    return (1 + settings.model.norm_eps * settings.model.d_model ** (2 * gamma)) ** -0.5


def activation_rows(settings: ArmConfig, step: int) -> list[dict[str, Any]]:
    """The probes of one step. Every other head's share grows with training, the flow falls; the
    embedding of class c is sensed from step 10^(c/2) on."""
    model, gamma = settings.model, settings.init.gamma
    progress = STEPS.index(step) / (len(STEPS) - 1)
    flow = model.d_model ** (1 - gamma) * (1 - progress / 2)
    rows: list[dict[str, Any]] = []

    def add(probe: str, value: float, layer: Any = "", part: Any = "", context: Any = "") -> None:
        names = ("step", "probe", "layer", "part", "context", "value")
        rows.append(dict(zip(names, (step, probe, layer, part, context, value), strict=True)))

    cuts = [1, 4, 16, 64] if step in (STEPS[0], STEPS[-1]) else []
    for layer in range(model.n_layers):
        for context in [*(c for c in cuts if c < model.context), model.context]:
            add("residual_flow", flow / context**0.5, layer, "attention", context)
            add("residual_flow", flow / 10, layer, "mlp", context)
        add("residual_flow_single", flow, layer, "attention", 1)
        for part in ("attention", "mlp"):
            add("norm_rms", norm_output(settings), layer, part, model.context)
        for head in range(model.n_heads):
            grown = 0.2 * progress * (head % 2) * (layer + 1) / model.n_layers
            add("first_token_share", 0.01 + grown, layer, head, model.context)
            add("first_token_alpha", 0.04 + grown, layer, head, model.context)
        if model.n_experts:  # half of the experts fall behind as training goes on
            for expert in range(model.n_experts):
                lost = (-1) ** expert * progress / 2
                add("expert_load", (1 + lost) / model.n_experts, layer, expert, model.context)
            add("router_entropy", (1 - progress / 4) * math.log(model.n_experts), layer)
        if model.gate is not Gate.none:
            add("gate_mean", 0.5, layer, "", model.context)
    add("norm_rms", 1.0, "", "final", model.context)
    add("uniform_share", 0.01, context=model.context)
    add("uniform_alpha", 0.04, context=model.context)
    for token_class in range(8):
        sensed = step >= 10 ** (token_class / 2)
        add("embedding_saturation", 1.0 if sensed else norm_output(settings), part=token_class)
        if step == 0:
            add("embedding_tokens_share", 2.0 ** -(token_class + 1), part=token_class)
    return rows


def snapshots(settings: ArmConfig, seed: int) -> dict[str, Any]:
    """Four copies of an up projection; a rank-one part grows on top of the start."""
    model = settings.model
    random = np.random.default_rng(seed)
    first = random.standard_normal((model.d_ff, model.d_model))
    one = np.outer(random.standard_normal(model.d_ff), random.standard_normal(model.d_model))
    name = f"blocks.{model.n_layers // 2}.mlp.up.weight"
    return {
        f"step-{step}/{name}": (first + 3 * index * one).astype(np.float16)
        for index, step in enumerate(STEPS)
    }


def write_project(objects: dict[str, list[Arm]]) -> None:
    """Records, params.json and the index of each object, in the current directory."""
    arms = {a.key: a for group in objects.values() for a in group}
    for one in arms.values():
        for seed in one.seeds:
            write_record(one, seed)
    params = {
        "profile": "cpu",
        "arms": {"pretrain": {a.key: {**a.overrides, "seeds": [*a.seeds]} for a in arms.values()}},
        "objects": {name: [a.key for a in group] for name, group in objects.items()},
    }
    Path("params.json").write_text(json.dumps(params))
    shutil.copytree(ROOT / "configs/profiles", "configs/profiles", dirs_exist_ok=True)
    for name, group in objects.items():
        runs = [
            {"arm": a.key, "seed": seed, "sha256": load_run("cpu", a.key, seed).hashes()}
            for a in group
            for seed in a.seeds
        ]
        index = {"profile": "cpu", "runs": runs}
        write_text(index_file("cpu", name), json.dumps(index))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script() -> Callable[[str], ModuleType]:
    """Import a module of paper/, of an object's folder the script itself."""

    def load(name: str) -> ModuleType:
        module = importlib.import_module(f"paper.{name}")
        return importlib.import_module(f"paper.{name}.__main__") if is_folder(module) else module

    return load


def is_folder(module: ModuleType) -> bool:
    return hasattr(module, "__path__")
