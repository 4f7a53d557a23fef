"""The runs an object shows, and the run table in the order and under the names of its files."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from small_init.errors import UserError
from small_init.runs.record import Run, load_runs
from small_init.runs.table import deciding, run_table

VARIANTS = ("standard", "adjusted")  # the order in which they are shown; other labels follow
# Two columns of the run table as the objects' CSV files call them.
PUBLISHED = {"val_loss": "loss", "parameters_non_embedding": "non_embedding"}


def load(name: str) -> list[Run]:
    """The runs that the object `name` (`figure-1`) shows."""
    runs = deciding(load_runs(name))
    if not runs:
        raise UserError(f"The index of {name} is empty; name its arms in configs/experiments/.")
    return runs


def table(runs: Iterable[Run]) -> pd.DataFrame:
    """The run table (`small_init.runs.table.COLUMNS`), in the order in which runs are shown."""
    frame = run_table(runs)
    order = [f"{_place(v)} {v}" for v in frame["variant"]]
    keys = ["order", "d_model", "gamma", "lr", "arm", "seed"]
    return frame.assign(order=order).sort_values(keys, ignore_index=True).drop(columns="order")


def published(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the run table under the names that the objects' CSV files have."""
    return frame.rename(columns=PUBLISHED)


def _place(variant: str) -> int:
    return VARIANTS.index(variant) if variant in VARIANTS else len(VARIANTS)


def unique_in_order(values: Iterable) -> list:
    return list(dict.fromkeys(values))
