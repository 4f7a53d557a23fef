"""A sceptic's questions about the model and its start. Each function: the runs → a finding."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pandas as pd

from paper.report.sceptic_runs import (
    GAMMA,
    RATE,
    Arm,
    Basis,
    Finding,
    Material,
    best,
    by_gamma,
    by_value,
    families,
    listed,
    number,
    signs,
)
from paper.shared.style import signed
from small_init.claims.contrasts.factors import FACTORIAL, FACTORS
from small_init.claims.gains import SMALL, USUAL
from small_init.config import Probes
from small_init.errors import UserError
from small_init.rule.theory import uniform_average
from small_init.runs.paths import results_folder
from small_init.stats.factorial import factorial_effects
from small_init.stats.fits import quadratic_minimum

MIN_GAMMAS = 3  # a parabola has three parameters
GROUPS = {
    "init.embedding": "the embedding",
    "init.readout": "the readout",
    "init.attention": "attention",
    "init.gate": "the gate",
    "init.mlp": "the feed-forward layers",
}

SCHEMES = {
    "fixed": "a std of 0.02",
    "gpt2": "0.02 with output projections divided by √(2·layers)",
    "zero_out": "γ = 0.5 with output projections at 0",
}


def which_weights(material: Material) -> Finding | None:
    """One group at γ = 1, the rest at 0.5: how much of the whole gain it brings."""
    basis, sentences = Basis(), []
    arms = material.of("figure-8")
    by_base: dict[str, tuple[Arm, dict[str, Any]]] = {}
    for name, words in GROUPS.items():
        for group in by_value(arms_with_gamma(arms, USUAL), name):
            base, one = group.get(None), group.get(SMALL)
            if base is None or one is None:
                continue
            gain = basis.gain(base, one)
            if gain is not None:
                by_base.setdefault(base.key, (base, {}))[1][words] = gain
    for base, gains in by_base.values():
        names = (GAMMA, RATE)
        whole = [arm for arm in arms_with_gamma(arms, SMALL)
                 if arm.without(*names) == base.without(*names)]  # fmt: skip
        total = basis.gain(base, best(whole)) if whole else None
        beside = f"; all weights at γ = 1, at their own rate, by {number(total)}" if total else ""
        sentences.append(
            f"{base.place}: one group at γ = 1 and the rest at 0.5, at the rate of γ = 0.5, lowers "
            f"the loss by {listed(gains, 'for')}{beside}."
        )
    return basis.finding(sentences, "figure-8")


def arms_with_gamma(arms: Iterable[Arm], gamma: float) -> list[Arm]:
    return [arm for arm in arms if arm.fields[GAMMA] == gamma]


def epsilon_axis(material: Material) -> Finding | None:
    basis, sentences = Basis(), []
    arms = material.of("figure-2")
    for group in by_value(arms, "model.norm_eps"):
        first = group[min(group)]
        if first.fields["init.embedding"] is not None:
            continue
        width, gamma = first.fields["model.d_model"], first.fields[GAMMA]
        costs = {}
        for eps, arm in list(group.items())[1:]:
            cost = basis.gain(arm, first)
            if cost is not None:
                costs[f"{eps * width ** (2 * gamma):.2g}"] = cost
        if costs:
            sentences.append(
                f"d = {width}, γ = {gamma:g}, no gate: against ε = {min(group):g} the loss rises "
                f"by {listed(costs, 'at ε·d^(2γ) =')}."
            )
    sentences += scaled_embedding(arms, basis)
    return basis.finding(sentences, "figure-2")


def scaled_embedding(arms: list[Arm], basis: Basis) -> list[str]:
    """At the large ε an embedding of the usual size should do what a small ε does."""
    out = []
    for group in by_value(arms_with_gamma(arms, SMALL), "init.embedding"):
        small, large = group.get(None), group.get(USUAL)
        gain = basis.gain(small, large) if small and large else None
        if small and gain:
            out.append(
                f"γ = 1 at ε = {small.fields['model.norm_eps']:g}, d = "
                f"{small.fields['model.d_model']}: an embedding of std d^(−1/2), all else as it "
                f"was, lowers the loss by {number(gain)}."
            )
    return out


def factorial(material: Material) -> Finding | None:
    basis = Basis()
    cells: dict[tuple[bool, ...], dict[int, float]] = {}
    for arm in material.of("table-3"):
        variant, gamma = arm.fields["variant"], arm.fields[GAMMA]
        if variant in FACTORIAL and gamma in (USUAL, SMALL):
            cells[(gamma == SMALL, *FACTORIAL[variant])] = arm.losses
            basis.arms.append(arm)
    if len(cells) < 2 ** len(FACTORS):
        return None
    effects = factorial_effects(cells, FACTORS)
    basis.intervals += effects.values()
    if not effects:
        return None
    names = {"γ × ε": "the small ε", "γ × gate": "the gate", "γ × ε × gate": "both together"}
    said = {words: effects[name] for name, words in names.items()}
    sentences = [
        f"Main effects on the loss: {listed({n: effects[n] for n in FACTORS}, 'of')}. "
        f"Interactions with γ, negative where γ = 1 gains more: {listed(said, 'with')}."
    ]
    return basis.finding(sentences, "table-3")


def baselines(material: Material) -> Finding | None:
    basis, sentences = Basis(), []
    arms = material.of("figure-8")
    recipes: dict[tuple[Any, ...], dict[float, Arm]] = defaultdict(dict)
    for arm in arms:
        recipes[arm.without(RATE)][arm.fields[RATE]] = arm
    gains: dict[str, dict[str, Any]] = {}
    for rates in recipes.values():
        first = next(iter(rates.values()))
        scheme = first.fields["init.scheme"]
        if scheme == "gamma":
            continue
        ours = next((found for found in recipes.values() if same_but_start(first, found)), None)
        shared = sorted(set(rates) & set(ours or {}))
        if ours is None or not shared:
            continue
        gain = basis.gain(best(rates[r] for r in shared), best(ours[r] for r in shared))
        if gain is not None:
            rates_tried = f"{len(shared)} {'rate' if len(shared) == 1 else 'rates'}"
            place = f"{first.place}, {rates_tried}"
            gains.setdefault(place, {})[SCHEMES[scheme]] = gain
    for place, found in gains.items():
        sentences.append(
            f"{place} tried for each, best against best, the loss of the other start minus that of "
            f"γ = 1: {listed(found, 'for')}."
        )
    return basis.finding(sentences, "figure-8")


def same_but_start(other: Arm, rates: dict[float, Arm]) -> bool:
    """Whether these are the γ = 1 runs of the recipe that `other` starts in another way."""
    mine = next(iter(rates.values()))
    names = (RATE, GAMMA, "init.scheme")
    return (
        mine.fields["init.scheme"] == "gamma"
        and mine.fields[GAMMA] == SMALL
        and mine.without(*names) == other.without(*names)
    )


def two_widths(material: Material) -> Finding | None:
    basis, sentences, edges = Basis(), [], 0
    lowest: dict[tuple[str, int, int], float] = {}  # variant, context, width → γ
    for group in by_gamma(material.of("figure-4")):
        if not {USUAL, SMALL} <= set(group) or len(group) < MIN_GAMMAS:
            continue
        first = group[SMALL]
        basis.gain(group[USUAL], first)
        curve = {gamma: group[gamma].loss for gamma in sorted(group)}
        found = quadratic_minimum(list(curve), list(curve.values()))
        edges += found.edge
        variant, width = first.fields["variant"], first.fields["model.d_model"]
        context = first.fields["model.context"]
        lowest[(variant, context, width)] = found.x
        edge = " (an edge of the grid)" if found.edge else ""
        sentences.append(f"{first.place}, T = {context}: lowest at γ = {found.x:.2f}{edge}.")
    for variant, context in sorted({key[:2] for key in lowest}):
        widths = sorted(d for v, t, d in lowest if (v, t) == (variant, context))
        if len(widths) > 1:
            narrow, wide = widths[0], widths[-1]
            moved = lowest[variant, context, narrow] * math.log(narrow) / math.log(wide)
            sentences.append(
                f"If one std and not a γ were critical, {variant} would have its optimum at "
                f"{moved:.2f} at d = {wide}; it is at {lowest[variant, context, wide]:.2f}."
            )
    for variant, width in sorted({(v, d) for v, _, d in lowest}):
        contexts = sorted(t for v, t, d in lowest if (v, d) == (variant, width))
        if len(contexts) > 1:
            balance = [1 + math.log(uniform_average(t)) / math.log(width) for t in contexts]
            optima = [lowest[variant, t, width] for t in contexts]
            sentences.append(
                f"{variant}, d = {width}: from T = {contexts[0]} to {contexts[-1]} the γ at which "
                f"branch and stream balance under uniform attention goes from {balance[0]:.2f} to "
                f"{balance[-1]:.2f}, the optimum from {optima[0]:.2f} to {optima[-1]:.2f}."
            )
    reservation = f"{edges} of {len(lowest)} optima lie at an edge of their grid" if edges else None
    return basis.finding(sentences, "figure-4", reservation=reservation)


def qk_norm(material: Material) -> Finding | None:
    return varied(material, "model.qk_norm", {False: "without QK-norm", True: "with it"})


def layer_norm(material: Material) -> Finding | None:
    return varied(
        material, "model.norm", {"rmsnorm": "with RMSNorm", "layernorm": "with LayerNorm"}
    )


def varied(material: Material, name: str, words: dict[Any, str]) -> Finding | None:
    basis, sentences = Basis(), []
    for family in families(material.arms, name):
        gains = basis.gains(family)
        said = " and ".join(f"{number(gain)} {words[value]}" for value, gain in gains.items())
        sentences.append(f"{family.place}: Δ = {said}. {signs(gains.values())}")
    return basis.finding(sentences, "figure-8")


def experts(material: Material) -> Finding | None:
    basis, sentences = Basis(), []
    for group in by_gamma(material.of("figure-7")):
        count = next(iter(group.values())).fields["model.n_experts"]
        if not count or not {USUAL, SMALL} <= set(group):
            continue
        gain = basis.gain(group[USUAL], group[SMALL])
        if gain is None:
            continue
        sentences.append(f"{group[SMALL].place}, {count} experts: Δ = {number(gain)}.")
        for gamma in (USUAL, SMALL):
            for run in list(group[gamma].runs.values())[:1]:
                if run.config.train.probes is Probes.all:
                    sentences.append(f"γ = {gamma:g}: {routing_text(run.activations, count)}")
    return basis.finding(sentences, "figure-7")


def routing_text(table: pd.DataFrame, count: int) -> str:
    """Load of the busiest expert and entropy of the router, first and last step, one seed."""
    load = table[table["probe"] == "expert_load"]
    busiest = load.groupby(["step", "layer"])["value"].max().groupby("step").mean() * count
    entropy = table[table["probe"] == "router_entropy"].groupby("step")["value"].mean()
    share = 100 * entropy / math.log(count)
    return (
        f"the busiest expert has {busiest.iloc[0]:.2f} times its even share at the start and "
        f"{busiest.iloc[-1]:.2f} at the end, the routers {share.iloc[0]:.0f} and "
        f"{share.iloc[-1]:.0f} % of the largest entropy."
    )


def deeper_dips(material: Material) -> Finding | None:
    """From the correlations that Figure 6C draws: reading every run's spectra takes long."""
    path = results_folder(material.plan.profile) / "figures" / "figure-6c.csv"
    if not path.is_file():
        raise UserError(f"{path} does not exist; draw it with `dvc repro figure-6`.")
    drawn = pd.read_csv(path)
    found = drawn[drawn["kind"] == "correlation"]
    if found.empty:
        return None
    up = int((found["correlation"] > 0).sum())
    lone = found[found["gamma"].notna()]
    head = "No" if up == len(found) else "Yes, here" if up == 0 else "Not in general"
    return Finding(
        f"{head}. Over {(drawn['kind'] == 'run').sum()} runs, compared only where width, variant, "
        f"length and T are the same, deeper dips go with higher losses in {up} of {len(found)} "
        f"groups (Spearman's correlation from {signed(found['correlation'].min(), 2)} to "
        f"{signed(found['correlation'].max(), 2)}), and in {(lone['correlation'] > 0).sum()} of "
        f"{len(lone)} that have γ = 1 alone.",
        ("figure-6",),
        arms=material.of("figure-6"),
    )
