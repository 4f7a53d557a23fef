"""A project in a temporary folder: synthetic records in the real schema, plan and indexes."""

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from small_init import config, records

PAPER = Path(__file__).parents[2] / "paper"
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
    """An arm of a variant; `more` holds further fields of `model` and `init`."""
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
        overrides[part] |= fields
    key = f"cpu-d{width}-g{round(100 * gamma):03d}-{variant}{suffix}"
    return Arm(key, seeds, overrides, loss, lowest_rank)


def non_embedding(width: int, gated: bool) -> int:
    return 4 * ((5 if gated else 4) * width**2 + 3 * width * (11 * width // 4) + 2 * width) + width


def write_record(arm: Arm, seed: int) -> None:
    settings = config.merged(config.ArmConfig(), arm.overrides, where=arm.key)
    model, gamma = settings.model, settings.init.gamma
    folder = records.record_folder("cpu", arm.key, seed)
    own = non_embedding(model.d_model, settings.variant == "adjusted")
    outer = 2 * model.vocab_size * model.d_model
    loss = arm.loss(seed)
    metrics = {
        "schema": records.SCHEMA,
        "profile": "cpu",
        "arm": arm.key,
        "seed": seed,
        "stage": "pretrain",
        "config": {"variant": settings.variant, **settings.identity()},
        "data": {"meta_sha256": "0" * 64},
        "parameters": {
            "total": own + outer,
            "embedding_and_readout": outer,
            "non_embedding": own,
        },
        "steps": settings.steps,
        "tokens": settings.train.tokens,
        "flops": 6 * own * settings.train.tokens,
        "final": {
            "loss": loss,
            "tokens": settings.train.final_tokens,
            "bits_per_byte": {"zh": loss / 2, "en": loss / 3, "code": loss / 3},
            "by_source": {"a": loss},
        },
        "prequential": {"nats_per_token": loss + 0.5},
        "clipped_share": 0.1,
    }
    records.write_text(folder / "metrics.json", records.json_text(metrics))
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
    records.write_text(folder / "curve.csv", records.csv_text(curve))
    numbers = ("norm", "spectral_norm", "stable_rank", "mean_abs_cos", "mean_cos")
    ranks = dict(zip(STEPS, (31.0, 25.0, arm.lowest_rank(seed), 20.0), strict=True))
    spectra = []
    for step in STEPS:
        for layer, offset in ((0, -1.0), (1, 1.0)):  # the mean over layers is `ranks`
            for name in ("mlp.up", "mlp.down"):
                row: dict[str, Any] = {"step": step, "weight": f"blocks.{layer}.{name}.weight"}
                row |= {f"{prefix}{n}": 1.0 for prefix in ("", "change_") for n in numbers}
                row["stable_rank"] = ranks[step] + offset if name == "mlp.up" else 1.0
                spectra.append(row)
    records.write_text(folder / "spectra.csv", records.csv_text(spectra))
    first = model.d_model ** (1 - gamma)
    shapes = {"embedding.weight": [model.vocab_size, model.d_model]}
    shapes |= {f"blocks.{n}.mlp.up.weight": [model.d_ff, model.d_model] for n in (0, 1)}
    init = {
        "weights": {
            name: {
                "group": "mlp" if "mlp" in name else "embedding",
                "shape": shape,
                "fan_in": model.d_model,
                "std_asked": model.d_model**-gamma,
                "std": model.d_model**-gamma,
                "sha256": hashlib.sha256(f"{arm.key} {name}".encode()).hexdigest(),
            }
            for name, shape in shapes.items()
        },
        "residual_flow": {
            "context": model.context,
            "attention": [0.2 * first] * model.n_layers,
            "attention_single": [first] * model.n_layers,
            "mlp": [0.5 * model.d_model ** (1.5 - 2 * gamma)] * model.n_layers,
        },
    }
    records.write_text(folder / "init.json", records.json_text(init))


def write_project(objects: dict[str, list[Arm]]) -> None:
    """Records, params.yaml and the index of each object, in the current directory."""
    arms = {a.key: a for group in objects.values() for a in group}
    for one in arms.values():
        for seed in one.seeds:
            write_record(one, seed)
    params = {
        "profile": "cpu",
        "arms": {"pretrain": {a.key: {**a.overrides, "seeds": [*a.seeds]} for a in arms.values()}},
        "objects": {name: [a.key for a in group] for name, group in objects.items()},
    }
    Path("params.yaml").write_text(yaml.safe_dump(params))
    for name, group in objects.items():
        runs = [
            {"arm": a.key, "seed": seed, "sha256": records.load_run("cpu", a.key, seed).hashes()}
            for a in group
            for seed in a.seeds
        ]
        index = {"profile": "cpu", "runs": runs}
        records.write_text(records.index_file("cpu", name), json.dumps(index))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a script of paper/ as it sees itself when it is run."""
    monkeypatch.syspath_prepend(str(PAPER))
    before = set(sys.modules)

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield load
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(PAPER)):
            del sys.modules[name]
