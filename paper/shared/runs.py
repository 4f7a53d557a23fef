"""The records an object reads, as one table with a row per run."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from small_init.config import Gate
from small_init.errors import UserError
from small_init.runs.record import Run, load_runs

VARIANTS = ("standard", "adjusted")  # the order in which they are shown; other labels follow


def deciding(runs: Iterable[Run]) -> list[Run]:
    """Without the pilot seeds of every arm that has confirmatory ones.

    Pilots chose the protocol, so a mean that holds both would flatter it. An arm that has nothing
    but pilots is kept: whatever shows it is marked as a pilot on its face.
    """
    runs = list(runs)
    confirmed = {run.arm for run in runs if not run.pilot}
    return [run for run in runs if not (run.pilot and run.arm in confirmed)]


def load(name: str) -> list[Run]:
    """The runs that the object `name` (`figure-1`) shows."""
    runs = deciding(load_runs(name))
    if not runs:
        raise UserError(f"The index of {name} is empty; name its arms in configs/experiments/.")
    return runs


def table(runs: Iterable[Run]) -> pd.DataFrame:
    """One row per run: its arm, what was varied, its sizes and its final loss (nats per token)."""
    rows = []
    for run in runs:
        config = run.config
        parameters = run.metrics["parameters"]
        rows.append(
            {
                "arm": run.arm,
                "seed": run.seed,
                "variant": config.variant,
                "gamma": config.init.gamma,
                "d_model": config.model.d_model,
                "context": config.model.context,
                "gated": config.model.gate is not Gate.none,
                "norm_eps": config.model.norm_eps,
                "lr": config.optimizer.lr,
                "parameters": parameters["total"],
                "non_embedding": parameters["non_embedding"],
                "tokens": run.metrics["tokens"],
                "flops": run.metrics["flops"],
                "loss": run.val_loss,
            }
        )
    frame = pd.DataFrame(rows)
    order = [f"{_place(v)} {v}" for v in frame["variant"]]
    keys = ["order", "d_model", "gamma", "lr", "arm", "seed"]
    return frame.assign(order=order).sort_values(keys, ignore_index=True).drop(columns="order")


def _place(variant: str) -> int:
    return VARIANTS.index(variant) if variant in VARIANTS else len(VARIANTS)


def demand_one_arm_each(frame: pd.DataFrame, keys: list[str], name: str) -> None:
    """Two arms in one cell of an object would be averaged or paired as if they were one."""
    for cell, group in frame.groupby(keys):
        arms = sorted(set(group["arm"]))
        if len(arms) > 1:
            values = cell if isinstance(cell, tuple) else (cell,)
            where = ", ".join(f"{k} {v}" for k, v in zip(keys, values, strict=True))
            raise UserError(
                f"{name} reads two arms for one point ({where}): {' and '.join(arms[:2])}; "
                "name only one of them in configs/experiments/."
            )


def by_seed(frame: pd.DataFrame) -> dict[int, float]:
    """Seed → final loss; the rows are those of one arm."""
    return {int(s): float(x) for s, x in zip(frame["seed"], frame["loss"], strict=True)}


def unique_in_order(values: Iterable) -> list:
    return list(dict.fromkeys(values))
