"""Stage `evaluate`: saved weights through lm-eval, and the record of what came out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lm_eval.api.task import Task
from lm_eval.evaluator import evaluate

from small_init.downstream import checkpoint as checkpoints
from small_init.downstream.benchmarks import Benchmark, load_benchmark
from small_init.downstream.checkpoint import Checkpoint
from small_init.downstream.harness import SmallInitLM
from small_init.downstream.own_tasks import EmbeddedTask
from small_init.downstream.scores import benchmark_entry, embedded_entry
from small_init.downstream.sharded_model import ranks
from small_init.downstream.suite import asked
from small_init.files import json_text, sha256, write_text
from small_init.runs.paths import tasks_file
from small_init.runs.plan import Plan

SCHEMA = 1


def lm_of(checkpoint: Checkpoint) -> SmallInitLM:
    return SmallInitLM(checkpoint.model(), checkpoint.tokenizer())


def run_tasks(lm: SmallInitLM, tasks: Sequence[Task], limit: int | None = None) -> dict[str, Any]:
    """lm-eval's own results: `results` by task and metric, `samples` by task and item."""
    for task in tasks:
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=1234)
    loaded: Any = {"tasks": {task.config.task: task for task in tasks}, "groups": {}}
    loaded["group_map"] = {}
    out = evaluate(lm=lm, task_dict=loaded, limit=limit, bootstrap_iters=0, log_samples=True)
    assert out is not None
    return dict(out)


def evaluate_arm(plan: Plan, arm: str, seed: int | None = None) -> list[Path]:
    """Write the task record of every seed of an arm, or of one; returns the files."""
    tasks = asked(plan.profile)
    written = []
    for number in plan.arms[arm].seeds if seed is None else [seed]:
        checkpoint = checkpoints.of_run(plan.profile, arm, number)
        record = task_record(checkpoint, tasks)
        path = tasks_file(plan.profile, arm, number)
        if ranks().first:
            write_text(path, compact_json(record))
        written.append(path)
    return written


def task_record(
    checkpoint: Checkpoint, tasks: Mapping[str, EmbeddedTask | Benchmark]
) -> dict[str, Any]:
    """What a run can do, task by task; `scores` says what stands under each."""
    lm = lm_of(checkpoint)
    loaded = {
        name: [task.load()] if isinstance(task, EmbeddedTask) else load_benchmark(task)
        for name, task in tasks.items()
    }
    found = run_tasks(lm, [one for parts in loaded.values() for one in parts])["samples"]
    return {
        "schema": SCHEMA,
        "profile": checkpoint.profile,
        "arm": checkpoint.run.arm,
        "seed": checkpoint.run.seed,
        "weights_sha256": sha256(checkpoint.weights),
        "lm_eval": version("lm-eval"),
        "tasks": {
            name: embedded_entry(lm, task, task.items(), found[name])
            if isinstance(task, EmbeddedTask)
            else benchmark_entry(task, loaded[name], found)
            for name, task in tasks.items()
        },
    }


def compact_json(record: dict[str, Any]) -> str:
    """As json_text, but a list of numbers on one line."""
    groups = {}
    for name, task in record["tasks"].items():
        if "groups" in task:
            groups[f'"@{name}"'] = json.dumps(task["groups"], separators=(",", ":"))
            record["tasks"][name] = task | {"groups": f"@{name}"}
    text = json_text(record)
    for mark, line in groups.items():
        text = text.replace(mark, line)
    return text


def summary(found: dict[str, Any]) -> str:
    """lm-eval's results as lines `task  metric  value`."""
    lines = []
    for task, metrics in found["results"].items():
        for key, value in metrics.items():
            metric, _, how = key.partition(",")
            if isinstance(value, float) and not metric.endswith("_stderr"):
                extraction = f" ({how})" if how not in ("", "none") else ""
                lines.append(f"{task:24} {metric + extraction:32} {value:.4f}")
    return "\n".join(lines)
