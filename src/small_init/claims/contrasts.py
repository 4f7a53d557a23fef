"""The contrasts of the paper's claims: from runs to `verdicts.Evidence`, one function per claim.

Each follows the `statistic` and `criterion` of its entry in paper/claims.yaml to the letter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from small_init.claims.contrasts_inside import condensation, difficult_tokens, largest_alpha
from small_init.claims.contrasts_tasks import at_equal_loss, reasoning_gain
from small_init.claims.criteria import Claim, ClaimSet, Rules
from small_init.claims.gains import (
    SMALL,
    USUAL,
    Cells,
    both_gammas,
    gain_texts,
    number_text,
    of_one_context,
)
from small_init.claims.verdicts import Condition, Evidence
from small_init.config import Probes
from small_init.runs.record import Run
from small_init.stats.fits import effective_size_interval, quadratic_minimum
from small_init.stats.intervals import mean_interval

# The widths that paper/claims.yaml names, those of the cpu profile; see `widths_of_scale`.
FACTORIAL_WIDTH = (64,)  # C2 and C3
OPTIMUM_WIDTHS = (32, 64)  # C5
MOE_WIDTH = (32,)  # C9


def widths_of_scale(cells: Cells, named: tuple[int, ...]) -> tuple[int, ...]:
    """The widths a claim names; at a scale that ran none of them the largest that it ran instead,
    as many or as there are."""
    there = sorted({width for _, _, width in cells.runs})
    return named if not there or set(named) & set(there) else tuple(there[-len(named) :])


def shrinking_gain(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C1."""
    cells, least = Cells(runs), rules.smallest_effect
    widths = cells.widths("standard")
    beside = gain_texts(cells, "standard", widths)
    if len(widths) < 3:
        too_few = f"the standard variant was run at {len(widths)} widths, fewer than three"
        seeds = cells.seeds(both_gammas(["standard"], widths))
        return Evidence(len(seeds), not_testable=too_few, beside=beside)
    seeds = cells.seeds(both_gammas(["standard"], widths))
    sizes = [cells.size("standard", width) for width in widths]
    span = math.log(max(sizes) / min(sizes))
    logs = np.log(sizes)
    change = {
        seed: span
        * float(np.polyfit(logs, [cells.gain("standard", d, seed) for d in widths], 1)[0])
        for seed in seeds
    }
    first = {seed: cells.gain("standard", widths[0], seed) for seed in seeds}
    c = rules.confidence
    over = f"change of Δ from d = {widths[0]} to {widths[-1]}, standard"
    at = f"Δ at d = {widths[0]}, standard"
    return Evidence(
        len(seeds),
        required=[
            Condition(over, change, "below", -least, c),
            Condition(at, first, "above", least, c),
        ],
        against=[
            Condition(over, change, "above", -least, c),
            Condition(at, first, "below", least, c),
        ],
        beside=beside,
    )


FACTORIAL = {"standard": (False, False), "epsilon": (True, False), "gated": (False, True),
             "adjusted": (True, True)}  # fmt: skip
"""Variant → (small ε, gate): the cells of the 2×2×2 with the matched ε as the large one."""


def factorial_gains(runs: Sequence[Run]) -> dict[int, dict[tuple[bool, bool], float]]:
    """Seed → (small ε, gate) → Δ at the width of C2 and C3, seeds that all eight cells have."""
    cells = Cells(runs)
    (width,) = widths_of_scale(cells, FACTORIAL_WIDTH)
    seeds = cells.seeds(both_gammas(FACTORIAL, [width]))
    return {
        seed: {levels: cells.gain(variant, width, seed) for variant, levels in FACTORIAL.items()}
        for seed in seeds
    }


def _interaction(
    runs: Sequence[Run], rules: Rules, factor: int, name: str
) -> tuple[Evidence, Cells]:
    cells = Cells(runs)
    values = {}
    for seed, gains in factorial_gains(runs).items():
        by_level = {
            level: float(np.mean([gain for key, gain in gains.items() if key[factor] is level]))
            for level in (False, True)
        }
        values[seed] = by_level[True] - by_level[False]
    wanted = both_gammas(FACTORIAL, widths_of_scale(cells, FACTORIAL_WIDTH))
    missing = None if cells.has(wanted) else "one of the eight cells was not run"
    conditions = [
        Condition(name, values, side, rules.smallest_effect, rules.confidence)
        for side in ("above", "below")
    ]
    evidence = Evidence(
        len(values), required=conditions[:1], against=conditions[1:], not_testable=missing
    )
    return evidence, cells


def epsilon_barrier(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C2."""
    evidence, cells = _interaction(
        runs, rules, 0, "Δ at ε = 1e-12 minus Δ at the matched ε, mean over gates"
    )
    (width,) = widths_of_scale(cells, FACTORIAL_WIDTH)
    rms = {
        variant: [
            run.init["residual_flow"]["attention_norm_rms"][0]
            for run in cells.runs.get((variant, SMALL, width), {}).values()
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
    return Evidence(evidence.pairs, evidence.required, {}, evidence.against, {}, reason, beside)


def gate_barrier(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C3, the part on loss."""
    evidence, cells = _interaction(runs, rules, 1, "Δ with the gate minus Δ without, mean over ε")
    (width,) = widths_of_scale(cells, FACTORIAL_WIDTH)
    own = [
        cells.loss(("epsilon", SMALL, width), seed) - cells.loss(("adjusted", SMALL, width), seed)
        for seed in cells.seeds([(v, SMALL, width) for v in ("epsilon", "adjusted")])
    ]
    beside = {}
    if own:
        beside["gain of the gate alone at γ = 1, ε = 1e-12"] = number_text(mean_interval(own))
    probed = [run for arm in cells.runs.values() for run in arm.values()
              if run.config.train.probes is Probes.all]  # fmt: skip
    alpha = [largest_alpha(run) for run in probed]
    if alpha:
        bound = claim.thresholds["sink"]
        says = "some head exceeds" if max(alpha) > bound else "not testable, no head exceeds"
        beside["the part on attention to the first token"] = (
            f"{says} {bound:g}; the largest share of any head at any step is {max(alpha):.3f}"
        )
    return Evidence(
        evidence.pairs, evidence.required, {}, evidence.against, {}, evidence.not_testable, beside
    )


def widened_gain(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C4."""
    cells, c, least = Cells(runs), rules.confidence, rules.smallest_effect
    widths = sorted(set(cells.widths("standard")) & set(cells.widths("adjusted")))
    variants = ("standard", "adjusted")
    seeds = cells.seeds(both_gammas(variants, widths))
    beside = gain_texts(cells, "adjusted", widths) | _effective_sizes(cells, widths)
    if len(widths) < 2:
        return Evidence(
            len(seeds),
            not_testable="the two variants were not run with both γ at two widths",
            beside=beside,
        )
    extra = {
        seed: float(
            np.mean([cells.gain("adjusted", d, seed) - cells.gain("standard", d, seed) for d in
                     widths])
        )
        for seed in seeds
    }  # fmt: skip
    gains = {d: {seed: cells.gain("adjusted", d, seed) for seed in seeds} for d in widths}
    name = "Δ(adjusted) − Δ(standard), mean over widths"
    return Evidence(
        len(seeds),
        required=[
            Condition(name, extra, "above", least, c),
            *(Condition(f"Δ(adjusted), d = {d}", g, "above", 0.0, c) for d, g in gains.items()),
        ],
        against=[
            Condition(name, extra, "below", least, c),
            *(Condition(f"Δ(adjusted), d = {d}", g, "below", 0.0, c) for d, g in gains.items()),
        ],
        beside=beside,
    )


def _effective_sizes(cells: Cells, widths: Sequence[int]) -> dict[str, str]:
    """N'/N − 1 of the adjusted variant at each width, or why there is none."""
    seeds = cells.seeds(both_gammas(["adjusted"], widths))
    sizes = [cells.size("adjusted", width) for width in widths]
    baseline = {
        seed: [cells.loss(("adjusted", USUAL, width), seed) for width in widths] for seed in seeds
    }
    out = {}
    for width, size in zip(widths, sizes, strict=True):
        other = {seed: cells.loss(("adjusted", SMALL, width), seed) for seed in seeds}
        ratio = effective_size_interval(sizes, baseline, other, size)
        name = f"effective size, adjusted, d = {width}"
        if ratio.interval is None:
            out[name] = f"refused: {ratio.reason}"
            continue
        found = ratio.interval
        text = f"N'/N − 1 = {100 * (found.estimate - 1):+.0f} %"
        if found.low is not None and found.high is not None:
            text += f" [{100 * (found.low - 1):+.0f}, {100 * (found.high - 1):+.0f}]"
        out[name] = f"{text}, n = {found.n}"
    return out


def critical_scale(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C5."""
    cells, c = Cells(of_one_context(runs)), rules.confidence
    low, high = claim.thresholds["low"], claim.thresholds["high"]
    widths = widths_of_scale(cells, OPTIMUM_WIDTHS)
    needed = [("adjusted", g, d) for g in (0.75, SMALL, 1.25) for d in widths]
    if len(widths) < len(OPTIMUM_WIDTHS) or not cells.has(needed):
        return Evidence(
            len(cells.seeds(needed)),
            not_testable="γ = 0.75, 1 and 1.25 were not run at both widths",
        )
    required, against = [], []
    points: dict[str, tuple[float, bool]] = {}
    against_points: dict[str, bool] = {}
    beside: dict[str, str] = {}
    pairs = []
    for width in widths:
        gammas = cells.gammas("adjusted", width)
        row = [("adjusted", gamma, width) for gamma in gammas]
        seeds = cells.seeds(row)
        pairs.append(len(seeds))
        beyond = {
            seed: cells.loss(("adjusted", 1.25, width), seed)
            - cells.loss(("adjusted", SMALL, width), seed)
            for seed in seeds
        }
        name = f"L(1.25) − L(1), d = {width}"
        if not seeds:
            continue
        required.append(Condition(name, beyond, "above", 0.0, c))
        against.append(Condition(name, beyond, "below", 0.0, c))
        curves = {seed: [cells.loss(cell, seed) for cell in row] for seed in seeds}
        found = {seed: quadratic_minimum(gammas, y) for seed, y in curves.items()}
        vertex = f"vertex of the loss over γ, d = {width}"
        mean = quadratic_minimum(gammas, np.mean(list(curves.values()), axis=0).tolist())
        if any(minimum.edge for minimum in found.values()):
            points[vertex] = (mean.x, False)
            beside[vertex] = f"{mean.x:.2f} of the mean curve; at an edge for some seed"
        else:
            interval = mean_interval([m.x for m in found.values()], c)
            points[vertex] = (interval.estimate, low <= interval.estimate <= high)
            beside[vertex] = number_text(interval, unit="").lstrip("+")
            if interval.low is not None and interval.high is not None:
                against_points[f"{vertex}, interval outside [{low:g}, {high:g}]"] = (
                    interval.low > high or interval.high < low
                )
        against_points[f"lowest mean loss at an edge of the grid, d = {width}"] = mean.edge
    return Evidence(min(pairs), required, points, against, against_points, None, beside)


def mixture_of_experts(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C9. Its object also holds the dense models that the mixtures are compared with."""
    cells = Cells(run for run in runs if run.config.model.n_experts > 0)
    (width,) = widths_of_scale(cells, MOE_WIDTH)
    wanted = both_gammas(["adjusted"], [width])
    if not cells.has(wanted):
        return Evidence(0, not_testable="no mixture-of-experts arm was run")
    gains = {seed: cells.gain("adjusted", width, seed) for seed in cells.seeds(wanted)}
    conditions = [
        Condition(f"Δ, mixture of experts, d = {width}", gains, side,
                  rules.smallest_effect, rules.confidence)
        for side in ("above", "below")
    ]  # fmt: skip
    beside = gain_texts(cells, "standard", [width])
    return Evidence(len(gains), conditions[:1], {}, conditions[1:], {}, None, beside)


def good_default(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """The recommendation."""
    cells, c, least = Cells(runs), rules.confidence, rules.smallest_effect
    widths = cells.widths("adjusted")
    seeds = cells.seeds(both_gammas(["adjusted"], widths)) if widths else []
    beside = gain_texts(cells, "adjusted", widths)
    if len(widths) < 2:
        reason = "the adjusted variant was not run with both γ at two widths"
        return Evidence(len(seeds), not_testable=reason, beside=beside)
    by_width = {d: {seed: cells.gain("adjusted", d, seed) for seed in seeds} for d in widths}
    mean = {seed: float(np.mean([by_width[d][seed] for d in widths])) for seed in seeds}
    worse = [Condition("", by_width[d], "below", 0.0, c) for d in widths]
    name = "Δ(adjusted), mean over widths"
    points = {}
    if seeds:
        points = {
            f"Δ(adjusted), d = {d}": (condition.interval.estimate, not condition.holds)
            for d, condition in zip(widths, worse, strict=True)
        }
    return Evidence(
        len(seeds),
        required=[Condition(name, mean, "above", least, c)],
        points=points,
        against=[Condition(name, mean, "below", least, c)],
        beside=beside,
    )


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
}


def evidence_of(
    claims: ClaimSet, runs: Mapping[str, Sequence[Run]], pilot: bool
) -> dict[str, Evidence]:
    """Evidence per claim from the runs of its object, of pilot or of confirmatory seeds only."""
    found = {}
    for claim in claims.claims:
        # Before the seeds are parted: the pilots say which run has the equal loss.
        mine = at_equal_loss(runs.get(claim.object, []), claim)
        mine = [run for run in mine if run.pilot is pilot]
        found[claim.id] = CONTRASTS[claim.id](mine, claim, claims.rules)
    return found
