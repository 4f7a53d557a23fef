"""Which tasks are asked: the project's own, the real benchmarks, or any that lm-eval knows."""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval.api.task import Task

from small_init.config_files import load_yaml
from small_init.downstream.benchmarks import Benchmark, load_benchmark, load_upstream, paper_tasks
from small_init.downstream.own_tasks import FOLDER, EmbeddedTask, embedded

PROFILES = FOLDER / "items.yaml"  # where a profile says that it asks the real benchmarks


def asked(profile: str) -> dict[str, EmbeddedTask] | dict[str, Benchmark]:
    """What Table 2 of a profile asks: the project's tasks, or the real benchmarks."""
    own = load_yaml(PROFILES).get(profile, {})
    return paper_tasks() if own.get("benchmarks") else embedded(profile)


def load_tasks(names: Sequence[str], profile: str) -> list[Task]:
    """Tasks by name: the project's own, the paper's (configs/tasks/paper.yaml), or lm-eval's.

    Raises:
        UserError: an unknown name, or a task whose data are not here.
    """
    own, paper = embedded(profile), paper_tasks()
    found: list[Task] = []
    for name in names:
        if name in own:
            found.append(own[name].load())
        elif name in paper:
            found += load_benchmark(paper[name])
        else:
            found += load_upstream(name, [*own, *paper])
    return found
