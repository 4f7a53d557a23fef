"""The run table and, per object, an index of exactly the records it reads."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import mean
from typing import Any

from small_init.config import Corpus
from small_init.errors import UserError
from small_init.files import csv_text, json_text, write_text
from small_init.runs.paths import index_file, record_folder, results_folder
from small_init.runs.plan import Plan
from small_init.runs.record import Run, load_run


def foreign_records(plan: Plan) -> list[str]:
    """Folders under results/<profile>/runs that the plan does not ask for."""
    wanted = {str(record_folder(plan.profile, *run)) for run in plan.runs()}
    found = (results_folder(plan.profile) / "runs").glob("*/seed-*")
    return sorted({str(folder) for folder in found} - wanted)


def planned_runs(plan: Plan) -> dict[str, list[Run]]:
    """Every planned arm's records; a missing, a foreign or a differently configured one stops."""
    if foreign := foreign_records(plan):
        raise UserError(
            f"{foreign[0]} is not in params.json ({len(foreign)} such records); plan it in "
            "configs/experiments, or remove it with `make prune`."
        )
    runs: dict[str, list[Run]] = {}
    for key, seed in plan.runs():
        run = load_run(plan.profile, key, seed)
        if run.config.identity() != plan.arms[key].identity():
            raise UserError(
                f"The record {run.folder} was made with another configuration than params.json has "
                f"for {key}; make it again with `dvc repro {plan.stages[key]}@{key}`."
            )
        runs.setdefault(key, []).append(run)
    for corpus in Corpus:
        datasets = {
            run.metrics["data"]["meta_sha256"]
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


def row(run: Run, stage: str, languages: list[str]) -> dict[str, Any]:
    """One line of runs.csv; bits per byte are empty for a task that is in no language."""
    config, metrics = run.config, run.metrics
    bits = metrics["final"]["bits_per_byte"]
    return {
        "arm": run.arm, "stage": stage, "seed": run.seed, "pilot": int(run.pilot),
        "corpus": config.train.corpus.value,
        "d_model": config.model.d_model, "n_layers": config.model.n_layers,
        "gamma": config.init.gamma, "variant": config.variant,
        "gate": config.model.gate.value, "norm_eps": config.model.norm_eps,
        "lr": config.optimizer.lr, "warmup_steps": config.optimizer.warmup_steps,
        "weight_decay": config.optimizer.weight_decay, "clip": config.optimizer.clip,
        "steps": metrics["steps"], "tokens": metrics["tokens"], "flops": metrics["flops"],
        "parameters": metrics["parameters"]["total"],
        "parameters_non_embedding": metrics["parameters"]["non_embedding"],
        "val_loss": metrics["final"]["loss"],
        **{f"bits_per_byte_{language}": bits.get(language) for language in languages},
        "prequential_nats_per_token": metrics["prequential"]["nats_per_token"],
        "clipped_share": metrics["clipped_share"],
    }  # fmt: skip


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
    """Write the run table, what DVC shows of it, and the index of each object."""
    runs = planned_runs(plan)
    home = results_folder(plan.profile)
    everything = [run for _, group in sorted(runs.items()) for run in group]
    languages = sorted({k for run in everything for k in run.metrics["final"]["bits_per_byte"]})
    rows = [row(run, plan.stages[run.arm], languages) for run in everything]
    write_text(home / "runs.csv", csv_text(rows))
    write_summaries(runs, home / "summary")
    write_text(home / "curves.csv", csv_text(curves(runs)))
    for name, keys in plan.objects.items():
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
