"""The real benchmarks (configs/tasks/paper.yaml) and whatever else lm-eval has."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import datasets
from lm_eval import tasks
from lm_eval.api.task import Task
from lm_eval.tasks import TaskManager

from small_init.config_files import load_yaml, merged
from small_init.downstream.own_tasks import FOLDER, read_lines
from small_init.errors import UserError
from small_init.files import sha256

PAPER = FOLDER / "paper.yaml"
VARIABLE = "SMALL_INIT_BENCHMARKS"  # the folder of local benchmark files
Row = dict[str, Any]


@dataclass
class Benchmark:
    """An entry of paper.yaml."""

    folder: str = ""  # of lm_eval/tasks, with the task's definition
    hub: str = ""  # the data set on the hub
    revision: str = ""  # its commit; without one nothing is taken from the hub
    version: float = 1.0  # lm-eval's version of the task
    shots: int = 0  # examples before the question
    family: str = "reasoning"
    language: str = "en"
    metric: str = "acc"  # lm-eval's, of which the record has the accuracy
    chance: float = 0.0  # accuracy of guessing
    files: dict[str, str] = field(default_factory=dict)  # split → name of a local file, a pattern
    name: str = ""


def paper_tasks(path: Path | None = None) -> dict[str, Benchmark]:
    path = path or PAPER
    return {
        name: merged(Benchmark(name=name), entry, where=f"{path}: task {name}")
        for name, entry in load_yaml(path).tasks.items()
    }


def load_benchmark(benchmark: Benchmark) -> list[Task]:
    """The tasks of an entry: one, or all of a group such as C-Eval.

    Raises:
        UserError: no data, no revision of hub data, or lm-eval has another version of the task than
            the one named.
    """
    changes: dict[str, Any] = {"num_fewshot": benchmark.shots}
    if files := local_files(benchmark):
        splits = local_splits(benchmark, files)
        changes |= {
            "custom_dataset": lambda **_: datasets.DatasetDict(
                {split: datasets.Dataset.from_list(rows) for split, rows in splits.items()}
            ),
            "dataset_name": None,
        }
        if benchmark.shots:
            changes["fewshot_split"] = "train"
    elif benchmark.revision:
        changes["dataset_kwargs"] = {"revision": benchmark.revision}
    else:
        instead = f", or name the folder of its files in {VARIABLE}" if benchmark.files else ""
        raise UserError(
            f"The data of {benchmark.name} are not pinned: set its revision in {PAPER} to a commit "
            f"of huggingface.co/datasets/{benchmark.hub}{instead}."
        )
    loaded = _load(_manager(benchmark.folder), benchmark.name, changes)
    for task in loaded:
        found = float(task.VERSION)
        if found != benchmark.version:
            raise UserError(
                f"lm-eval has version {found} of {task.config.task}, and paper.yaml names "
                f"{benchmark.version}; install the lm-eval of requirements.lock."
            )
    return loaded


def load_upstream(name: str, own: Sequence[str]) -> list[Task]:
    """Tasks of lm-eval by name, or the task in a file of its YAML.

    Raises:
        UserError: lm-eval does not know it (`own` are further names), or its data are not here.
    """
    if name.endswith(".yaml"):
        if not (Path(name).is_file() and "task" in load_yaml(Path(name))):
            raise UserError(f"There is no task in {name}; name a file of lm-eval's with a `task:`.")
        return _load(TaskManager(include_defaults=False), name, {})
    manager = _manager()
    if name not in manager.all_tasks:
        near = difflib.get_close_matches(name, {*own, *manager.all_tasks}, 3, 0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else "."
        raise UserError(f"There is no task named {name}{hint}")
    return _load(manager, name, {})


def source(benchmark: Benchmark) -> dict[str, str]:
    """Which data were asked: SHA-256 of the local files, or the hub's revision."""
    if not (files := local_files(benchmark)):
        return {"revision": benchmark.revision}
    return {
        "examples_sha256" if split == "train" else "file_sha256": sha256(path)
        for split, path in files.items()
    }


def _load(manager: TaskManager, name: str, changes: dict[str, Any]) -> list[Task]:
    # Changes of a known task are only taken inside a group. lm-eval cannot hand them on to a group
    # within it, so that one's tasks are named one by one.
    parts = [{"task": part, **changes} for part in _parts(manager, name)] if changes else []
    wanted = {"group": "asked", "task": parts} if changes else name
    try:
        return list(manager.load([wanted])["tasks"].values())
    except (ModuleNotFoundError, AssertionError) as error:
        raise UserError(f"The task {name} needs more than is installed: {error}.") from None
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"The data of {name} are not on this machine ({reason}); fetch them from the hub with "
            f"HF_HUB_OFFLINE=0 HF_DATASETS_OFFLINE=0, or name the folder of their files in "
            f"{VARIABLE}."
        ) from None


def _parts(manager: TaskManager, name: str) -> list[str]:
    """The tasks of a group, of its groups too; of a task itself."""
    entry = manager.task_index[name]
    if name in manager.all_tags:
        return sorted(entry.tags)
    if name not in manager.all_groups:
        return [name]
    assert entry.yaml_path is not None
    return [part for member in load_yaml(entry.yaml_path).task for part in _parts(manager, member)]


@cache
def _manager(folder: str | None = None) -> TaskManager:
    """The task files of one folder of lm-eval's, or of all, which takes ten seconds."""
    if folder is None:
        return TaskManager()
    return TaskManager(include_path=Path(tasks.__file__).parent / folder, include_defaults=False)


def local_files(benchmark: Benchmark) -> dict[str, Path]:
    """Split → the authors' file; none where the variable names no folder.

    Raises:
        UserError: no file, or more than one, fits a pattern.
    """
    if not (named := os.environ.get(VARIABLE)):
        return {}
    folder, files = Path(named), {}
    for split, pattern in benchmark.files.items():
        found = sorted(folder.glob(pattern))
        if len(found) > 1 or (not found and split != "train"):
            state = "no file" if not found else f"{len(found)} files"
            raise UserError(
                f"{VARIABLE} names the folder {folder}, which has {state} {pattern} for "
                f"{benchmark.name}; put one there, or unset the variable to use the hub."
            )
        if found:
            files[split] = found[0]
    return files


def local_splits(benchmark: Benchmark, files: dict[str, Path]) -> dict[str, list[Row]]:
    """Split → rows in the schema of the hub, from the authors' files.

    Raises:
        UserError: a file of another schema.
    """
    splits: dict[str, list[Row]] = {}
    read = _FROM_AUTHORS.get(benchmark.name, lambda row: row)
    for split, path in files.items():
        rows = read_lines(path, "download it again")
        try:
            splits[split] = [read(row) for row in rows]
        except (KeyError, TypeError, IndexError) as error:
            raise UserError(
                f"{path} is not in the schema of {benchmark.name} ({error!r}); take the "
                "file that its authors publish."
            ) from None
    if benchmark.shots and "train" not in splits:
        (asked,) = splits
        splits["train"] = splits[asked][: benchmark.shots]
        splits[asked] = splits[asked][benchmark.shots :]
    return splits


def _gsm8k(row: Row) -> Row:
    return {"question": row["question"], "answer": row["answer"]}


def _math(row: Row) -> Row:
    return {"problem": row["problem"], "solution": row["solution"]}


def _hellaswag(row: Row) -> Row:
    kept = {name: row[name] for name in ("activity_label", "ctx_a", "ctx_b", "endings")}
    return kept | {"label": str(row["label"])}


def _arc(row: Row) -> Row:
    choices = row["question"]["choices"]
    return {
        "question": row["question"]["stem"],
        "choices": {key: [choice[key] for choice in choices] for key in ("text", "label")},
        "answerKey": row["answerKey"],
    }


def _logiqa(row: Row) -> Row:
    """As AGIEval asks it (arXiv 2304.06364)."""
    options = row["options"]
    query = (
        f"{row['passage']}问题：{row['question']} 选项：{' '.join(options)}\n"
        "答案：从A到D, 我们应选择"
    )
    return {"query": query, "choices": options, "gold": ["ABCD".index(row["label"])]}


_FROM_AUTHORS: dict[str, Callable[[Row], Row]] = {
    "gsm8k": _gsm8k,
    "hendrycks_math500": _math,
    "hellaswag": _hellaswag,
    "arc_challenge": _arc,
    "agieval_logiqa_zh": _logiqa,
}
