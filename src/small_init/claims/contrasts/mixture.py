"""Does it hold for mixtures of experts: claim C9."""

from __future__ import annotations

from collections.abc import Sequence

from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import PairedLosses, both_gammas, gain_texts, widths_of_scale
from small_init.claims.verdicts import Condition, Evidence
from small_init.runs.record import Run

WIDTH = (32,)  # that paper/claims.yaml names; see `widths_of_scale`


def mixture_of_experts(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C9: is γ = 1 better in a mixture of experts?

    Δ, nats per token, of the mixtures in the adjusted variant; the object also holds the dense
    models they are compared with. Replicated if it is above smallest_effect, against it if below.
    Not testable where no mixture was run with both γ.
    """
    losses = PairedLosses(run for run in runs if run.config.model.n_experts > 0)
    (width,) = widths_of_scale(losses, WIDTH)
    if not losses.has(both_gammas(["adjusted"], [width])):
        return Evidence(0, not_testable="no mixture-of-experts arm was run")
    gains = losses.gains("adjusted", width)
    above, below = (
        Condition(
            f"Δ, mixture of experts, d = {width}", gains, side, rules.smallest_effect,
            rules.confidence,
        )
        for side in ("above", "below")
    )  # fmt: skip
    beside = gain_texts(losses, "standard", [width])
    return Evidence(len(gains), [above], {}, [below], {}, None, beside)
