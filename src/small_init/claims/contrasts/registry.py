"""Which function computes the evidence of which claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from small_init.claims.contrasts.best_std import best_std_exponent
from small_init.claims.contrasts.condensation import condensation
from small_init.claims.contrasts.default import good_default
from small_init.claims.contrasts.factors import epsilon_barrier, gate_barrier
from small_init.claims.contrasts.ladder import shrinking_gain, widened_gain
from small_init.claims.contrasts.mixture import mixture_of_experts
from small_init.claims.contrasts.optimum import critical_scale
from small_init.claims.contrasts.task_families import at_equal_loss, reasoning_gain
from small_init.claims.contrasts.token_difficulty import difficult_tokens
from small_init.claims.criteria import Claim, ClaimSet, Rules
from small_init.claims.verdicts import Evidence
from small_init.runs.record import Run

CONTRASTS: dict[str, Callable[[Sequence[Run], Claim, Rules], Evidence]] = {
    "C1": shrinking_gain,
    "C2": epsilon_barrier,
    "C3": gate_barrier,
    "C4": widened_gain,
    "C5": critical_scale,
    "C6": difficult_tokens,
    "C7": reasoning_gain,
    "C8": condensation,
    "C9": mixture_of_experts,
    "R": good_default,
    "S": best_std_exponent,
}


def evidence_of(
    claims: ClaimSet, runs: Mapping[str, Sequence[Run]], pilot: bool
) -> dict[str, Evidence]:
    """Evidence per claim from the runs of its object, of pilot or of confirmatory seeds only."""
    found = {}
    for claim in claims.claims:
        # Before the seeds are parted: the pilots say which run has the equal loss.
        read = {(r.arm, r.seed): r for name in claim.objects for r in runs.get(name, [])}
        mine = at_equal_loss(list(read.values()), claim)
        mine = [run for run in mine if run.pilot is pilot]
        found[claim.id] = CONTRASTS[claim.id](mine, claim, claims.rules)
    return found
