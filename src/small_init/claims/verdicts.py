"""Verdicts on the paper's claims, from evidence by the criteria in claims.yaml.

`contrasts` turns runs into `Evidence`: the contrasts of a claim's criterion, seed by seed.
`judge_all` reads any evidence in the order that `rules.verdicts` states. Only confirmatory seeds
decide; what the pilots show is kept beside, and labelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from small_init.claims.criteria import IDS, Claim, ClaimSet, Rules
from small_init.stats.intervals import (
    Estimate,
    Interval,
    holm,
    mean_interval,
    minimum_detectable_effect,
    noncentrality,
    p_value,
)

POWER = 0.8


class Verdict(Enum):
    """What a criterion can say."""

    replicated = "replicated"
    not_replicated = "not replicated"
    inconclusive = "inconclusive"
    not_testable = "not testable at this scale"


@dataclass(frozen=True)
class Condition:
    """The interval of a quantity, one value per seed, lies wholly above or below a bound."""

    quantity: str
    values: Mapping[int, float]
    side: str  # "above": its lower limit is above the bound; "below": its upper limit below
    bound: float
    confidence: float

    @property
    def interval(self) -> Interval:
        return mean_interval(self.values.values(), self.confidence)

    @property
    def holds(self) -> bool:
        low, high = self.interval.low, self.interval.high
        if low is None or high is None:
            return False
        return low > self.bound if self.side == "above" else high < self.bound

    @property
    def p_value(self) -> float:
        """Two-sided, of the mean against the bound."""
        return p_value(list(self.values.values()), self.bound)

    def detectable(self, alpha: float) -> float | None:
        """The true value that would have met the condition with probability `POWER`."""
        values = np.array(list(self.values.values()))
        if len(values) < 2:
            return None
        sd = float(values.std(ddof=1))
        effect = minimum_detectable_effect(sd, len(values), 1 - alpha, POWER)
        assert effect is not None
        return self.bound + (effect if self.side == "above" else -effect)


@dataclass(frozen=True)
class EstimateCondition(Condition):
    """The same of a number that is no mean over seeds; it has no `values`."""

    estimate: Estimate

    @property
    def interval(self) -> Interval:
        return self.estimate.interval(self.confidence)

    @property
    def p_value(self) -> float:
        return self.estimate.p_value(self.bound)

    def detectable(self, alpha: float) -> float | None:
        away = self.estimate.error * noncentrality(self.estimate.freedom, 1 - alpha, POWER)
        return self.bound + (away if self.side == "above" else -away)


@dataclass(frozen=True)
class Evidence:
    """What the runs of one kind (confirmatory or pilot) say about one claim.

    Without a pair the conditions have no values and are not to be asked.
    """

    pairs: int  # seeds that every arm of the contrast has
    required: Sequence[Condition] = ()  # all of them, for "replicated"
    points: Mapping[str, tuple[float, bool]] = field(default_factory=dict)  # required, without p
    against: Sequence[Condition] = ()  # any of them, for "not replicated"
    against_points: Mapping[str, bool] = field(default_factory=dict)
    not_testable: str | None = None
    beside: Mapping[str, str] = field(default_factory=dict)  # secondary numbers, in words


# --- judging -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judgement:
    """One claim's verdict, what it rests on, and what the pilots show beside it."""

    claim: Claim
    verdict: Verdict
    why: str
    evidence: Evidence  # of confirmatory seeds
    pilot: Evidence
    p_value: float
    p_adjusted: float  # Holm, over all claims of the file


def judge_all(
    claims: ClaimSet,
    evidence: Mapping[str, Evidence],
    pilots: Mapping[str, Evidence],
    waiting: Mapping[str, str] | None = None,
) -> list[Judgement]:
    """Verdicts in the order of the file; `evidence` and `pilots` name every claim.

    A claim in `waiting` (claim → why) is not judged: with fixed lists of seeds there is no looking
    early.
    """
    waiting = waiting or {}
    rules = claims.rules
    p_values = {
        claim.id: 1.0 if claim.id in waiting else _p_value(evidence[claim.id], rules)
        for claim in claims.claims
    }
    adjusted = holm(p_values)
    out = []
    for claim in claims.claims:
        found = evidence[claim.id]
        if claim.id in waiting:
            verdict, why = Verdict.inconclusive, f"to be judged: {waiting[claim.id]}"
        else:
            verdict, why = _judge(found, adjusted[claim.id], rules)
        p = p_values[claim.id]
        out.append(Judgement(claim, verdict, why, found, pilots[claim.id], p, adjusted[claim.id]))
    return out


def _decides(evidence: Evidence, rules: Rules) -> bool:
    return evidence.pairs >= rules.min_pairs and evidence.not_testable is None


def _p_value(evidence: Evidence, rules: Rules) -> float:
    if not (_decides(evidence, rules) and evidence.required):
        return 1.0
    return max(condition.p_value for condition in evidence.required)


def _judge(evidence: Evidence, p_adjusted: float, rules: Rules) -> tuple[Verdict, str]:
    if evidence.pairs < rules.min_pairs:
        reason = f"{evidence.pairs} confirmatory pairs, {rules.min_pairs} are needed"
        return Verdict.inconclusive, reason
    if evidence.not_testable:
        return Verdict.not_testable, evidence.not_testable
    failed = [c.quantity for c in evidence.required if not c.holds]
    failed += [name for name, (_, holds) in evidence.points.items() if not holds]
    if not failed and p_adjusted < rules.alpha:
        return Verdict.replicated, f"every condition holds, adjusted p = {p_adjusted:.2g}"
    met = [c.quantity for c in evidence.against if c.holds]
    met += [name for name, holds in evidence.against_points.items() if holds]
    if met:
        return Verdict.not_replicated, f"against it: {met[0]}"
    if failed:
        return Verdict.inconclusive, f"not shown: {failed[0]}"
    return Verdict.inconclusive, f"p = {p_adjusted:.2g} after Holm's adjustment"


# --- as data -------------------------------------------------------------------------------------


def plain(judgement: Judgement, rules: Rules) -> dict[str, Any]:
    """A judgement as what JSON can hold; `claims.json` is a list of these."""
    claim = judgement.claim
    return {
        "id": claim.id,
        "statement": claim.statement,
        "object": claim.object,
        "criterion": claim.criterion.replicated,
        "scale_note": claim.scale_note,
        "verdict": judgement.verdict.value,
        "why": judgement.why,
        "p_value": judgement.p_value,
        "p_adjusted": judgement.p_adjusted,
        "confirmatory": _plain_evidence(judgement.evidence, rules),
        "pilot": _plain_evidence(judgement.pilot, rules),
    }


def _plain_evidence(evidence: Evidence, rules: Rules) -> dict[str, Any]:
    conditions = evidence.required if evidence.pairs else ()
    return {
        "pairs": evidence.pairs,
        "not_testable": evidence.not_testable,
        "conditions": [_plain_condition(condition, rules) for condition in conditions],
        "points": [
            {"quantity": name, "estimate": value, "holds": holds}
            for name, (value, holds) in evidence.points.items()
        ],
        "beside": dict(evidence.beside),
    }


def _plain_condition(condition: Condition, rules: Rules) -> dict[str, Any]:
    interval = condition.interval
    return {
        "quantity": condition.quantity,
        "estimate": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
        "side": condition.side,
        "bound": condition.bound,
        "holds": condition.holds,
        "detectable": condition.detectable(rules.alpha),
        "detectable_holm": condition.detectable(rules.alpha / len(IDS)),
    }
