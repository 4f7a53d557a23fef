"""Do the weights condense and expand again: claim C8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import PairedLosses, both_gammas, of_one_context
from small_init.claims.verdicts import Condition, Evidence
from small_init.config import Corpus, Probes
from small_init.measure.spectra import random_stable_rank
from small_init.runs.record import Run

MIN_STEPS = 10  # with spectra, after step 0


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


def share_of_random(run: Run) -> pd.Series:
    """Step → stable rank of a run's up projections, mean over layers, as a share of a random
    matrix's of their shape; ranks of different widths compare as such shares only."""
    spectra = run.spectra
    up = spectra[spectra["weight"].str.endswith(".mlp.up.weight")]
    # The up projections of a run are all of one shape.
    shape = run.init["weights"][up["weight"].iloc[0]]["shape"]
    return up.groupby("step")["stable_rank"].mean() / random_stable_rank(*shape[-2:])


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


def condensation(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C8: does the stable rank of the up projections dip and rise at γ = 1, and less at γ = 0.5?

    Of the adjusted variant at the largest width, over the seeds that both γ have: `Dip.rise`, as a
    share of the random-matrix value, for W and for the update W − c·W₀; each at γ = 1, and at
    γ = 1 minus γ = 0.5. Replicated if all four are above `rise`, against it if one is below. Not
    testable with spectra at fewer than ten steps after step 0.
    """
    # Figure 6 reads every run; those of the claim recorded all probes, on text, at one length.
    probed = [r for r in runs if r.config.train.probes is Probes.all]
    text = [r for r in probed if r.config.train.corpus is Corpus.packed]
    losses, c, rise = PairedLosses(of_one_context(text)), rules.confidence, claim.thresholds["rise"]
    widths = losses.widths("adjusted")
    if not widths:
        return Evidence(0)
    usual, small = both_gammas(["adjusted"], widths[-1:])
    seeds = losses.seeds([usual, small])
    if not seeds:
        return Evidence(0)
    tables = {
        setting: {seed: losses.runs[setting][seed].spectra for seed in seeds}
        for setting in (usual, small)
    }
    steps = min(len(set(t["step"])) - 1 for arm in tables.values() for t in arm.values())
    required, against = [], []
    for column, name in (("stable_rank", "W"), ("update_stable_rank", "W − c·W₀")):
        value = {
            setting: {seed: dip_and_rise(table, column).rise for seed, table in arm.items()}
            for setting, arm in tables.items()
        }
        excess = {seed: value[small][seed] - value[usual][seed] for seed in seeds}
        for what, values in (("at γ = 1", value[small]), ("at γ = 1 minus γ = 0.5", excess)):
            quantity = f"rise of the stable rank of {name} {what}, share of random"
            required.append(Condition(quantity, values, "above", rise, c))
            against.append(Condition(quantity, values, "below", rise, c))
    few = f"spectra were recorded at {steps} steps after step 0" if steps < MIN_STEPS else None
    return Evidence(len(seeds), required, {}, against, {}, few)
