"""The run table, what figures, claims and the report compare, and its writing to runs.csv.

`run_table` makes it, `COLUMNS` says what its columns hold. `collect` writes it for all planned
runs, and per object an index of exactly the records it reads.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd

from small_init.config import Corpus
from small_init.errors import UserError
from small_init.files import csv_text, json_text, write_text
from small_init.runs.paths import index_file, record_folder, results_folder
from small_init.runs.plan import Plan
from small_init.runs.record import Run, load_run

# Column → what it holds, with its unit, and where a record has it.
COLUMNS: dict[str, tuple[str, Callable[[Run], Any]]] = {
    "arm": ("the configuration's key", lambda run: run.arm),
    "stage": ("the arm's home stage", lambda run: run.metrics.stage),
    "seed": ("of the weights' draws and the order of the data", lambda run: run.seed),
    "pilot": ("1 for seeds that orient and never decide a verdict", lambda run: int(run.pilot)),
    "corpus": ("folder of data/<profile>/ trained on", lambda run: run.config.train.corpus.value),
    "context": ("tokens of a training window", lambda run: run.config.model.context),
    "d_model": ("hidden size", lambda run: run.config.model.d_model),
    "n_layers": ("blocks", lambda run: run.config.model.n_layers),
    "n_experts": ("feed-forward layers to route among; 0: one, for all tokens",
                  lambda run: run.config.model.n_experts),
    "gamma": ("γ of every weight group without one of its own", lambda run: run.config.init.gamma),
    "variant": ("label of the (ε, gate) setting", lambda run: run.config.variant),
    "gate": ("none, headwise or elementwise", lambda run: run.config.model.gate.value),
    "norm_eps": ("ε of every normalisation", lambda run: run.config.model.norm_eps),
    "lr": ("peak learning rate", lambda run: run.config.optimizer.lr),
    "warmup_steps": ("optimizer steps", lambda run: run.config.optimizer.warmup_steps),
    "weight_decay": ("of the matrices", lambda run: run.config.optimizer.weight_decay),
    "clip": ("largest gradient norm; empty: no clipping", lambda run: run.config.optimizer.clip),
    "steps": ("optimizer steps", lambda run: run.metrics.steps),
    "tokens": ("trained on", lambda run: run.metrics.tokens),
    "flops": ("6·N·tokens, N with the readout and without the embedding",
              lambda run: run.metrics.flops),
    "parameters": ("trainable numbers", lambda run: run.metrics.parameters.total),
    "parameters_non_embedding": ("without embedding and readout: N of the objects",
                                 lambda run: run.metrics.parameters.non_embedding),
    "val_loss": ("nats per token on the final validation set", lambda run: run.val_loss),
    "prequential_nats_per_token": ("code length of the training tokens",
                                   lambda run: run.metrics.prequential.nats_per_token),
    "clipped_share": ("of the steps", lambda run: run.metrics.clipped_share),
}  # fmt: skip
# After val_loss, a column for each language of the final validation set; empty for a task.
BITS_PER_BYTE = "bits_per_byte_{}"


def run_table(runs: Iterable[Run]) -> pd.DataFrame:
    """One row per run, in the order given; the columns are `COLUMNS` and the languages'."""
    runs = list(runs)
    bits = [run.metrics.final.bits_per_byte for run in runs]
    columns: dict[str, Any] = {}
    for name, (_, value) in COLUMNS.items():
        columns[name] = [value(run) for run in runs]
        if name == "val_loss":
            for language in sorted(set().union(*bits)):
                columns[BITS_PER_BYTE.format(language)] = [found.get(language) for found in bits]
    return pd.DataFrame(columns)


def deciding(runs: Iterable[Run]) -> list[Run]:
    """Without the pilot seeds of every arm that has confirmatory ones.

    Pilots chose the protocol, so a mean that holds both would flatter it. An arm that has nothing
    but pilots is kept: whatever shows it is marked as a pilot on its face.
    """
    runs = list(runs)
    confirmed = {run.arm for run in runs if not run.pilot}
    return [run for run in runs if not (run.pilot and run.arm in confirmed)]


def demand_one_arm_each(table: pd.DataFrame, keys: list[str], name: str) -> None:
    """Two arms in one place of an object would be averaged or paired as if they were one.

    `keys` are the columns that make a place; a UserError names the object and both arms.
    """
    for place, group in table.groupby(keys):
        arms = sorted(set(group["arm"]))
        if len(arms) > 1:
            values = place if isinstance(place, tuple) else (place,)
            where = ", ".join(f"{k} {v}" for k, v in zip(keys, values, strict=True))
            raise UserError(
                f"{name} reads two arms for one point ({where}): {' and '.join(arms[:2])}; "
                "name only one of them in configs/experiments/."
            )


def by_seed(table: pd.DataFrame) -> dict[int, float]:
    """Seed → final loss, nats per token; the rows are those of one arm."""
    return {int(s): float(x) for s, x in zip(table["seed"], table["val_loss"], strict=True)}


# --- written -------------------------------------------------------------------------------------


def foreign_records(plan: Plan) -> list[str]:
    """Folders under results/<profile>/runs that the plan does not ask for."""
    wanted = {str(record_folder(plan.profile, *run)) for run in plan.runs()}
    found = (results_folder(plan.profile) / "runs").glob("*/seed-*")
    return sorted({str(folder) for folder in found} - wanted)


def pending_runs(plan: Plan) -> list[tuple[str, int]]:
    """The planned runs that have no record: still to be made."""
    return [run for run in plan.runs() if not record_folder(plan.profile, *run).is_dir()]


def planned_runs(plan: Plan) -> dict[str, list[Run]]:
    """The records there are of every planned arm; a foreign or a differently configured one stops.
    An arm with none is left out."""
    if foreign := foreign_records(plan):
        raise UserError(
            f"{foreign[0]} is not in params.json ({len(foreign)} such records); plan it in "
            "configs/experiments, or remove it with `make prune`."
        )
    runs: dict[str, list[Run]] = {}
    pending = set(pending_runs(plan))
    for key, seed in plan.runs():
        if (key, seed) in pending:
            continue
        run = load_run(plan.profile, key, seed)
        if run.config.identity() != plan.arms[key].identity():
            raise UserError(
                f"The record {run.folder} was made with another configuration than params.json has "
                f"for {key}; make it again with `dvc repro {plan.stages[key]}@{key}`."
            )
        runs.setdefault(key, []).append(run)
    for corpus in Corpus:
        datasets = {
            run.metrics.data.meta_sha256
            for group in runs.values()
            for run in group
            if run.config.train.corpus is corpus
        }
        if len(datasets) > 1:
            raise UserError(
                f"The records of profile {plan.profile} were made on {len(datasets)} different "
                f"{corpus.value} corpora; retrain the older ones with `dvc repro`."
            )
    return runs


def write_summaries(runs: dict[str, list[Run]], home: Path) -> None:
    """One small file per arm, the mean over its seeds: what `dvc metrics show` prints."""
    shutil.rmtree(home, ignore_errors=True)
    for key, group in runs.items():
        values = {
            "seeds": len(group),
            "val_loss": round(mean(run.val_loss for run in group), 4),
            "gamma": group[0].config.init.gamma,
            "lr": group[0].config.optimizer.lr,
        }
        write_text(home / f"{key}.json", json_text(values))


def curves(runs: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """Validation loss of every run by tokens: what `dvc plots show` draws."""
    return [
        {"arm": run.arm, "seed": run.seed, "tokens": tokens, "val_loss": loss}
        for group in runs.values()
        for run in group
        for tokens, loss in run.curve[["tokens", "val_loss"]].itertuples(index=False)
    ]


def collect(plan: Plan) -> None:
    """Write the run table, what DVC shows of it, and the index of each object that has all of its
    records; says what waits for others."""
    runs = planned_runs(plan)
    pending = pending_runs(plan)
    incomplete = {key for key, _ in pending}
    home = results_folder(plan.profile)
    everything = [run for _, group in sorted(runs.items()) for run in group]
    text = run_table(everything).to_csv(index=False, float_format="%.7g", lineterminator="\n")
    write_text(home / "runs.csv", text)
    write_summaries(runs, home / "summary")
    write_text(home / "curves.csv", csv_text(curves(runs)))
    shutil.rmtree(index_file(plan.profile, "any").parent, ignore_errors=True)
    waiting = sorted(name for name, keys in plan.objects.items() if incomplete & set(keys))
    if waiting:
        print(
            f"{len(pending)} of {len(plan.runs())} planned runs have no record yet, "
            f"{pending[0][0]} the first; {', '.join(waiting)} wait for them."
        )
    for name, keys in plan.objects.items():
        if name in waiting:
            continue
        entries = [
            {"arm": run.arm, "seed": run.seed, "sha256": run.hashes()}
            for key in keys
            for run in runs[key]
        ]
        index = json_text({"profile": plan.profile, "runs": entries})
        write_text(index_file(plan.profile, name), index)


def prune(plan: Plan) -> list[str]:
    """Remove the records the plan does not ask for; git keeps what was committed."""
    foreign = foreign_records(plan)
    for folder in foreign:
        shutil.rmtree(folder)
    for arm in (results_folder(plan.profile) / "runs").glob("*"):
        if arm.is_dir() and not any(arm.iterdir()):
            arm.rmdir()
    return foreign
