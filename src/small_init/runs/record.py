"""What a run writes and the objects read: every path and every schema stands here.

Relative to the project's root (the current directory):

    data/<profile>/packed/                      token bins and meta.json; backcopy/ and
                                                composite/ likewise
    results/<profile>/runs/<arm>/seed-<n>/      the record of one run, small, in git
        metrics.json    configuration, data, parameters, final losses; FLOPs are 6·N·tokens with the
                        readout and without attention scores
        curve.csv       validation and training loss at logarithmically spaced steps
        spectra.csv     per weight and step: norms, stable rank, row cosines, of W and of W − W₀
                        (change_*); with train.probes `all` also of W − c·W₀ (update_*), c what
                        weight decay alone leaves of W₀, and a Gaussian matrix's values (random_*)
        activations.csv     only with train.probes `all`; see below
        snapshots.safetensors   only with train.probes `all`; see below
        init.json       per weight: std and SHA-256 of its first value; residual flow at step 0
        perf.json       time, device, versions: of one machine; read for the report's costs alone
    results/<profile>/runs.csv                  one row per run
    results/<profile>/claims.json               verdict, numbers and reason per claim
    results/<profile>/audit.json                published runs trained anew, and how they compare
    results/<profile>/index/<object>.json       the records an object reads, with their hashes
    results/<profile>/tokens/targets.npz        the validation tokens looked at one by one (targets)
    results/<profile>/tokens/<arm>/seed-<n>.npz their log-probabilities under one run, float16
    results/<profile>/{tables,figures}/         the objects
    results/<profile>/tasks/<arm>/seed-<n>.json     downstream tasks of one run, from its weights
    results/<profile>/weights/<arm>/            one seed's final weights, float16, and their
                                                tokenizer.json: of Table 2's arms
    models/<arm>/seed-<n>.safetensors           final weights, float32; not in git
    scratch/                                    checkpoints, event files, finished runs; not in git

With train.probes `none` a record has no spectra.csv.

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
(`probes.snapshot`). The one of step 0 is W₀.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

from small_init.config import PILOT_SEEDS, ArmConfig, Probes
from small_init.config_files import load_yaml, merged
from small_init.errors import UserError
from small_init.files import recover_folder, sha256
from small_init.runs.paths import PARAMS, index_file, record_folder

SCHEMA = 1


def record_files(probes: Probes) -> tuple[str, ...]:
    """The files of a record that must be the same for the same run on the same kind of machine."""
    files = ("metrics.json", "curve.csv", "init.json")
    spectra = ("spectra.csv",) if probes is not Probes.none else ()
    rest = ("activations.csv", "snapshots.safetensors") if probes is Probes.all else ()
    return files + spectra + rest


@dataclass(frozen=True)
class Run:
    """The record of one run; tables are read when asked for."""

    folder: Path
    arm: str
    seed: int
    metrics: dict[str, Any]

    @property
    def config(self) -> ArmConfig:
        """The configuration the run was made with, all fields."""
        return merged(ArmConfig(), self.metrics["config"], where=str(self.folder / "metrics.json"))

    @property
    def pilot(self) -> bool:
        """Pilot seeds orient; they never decide a verdict."""
        return self.seed in PILOT_SEEDS

    @property
    def val_loss(self) -> float:
        """Nats per token on the final validation set."""
        return self.metrics["final"]["loss"]

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
    try:
        metrics = json.loads((folder / "metrics.json").read_text())
        at_home = (metrics["arm"], metrics["seed"], metrics["schema"]) == (arm, seed, SCHEMA)
        # Records older than the field were made with its default.
        probes = Probes[metrics["config"]["train"].get("probes", Probes.weights.name)]
    except (ValueError, KeyError) as error:
        raise UserError(
            f"{folder / 'metrics.json'} cannot be read ({error}); restore it with `git checkout`."
        ) from None
    _demand(folder, arm, record_files(probes))
    if not at_home:
        raise UserError(
            f"The record in {folder} belongs to arm {metrics['arm']}, seed {metrics['seed']}, "
            f"schema {metrics['schema']}; move it to its own folder."
        )
    return Run(folder, arm, seed, metrics)


def load_runs(name: str) -> list[Run]:
    """The runs an object (`figure-1`) reads, by its index in the profile params.json names."""
    profile = str(load_yaml(PARAMS).profile)
    path = index_file(profile, name)
    if not path.is_file():
        raise UserError(f"{path} does not exist; write it with `dvc repro runs`.")
    entries = json.loads(path.read_text())["runs"]
    return [load_run(profile, entry["arm"], entry["seed"]) for entry in entries]
