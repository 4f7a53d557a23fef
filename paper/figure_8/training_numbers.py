"""The numbers of Figure 8's last page: equal loss by length, weight norms, code lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from paper.figure_8.numbers import UNCHANGED, gains, rows_of, smallest_width
from small_init.claims.gains import SMALL, USUAL
from small_init.runs.record import Run
from small_init.stats.fits import effective_size

GAMMAS = (USUAL, SMALL)


# --- run length ----------------------------------------------------------------------------------


def curve_of(run: Run, gamma: float, length: int) -> pd.DataFrame:
    """The validation losses of a run by tokens; `length` is what it was planned for."""
    curve = run.curve[["tokens", "val_loss"]]
    return curve[curve["tokens"] > 0].assign(gamma=gamma, length=length, seed=run.seed)


def equal_losses(by_length: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Per length and γ, how many tokens that γ needs for what the other one reaches with the
    length; on means over the seeds that all the runs compared have.

    Method `complete`: interpolated in ln(tokens) between complete runs. Where γ = 1 reaches the
    loss with less than its shortest run, `curve`: where this run's validation loss passes the last
    one of γ = 0.5; an upper bound, since a run that ends there would have had its rate lowered.
    """
    by_cell: Any = by_length.groupby(["gamma", "tokens"])
    cells = {key: cell.set_index("seed")["val_loss"] for key, cell in by_cell}
    rows = []
    for gamma, other in ((SMALL, USUAL), (USUAL, SMALL)):
        lengths = sorted(length for g, length in cells if g == gamma)
        for length in sorted(length for g, length in cells if g == other):
            wanted = [cells[other, length], *(cells[gamma, mine] for mine in lengths)]
            seeds = sorted(set.intersection(*(set(cell.index) for cell in wanted)))
            if not seeds:
                continue
            target, *complete = (float(cell[seeds].mean()) for cell in wanted)
            found = effective_size(lengths, complete, target)
            row = {"gamma": gamma, "length": length, "seeds": len(seeds)}
            if found.size is not None:
                rows.append(row | {"method": "complete", "tokens_needed": found.size})
            elif gamma == SMALL and target > max(complete):
                some = curves[curves["seed"].isin(seeds)]
                needed = crossing(some, length, lengths[0])
                rows.append(row | {"method": "curve", "tokens_needed": needed})
    return pd.DataFrame(rows, columns=["gamma", "length", "seeds", "method", "tokens_needed"])


def crossing(curves: pd.DataFrame, length: int, shortest: int) -> float:
    """Tokens at which the mean curve of γ = 1, the run of `shortest` tokens, falls to where that of
    γ = 0.5, the run of `length`, ends; interpolated in ln(tokens)."""
    mean = curves.groupby(["gamma", "length", "tokens"])["val_loss"].mean()
    target = mean[USUAL, length].iloc[-1]
    falling = mean[SMALL, shortest].cummin()
    return math.exp(np.interp(-target, -falling.to_numpy(), np.log(falling.index.to_numpy())))


# --- weights and codes ---------------------------------------------------------------------------


def norm_table(by_arm: Mapping[tuple[str, int], Run], compared: pd.DataFrame) -> pd.DataFrame:
    """Rms of all matrices in the blocks by step, for the recipe, its weight decays and its longest
    run; and as a share of √(rate / (2 · weight decay)), where AdamW's steps of size `rate` without
    a direction would bring it."""
    decays = compared["fields"].isin([(), ("optimizer.weight_decay",)])
    longest = compared["tokens"] == compared["tokens"].max()
    long_runs = (compared["fields"] == ("train.tokens",)) & longest
    tables = []
    for row in rows_of(compared[decays | long_runs]):
        run = by_arm[row.arm, row.seed]
        optimizer = run.config.optimizer
        rms = block_rms(run)
        scale = equilibrium(optimizer.lr, optimizer.weight_decay)
        tables.append(
            rms.reset_index().assign(
                gamma=row.gamma, change=row.change, seed=row.seed, share=rms.to_numpy() / scale
            )
        )
    return pd.concat(tables, ignore_index=True)


def equilibrium(rate: float, decay: float) -> float:
    return math.sqrt(rate / (2 * decay)) if decay > 0 else math.nan


def block_rms(run: Run) -> pd.Series:
    """Step → rms over all entries of the matrices in the blocks."""
    spectra = run.spectra
    inner = spectra[spectra["weight"].str.startswith("blocks.")]
    weights = run.init["weights"]
    entries = sum(math.prod(weights[name]["shape"]) for name in set(inner["weight"]))
    squares = inner["norm"].pow(2).groupby(inner["step"]).sum()
    return (squares / entries).pow(0.5).rename("rms")


def code_lengths(frame: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
    """Per change, and per rate at equal rates: the gain in final loss and in code length."""
    equal_rates = smallest_width(frame)
    equal_rates = equal_rates[
        (equal_rates["change"] == UNCHANGED)
        & ~equal_rates["recipe"]
        & equal_rates["gamma"].isin(GAMMAS)
    ]
    equal_rates = equal_rates.assign(change=[f"rate {rate:g}" for rate in equal_rates["lr"]])
    tables = []
    for rows, pair in ((compared, "change"), (equal_rates, "equal rate")):
        both = gains(rows, ["change"]).merge(
            gains(rows, ["change"], "prequential_nats_per_token")[["change", "gain"]],
            on="change",
            suffixes=("", "_code"),
        )
        arms = rows.groupby("change")["arm"].agg(set)
        tables.append(both.assign(pair=pair, arms=both["change"].map(arms)))
    return pd.concat([table for table in tables if len(table)], ignore_index=True)
