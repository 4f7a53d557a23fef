"""What a small ε and a gate add to the gain of γ = 1, in the 2×2×2 of γ, ε and gate: C2 and C3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import (
    SMALL,
    USUAL,
    PairedLosses,
    number_text,
    widths_of_scale,
)
from small_init.claims.verdicts import Condition, Evidence
from small_init.config import Probes
from small_init.runs.record import Run
from small_init.stats.factorial import Levels, effects_by_seed
from small_init.stats.intervals import mean_interval

WIDTH = (64,)  # that paper/claims.yaml names; see `widths_of_scale`
FACTORS = ("γ", "ε", "gate")  # high levels: γ = 1, ε = 1e-12, elementwise gate
# Variant → (small ε, gate); the large ε is the matched one.
FACTORIAL = {"standard": (False, False), "epsilon": (True, False), "gated": (False, True),
             "adjusted": (True, True)}  # fmt: skip


def factorial_losses(losses: PairedLosses, width: int) -> dict[Levels, dict[int, float]]:
    """(γ = 1, small ε, gate) → seed → loss (nats per token), of the combinations that were run."""
    settings = {
        (gamma == SMALL, *levels): (variant, gamma, width)
        for variant, levels in FACTORIAL.items()
        for gamma in (USUAL, SMALL)
    }
    return {
        levels: losses.by_seed(setting)
        for levels, setting in settings.items()
        if losses.has([setting])
    }


def is_full(design: dict[Levels, dict[int, float]]) -> bool:
    return len(design) == 2 ** len(FACTORS)


def interaction(losses: PairedLosses, factor: str) -> dict[int, float] | None:
    """Seed → by how much Δ is larger at the high level of a factor than at its low one, nats per
    token, mean over the levels of the other: the γ × factor interaction of the loss, sign turned.

    Over the seeds that all eight combinations have; None where one was not run.
    """
    (width,) = widths_of_scale(losses, WIDTH)
    design = factorial_losses(losses, width)
    if not is_full(design):
        return None
    on_loss = effects_by_seed(design, FACTORS)[f"γ × {factor}"]
    return {seed: -value for seed, value in on_loss.items()}


def _evidence(losses: PairedLosses, rules: Rules, factor: str, quantity: str) -> Evidence:
    values = interaction(losses, factor)
    above, below = (
        Condition(quantity, values or {}, side, rules.smallest_effect, rules.confidence)
        for side in ("above", "below")
    )
    missing = "one of the eight cells was not run" if values is None else None
    return Evidence(len(values or {}), required=[above], against=[below], not_testable=missing)


def epsilon_barrier(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C2: is Δ larger at ε = 1e-12 than at the matched ε?

    The difference in nats per token, mean over gate and no gate (`interaction`), of the four
    variants of the 2×2×2 at both γ. Replicated if it is above smallest_effect, against it if below.
    Not testable where one of the eight combinations was not run, or where at γ = 1 and the matched
    ε the first norm's output rms at step 0 (standard, no unit) is above `saturated`.
    """
    losses = PairedLosses(runs)
    evidence = _evidence(
        losses, rules, "ε", "Δ at ε = 1e-12 minus Δ at the matched ε, mean over gates"
    )
    (width,) = widths_of_scale(losses, WIDTH)
    rms = {
        variant: [
            run.init["residual_flow"]["attention_norm_rms"][0]
            for run in losses.runs.get((variant, SMALL, width), {}).values()
        ]
        for variant in ("standard", "epsilon")
    }
    beside = {
        f"first norm's output rms at step 0, γ = 1, {variant}": f"{np.mean(values):.3f}"
        for variant, values in rms.items()
        if values
    }
    saturated, reason = claim.thresholds["saturated"], evidence.not_testable
    if reason is None and rms["standard"] and np.mean(rms["standard"]) > saturated:
        reason = f"the first norm's output rms is above {saturated:g}: no barrier to remove"
    return replace(evidence, not_testable=reason, beside=beside)


def gate_barrier(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C3, the part on loss: is Δ larger with the attention gate than without?

    The difference in nats per token, mean over both ε (`interaction`), of the four variants of the
    2×2×2 at both γ. Replicated if it is above smallest_effect, against it if below; not testable
    where one of the eight combinations was not run. Beside it the part on attention to the first
    token: the largest share α_0 of any head at any step, against `sink`.
    """
    losses = PairedLosses(runs)
    evidence = _evidence(losses, rules, "gate", "Δ with the gate minus Δ without, mean over ε")
    (width,) = widths_of_scale(losses, WIDTH)
    without, gated = (("epsilon", SMALL, width), ("adjusted", SMALL, width))
    own = [
        losses.loss(without, seed) - losses.loss(gated, seed)
        for seed in losses.seeds([without, gated])
    ]
    beside = {}
    if own:
        beside["gain of the gate alone at γ = 1, ε = 1e-12"] = number_text(mean_interval(own))
    alpha = [largest_alpha(run) for run in runs if run.config.train.probes is Probes.all]
    if alpha:
        bound = claim.thresholds["sink"]
        says = "some head exceeds" if max(alpha) > bound else "not testable, no head exceeds"
        beside["the part on attention to the first token"] = (
            f"{says} {bound:g}; the largest share of any head at any step is {max(alpha):.3f}"
        )
    return replace(evidence, beside=beside)


def largest_alpha(run: Run) -> float:
    """The largest α_0 (attention to the first token, all queries) of any head at any step."""
    table = run.activations
    return float(table.loc[table["probe"] == "first_token_alpha", "value"].max())
