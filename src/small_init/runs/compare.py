"""`small-init compare`: two runs side by side, as text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from small_init.config import flat
from small_init.errors import UserError
from small_init.model.weight_types import weight_type
from small_init.runs.paths import arm_folder, results_folder
from small_init.runs.record import Run, plain_config, read_run

Rows = list[tuple[str, ...]]


def find_run(name: str, profile: str) -> Run:
    """A run by `arm`, `arm/seed-0` or the path of its record; an arm alone means its first seed."""
    path = Path(name)
    folder = path if (path / "metrics.json").is_file() else arm_folder(profile, name)
    if not (folder / "metrics.json").is_file():
        folder = next(iter(sorted(folder.glob("seed-*"), key=seed_of)), folder)
    if not (folder / "metrics.json").is_file():
        raise UserError(
            f"There is no run '{name}'; name an arm of {results_folder(profile) / 'runs'}, "
            "such as cpu-d64-g100-adjusted, or arm/seed-0."
        )
    return read_run(folder, folder.parent.name, seed_of(folder))


def seed_of(folder: Path) -> int:
    return int(folder.name.removeprefix("seed-"))


def compare(first: Run, second: Run) -> str:
    """What differs in the configuration, the losses along both runs, and their weights' spectra."""
    names = [f"{run.arm} seed {run.seed}" for run in (first, second)]
    parts = [
        ("Configuration (only what differs)", configuration_rows(first, second)),
        ("Final", final_rows(first, second)),
        ("Validation loss by tokens", curve_rows(first.curve, second.curve)),
        ("Stable rank, first → lowest → last", spectra_rows(first.spectra, second.spectra)),
    ]
    lines = [f"A  {names[0]}", f"B  {names[1]}"]
    for title, rows in parts:
        lines += ["", title, *aligned([("", "A", "B", "B − A"), *rows])]
    return "\n".join(lines)


def configuration_rows(first: Run, second: Run) -> Rows:
    mine, other = (flat(plain_config(run.config)) for run in (first, second))
    rows: Rows = [
        (key, text(mine.get(key)), text(other.get(key)), "")
        for key in sorted(mine | other)
        if mine.get(key) != other.get(key)
    ]
    return rows or [("none", "", "", "")]


def final_rows(first: Run, second: Run) -> Rows:
    def numbers(run: Run) -> dict[str, float]:
        metrics = run.metrics
        bits = sorted(metrics.final.bits_per_byte.items())
        return {
            "validation loss (nats per token)": metrics.final.loss,
            **{f"bits per byte, {language}": value for language, value in bits},
            "code length (nats per token)": metrics.prequential.nats_per_token,
            "share of clipped steps": metrics.clipped_share,
            "parameters": metrics.parameters.total,
            "tokens": metrics.tokens,
        }

    return numeric_rows(numbers(first), numbers(second))


def curve_rows(first: pd.DataFrame, second: pd.DataFrame) -> Rows:
    mine, other = (
        dict(zip(curve["tokens"], curve["val_loss"], strict=True)) for curve in (first, second)
    )
    return numeric_rows(
        {f"{tokens:,}": mine.get(tokens) for tokens in sorted(mine | other)},
        {f"{tokens:,}": other.get(tokens) for tokens in sorted(mine | other)},
    )


def spectra_rows(first: pd.DataFrame, second: pd.DataFrame) -> Rows:
    """Per weight type, mean over its layers."""

    def course(spectra: pd.DataFrame) -> dict[str, str]:
        kind = spectra["weight"].map(weight_type)
        mean = spectra.groupby([kind, "step"])["stable_rank"].mean()
        return {
            str(name): f"{ranks.iloc[0]:.1f} → {ranks.min():.1f} → {ranks.iloc[-1]:.1f}"
            for name, ranks in mean.groupby(level=0)
        }

    mine, other = course(first), course(second)
    names = sorted(mine | other)
    return [(name, mine.get(name, "–"), other.get(name, "–"), "") for name in names]


def numeric_rows(first: dict[str, Any], second: dict[str, Any]) -> Rows:
    rows: Rows = []
    for key in first:
        a, b = first[key], second.get(key)
        both = a is not None and b is not None
        rows.append((key, text(a), text(b), f"{b - a:+.4g}" if both else ""))
    return rows


def text(value: Any) -> str:
    if value is None:
        return "–"
    return (
        f"{value:,.6g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def aligned(rows: Rows) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for name, *cells in rows:
        numbers = "  ".join(c.rjust(w) for c, w in zip(cells, widths[1:], strict=True))
        yield f"  {name.ljust(widths[0])}  {numbers}".rstrip()
