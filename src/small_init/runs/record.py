"""The record of one run: every file of its folder, and metrics.json field by field (`Metrics`).

A record is small, text first, the same bytes for the same run on one kind of machine, and in git:

    metrics.json            configuration, data, parameters, final losses: `Metrics`
    curve.csv               validation and training loss (nats per token) at logarithmically spaced
                            steps
    spectra.csv             per weight and step: norms, stable rank, row cosines, of W and of W − W₀
                            (change_*); with train.probes `all` also of W − c·W₀ (update_*), c what
                            weight decay alone leaves of W₀, and a Gaussian matrix's values
                            (random_*); not with train.probes `none`
    activations.csv         only with train.probes `all`; see below
    snapshots.safetensors   only with train.probes `all`; see below
    init.json               per weight: std and SHA-256 of its first value; residual flow at step 0
    perf.json               time, device, versions: of one machine; read for the report's costs
                            alone

activations.csv has a row per number: step, probe, layer, part, context, value; what does not apply
is empty. Forward passes are over a few fixed validation windows, their length T (context) is
model.context if nothing else is said. At every step of the curve:

    probe                   layer  part            value
    residual_flow           yes    attention, mlp  rms(what is added) / rms(the stream it joins); at
                                                   the first and last step also in windows of
                                                   1, 4, 16, … tokens
    residual_flow_single    yes    attention       the same, each token alone: context 1
    norm_rms                yes    attention, mlp  rms of the norm's output before its gain: 1 where
                            no     final           ε does not matter
    first_token_share       yes    head            attention probability on position 0, mean over
                                                   queries at positions ≥ T/4
    first_token_alpha       yes    head            α_0: the same over all queries (2410.10781)
    uniform_share, _alpha   no     -               the two for uniform attention
    sink_rate               no     -               share of heads with α_0 > 0.3
    gate_mean, gate_below   yes    -               mean attention gate, and share of gates < 0.1;
                                                   only where there is a gate
    expert_load             yes    expert          share of the tokens' choices that fell on it;
                                                   only in a mixture of experts
    router_entropy          yes    -               mean entropy of a token's softmax over experts
    weight_norm             no     weight group    ‖W‖_F over all layers of a group (mlp.up, …)
    relative_update         no     weight group    ‖W_t − W_(t−1)‖ / ‖W_(t−1)‖ of the step that led
                                                   here, over the same; none at step 0
    embedding_rms           no     0 … 7           rms of the embedding rows of a token class:
                                                   eighths of the vocabulary by count in the
                                                   training data, 0 the most frequent
    embedding_saturation    no     0 … 7           mean over these rows of 1/√(1 + ε/rms²): 1 where
                                                   ε does not matter
    embedding_tokens_share  no     0 … 7           the class's share of training tokens; step 0 only

snapshots.safetensors holds float16 copies of the attention value matrix and of the mlp.up matrix of
block n_layers // 2 at four steps of the curve (`schedule.snapshot_steps`: first, near a tenth and a
third of the run, last), as `step-<n>/<weight>`; of a matrix of more than 128 rows every k-th one
(`measure.spectra.snapshot`). The one of step 0 is W₀.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from safetensors.numpy import load_file

from small_init.config import PILOT_SEEDS, ArmConfig, Probes
from small_init.config_files import load_yaml
from small_init.errors import UserError
from small_init.files import recover_folder, sha256
from small_init.runs.paths import PARAMS, index_file, record_folder

SCHEMA = 2


def record_files(probes: Probes) -> tuple[str, ...]:
    """The files of a record that must be the same for the same run on the same kind of machine."""
    files = ("metrics.json", "curve.csv", "init.json")
    spectra = ("spectra.csv",) if probes is not Probes.none else ()
    rest = ("activations.csv", "snapshots.safetensors") if probes is Probes.all else ()
    return files + spectra + rest


# --- metrics.json --------------------------------------------------------------------------------


@dataclass
class Data:
    meta_sha256: str  # of the meta.json of the tokens trained on, which holds the hashes of all
    order_sha256: str  # of the training windows in their order, as `TrainingBatches` says


@dataclass
class Parameters:
    """Trainable numbers."""

    total: int
    active: int  # those one token meets: in a mixture, all but the experts it is not sent to
    embedding_and_readout: int
    non_embedding: int  # total without embedding_and_readout


@dataclass
class Final:
    """On the final validation set, after the last step."""

    loss: float  # nats per token
    tokens: int  # that the loss is a mean over
    bits_per_byte: dict[str, float]  # per language; empty for a task that is in none
    by_source: dict[str, float]  # nats per token
    accuracy_by_source: dict[str, float] | None = None  # share of right answers; tasks alone


@dataclass
class Prequential:
    """The code length of the training tokens, each predicted before it was learnt from."""

    nats_per_token: float


@dataclass
class Metrics:
    """metrics.json: what was run, on what, and how it ended."""

    schema: int  # SCHEMA
    profile: str
    stage: str  # the arm's home stage when it was trained
    arm: str
    seed: int
    config: ArmConfig  # all fields but the seeds; enums by name
    data: Data
    parameters: Parameters
    steps: int  # optimizer steps
    tokens: int  # trained on
    flops: int  # 6·N·tokens, N with the readout and without the embedding; no attention scores
    final: Final
    prequential: Prequential
    clipped_share: float  # of the steps, whose gradient was clipped
    weights_sha256: str  # of models/<arm>/seed-<n>.safetensors, the weights after the last step

    def plain(self) -> dict[str, Any]:
        """What the file holds."""
        found = asdict(self) | {"config": plain_config(self.config)}
        if self.final.accuracy_by_source is None:
            del found["final"]["accuracy_by_source"]
        return found


def plain_config(arm: ArmConfig) -> dict[str, Any]:
    """A configuration as a record holds it: what its numbers depend on, and the variant's label."""
    return arm.identity() | {"variant": arm.variant}


_METRICS = OmegaConf.structured(Metrics)


def read_metrics(path: Path) -> Metrics:
    """A metrics.json; a wrong, missing or unknown field is a UserError that names it.

    A field of the configuration that is younger than a record has its default.
    """
    try:
        found = json.loads(path.read_text())
        return OmegaConf.to_object(OmegaConf.merge(_METRICS, found))  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        reason = str(error.msg or error).splitlines()[0]
        fault = f"field '{error.full_key}': {reason}"
    except (OSError, ValueError) as error:
        fault = str(error)
    raise UserError(
        f"{path} cannot be read ({fault}); restore it with `git checkout`, or make it again."
    )


# --- a record ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The record of one run; tables are read when asked for."""

    folder: Path
    metrics: Metrics

    @property
    def profile(self) -> str:
        return self.metrics.profile

    @property
    def arm(self) -> str:
        return self.metrics.arm

    @property
    def seed(self) -> int:
        return self.metrics.seed

    @property
    def config(self) -> ArmConfig:
        """The configuration the run was made with, all fields."""
        return self.metrics.config

    @property
    def pilot(self) -> bool:
        """Pilot seeds orient; they never decide a verdict."""
        return self.seed in PILOT_SEEDS

    @property
    def val_loss(self) -> float:
        """Nats per token on the final validation set."""
        return self.metrics.final.loss

    @property
    def curve(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "curve.csv")

    @property
    def spectra(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "spectra.csv")

    @property
    def activations(self) -> pd.DataFrame:
        """Whole numbers may be missing in `layer` and `context`; `part` is text, "" if missing."""
        types = {"layer": "Int64", "context": "Int64", "part": "str"}
        table = pd.read_csv(self.folder / "activations.csv", dtype=types)
        return table.fillna({"part": ""})

    @property
    def snapshots(self) -> dict[int, dict[str, np.ndarray]]:
        """Step → weight → float16 copy, in the order of steps."""
        found: dict[int, dict[str, np.ndarray]] = {}
        for key, value in load_file(self.folder / "snapshots.safetensors").items():
            step, _, name = key.removeprefix("step-").partition("/")
            found.setdefault(int(step), {})[name] = value
        return dict(sorted(found.items()))

    @property
    def init(self) -> dict[str, Any]:
        return json.loads((self.folder / "init.json").read_text())

    def hashes(self) -> dict[str, str]:
        return {name: sha256(self.folder / name) for name in record_files(self.config.train.probes)}


def _demand(folder: Path, arm: str, names: Iterable[str]) -> None:
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"The record {folder} lacks {', '.join(missing)}; make it with "
            f"`small-init pretrain --arm {arm}`, or restore it with `git checkout {folder}`."
        )


def load_run(profile: str, arm: str, seed: int) -> Run:
    """One record from results/; a missing, broken or misplaced one is a UserError."""
    folder = record_folder(profile, arm, seed)
    recover_folder(folder)
    return read_run(folder, arm, seed)


def read_run(folder: Path, arm: str, seed: int) -> Run:
    """The record in `folder`, which must be that of this arm and seed, or a UserError."""
    _demand(folder, arm, ("metrics.json",))
    metrics = read_metrics(folder / "metrics.json")
    _demand(folder, arm, record_files(metrics.config.train.probes))
    if (metrics.arm, metrics.seed, metrics.schema) != (arm, seed, SCHEMA):
        raise UserError(
            f"The record in {folder} belongs to arm {metrics.arm}, seed {metrics.seed}, "
            f"schema {metrics.schema}; move it to its own folder."
        )
    return Run(folder, metrics)


def load_runs(name: str) -> list[Run]:
    """The runs an object (`figure-1`) reads, by its index in the profile params.json names."""
    profile = str(load_yaml(PARAMS).profile)
    path = index_file(profile, name)
    if not path.is_file():
        raise UserError(f"{path} does not exist; write it with `dvc repro runs`.")
    entries = json.loads(path.read_text())["runs"]
    return [load_run(profile, entry["arm"], entry["seed"]) for entry in entries]
