"""One builder of synthetic records for all tests: typed, and written by the code of real runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from small_init.config import ArmConfig
from small_init.config_files import merged
from small_init.files import replace_folder
from small_init.measure.recorder import write_record
from small_init.runs.paths import record_folder
from small_init.runs.record import SCHEMA, Data, Final, Metrics, Parameters, Prequential, Run

Rows = Sequence[Mapping[str, Any]]


def config_of(overrides: Mapping[str, Any]) -> ArmConfig:
    """The default configuration with nested differences, as params.json has them."""
    return merged(ArmConfig(), dict(overrides), where="test")


def metrics_of(
    config: ArmConfig,
    arm: str = "test-tiny",
    seed: int = 0,
    loss: float = 3.5,
    non_embedding: int | None = None,
    **changes: Any,
) -> Metrics:
    """What a run of this configuration could have left; `changes` are fields of `Metrics`."""
    model, train = config.model, config.train
    own = 50 * model.d_model**2 if non_embedding is None else non_embedding
    outer = 2 * model.vocab_size * model.d_model
    found = Metrics(
        schema=SCHEMA,
        profile="cpu",
        stage="pretrain",
        arm=arm,
        seed=seed,
        config=config,
        data=Data("0" * 64, "1" * 64),
        parameters=Parameters(
            total=own + outer,
            active=own // (2 if model.n_experts else 1) + outer,
            embedding_and_readout=outer,
            non_embedding=own,
        ),
        steps=config.steps,
        tokens=train.tokens,
        flops=6 * own * train.tokens,
        final=Final(
            loss=loss,
            tokens=train.final_tokens,
            bits_per_byte={"zh": loss / 2, "en": loss / 3, "code": loss / 3},
            by_source={"a": loss},
        ),
        prequential=Prequential(loss + 0.5),
        clipped_share=0.1,
        weights_sha256="2" * 64,
    )
    return replace(found, **changes)


def run_of(config: ArmConfig, **fields: Any) -> Run:
    """A run in memory, without a folder; `fields` as for `metrics_of`."""
    return Run(Path(), metrics_of(config, **fields))


def write(
    metrics: Metrics,
    *,
    curve: Rows = (),
    spectra: Rows = (),
    activations: Rows = (),
    snapshots: Mapping[str, np.ndarray] | None = None,
    init: Mapping[str, Any] | None = None,
    performance: Mapping[str, Any] | None = None,
) -> Path:
    """Write a record to its place in the current directory; returns its folder."""
    recorder: Any = SimpleNamespace(
        probes=metrics.config.train.probes,
        curve=curve,
        spectra=spectra,
        activations=activations,
        snapshots={name: torch.from_numpy(value) for name, value in (snapshots or {}).items()},
    )
    scratch = Path("scratch/records") / metrics.arm / f"seed-{metrics.seed}"
    write_record(scratch, metrics, recorder, dict(init or {}), dict(performance or {}))
    folder = record_folder(metrics.profile, metrics.arm, metrics.seed)
    replace_folder(scratch / "record", folder)
    return folder
