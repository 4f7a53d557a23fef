"""Runs arranged as the claims compare them: by variant, γ and width, paired by seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from small_init.errors import UserError
from small_init.runs.record import Run
from small_init.stats.intervals import Interval, mean_interval

USUAL, SMALL = 0.5, 1.0  # the two γ compared

Cell = tuple[str, float, int]  # variant, γ, d_model


class Cells:
    """Final losses and runs by (variant, γ, d_model), each by seed."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs: dict[Cell, dict[int, Run]] = {}
        for run in runs:
            config = run.config
            cell = (config.variant, config.init.gamma, config.model.d_model)
            arm = self.runs.setdefault(cell, {})
            if run.seed in arm:
                raise UserError(
                    f"Two arms stand for one cell of a claim: {arm[run.seed].arm} and {run.arm}; "
                    "name only one of them in configs/experiments/ for that object."
                )
            arm[run.seed] = run

    def widths(self, variant: str) -> list[int]:
        """Widths at which the variant was run with both γ, ascending."""
        found = [{d for v, g, d in self.runs if (v, g) == (variant, gamma)} for gamma in
                 (USUAL, SMALL)]  # fmt: skip
        return sorted(found[0] & found[1])

    def gammas(self, variant: str, width: int) -> list[float]:
        return sorted(g for v, g, d in self.runs if (v, d) == (variant, width))

    def has(self, cells: Iterable[Cell]) -> bool:
        return all(cell in self.runs for cell in cells)

    def seeds(self, cells: Iterable[Cell]) -> list[int]:
        """Seeds that every one of the cells has."""
        sets = [set(self.runs.get(cell, {})) for cell in cells]
        return sorted(set.intersection(*sets)) if sets else []

    def loss(self, cell: Cell, seed: int) -> float:
        return self.runs[cell][seed].val_loss

    def gain(self, variant: str, width: int, seed: int) -> float:
        """Δ = L(0.5) − L(1) of one seed."""
        usual, small = ((variant, gamma, width) for gamma in (USUAL, SMALL))
        return self.loss(usual, seed) - self.loss(small, seed)

    def size(self, variant: str, width: int) -> int:
        """Parameters without embedding and readout."""
        runs = self.runs[(variant, SMALL, width)].values()
        return next(iter(runs)).metrics["parameters"]["non_embedding"]


def both_gammas(variants: Iterable[str], widths: Iterable[int]) -> list[Cell]:
    return list(itertools.product(variants, (USUAL, SMALL), widths))


def of_one_context(runs: Sequence[Run]) -> list[Run]:
    """The runs at the context length that most have; the claims are about one length."""
    lengths = [run.config.model.context for run in runs]
    usual = max(set(lengths), key=lengths.count, default=None)
    return [run for run, length in zip(runs, lengths, strict=True) if length == usual]


# --- words ---------------------------------------------------------------------------------------


def number_text(interval: Interval, unit: str = " nats") -> str:
    text = f"{interval.estimate:+.3f}{unit}"
    if interval.low is None or interval.high is None:
        return f"{text} (n = {interval.n}: no interval)"
    return f"{text} [{interval.low:+.3f}, {interval.high:+.3f}], n = {interval.n}"


def gain_texts(cells: Cells, variant: str, widths: Sequence[int]) -> dict[str, str]:
    out = {}
    for width in widths:
        seeds = cells.seeds(both_gammas([variant], [width]))
        gains = [cells.gain(variant, width, seed) for seed in seeds]
        if gains:
            interval = mean_interval(gains)
            out[f"Δ, {variant}, d = {width}"] = number_text(interval)
    return out
