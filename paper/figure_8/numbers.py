"""What Figure 8 compares: runs by what they change of the recipe, and the gains under a change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import mode
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from paper.shared.runs import table
from paper.shared.style import PAGE, compact, limits, plt, save_figure
from small_init.claims.gains import SMALL, USUAL
from small_init.config import ArmConfig
from small_init.errors import UserError
from small_init.runs.record import Run
from small_init.runs.table import by_seed, demand_one_arm_each
from small_init.stats.intervals import Interval, paired_difference

VARIANT = "adjusted"
EXPLORATORY = "*Exploratory: no claim is judged by it.*"
# What a run may differ in without changing the recipe: what is compared, and the size.
_FREE = ("init.gamma", "optimizer.lr", "train.probes", "model.d_model", "model.d_ff",
         "model.n_layers", "model.n_heads")  # fmt: skip
GROUPS = {"embedding": "embedding", "attention": "attention", "gate": "attention gate",
          "mlp": "feed-forward", "readout": "readout"}  # fmt: skip
SCHEMES = {"fixed": "fixed 0.02", "gpt2": "GPT-2", "zero_out": "zero outputs"}


def _power_of_ten(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-")


def _of_group(name: str, value: Any, _: Any) -> str:
    return f"{name} at γ = {value:g}"


# How a change is written, from its value and the usual one, in the order in which it is shown.
WORDS: dict[str, Callable[[Any, Any], str]] = {
    "optimizer.weight_decay": lambda v, _: f"weight decay {v:g}",
    "optimizer.warmup_steps": lambda v, _: f"warm-up of {v} steps",
    "optimizer.eps": lambda v, _: f"AdamW's ε {_power_of_ten(v)}",
    "model.norm": lambda v, _: {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[v],
    "model.qk_norm": lambda v, _: "QK-norm" if v else "no QK-norm",
    "model.tied": lambda v, _: "embeddings tied" if v else "embeddings not tied",
    "model.context": lambda v, _: f"context {v}",
    "train.tokens": lambda v, usual: f"{v / usual:.3g} × the tokens",
    **{f"init.{group}": partial(_of_group, name) for group, name in GROUPS.items()},
    "init.scheme": lambda v, _: SCHEMES.get(v, v),
}  # fmt: skip
UNCHANGED = "recipe unchanged"


def settings(config: ArmConfig) -> dict[str, Any]:
    """The settings that make a recipe, by their dotted names."""
    return {
        f"{part}.{name}": value
        for part, fields in config.identity().items()
        for name, value in fields.items()
        if f"{part}.{name}" not in _FREE
    }


def describe(runs: Iterable[Run], name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A row per run of the adjusted variant with the settings it changes, and the usual ones.

    `fields` are the names of the changed settings, `change` says them, `order` sorts them as WORDS
    does, unchanged first; `recipe` marks the runs that change nothing, at the rate that γ has in
    most others of the smallest width. Usual is what most arms of that width have.
    """
    runs = [run for run in runs if run.config.variant == VARIANT]
    if not runs:
        raise UserError(
            f"{name} shows the variant {VARIANT}, its index names none; see configs/experiments/."
        )
    frame = table(runs)
    settings_of = {run.arm: settings(run.config) for run in runs}
    smallest = frame["d_model"].min()
    arms = frame[frame["d_model"] == smallest].drop_duplicates("arm")
    usual = {key: mode(settings_of[arm][key] for arm in arms["arm"])
             for key in next(iter(settings_of.values()))}  # fmt: skip
    changed = {
        arm: {key: value for key, value in of_arm.items() if value != usual[key]}
        for arm, of_arm in settings_of.items()
    }
    frame["fields"] = [tuple(changed[arm]) for arm in frame["arm"]]
    frame["change"] = [words(changed[arm], usual) for arm in frame["arm"]]
    frame["order"] = [place(changed[arm]) for arm in frame["arm"]]
    frame["scheme"] = [settings_of[arm]["init.scheme"] for arm in frame["arm"]]
    own = arms[[settings_of[arm]["init.scheme"] == usual["init.scheme"] for arm in arms["arm"]]]
    rates = own.groupby("gamma")["lr"].agg(mode)
    frame["recipe"] = (
        (frame["change"] == UNCHANGED)
        & (frame["d_model"] == smallest)
        & (frame["lr"] == frame["gamma"].map(rates))
    )
    return frame, usual


def words(changed: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """A change as it is written; a setting without a word of its own by its name."""
    said = [
        WORDS.get(key, lambda v, _, key=key: f"{key.partition('.')[2]} {v}")(value, usual[key])
        for key, value in changed.items()
    ]
    return ", ".join(said) or UNCHANGED


def place(changed: Mapping[str, Any]) -> tuple[int, float]:
    """Where a change stands among the others: by its first setting, then by its number."""
    names = list(WORDS)
    for key, value in changed.items():
        number = float(value) if isinstance(value, int | float) else 0.0
        return (names.index(key) if key in names else len(names), number)
    return (-1, 0.0)


def smallest_width(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["d_model"] == frame["d_model"].min()]


def changes(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The runs of both γ at the smallest width, unchanged or changed in anything but the rate."""
    some = smallest_width(frame)
    some = some[some["gamma"].isin([USUAL, SMALL]) & (some["scheme"] == "gamma")]
    some = some[some["recipe"] | (some["change"] != UNCHANGED)]
    demand_one_arm_each(some, ["change", "gamma"], name)
    return some


def gains(frame: pd.DataFrame, keys: list[str], column: str = "val_loss") -> pd.DataFrame:
    """L(0.5) − L(1) per cell of `keys`, paired by seed, with its interval where two seeds have
    both; cells of one γ alone are left out. In the order of the changes."""
    rows = []
    ordered = frame.assign(val_loss=frame[column]).sort_values("order", kind="stable")
    for values, cell in ordered.groupby(keys, sort=False):
        usual, small = (by_seed(cell[cell["gamma"] == gamma]) for gamma in (USUAL, SMALL))
        if found := paired_difference(usual, small):
            rows.append(dict(zip(keys, values, strict=True)) | interval_row(found))
    return pd.DataFrame(rows, columns=[*keys, "gain", "low", "high", "pairs"])


def interval_row(found: Interval) -> dict[str, Any]:
    """An interval as columns; no interval is a gap, not a zero."""
    return {
        "gain": found.estimate,
        "low": float("nan") if found.low is None else found.low,
        "high": float("nan") if found.high is None else found.high,
        "pairs": found.n,
    }


def rows_of(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows of a table, whose columns are attributes."""
    return frame.itertuples(index=False)


def limits_of(row: Any) -> str:
    """The interval of a row that `interval_row` made, or why there is none."""
    low, high = (None if pd.isna(bound) else bound for bound in (row.low, row.high))
    return limits(low, high, row.pairs)


def group_gains(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """What one group of weights at γ = 1 gains where the rest is at 0.5, over all at 0.5; and all
    at 1, each γ at its own rate."""
    some = changes(frame, name)
    recipe = {gamma: by_seed(some[some["recipe"] & (some["gamma"] == gamma)])
              for gamma in (USUAL, SMALL)}  # fmt: skip
    rows = []
    for group, said in GROUPS.items():
        cell = some[(some["fields"] == (f"init.{group}",)) & (some["gamma"] == USUAL)]
        if found := paired_difference(recipe[USUAL], by_seed(cell)):
            rows.append({"group": said} | interval_row(found))
    whole = paired_difference(recipe[USUAL], recipe[SMALL])
    if rows and whole:
        rows.append({"group": f"all at γ = {SMALL:g}"} | interval_row(whole))
    return pd.DataFrame(rows, columns=["group", "gain", "low", "high", "pairs"])


def exploratory(fig: Figure) -> None:
    """The mark on the face of every page."""
    fig.text(0.005, 0.03 / fig.get_size_inches()[1], "EXPLORATORY: no claim is judged by it",
             ha="left", va="bottom", size=6.5, weight="bold")  # fmt: skip


def empty_page(name: str, runs: list[Run], sentence: str) -> Path:
    """A page for which nothing was run, which says so."""
    fig, ax = plt.subplots(figsize=(PAGE, 1.0))
    ax.axis("off")
    ax.text(0.5, 0.5, sentence, ha="center", va="center")
    exploratory(fig)
    return save_figure(fig, name, pd.DataFrame(columns=["kind"]), runs, f"{EXPLORATORY} {sentence}")


def size_words(frame: pd.DataFrame, usual: Mapping[str, Any]) -> str:
    """The models and the length that everything but a change has."""
    width = frame["d_model"].min()
    return f"variant {VARIANT}, d = {width}, {compact(usual['train.tokens'])} tokens"
