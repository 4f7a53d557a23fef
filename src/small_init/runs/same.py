"""Is a run's record the published one? File by file: bit for bit, or within a measured tolerance.

A field or column that only one of the two has is a difference under either standard: what a run
writes has changed, whatever its numbers are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

from small_init.config import Corpus
from small_init.files import rounded
from small_init.runs.tolerance import Kind, tolerance_at

_EXACT_COLUMNS = {"step", "tokens", "weight", "probe", "layer", "part", "context"}
_LOSSES = ("train_loss", "val_loss", "final.loss", "prequential.nats_per_token")
_LOSS_OF_SOURCE = "final.by_source."
_NAMED = 20  # differences that audit.json lists by name
_OF_ONE = ("share", "accuracy")  # a share is compared with 1, not with itself: it may well be 0


class Verdict(Enum):
    """From best to worst."""

    same = "same"
    within = "within tolerance"
    differs = "differs"


@dataclass(frozen=True)
class Difference:
    """One number, or one tensor, that is not the published one."""

    place: str  # metrics.json: a field; curve.csv: column and row
    kind: Kind
    step: int | None  # after how many updates; None: at the end
    published: Any = None
    now: Any = None
    absolute: float | None = None  # of a tensor: the largest of its numbers
    # To the largest number of its column, probe or field (None if that is 0); of a tensor by rms.
    relative: float | None = None

    def allowed(self, corpus: Corpus) -> bool:
        """Is it within the tolerance of a run on `corpus` on another kind of machine?"""
        tolerance = tolerance_at(self.step, corpus)
        return tolerance.allows(self.kind, self.absolute, self.relative)

    def as_json(self) -> dict[str, Any]:
        said = asdict(self) | {"kind": self.kind.value}
        return rounded({key: value for key, value in said.items() if value is not None})


@dataclass(frozen=True)
class FileResult:
    """How one file of a record compares."""

    verdict: Verdict
    added: list[str]  # fields, columns or tensors that the published file lacks
    gone: list[str]  # those that only the published file has
    differences: list[Difference]
    note: str = ""
    outside: Difference | None = None  # the first that is not within the tolerance

    def largest(self, of: str) -> Difference | None:
        """The difference with the largest `absolute` or `relative`."""
        numbers = [d for d in self.differences if getattr(d, of) is not None]
        return max(numbers, key=lambda d: getattr(d, of), default=None)

    def as_json(self) -> dict[str, Any]:
        if self.verdict is Verdict.same:
            return {"verdict": self.verdict.value}
        largest = {
            f"largest_{of}": {"place": found.place, "value": rounded(getattr(found, of))}
            for of in ("absolute", "relative")
            if (found := self.largest(of))
        }
        said = {
            "note": self.note,
            "fields_added_since": self.added,
            "fields_gone_since": self.gone,
            "where": [d.place for d in self.differences[:_NAMED]],
            "first": self.differences[0].as_json() if self.differences else None,
            "first_outside_tolerance": self.outside.place if self.outside else None,
        }
        return {
            "verdict": self.verdict.value,
            **{key: value for key, value in said.items() if value},
            "differing": len(self.differences),
            **largest,
        }

    def text(self) -> str:
        """One line."""
        parts = [self.note] if self.note else []
        for title, names in (("added", self.added), ("gone", self.gone)):
            if names:
                parts.append(f"fields {title} since: {', '.join(names)}")
        if self.differences:
            first, *more = self.differences
            values = "" if first.kind is Kind.weights else f" ({first.published}, now {first.now})"
            others = "".join(f", {d.place}" for d in more[:2]) + ", …" * (len(more) > 2)
            parts.append(f"{len(self.differences)} differ: {first.place}{values}{others}")
            for of in ("absolute", "relative"):
                if found := self.largest(of):
                    parts.append(
                        f"largest {of} difference {getattr(found, of):.2g} ({found.place})"
                    )
        if self.outside:
            parts.append(f"outside the tolerance: {self.outside.place}")
        return "; ".join(parts)


def compare_file(published: Path, anew: Path, tolerated: Corpus | None) -> FileResult:
    """Compare two files of one name: the same bytes, or, where the machines are not of one kind,
    values within the tolerance of a run on the corpus `tolerated`."""
    if absent := [path for path in (published, anew) if not path.is_file()]:
        which = "published" if absent[0] == published else "new"
        return FileResult(Verdict.differs, [], [], [], f"the {which} record has no {anew.name}")
    if published.read_bytes() == anew.read_bytes():
        return FileResult(Verdict.same, [], [], [])
    compare = {".json": _json, ".csv": _csv, ".safetensors": _tensors}[anew.suffix]
    added, gone, differences, note = compare(published, anew)
    whole = not (added or gone or note)
    if whole and not differences:
        note = "the values are the same, their bytes are not"
    if tolerated is None:
        return FileResult(Verdict.differs, added, gone, differences, note)
    outside = next((d for d in differences if not d.allowed(tolerated)), None)
    verdict = Verdict.within if whole and outside is None else Verdict.differs
    return FileResult(verdict, added, gone, differences, note, outside)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    return max(verdicts, key=list(Verdict).index)


_Found = tuple[list[str], list[str], list[Difference], str]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Nested fields by dotted names; a list's items by their numbers."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _json(published: Path, anew: Path) -> _Found:
    old, new = (dict(_leaves(json.loads(path.read_text()))) for path in (published, anew))
    step = 0 if published.name == "init.json" else None
    differences = [
        _number(key, key, step, value, new[key], abs(value))
        if isinstance(value, float) and isinstance(new[key], float)
        else Difference(key, Kind.exact, step, value, new[key])
        for key, value in old.items()
        if key in new and value != new[key]
    ]
    return *_fields(old, new), differences, ""


def _fields(old: Any, new: Any) -> tuple[list[str], list[str]]:
    return [key for key in new if key not in old], [key for key in old if key not in new]


def _number(
    place: str, name: str, step: int | None, old: float, new: float, scale: float
) -> Difference:
    if any(share in name for share in _OF_ONE):
        scale = 1.0
    of_source = name.startswith(_LOSS_OF_SOURCE)
    kind = Kind.loss_of_source if of_source else Kind.loss if name in _LOSSES else Kind.number
    absolute = abs(old - new)
    return Difference(place, kind, step, old, new, absolute, absolute / scale if scale else None)


def _csv(published: Path, anew: Path) -> _Found:
    old, new = (pd.read_csv(path, dtype=str, keep_default_na=False) for path in (published, anew))
    note = "" if len(old) == len(new) else f"{len(old)} rows published, {len(new)} now"
    rows = min(len(old), len(new))
    quantity = old.get("probe")  # None: each column is one
    columns = [name for name in old if name in new]
    scales = {}
    for name in columns:
        if name not in _EXACT_COLUMNS:
            sizes = pd.to_numeric(old[name], errors="coerce").abs()
            by = sizes.groupby(quantity).transform("max") if quantity is not None else sizes.max()
            scales[name] = np.broadcast_to(by, len(old))
    unlike = (old[columns][:rows] != new[columns][:rows]).to_numpy()
    differences = []
    for row, column in zip(*np.nonzero(unlike), strict=True):
        name = columns[column]
        before, now = old[name][row], new[name][row]
        place, step = _place(old.iloc[row], name), int(old["step"][row])
        if name in scales and before and now:
            scale = float(scales[name][row])
            difference = _number(place, name, step, float(before), float(now), scale)
        else:
            difference = Difference(place, Kind.exact, step, before, now)
        differences.append(difference)
    return *_fields(old, new), differences, note


def _place(row: pd.Series, column: str) -> str:
    """`val_loss at step 40`; `stable_rank of blocks.0.mlp.up.weight at step 40`."""
    what = [row[key] for key in ("probe", "weight", "layer", "part", "context") if row.get(key)]
    of = f" of {' '.join(what)}" if what else ""
    return f"{column}{of} at step {row['step']}"


def _tensors(published: Path, anew: Path) -> _Found:
    old, new = load_file(published), load_file(anew)
    differences = []
    step_of = lambda name: int(name.removeprefix("step-").partition("/")[0])
    for name in sorted(old, key=step_of):
        if name not in new or np.array_equal(old[name], new[name]):
            continue
        if old[name].shape != new[name].shape:
            shapes = (list(old[name].shape), list(new[name].shape))
            differences.append(Difference(f"shape of {name}", Kind.exact, step_of(name), *shapes))
            continue
        before, now = old[name].astype(np.float64), new[name].astype(np.float64)
        apart, size = (float(np.sqrt(np.mean(x**2))) for x in (now - before, before))
        differences.append(
            Difference(
                name, Kind.weights, step_of(name), absolute=float(np.abs(now - before).max()),
                relative=apart / size if size else None,
            )
        )  # fmt: skip
    return *_fields(old, new), differences, ""
