"""A sceptic's questions about how the runs are trained. Each function: the runs → a finding."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from statistics import mean
from typing import Any

from paper.report.sceptic_runs import (
    GAMMA,
    RATE,
    Arm,
    Basis,
    Finding,
    Material,
    best,
    by_value,
    enumerated,
    families,
    listed,
    number,
    signs,
)
from paper.shared.style import compact, signed
from small_init.claims.gains import SMALL, USUAL
from small_init.config import OptimizerConfig, Probes
from small_init.runs.record import Run
from small_init.runs.schedule import decay_left
from small_init.stats.fits import effective_size
from small_init.stats.intervals import mean_interval, noise_floor

SEEDS_NEEDED = 3
PAPER_TOKENS, PAPER_SIZES = 1e12, (1.5e9, 0.1e9)  # of the paper's abstract and summary
PAPER_WIDTH = 1536  # of the same group's 0.7B model (arXiv 2608.30315)
UP = "mlp.up"  # the weights that are quoted where one kind must stand for all


def learning_rate(material: Material) -> Finding | None:
    basis, sentences, edges = Basis(), [], 0
    for grid in families(material.of("figure-s1"), RATE):
        usual, small = best(grid.usual.values()), best(grid.small.values())
        gain = basis.gain(usual, small)
        if gain is None:
            continue
        equal = [g.estimate for g in grid.gains.values()]
        edges += sum(
            arm.fields[RATE] in (min(arms), max(arms))
            for arm, arms in ((usual, grid.usual), (small, grid.small))
        )
        sentences.append(
            f"{grid.place}: Δ = {number(gain)} at the best rates tried, {usual.fields[RATE]:g} and "
            f"{small.fields[RATE]:g}, and {signed(min(equal))} to {signed(max(equal))} where both "
            "γ run at one rate."
        )
    sentences.append(first_update(material.of("figure-4", "figure-6")))
    reservation = f"{edges} best rates lie at an edge of their grid" if edges else None
    return basis.finding(sentences, "figure-s1", "figure-8", reservation=reservation)


def first_update(arms: Iterable[Arm]) -> str:
    """How far the first recorded update moves the up projections, in shares of their norm."""
    found: dict[float, list[float]] = {}
    for run in (run for arm in arms if usual_length(arm, arms) for run in arm.runs.values()):
        if run.config.train.probes is Probes.all and run.config.variant == "adjusted":
            table = run.activations
            mine = table[(table["probe"] == "relative_update") & (table["part"] == UP)]
            if len(mine):
                found.setdefault(run.config.init.gamma, []).append(mine["value"].iloc[0])
    if not {USUAL, SMALL} <= set(found):
        return ""
    usual, small = mean(found[USUAL]), mean(found[SMALL])
    return (
        f"Early on a single update changes the up projections by {100 * small:.1f} % of their norm "
        f"at γ = 1 and by {100 * usual:.1f} % at γ = 0.5."
    )


def usual_length(arm: Arm, arms: Iterable[Arm]) -> bool:
    """Whether an arm differs from the profile's usual run in γ, width or variant at most."""
    names = ("train.tokens", "model.context", "optimizer.warmup_steps")
    usual = [max(set(v), key=v.count) for v in ([a.fields[n] for a in arms] for n in names)]
    return [arm.fields[name] for name in names] == usual


def weight_decay(material: Material) -> Finding | None:
    basis, sentences = Basis(), []
    for family in families(material.arms, "optimizer.weight_decay"):
        gains = basis.gains(family)
        sentences.append(f"{family.place}: Δ = {listed(gains)}. {signs(gains.values())}")
        ratios = [norm_ratios(*pair) for pair in family.pairs().values()]
        kept = [
            "/".join(f"{100 * left(arm):.0f}" for arm in pair) for pair in family.pairs().values()
        ]
        ends = [f"{end:.2f}" for _, end in ratios]
        sentences.append(
            f"All matrices together have {max(start for start, _ in ratios):.1f} times the norm at "
            f"γ = 0.5 that they have at γ = 1 at the start, and {enumerated(ends)} times at the "
            f"end. Decay alone leaves {enumerated(kept)} % of the start (γ = 0.5/1)."
        )
    return basis.finding(sentences, "figure-8")


def norm_ratios(usual: Arm, small: Arm) -> tuple[float, float]:
    """‖W‖ at γ = 0.5 over that at γ = 1, all matrices together, at the first and the last step."""

    def norms(run: Run) -> tuple[float, float]:
        total = (run.spectra.set_index("step")["norm"] ** 2).groupby(level=0).sum() ** 0.5
        return total.iloc[0], total.iloc[-1]

    seeds = sorted(set(usual.runs) & set(small.runs))
    pairs = [(norms(usual.runs[seed]), norms(small.runs[seed])) for seed in seeds]
    return mean(u[0] / s[0] for u, s in pairs), mean(u[1] / s[1] for u, s in pairs)


def left(arm: Arm) -> float:
    """What weight decay alone leaves of the initial weights at the end, a factor."""
    config = next(iter(arm.runs.values())).config
    return decay_left(config.steps, config.steps, config.optimizer)


def warm_up(material: Material) -> Finding | None:
    name = "optimizer.warmup_steps"
    basis, sentences = Basis(), []
    for family in families(material.arms, name):
        gains = basis.gains(family)
        clipped = "; ".join(
            f"{steps} steps: {clipped_share(usual)} and {clipped_share(small)}"
            for steps, (usual, small) in family.pairs().items()
        )
        sentences.append(
            f"{family.place}: Δ = {listed(gains)} steps of warm-up. {signs(gains.values())} Steps "
            f"whose gradient was clipped, γ = 0.5 and 1: {clipped}."
        )
    for group in by_value(material.of("figure-s2"), name):
        long, short = max(group), min(group)
        gain = basis.gain(group[short], group[long])
        if gain is not None:
            sentences.append(
                f"{group[long].place}, γ = {group[long].fields[GAMMA]:g} alone: {long} steps "
                f"instead of {short} lower the loss by {number(gain)}."
            )
    return basis.finding(sentences, "figure-8", "figure-s2")


def clipped_share(arm: Arm) -> str:
    return f"{100 * mean(run.metrics.clipped_share for run in arm.runs.values()):.0f} %"


def run_length(material: Material) -> Finding | None:
    basis, sentences, most = Basis(), [], 0.0
    low, high = (PAPER_TOKENS / size for size in PAPER_SIZES)
    for family in families(material.arms, "train.tokens"):
        gains = basis.gains(family)
        named = {f"{compact(tokens)} tokens": gain for tokens, gain in gains.items()}
        sentences.append(f"{family.place}: Δ = {listed(named)}. {saved_tokens(family.pairs())}")
        code = {
            f"{compact(tokens)}": mean_interval(
                [code_length(usual.runs[s]) - code_length(small.runs[s])
                 for s in sorted(set(usual.runs) & set(small.runs))]
            )
            for tokens, (usual, small) in family.pairs().items()
            if set(usual.runs) & set(small.runs)
        }  # fmt: skip
        sentences.append(
            "In the code length of the training tokens, which counts how fast a run learns as well "
            f"as where it ends, Δ per token is {listed(code)}."
        )
        run = next(iter(next(iter(family.small.values())).runs.values()))
        most = max(most, max(family.small) / run.metrics.parameters.total)
    return basis.finding(
        sentences,
        "figure-8",
        too_small=f"{most:.0f} tokens per parameter at most, where the paper's runs have "
        f"{low:,.0f} to {high:,.0f}",
    )


def code_length(run: Run) -> float:
    """Nats per training token, each predicted before it was learnt from."""
    return run.metrics.prequential.nats_per_token


def saved_tokens(pairs: dict[Any, tuple[Arm, Arm]]) -> str:
    """The tokens with which γ = 0.5 reaches the loss of γ = 1, where the lengths run bracket it.

    Interpolated between complete runs: in the middle of one the learning rate is not annealed.
    """
    lengths = sorted(pairs)
    baseline = [pairs[tokens][0].loss for tokens in lengths]
    said = []
    for tokens in lengths:
        found = effective_size(lengths, baseline, pairs[tokens][1].loss)
        if found.size is not None:
            said.append(f"{found.size / tokens:.1f} times {compact(tokens)}")
    if not said:
        return "At none of these lengths does a longer γ = 0.5 run bracket the loss of γ = 1."
    return f"γ = 0.5 reaches the loss of γ = 1 with {' and '.join(said)} tokens."


def adam_epsilon(material: Material) -> Finding | None:
    basis, sentences, beyond = Basis(), [], None
    for family in families(material.arms, "optimizer.eps"):
        gains = basis.gains(family)
        sentences.append(f"{family.place}: Δ = {listed(gains)}. {signs(gains.values())}")
        width = next(iter(family.small.values())).fields["model.d_model"]
        usual = OptimizerConfig().eps
        same = usual * (PAPER_WIDTH / width) ** 1.5
        sentences.append(
            "At γ = 1 the gradients of queries and keys fall about as d^(−3/2): the usual "
            f"{usual:g} weighs at a width of {PAPER_WIDTH} as {same:.1e} does at d = {width}."
        )
        if same > max(gains):
            beyond = f"the largest ε tried, {max(gains):g}, lies below {same:.1e}"
    return basis.finding(sentences, "figure-8", reservation=beyond)


def equivalence(material: Material) -> Finding:
    widths = [arm.fields["model.d_model"] for arm in material.arms]
    roots = enumerated(
        [f"{math.sqrt(d):.3g} at d = {d}" for d in sorted({min(widths), max(widths)})]
    )
    return Finding(
        "The step. Let W be a weight of the γ = 1 model and d its fan-in; V = √d·W is drawn with "
        "γ = 0.5, and x·W = (x·V)/√d is the same model if every output is divided by √d. Then "
        "∂V = ∂W/√d, Adam's ratio m/(√v + ε) stays for ε/√d, and V moves as W does for a rate of "
        "√d·LR, a decay of WD/√d and clipping by √d·∂V. So γ = 1 is γ = 0.5 with a multiplier and "
        f"√d-fold steps ({roots}). A test trains both and finds equal losses, bit for bit where √d "
        "is a power of two, and unequal ones when any one rescaling is left out. One learning rate "
        "for all weights is not the same: it leaves out the multipliers, and d differs between "
        "matrices.",
        ("tests/test_equivalence.py",),
    )


def seeds_and_noise(material: Material) -> Finding | None:
    arms = material.of("table-1", "table-3")
    pairs: dict[tuple[Any, ...], list[Arm]] = defaultdict(list)
    for arm in arms:
        if arm.fields[GAMMA] in (USUAL, SMALL):
            names = ("variant", "model.d_model", "train.tokens")
            pairs[tuple(arm.fields[name] for name in names)].append(arm)
    basis, sentences, enough = Basis(), [], 0
    for (variant, width, _), found in sorted(pairs.items()):
        sides = {arm.fields[GAMMA]: arm for arm in found}
        gain = basis.gain(sides[USUAL], sides[SMALL]) if len(sides) > 1 else None
        enough += gain is not None and gain.n >= SEEDS_NEEDED
        noise = noise_floor([list(arm.losses.values()) for arm in found])
        if gain is not None and noise is not None:
            sentences.append(
                f"{variant}, d = {width}: {noise:.3f} beside Δ = {number(gain)} of {gain.n} seeds"
            )
    if not basis.intervals:
        return None
    text = (
        f"{enough} of {len(basis.intervals)} comparisons of Tables 1 and 3 have {SEEDS_NEEDED} "
        "paired seeds or more; one seed gives no interval, and the tables say so. "
    )
    if sentences:
        text += "Standard deviation of the difference between two runs of one arm: "
        text += f"{'; '.join(sentences)}."
    else:
        text += "No arm has two seeds, so the noise between seeds is unknown."
    return basis.finding([text], "table-1", "table-3")
