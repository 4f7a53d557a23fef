"""Stage `evaluate`: saved weights through lm-eval, and the record of what came out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task
from lm_eval.evaluator import evaluate

from small_init import records
from small_init.evaluate import checkpoint as checkpoints
from small_init.evaluate.checkpoint import Checkpoint
from small_init.evaluate.divided import ranks
from small_init.evaluate.harness import SmallInitLM
from small_init.evaluate.suite import EmbeddedTask, embedded
from small_init.records import Plan

SCHEMA = 1
SAMPLES = 3  # items of a task that are shown with what the model wrote
_WRITTEN = {"until": ["\n"], "max_gen_toks": 32}


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
    tasks = embedded(plan.profile)
    written = []
    for number in plan.arms[arm].seeds if seed is None else [seed]:
        checkpoint = checkpoints.of_run(plan.profile, arm, number)
        record = task_record(checkpoint, tasks)
        path = records.task_record(plan.profile, arm, number)
        if ranks().first:
            records.write_text(path, compact_json(record))
        written.append(path)
    return written


def task_record(checkpoint: Checkpoint, tasks: dict[str, EmbeddedTask]) -> dict[str, Any]:
    """What a run can do, task by task.

    Per task: `accuracy` by `metric`, the first that the task's configuration names; `normalised`,
    by log-likelihood per character; `loss`, nats per byte of the right answers; `correct` and
    `correct_normalised`, one digit per item in the order of the task's file; `groups`, a number
    per item, where items of one group are not independent. A task answered in writing has no
    choices and no loss; its chance is that of always writing the commonest answer.
    """
    lm = lm_of(checkpoint)
    found = run_tasks(lm, [task.load() for task in tasks.values()])
    return {
        "schema": SCHEMA,
        "profile": checkpoint.profile,
        "arm": checkpoint.run.arm,
        "seed": checkpoint.run.seed,
        "weights_sha256": records.sha256(checkpoint.weights),
        "lm_eval": version("lm-eval"),
        "tasks": {
            name: _of_task(lm, task, task.items(), found["samples"][name])
            for name, task in tasks.items()
        },
    }


def _of_task(
    lm: SmallInitLM, task: EmbeddedTask, items: list[dict[str, Any]], samples: list[dict[str, Any]]
) -> dict[str, Any]:
    samples = sorted(samples, key=lambda sample: sample["doc_id"])
    groups = list(dict.fromkeys(item["group"] for item in items))
    out: dict[str, Any] = {
        "family": task.family,
        "language": task.language,
        "shared": task.shared,
        "file_sha256": records.sha256(task.file),
        "items": len(items),
        "metric": (metric := task.config["metric_list"][0]["metric"]),
    }
    if task.config["output_type"] == "multiple_choice":
        right = [item["choices"][item["answer"]] for item in items]
        nats = [-s["filtered_resps"][i["answer"]][0] for s, i in zip(samples, items, strict=True)]
        out |= {
            "chance": sum(1 / len(item["choices"]) for item in items) / len(items),
            "loss": sum(nats) / sum(len(text.encode()) for text in right),
        } | _scores(samples, {"accuracy": metric, "normalised": "acc_norm"})
    else:
        # What a model gets that always writes the same line.
        commonest = Counter(item["target"] for item in items).most_common(1)[0][1]
        out |= {"chance": commonest / len(items), "loss": None} | _scores(
            samples, {"accuracy": metric}
        )
    if len(groups) < len(items):
        number = {group: at for at, group in enumerate(groups)}
        out["groups"] = [number[item["group"]] for item in items]
    # Other families' items hold text that is not ours to pass on.
    if task.family == "reasoning" and out["loss"] is not None:
        out["samples"] = _samples(lm, items[:: max(1, len(items) // SAMPLES)][:SAMPLES])
    return out


def _scores(samples: list[dict[str, Any]], metrics: dict[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, metric in metrics.items():
        values = [int(sample[metric]) for sample in samples]
        digits = "correct" if name == "accuracy" else f"correct_{name}"
        out |= {name: sum(values) / len(values), digits: "".join(map(str, values))}
    return out


def _samples(lm: SmallInitLM, items: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The question, the right answer, and the line that the model writes."""
    asked = [Instance("generate_until", {}, (item["context"], _WRITTEN), 0) for item in items]
    return [
        {"context": item["context"], "right": item["target"], "written": text}
        for item, text in zip(items, lm.generate_until(asked), strict=True)
    ]


def compact_json(record: dict[str, Any]) -> str:
    """As records.json_text, but a list of numbers on one line."""
    groups = {}
    for name, task in record["tasks"].items():
        if "groups" in task:
            groups[f'"@{name}"'] = json.dumps(task["groups"], separators=(",", ":"))
            record["tasks"][name] = task | {"groups": f"@{name}"}
    text = records.json_text(record)
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
