"""Claim S, and what C5 takes from it, on planted losses: the rule, a constant, and neither."""

import math

import pytest

from small_init.claims.contrasts.best_std import best_std_exponent, best_stds
from small_init.claims.contrasts.optimum import critical_scale
from small_init.claims.criteria import load_claims
from small_init.claims.gains import PairedLosses
from small_init.claims.verdicts import Evidence, Verdict, judge_all
from tests import ROOT
from tests.claims.test_verdicts import run

CLAIMS = load_claims(ROOT / "paper/claims.yaml")
SEEDS = (10, 11, 12, 13, 14)
POWERS = (9, 7.5, 6, 4.5, 3)


def planted(best, widths=(32, 64, 128), seeds=SEEDS, extra=()):
    """Runs whose loss is lowest at σ = best(d); `extra` are (width, γ) beside the common σ."""
    places = [(d, round(p * math.log(2) / math.log(d), 6)) for d in widths for p in POWERS]
    out = []
    for width, gamma in [*places, *extra]:
        for seed in seeds:
            away = math.log(width**-gamma / best(width))
            wiggle = 0.001 * math.sin(7 * seed + 3 * gamma + width)
            out.append(run("adjusted", gamma, width, seed, 3 + 0.02 * away**2 + wiggle))
    return out


def judged(claim_id: str, found: Evidence):
    by_claim = {claim.id: Evidence(0) for claim in CLAIMS.claims} | {claim_id: found}
    (one,) = [j for j in judge_all(CLAIMS, by_claim, by_claim) if j.claim.id == claim_id]
    return one.verdict, one.why


def evidence(runs) -> Evidence:
    return best_std_exponent(runs, CLAIMS["S"], CLAIMS.rules)


def test_the_rule_is_replicated():
    found = evidence(planted(lambda d: 0.7 / d))
    assert found.required[0].interval.estimate == pytest.approx(1.0, abs=0.05)
    assert judged("S", found)[0] is Verdict.replicated


@pytest.mark.parametrize("rule", [0.0, 0.5, 1.6])
def test_another_exponent_is_not(rule):
    verdict, why = judged("S", evidence(planted(lambda d: 0.012 * (64 / d) ** rule)))
    assert verdict is Verdict.not_replicated
    assert "exponent" in why


def test_an_optimum_at_an_edge_decides_nothing():
    found = evidence(planted(lambda d: 1e-3 if d == 32 else 0.7 / d))
    verdict, why = judged("S", found)
    assert verdict is Verdict.inconclusive
    assert "edge of the grid at d = 32" in why


def test_two_widths_cannot_be_asked():
    assert judged("S", evidence(planted(lambda d: 0.7 / d, (32, 64))))[0] is Verdict.not_testable


def test_four_seeds_at_one_width_are_too_few():
    runs = [r for r in planted(lambda d: 0.7 / d) if (r.config.model.d_model, r.seed) != (64, 14)]
    assert evidence(runs).pairs == 4
    assert judged("S", evidence(runs))[0] is Verdict.inconclusive


def test_a_gamma_that_one_width_alone_ran_moves_no_vertex():
    plain = best_stds(PairedLosses(planted(lambda d: 0.7 / d)))
    more = planted(lambda d: 0.7 / d, extra=((32, 1.0), (32, 1.25)))
    assert best_stds(PairedLosses(more)) == plain


def sweep(best):
    """What Figure 4 reads: the common σ, and γ = 0.75, 1 and 1.25 at d = 32 too."""
    return planted(best, extra=((32, 0.75), (32, 1.0), (32, 1.25)))


def c5(best):
    return judged("C5", critical_scale(sweep(best), CLAIMS["C5"], CLAIMS.rules))


def test_c5_holds_where_the_best_std_is_that_of_gamma_one():
    assert c5(lambda d: 1 / d)[0] is Verdict.replicated


def test_c5_fails_where_more_than_one_is_better():
    verdict, why = c5(lambda d: d**-1.5)
    assert verdict is Verdict.not_replicated
    assert "L(1.25)" in why or "exponent" in why


def test_c5_fails_where_the_best_std_is_a_constant():
    assert c5(lambda d: 0.02)[0] is Verdict.not_replicated
