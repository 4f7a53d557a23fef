"""A task of the record, from lm-eval's samples: the project's own, or a real benchmark.

Both have `family`, `language`, `shared` (tasks of the same items have the same name there),
`items`, `metric`, `chance`; `accuracy` by `metric` and `correct`, one digit per item in the order
of the data; `normalised` and `correct_normalised`, by log-likelihood per character, where there are
choices; `loss`, nats per byte of the right answers, null where the answer is written; `groups`, a
number per item, where items of one group are not independent; and of reasoning tasks a few
`samples`: other families' items hold text that is not ours to pass on.

One of the project's has `file_sha256`. A benchmark has `version` and `shots`, lm-eval's version of
it and the examples before the question; `revision` of the hub's data, or `file_sha256` and
`examples_sha256` of local files; and where lm-eval finds a written answer in several ways, the
`filter` that is taken, its first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task

from small_init.downstream.benchmarks import Benchmark, source
from small_init.downstream.harness import SmallInitLM
from small_init.downstream.own_tasks import EmbeddedTask
from small_init.files import sha256

SAMPLES = 3  # items of a task that are shown with what the model wrote
_WRITTEN = {"until": ["\n"], "max_gen_toks": 32}
Sample = dict[str, Any]


def embedded_entry(
    lm: SmallInitLM, task: EmbeddedTask, items: list[dict[str, Any]], samples: list[Sample]
) -> dict[str, Any]:
    """One of the project's tasks. Answered in writing, its chance is that of always writing the
    commonest answer."""
    samples = _in_order(samples)
    groups = list(dict.fromkeys(item["group"] for item in items))
    out: dict[str, Any] = {
        "family": task.family,
        "language": task.language,
        "shared": task.shared,
        "file_sha256": sha256(task.file),
        "items": len(items),
        "metric": (metric := task.config["metric_list"][0]["metric"]),
    }
    if task.config["output_type"] == "multiple_choice":
        right = [item["choices"][item["answer"]] for item in items]
        nats = [-s["filtered_resps"][i["answer"]][0] for s, i in zip(samples, items, strict=True)]
        out |= {
            "chance": sum(1 / len(item["choices"]) for item in items) / len(items),
            "loss": sum(nats) / sum(len(text.encode()) for text in right),
        }
    else:
        # What a model gets that always writes the same line.
        commonest = Counter(item["target"] for item in items).most_common(1)[0][1]
        out |= {"chance": commonest / len(items), "loss": None}
    out |= _scores(samples, metric)
    if len(groups) < len(items):
        number = {group: at for at, group in enumerate(groups)}
        out["groups"] = [number[item["group"]] for item in items]
    if task.family == "reasoning" and out["loss"] is not None:
        out["samples"] = _written_by(lm, _few(items))
    return out


def benchmark_entry(
    benchmark: Benchmark, tasks: Sequence[Task], found: Mapping[str, list[Sample]]
) -> dict[str, Any]:
    """A real benchmark; `tasks` is itself, or the parts of a group, whose items are joined.

    `found` has lm-eval's samples by task. The items of a part are a group.
    """
    parts = [(task, _in_order(found[task.config.task])) for task in tasks]
    samples = [sample for _, part in parts for sample in part]
    written = tasks[0].OUTPUT_TYPE == "generate_until"
    out: dict[str, Any] = {
        "family": benchmark.family,
        "language": benchmark.language,
        "shared": benchmark.name,
        "version": benchmark.version,
        "shots": benchmark.shots,
        **source(benchmark),
        "items": len(samples),
        "metric": benchmark.metric,
        "chance": benchmark.chance,
        "loss": None if written else _loss(parts),
        **_scores(samples, benchmark.metric),
    }
    if len(parts) > 1:
        out["groups"] = [number for number, (_, part) in enumerate(parts) for _ in part]
    if (way := samples[0]["filter"]) != "none":
        out["filter"] = way
    if written and benchmark.family == "reasoning":
        out["samples"] = [
            {
                "context": tasks[0].doc_to_text(sample["doc"]),
                "right": sample["target"],
                "written": sample["resps"][0][0],
            }
            for sample in _few(samples)
        ]
    return out


def _in_order(samples: list[Sample]) -> list[Sample]:
    """Each item once, in the order of the data: by the first of the ways to find its answer."""
    first = samples[0]["filter"]
    chosen = [sample for sample in samples if sample["filter"] == first]
    return sorted(chosen, key=lambda sample: sample["doc_id"])


def _few(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return items[:: max(1, len(items) // SAMPLES)][:SAMPLES]


def _scores(samples: list[Sample], metric: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, by in (("accuracy", metric), ("normalised", "acc_norm")):
        if by in samples[0]:
            values = [int(sample[by]) for sample in samples]
            digits = "correct" if name == "accuracy" else f"correct_{name}"
            out |= {name: sum(values) / len(values), digits: "".join(map(str, values))}
    return out


def _loss(parts: Sequence[tuple[Task, list[Sample]]]) -> float:
    """Nats per byte of the right answers."""
    nats, size = 0.0, 0
    for task, samples in parts:
        for sample in samples:
            right = _right(task, sample)
            nats -= sample["filtered_resps"][right][0]
            size += len(sample["arguments"][right][1].encode())
    return nats / size


def _right(task: Task, sample: Sample) -> int:
    """Which of the asked continuations is the right answer."""
    if task.OUTPUT_TYPE == "loglikelihood":
        return 0
    # Where the choices are contexts of one continuation (WinoGrande), the text is the index.
    answer = task.doc_to_text(sample["doc"]) if task.multiple_input else sample["target"]
    return answer[0] if isinstance(answer, list) else answer


def _written_by(lm: SmallInitLM, items: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The question, the right answer, and the line that the model writes."""
    asked = [Instance("generate_until", {}, (item["context"], _WRITTEN), 0) for item in items]
    return [
        {"context": item["context"], "right": item["target"], "written": text}
        for item, text in zip(items, lm.generate_until(asked), strict=True)
    ]
