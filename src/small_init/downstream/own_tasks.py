"""The project's own downstream tasks (configs/tasks), as lm-eval runs them."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from lm_eval.api.task import Task
from lm_eval.tasks import TaskManager
from omegaconf import OmegaConf

from small_init.config_files import load_yaml
from small_init.errors import UserError

# Its warnings are hints to authors of tasks; what is wrong with a task is an exception.
logging.getLogger("lm_eval").setLevel(logging.ERROR)

FOLDER = Path("configs/tasks")
# In the order in which they are shown; `written` are reasoning tasks answered in writing.
FAMILIES = ("reasoning", "written", "knowledge", "language")


@dataclass(frozen=True)
class EmbeddedTask:
    """A task of the project: lm-eval's configuration of it, and where it belongs."""

    name: str
    family: str
    language: str
    config: dict[str, Any]
    file: Path  # its items
    shared: str  # tasks of the same items have the same name here

    def items(self) -> list[dict[str, Any]]:
        """The lines of the task's file.

        Raises:
            UserError: there is none.
        """
        return read_lines(self.file, "make it with `dvc repro tasks`")

    def load(self) -> Task:
        """The task as lm-eval runs it, over the items in memory: no cache, no network."""
        rows = self.items()
        config = {k: v for k, v in self.config.items() if k not in ("dataset_kwargs", "include")}

        def dataset(**_: Any) -> datasets.DatasetDict:
            return datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)})

        manager = TaskManager(include_defaults=False)
        return manager.load([config | {"custom_dataset": dataset}])["tasks"][self.name]


def read_lines(path: Path, way_out: str) -> list[dict[str, Any]]:
    """A JSONL file; `way_out` ends the sentence a missing one is reported with."""
    if not path.is_file():
        raise UserError(f"There is no {path}; {way_out}.")
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    except ValueError:
        raise UserError(f"{path} is not JSONL, one object a line; {way_out}.") from None


def embedded(profile: str, folder: Path = FOLDER) -> dict[str, EmbeddedTask]:
    """Every task of configs/tasks that `profile` has items for, by family and name.

    Which these are the manifest says; before it is made, all of them.
    """
    manifest = Path("data") / profile / "tasks" / "manifest.json"
    made = set(json.loads(manifest.read_text())["tasks"]) if manifest.is_file() else None
    tasks = []
    for path in sorted(folder.glob("*.yaml")):
        config = _with_included(path)
        if "task" in config:
            meta = config["metadata"]
            file = Path("data") / profile / "tasks" / Path(_file(config)).name
            if made is not None and file.stem not in made:
                continue
            name = config["task"]
            shared = meta.get("shared", name)
            tasks.append(EmbeddedTask(name, meta["family"], meta["language"], config, file, shared))
    ordered = sorted(tasks, key=lambda task: (FAMILIES.index(task.family), task.name))
    return {task.name: task for task in ordered}


def _file(config: dict[str, Any]) -> str:
    return config["dataset_kwargs"]["data_files"]["test"]


def _with_included(path: Path) -> dict[str, Any]:
    config = OmegaConf.to_container(load_yaml(path))
    assert isinstance(config, dict)
    own = {str(key): value for key, value in config.items()}
    included = own.pop("include", None)
    return (_with_included(path.parent / included) if included else {}) | own
