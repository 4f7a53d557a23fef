"""Verdicts read evidence in the order the rules state; contrasts compute what claims.yaml says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from small_init.claims.contrasts.condensation import dip_and_rise
from small_init.claims.contrasts.default import good_default
from small_init.claims.contrasts.factors import FACTORIAL, epsilon_barrier, gate_barrier
from small_init.claims.contrasts.ladder import shrinking_gain, widened_gain
from small_init.claims.contrasts.mixture import mixture_of_experts
from small_init.claims.contrasts.registry import CONTRASTS
from small_init.claims.contrasts.task_families import reasoning_gain
from small_init.claims.criteria import load_claims
from small_init.claims.gains import PairedLosses, widths_of_scale
from small_init.claims.verdicts import Condition, Evidence, Verdict, judge_all
from small_init.config import Probes
from small_init.files import json_text, write_text
from small_init.runs.paths import tasks_file
from small_init.runs.record import Run
from small_init.stats.intervals import minimum_detectable_effect
from tests import ROOT, records

CLAIMS = load_claims(ROOT / "paper" / "claims.yaml")
RULES = CLAIMS.rules
SEEDS = (10, 11, 12, 13, 14)
NOISE = dict(zip(SEEDS, (-0.002, -0.001, 0.0, 0.001, 0.002), strict=True))


def run(variant: str, gamma: float, width: int, seed: int, loss: float, **fields: Any) -> Run:
    """A run of the ladder; `fields` are of its model (`n_experts`), `tokens` or `scheme`."""
    scheme = fields.pop("scheme", "gamma")
    tokens = {name: fields.pop(name) for name in ("tokens",) if name in fields}
    config = records.config_of(
        {
            "variant": variant,
            "model": {"d_model": width, **fields},
            "init": {"gamma": gamma, "scheme": scheme},
            "train": {"probes": "none"},
        }
    )
    arm = f"{variant}-{gamma}-{width}-{scheme}"
    return records.run_of(config, arm=arm, seed=seed, loss=loss, **tokens)


def ladder(
    variants: dict[str, Callable[[float, int], float]], seeds: tuple[int, ...] = SEEDS
) -> list[Run]:
    """Runs whose Δ at (variant, width) is as given, with noise that pairs do not share."""
    out = []
    for variant, gain in variants.items():
        for width in (32, 48, 64):
            for seed in seeds:
                base = 4.0 - 0.3 * np.log(width / 32)
                noise = NOISE.get(seed, 0.0)
                out.append(run(variant, 0.5, width, seed, base + noise))
                out.append(run(variant, 1.0, width, seed, base - gain(1.0, width)))
    return out


def evidence(**fields: Any) -> Evidence:
    return Evidence(**{"pairs": 5} | fields)


def condition(
    mean: float, side: str = "above", bound: float = 0.02, spread: float = 1.0
) -> Condition:
    values = {seed: mean + spread * noise for seed, noise in NOISE.items()}
    return Condition("quantity", values, side, bound, 0.95)


def verdict(found: Evidence) -> tuple[Verdict, str]:
    nothing = Evidence(0)
    by_claim = {claim.id: nothing for claim in CLAIMS.claims} | {"C1": found}
    judged = judge_all(CLAIMS, by_claim, by_claim)[0]
    return judged.verdict, judged.why


def test_a_clear_effect_is_replicated() -> None:
    assert verdict(evidence(required=[condition(0.1)]))[0] is Verdict.replicated


def test_a_clear_absence_is_not_replicated() -> None:
    found = evidence(required=[condition(0.0)], against=[condition(0.0, "below")])
    assert verdict(found)[0] is Verdict.not_replicated


def test_a_wide_interval_is_inconclusive() -> None:
    wide = condition(0.05, spread=40)
    found = evidence(required=[wide], against=[condition(0.05, "below", spread=40)])
    assert verdict(found) == (Verdict.inconclusive, "not shown: quantity")


def test_fewer_than_five_pairs_decide_nothing_however_clear() -> None:
    found = evidence(pairs=4, required=[condition(0.5)])
    assert verdict(found)[0] is Verdict.inconclusive


def test_not_testable_comes_before_the_criteria() -> None:
    found = evidence(required=[condition(0.5)], not_testable="no barrier")
    assert verdict(found) == (Verdict.not_testable, "no barrier")


def test_one_failing_condition_of_several_is_enough() -> None:
    found = evidence(required=[condition(0.5), condition(0.0)])
    assert verdict(found)[0] is Verdict.inconclusive
    found = evidence(required=[condition(0.5)], points={"vertex": (1.4, False)})
    assert verdict(found)[0] is Verdict.inconclusive


def test_holm_counts_every_entry_of_the_file() -> None:
    # An interval that just clears the bound passes alone, and not as the smallest of ten.
    spread = 0.02 / (0.001 * 1.24 * np.sqrt(2.5))
    bare = condition(0.0405, spread=spread)
    assert bare.holds
    assert bare.p_value < RULES.alpha < 10 * bare.p_value
    assert verdict(evidence(required=[bare]))[0] is Verdict.inconclusive


def test_detectable_effect_includes_the_bound() -> None:
    above, below = condition(0.1), condition(0.1, "below")
    sd = float(np.std(list(NOISE.values()), ddof=1))
    mde = minimum_detectable_effect(sd, 5)
    assert mde is not None
    assert above.detectable(0.05) == pytest.approx(0.02 + mde)
    assert below.detectable(0.05) == pytest.approx(0.02 - mde)
    assert above.detectable(0.005) > above.detectable(0.05)


def test_a_claim_with_runs_to_come_is_not_judged_however_clear() -> None:
    nothing = {claim.id: Evidence(0) for claim in CLAIMS.claims}
    clear = nothing | {"C1": evidence(required=[condition(0.1)])}
    judged = judge_all(CLAIMS, clear, nothing, {"C1": "3 of 20 runs"})[0]
    assert judged.verdict is Verdict.inconclusive
    assert judged.why == "to be judged: 3 of 20 runs"
    assert judged.p_value == 1.0


# --- the contrasts -------------------------------------------------------------------------------


def c1(gain: Callable[[float, int], float]) -> Evidence:
    return shrinking_gain(ladder({"standard": gain}), CLAIMS["C1"], RULES)


def falling(first: float, per_doubling: float) -> Callable[[float, int], float]:
    return lambda _, width: first - per_doubling * np.log(width / 32) / np.log(2)


def test_c1_is_the_slope_over_the_ladder() -> None:
    found = c1(falling(0.1, 0.05))
    change, first, last = found.required
    assert found.pairs == 5
    assert change.interval.estimate == pytest.approx(-0.05, abs=1e-9)
    assert first.interval.estimate == pytest.approx(0.1)
    assert last.interval.estimate == pytest.approx(0.05)
    assert verdict(found)[0] is Verdict.replicated
    assert "an advantage is left" in found.beside["as the model grows"]
    assert "5 of 5 seeds (sign test p = 0.062)" in found.beside["as the model grows"]
    runs = ladder({"standard": falling(0.1, 0.05)})
    two = [r for r in runs if r.config.model.d_model < 64]
    assert "fewer than three" in shrinking_gain(two, CLAIMS["C1"], RULES).not_testable


def test_c1_an_advantage_that_reverses_is_not_one_that_shrinks() -> None:
    found = c1(falling(0.1, 0.2))
    assert "the advantage reverses" in found.beside["as the model grows"]
    assert verdict(found)[0] is Verdict.inconclusive


@pytest.mark.parametrize("gain", [falling(0.1, 0.0), falling(0.0, 0.05)])
def test_c1_without_a_fall_or_an_advantage_is_not_replicated(gain) -> None:
    assert verdict(c1(gain))[0] is Verdict.not_replicated


def test_c1_uses_every_pair_at_the_width_it_is_about() -> None:
    seeds = (*SEEDS, 15, 16, 17)
    runs = ladder({"standard": falling(0.1, 0.05)}, seeds)
    runs = [r for r in runs if r.config.model.d_model < 64 or r.seed in SEEDS]
    change, first, last = shrinking_gain(runs, CLAIMS["C1"], RULES).required
    assert [c.interval.n for c in (change, first, last)] == [5, 8, 5]


def test_runs_that_dip_too_far_are_counted(tmp_path: Path) -> None:
    """Half of the random stable rank at d = 32 and 48, a fifth at d = 64."""
    runs = []
    for one in ladder({"standard": falling(0.1, 0.05)}):
        width = one.config.model.d_model
        folder = tmp_path / f"{one.arm}-{one.seed}"
        folder.mkdir()
        rank = 10.0 * (0.2 if width == 64 else 0.5)
        name = "blocks.0.mlp.up.weight"
        rows = [(step, name, rank) for step in (0, 5, 10)]
        columns = ["step", "weight", "stable_rank"]
        pd.DataFrame(rows, columns=columns).to_csv(folder / "spectra.csv", index=False)
        # 40 · 40 / (2 √40)² = 10
        write_text(folder / "init.json", json_text({"weights": {name: {"shape": [40, 40]}}}))
        config = replace(one.config, train=replace(one.config.train, probes=Probes.weights))
        runs.append(replace(one, folder=folder, metrics=replace(one.metrics, config=config)))
    beside = shrinking_gain(runs, CLAIMS["C1"], RULES).beside
    assert beside["runs of γ = 1 that dip below 0.25 of random, standard, d = 48"] == "0 of 5"
    assert beside["runs of γ = 1 that dip below 0.25 of random, standard, d = 64"] == "5 of 5"
    assert "in the collapse regime" in beside


def factorial(seeds: tuple[int, ...] = SEEDS) -> list[Run]:
    """Δ = 0.1, + 0.03 with the small ε, + 0.05 with the gate."""
    out = []
    for variant, (small_eps, gated) in FACTORIAL.items():
        for seed in seeds:
            gain = 0.1 + 0.03 * small_eps + 0.05 * gated + NOISE.get(seed, 0.0)
            out.append(run(variant, 0.5, 64, seed, 3.5 + gain))
            out.append(run(variant, 1.0, 64, seed, 3.5))
    return out


def with_norm_rms(runs: list[Run], rms: float, tmp_path: Path) -> list[Run]:
    folder = tmp_path / f"{rms}"
    folder.mkdir()
    (folder / "init.json").write_text(f'{{"residual_flow": {{"attention_norm_rms": [{rms}]}}}}')
    return [replace(r, folder=folder) for r in runs]


def test_c2_and_c3_are_interactions_averaged_over_the_other_factor(tmp_path: Path) -> None:
    runs = with_norm_rms(factorial(), 0.5, tmp_path)
    c2, c3 = epsilon_barrier(runs, CLAIMS["C2"], RULES), gate_barrier(runs, CLAIMS["C3"], RULES)
    assert c2.required[0].interval.estimate == pytest.approx(0.03)
    assert c3.required[0].interval.estimate == pytest.approx(0.05)
    assert c2.not_testable is None
    assert (c2.pairs, c3.pairs) == (5, 5)


def test_c2_without_saturation_is_not_testable(tmp_path: Path) -> None:
    runs = with_norm_rms(factorial(), 0.99, tmp_path)
    assert "no barrier" in epsilon_barrier(runs, CLAIMS["C2"], RULES).not_testable


def test_a_missing_cell_is_named(tmp_path: Path) -> None:
    runs = [r for r in factorial() if r.config.variant != "gated"]
    found = gate_barrier(with_norm_rms(runs, 0.5, tmp_path), CLAIMS["C3"], RULES)
    assert "eight cells" in found.not_testable
    assert found.pairs == 0


def test_c4_is_the_difference_of_gains_and_a_gain_at_every_width() -> None:
    runs = ladder({"standard": lambda _, d: 0.02, "adjusted": lambda _, d: 0.12})
    found = widened_gain(runs, CLAIMS["C4"], RULES)
    assert found.required[0].interval.estimate == pytest.approx(0.1)
    assert len(found.required) == 4
    assert all(c.holds for c in found.required)
    lost = widened_gain(
        ladder({"standard": lambda _, d: -0.3, "adjusted": lambda _, d: 0.1 - 0.2 * (d == 64)}),
        CLAIMS["C4"], RULES,
    )  # fmt: skip
    assert any(c.holds for c in lost.against)


def task(family: str, accuracy: float) -> dict[str, Any]:
    return {"family": family, "accuracy": accuracy, "chance": 0.25}


def tasks_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reasoning: tuple[float, float]
) -> list[Run]:
    """γ = 0.5 and a shorter γ = 1 with these accuracies on reasoning; knowledge stays at 0.4."""
    monkeypatch.chdir(tmp_path)
    runs = []
    for gamma, accuracy, tokens in ((0.5, reasoning[0], 2000), (1.0, reasoning[1], 1500)):
        for seed in SEEDS:
            one = run("adjusted", gamma, 64, seed, 3.5, tokens=tokens)
            found = {
                "sums": task("reasoning", accuracy + NOISE[seed]),
                "facts": task("knowledge", 0.4),
                "text": task("language", gamma / 2),
            }
            path = tasks_file("cpu", one.arm, seed)
            write_text(path, json_text({"arm": one.arm, "seed": seed, "tasks": found}))
            runs.append(one)
    return runs


def test_c7_is_the_gain_on_reasoning_beyond_knowledge(tmp_path, monkeypatch) -> None:
    found = reasoning_gain(tasks_project(tmp_path, monkeypatch, (0.4, 0.55)), CLAIMS["C7"], RULES)
    assert found.required[0].interval.estimate == pytest.approx(0.15 / 0.75)
    assert found.required[0].holds
    assert found.not_testable is None
    assert found.pairs == 5


def test_c7_at_the_floor_is_not_testable(tmp_path, monkeypatch) -> None:
    runs = tasks_project(tmp_path, monkeypatch, (0.249, 0.2485))
    assert "beats chance" in reasoning_gain(runs, CLAIMS["C7"], RULES).not_testable
    full = [run for run in runs if run.config.init.gamma == 0.5]
    assert "shorter" in reasoning_gain(full, CLAIMS["C7"], RULES).not_testable


def test_c8_rise_is_a_fall_and_a_recovery() -> None:
    steps = [0, 10, 100, 1000]
    table = pd.DataFrame(
        [
            {"step": step, "weight": f"blocks.{layer}.mlp.up.weight", "stable_rank": 20 * share,
             "update_stable_rank": 20 * share, "random_stable_rank": 20.0}
            for step, share in zip(steps, (1.0, 0.8, 0.3, 0.5), strict=True)
            for layer in (0, 1)
        ]
    )  # fmt: skip
    dip = dip_and_rise(table, "stable_rank")
    assert (dip.step, dip.lowest, dip.last) == (100, pytest.approx(0.3), pytest.approx(0.5))
    assert dip.rise == pytest.approx(0.2)
    table.loc[table["step"] == 1000, "stable_rank"] = 20 * 1.2
    assert dip_and_rise(table, "stable_rank").rise == pytest.approx(0.7)
    table.loc[table["step"] == 1000, "update_stable_rank"] = 20 * 1.2
    assert dip_and_rise(table, "update_stable_rank").rise == pytest.approx(0.9)


def test_c9_reads_the_mixtures_beside_their_dense_models() -> None:
    dense = ladder({"adjusted": lambda _, d: 0.3, "standard": lambda _, d: 0.3})
    mixtures = [
        run(variant, gamma, 32, seed, 3.8 - (0.05 if gamma == 1.0 else NOISE[seed]), n_experts=8)
        for variant in ("standard", "adjusted")
        for gamma in (0.5, 1.0)
        for seed in SEEDS
    ]
    found = mixture_of_experts([*dense, *mixtures], CLAIMS["C9"], RULES)
    assert found.required[0].interval.estimate == pytest.approx(0.05)
    assert found.required[0].holds
    assert "+0.050" in found.beside["Δ, standard, d = 32"]
    assert mixture_of_experts(dense, CLAIMS["C9"], RULES).not_testable


def test_a_claim_is_judged_at_the_widths_of_its_scale() -> None:
    mixtures = [
        run("adjusted", gamma, 512, seed, 3.8 - 0.04 * (gamma == 1.0), n_experts=8)
        for gamma in (0.5, 1.0)
        for seed in SEEDS
    ]
    found = mixture_of_experts(mixtures, CLAIMS["C9"], RULES)
    assert found.required[0].interval.estimate == pytest.approx(0.04)
    assert "d = 512" in found.required[0].quantity
    # The widths named are taken where one of them is there, however large the others.
    both = PairedLosses([*mixtures, run("adjusted", 1.0, 32, 10, 3.8)])
    assert widths_of_scale(both, (32,)) == (32,)
    assert widths_of_scale(both, (48, 64)) == (32, 512)


def test_the_recommendation_fails_where_one_width_loses() -> None:
    runs = ladder({"adjusted": lambda _, d: 0.3 if d < 64 else -0.1})
    found = good_default(runs, CLAIMS["R"], RULES)
    assert found.required[0].holds
    assert [holds for _, holds in found.points.values()] == [True, True, False]


def with_rivals(fixed: float, gpt2: float) -> list[Run]:
    """γ = 1 gains 0.1 at every width; losses of the baselines at d = 64 above that of γ = 1."""
    runs = ladder({"adjusted": lambda _, d: 0.1})
    small = {r.seed: r.val_loss for r in runs if (r.arm == "adjusted-1.0-64-gamma")}
    for scheme, above in (("fixed", fixed), ("gpt2", gpt2)):
        for seed in SEEDS:
            loss = small[seed] + above + NOISE[seed]
            runs.append(run("adjusted", 0.5, 64, seed, loss, scheme=scheme))
    return runs


@pytest.mark.parametrize(
    ("fixed", "gpt2", "says"),
    [
        (0.05, 0.08, Verdict.replicated),
        (0.0, 0.08, Verdict.replicated),  # as good as γ = 1, within the smallest effect
        (0.08, -0.05, Verdict.not_replicated),
    ],
)
def test_the_recommendation_stands_against_the_better_baseline(fixed, gpt2, says) -> None:
    found = good_default(with_rivals(fixed, gpt2), CLAIMS["R"], RULES)
    assert found.pairs == 5
    better = "fixed" if fixed < gpt2 else "gpt2"
    assert found.required[1].quantity.startswith(f"L({better}) − L(γ = 1), d = 64")
    assert found.required[1].interval.estimate == pytest.approx(min(fixed, gpt2))
    nothing = {claim.id: Evidence(0) for claim in CLAIMS.claims}
    (judged,) = [j for j in judge_all(CLAIMS, nothing | {"R": found}, nothing) if j.claim.id == "R"]
    assert judged.verdict is says


@pytest.mark.parametrize("name", sorted(CONTRASTS))
def test_no_runs_are_no_pairs_and_no_error(name: str) -> None:
    assert CONTRASTS[name]([], CLAIMS[name], RULES).pairs == 0
