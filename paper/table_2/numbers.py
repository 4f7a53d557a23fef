"""The rows of Table 2: scores of pairs of runs that answered the same items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paper.shared.runs import unique_in_order
from small_init.errors import UserError
from small_init.stats import items
from small_init.stats.items import Task, accuracy_limits, item_scores, paired_items

NAME = "table-2"
SMALL, USUAL = 1.0, 0.5  # the two γ compared
EQUAL = "adjusted, equal loss"  # γ = 1 is a shorter run
FAMILIES = ("reasoning", "written", "knowledge", "language")
# What says which items a task had, and after which examples.
DATA = ("file_sha256", "examples_sha256", "revision", "version", "shots")
CEILING = 0.95  # an accuracy above it leaves no room for a gain


def variant_rows(
    variant: str, usual: dict[int, dict[str, Any]], small: dict[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row per task, each family followed by its mean; seed → task → entry."""
    names = unique_in_order(name for tasks in usual.values() for name in tasks)
    rows = []
    for family in FAMILIES:
        members = [n for n in names if next(iter(usual.values()))[n]["family"] == family]
        if not members:
            continue
        tasks = [pair(name, usual, small) for name in members]
        found = [
            row(variant, family, name, task, usual, small)
            for name, task in zip(members, tasks, strict=True)
        ]
        apart = tasks_apart(tasks, members, usual)
        rows += [*found, family_row(variant, family, found, apart)]
    return rows


def pair(name: str, usual: dict[int, Any], small: dict[int, Any]) -> Task:
    """The scores of every item; runs that answered other items cannot be compared."""
    data = {
        tuple(tasks[name].get(key) for key in DATA)
        for arm in (usual, small)
        for tasks in arm.values()
    }
    if len(data) > 1:
        raise UserError(
            f"The runs of {NAME} answered different items of {name}; evaluate their arms again "
            "with `dvc repro -f evaluate`."
        )
    a, b = (
        {seed: item_scores(tasks[name]["correct"]) for seed, tasks in arm.items()}
        for arm in (usual, small)
    )
    return Task(a, b, next(iter(usual.values()))[name].get("groups"))


def row(
    variant: str, family: str, name: str, task: Task, usual: dict[int, Any], small: dict[int, Any]
) -> dict[str, Any]:
    first = next(iter(usual.values()))[name]
    accuracy = {g: mean_of(arm, name, "accuracy") for g, arm in ((USUAL, usual), (SMALL, small))}
    written = first["loss"] is None
    loss = {
        g: None if written else mean_of(arm, name, "loss")
        for g, arm in ((USUAL, usual), (SMALL, small))
    }
    best = max(accuracy.values())
    # Of an accuracy of 0 Wilson's lower limit is 0, but for rounding.
    off_floor = best > 0 and accuracy_limits(best, first["items"])[0] > first["chance"]
    return {
        "variant": variant,
        "family": family,
        "task": name,
        "language": first["language"],
        "metric": first["metric"],
        "items": first["items"],
        "chance": first["chance"],
        f"accuracy_{USUAL:g}": accuracy[USUAL],
        f"accuracy_{SMALL:g}": accuracy[SMALL],
        f"loss_{USUAL:g}": loss[USUAL],
        f"loss_{SMALL:g}": loss[SMALL],
        **interval_of(paired_items([task])),
        "room": "floor" if not off_floor else "ceiling" if best > CEILING else "yes",
    }


def family_row(
    variant: str, family: str, members: list[dict[str, Any]], tasks: Sequence[Task]
) -> dict[str, Any]:
    """Unweighted mean over the family's tasks."""

    def mean(key: str) -> float:
        return float(np.mean([member[key] for member in members]))

    return {
        "variant": variant,
        "family": family,
        "task": "mean",
        "language": "",
        "metric": "",
        "items": sum(member["items"] for member in members),
        "chance": mean("chance"),
        f"accuracy_{USUAL:g}": mean(f"accuracy_{USUAL:g}"),
        f"accuracy_{SMALL:g}": mean(f"accuracy_{SMALL:g}"),
        **interval_of(paired_items(tasks)),
        "room": f"{sum(member['room'] == 'yes' for member in members)} of {len(members)}",
    }


def tasks_apart(tasks: Sequence[Task], names: Sequence[str], usual: dict[int, Any]) -> list[Task]:
    """Tasks that ask the same items become one, whose scores are the items' means."""
    entries = next(iter(usual.values()))
    together: dict[str, list[Task]] = {}
    for name, task in zip(names, tasks, strict=True):
        together.setdefault(entries[name]["shared"], []).append(task)
    if len({len(group) for group in together.values()}) > 1:
        raise UserError(f"Tasks of one family share items unevenly: {', '.join(names)}.")
    return [
        Task(
            {s: np.mean([task.a[s] for task in group], axis=0) for s in group[0].a},
            {s: np.mean([task.b[s] for task in group], axis=0) for s in group[0].b},
            group[0].groups,
        )
        for group in together.values()
    ]


def mean_of(arm: dict[int, Any], name: str, key: str) -> float:
    return float(np.mean([tasks[name][key] for tasks in arm.values()]))


def interval_of(difference: items.Difference | None) -> dict[str, Any]:
    if difference is None:
        return {"difference": None, "low": None, "high": None, "pairs": 0, "detectable": None}
    return {
        "difference": difference.estimate,
        "low": difference.low,
        "high": difference.high,
        "pairs": difference.seeds,
        "detectable": difference.detectable,
    }
