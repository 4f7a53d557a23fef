"""The contrasts of the claims that look inside: tokens (C6) and weights (C8), and the sink (C3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import Cell, Cells, both_gammas, number_text, of_one_context
from small_init.claims.verdicts import Condition, Evidence
from small_init.config import Corpus, Probes
from small_init.measure.targets import load_log_probabilities, load_targets
from small_init.runs.record import Run
from small_init.stats.documents import Array, cross_fitted_difficulty, deciles, symmetric_gap
from small_init.stats.intervals import mean_interval


def largest_alpha(run: Run) -> float:
    """The largest α_0 (attention to the first token, all queries) of any head at any step."""
    table = run.activations
    return float(table.loc[table["probe"] == "first_token_alpha", "value"].max())


def difficult_tokens(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C6, over single tokens; Figure 5 draws units and gives both."""
    longest = max((run.metrics["tokens"] for run in runs), default=0)
    cells = Cells(run for run in runs if run.metrics["tokens"] == longest)
    widths = cells.widths("adjusted")
    if not widths:
        return Evidence(0)
    usual, small = both_gammas(["adjusted"], widths[-1:])
    seeds = cells.seeds([usual, small])
    if len(seeds) < 2:  # difficulty comes from the other seeds
        return Evidence(0)
    log_p = {cell: _log_probabilities(cells, cell, seeds) for cell in (usual, small)}
    gap_SN = symmetric_gap(log_p[small], log_p[usual])
    decile_SN = [deciles(d) for d in cross_fitted_difficulty(-log_p[small], -log_p[usual])]
    first, last = (int(claim.thresholds[name]) for name in ("mid_first", "mid_last"))
    required, against = [], []
    for number, name in ((1, "the easiest"), (10, "the hardest")):
        values = {}
        for seed, gap_N, decile_N in zip(seeds, gap_SN, decile_SN, strict=True):
            middle = (decile_N + 1 >= first) & (decile_N + 1 <= last)
            values[seed] = float(gap_N[middle].mean() - gap_N[decile_N + 1 == number].mean())
        quantity = f"Δ_sym of deciles {first}–{last} minus that of {name} decile"
        required.append(Condition(quantity, values, "above", 0.0, rules.confidence))
        against.append(Condition(quantity, values, "below", 0.0, rules.confidence))
    gains = [cells.gain("adjusted", widths[-1], seed) for seed in seeds]
    gain = mean_interval(gains, rules.confidence)
    none = gain.high is not None and gain.high < rules.smallest_effect
    reason = (
        f"Δ over all tokens is {number_text(gain)}: there is no gain to locate" if none else None
    )
    return Evidence(len(seeds), required, {}, against, {}, reason)


def _log_probabilities(cells: Cells, cell: Cell, seeds: Sequence[int]) -> Array:
    """Of every target, a row per seed: (S, N)."""
    runs = [cells.runs[cell][seed] for seed in seeds]
    targets = load_targets(runs[0].metrics["profile"])
    return np.stack(
        [
            load_log_probabilities(run.metrics["profile"], run.arm, run.seed, targets).astype(float)
            for run in runs
        ]
    )


def condensation(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C8."""
    # Figure 6 reads every run; those of the claim recorded all probes, on text, at one length.
    probed = [r for r in runs if r.config.train.probes is Probes.all]
    text = [r for r in probed if r.config.train.corpus is Corpus.packed]
    cells, c, rise = Cells(of_one_context(text)), rules.confidence, claim.thresholds["rise"]
    widths = cells.widths("adjusted")
    if not widths:
        return Evidence(0)
    wanted = both_gammas(["adjusted"], widths[-1:])
    seeds = cells.seeds(wanted)
    if not seeds:
        return Evidence(0)
    tables = {cell: {seed: cells.runs[cell][seed].spectra for seed in seeds} for cell in wanted}
    steps = min(len(set(t["step"])) - 1 for arm in tables.values() for t in arm.values())
    usual, small = wanted
    required, against = [], []
    for column, name in (("stable_rank", "W"), ("update_stable_rank", "W − c·W₀")):
        value = {
            cell: {seed: dip_and_rise(table, column).rise for seed, table in arm.items()}
            for cell, arm in tables.items()
        }
        excess = {seed: value[small][seed] - value[usual][seed] for seed in seeds}
        for what, values in (("at γ = 1", value[small]), ("at γ = 1 minus γ = 0.5", excess)):
            quantity = f"rise of the stable rank of {name} {what}, share of random"
            required.append(Condition(quantity, values, "above", rise, c))
            against.append(Condition(quantity, values, "below", rise, c))
    few = f"spectra were recorded at {steps} steps after step 0" if steps < 10 else None
    return Evidence(len(seeds), required, {}, against, {}, few)


@dataclass(frozen=True)
class Dip:
    """Course of the stable rank after step 0, as a share of the random-matrix value."""

    step: int  # where it is lowest
    lowest: float
    last: float
    rise: float  # C8's statistic


def dip_and_rise(spectra: Any, column: str, group: str = "mlp.up") -> Dip:
    """`dip_of` of a `column` of spectra.csv, averaged over the layers of a weight type."""
    mine = spectra[spectra["weight"].str.endswith(f".{group}.weight") & (spectra["step"] > 0)]
    share = (mine[column] / mine["random_stable_rank"]).groupby(mine["step"]).mean()
    return dip_of(share, random_start=column == "stable_rank")


def dip_of(share: Any, random_start: bool) -> Dip:
    """The dip of a stable rank by step, a share of the random value, after step 0 (claim C8).

    For W, whose start is random, the rise is the smaller of (1 − lowest) and (last − lowest): a
    fall and a recovery. The update has no such start: its rise is (last − lowest) alone.
    """
    lowest, last = float(share.min()), float(share.iloc[-1])
    rise = last - lowest
    if random_start:
        rise = min(rise, 1 - lowest)
    return Dip(int(share.idxmin()), lowest, last, rise)
