"""Losses arranged as the claims compare them: by variant, γ and width, paired by seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from small_init.config import Scheme, group_gammas
from small_init.errors import UserError
from small_init.runs.record import Run
from small_init.runs.table import run_table
from small_init.stats.intervals import Interval, mean_interval

USUAL, SMALL = 0.5, 1.0  # the two γ compared

Setting = tuple[str, float, int]  # variant, γ, d_model


class PairedLosses:
    """Final losses (nats per token) by setting and seed, with the runs they are of.

    Runs of one seed share their data order and their normal draws, so a difference between two
    settings is taken seed by seed.

    Raises:
        UserError: two arms have one setting, and would be paired as if they were one.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        runs = list(runs)
        self.runs: dict[Setting, dict[int, Run]] = {}
        self._losses: dict[Setting, dict[int, float]] = {}
        self._sizes: dict[Setting, int] = {}
        rows: Iterable[Any] = run_table(runs).itertuples()
        for run, row in zip(runs, rows, strict=True):
            setting = (row.variant, row.gamma, row.d_model)
            arm = self.runs.setdefault(setting, {})
            if row.seed in arm:
                raise UserError(
                    f"Two arms stand for one setting of a claim: {arm[row.seed].arm} and "
                    f"{row.arm}; name only one of them in configs/experiments/ for that object."
                )
            arm[row.seed] = run
            self._losses.setdefault(setting, {})[row.seed] = row.val_loss
            self._sizes[setting] = row.parameters_non_embedding

    def widths(self, variant: str) -> list[int]:
        """Widths at which the variant was run with both γ, ascending."""
        usual, small = ({d for v, g, d in self.runs if (v, g) == (variant, gamma)}
                        for gamma in (USUAL, SMALL))  # fmt: skip
        return sorted(usual & small)

    def gammas(self, variant: str, width: int) -> list[float]:
        return sorted(g for v, g, d in self.runs if (v, d) == (variant, width))

    def has(self, settings: Iterable[Setting]) -> bool:
        return all(setting in self.runs for setting in settings)

    def seeds(self, settings: Iterable[Setting]) -> list[int]:
        """Seeds that every one of the settings has."""
        sets = [set(self.runs.get(setting, {})) for setting in settings]
        return sorted(set.intersection(*sets)) if sets else []

    def loss(self, setting: Setting, seed: int) -> float:
        """Nats per token."""
        return self._losses[setting][seed]

    def by_seed(self, setting: Setting) -> dict[int, float]:
        """Seed → loss, nats per token."""
        return self._losses.get(setting, {})

    def gain(self, variant: str, width: int, seed: int) -> float:
        """Δ = L(0.5) − L(1) of one seed, nats per token: positive where γ = 1 is better."""
        usual, small = ((variant, gamma, width) for gamma in (USUAL, SMALL))
        return self.loss(usual, seed) - self.loss(small, seed)

    def gains(self, variant: str, width: int) -> dict[int, float]:
        """Seed → Δ, of the seeds that both γ have at this width."""
        seeds = self.seeds(both_gammas([variant], [width]))
        return {seed: self.gain(variant, width, seed) for seed in seeds}

    def size(self, variant: str, width: int) -> int:
        """Parameters without embedding and readout, the same for every γ."""
        return next(self._sizes[s] for s in self._sizes if (s[0], s[2]) == (variant, width))


def both_gammas(variants: Iterable[str], widths: Iterable[int]) -> list[Setting]:
    return list(itertools.product(variants, (USUAL, SMALL), widths))


def of_one_context(runs: Sequence[Run]) -> list[Run]:
    """The runs at the context length that most have; the claims are about one length."""
    lengths = [run.config.model.context for run in runs]
    usual = max(set(lengths), key=lengths.count, default=None)
    return [run for run, length in zip(runs, lengths, strict=True) if length == usual]


def of_the_rule(runs: Iterable[Run]) -> list[Run]:
    """The runs whose every weight has its standard deviation by one γ: no other scheme, no group
    of weights with a γ of its own."""
    return [
        run
        for run in runs
        if run.config.init.scheme is Scheme.gamma and not group_gammas(run.config.init)
    ]


def widths_of_scale(losses: PairedLosses, named: tuple[int, ...]) -> tuple[int, ...]:
    """The widths a claim names (those of the cpu profile); at a scale that ran none of them the
    largest that it ran instead, as many or as there are."""
    there = sorted({width for _, _, width in losses.runs})
    return named if not there or set(named) & set(there) else tuple(there[-len(named) :])


# --- words ---------------------------------------------------------------------------------------


def number_text(interval: Interval, unit: str = " nats") -> str:
    text = f"{interval.estimate:+.3f}{unit}"
    if interval.low is None or interval.high is None:
        return f"{text} (n = {interval.n}: no interval)"
    return f"{text} [{interval.low:+.3f}, {interval.high:+.3f}], n = {interval.n}"


def gain_texts(losses: PairedLosses, variant: str, widths: Sequence[int]) -> dict[str, str]:
    """Δ with its interval at each width that has a pair."""
    gains = {width: losses.gains(variant, width) for width in widths}
    return {
        f"Δ, {variant}, d = {width}": number_text(mean_interval(found.values()))
        for width, found in gains.items()
        if found
    }
