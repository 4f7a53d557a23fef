"""Would γ = 1 have been a good default, against γ = 0.5 and against stronger ones: R."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import (
    SMALL,
    PairedLosses,
    both_gammas,
    gain_texts,
    number_text,
    of_the_rule,
)
from small_init.claims.verdicts import Condition, Evidence
from small_init.config import Scheme
from small_init.runs.record import Run
from small_init.stats.intervals import mean_interval

VARIANT = "adjusted"
RIVALS = (Scheme.fixed, Scheme.gpt2)


def good_default(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """R: would γ = 1 have been a good default in the adjusted variant at every width?

    Nats per token, of the seeds that have both γ at every width: Δ, mean over widths, and Δ at each
    width. Replicated if the mean is above smallest_effect and at no width the interval of Δ lies
    below 0, and if at the largest width the better of the stronger baselines that were run there
    is not ahead of γ = 1 by smallest_effect; against it if the mean is below smallest_effect, or
    that baseline is ahead by more. Not testable with fewer than two widths.
    """
    losses, c, least = PairedLosses(of_the_rule(runs)), rules.confidence, rules.smallest_effect
    widths = losses.widths("adjusted")
    seeds = losses.seeds(both_gammas(["adjusted"], widths))
    beside = gain_texts(losses, "adjusted", widths)
    rivals = rival_gains(runs, losses, widths[-1]) if widths else {}
    if len(widths) < 2:
        reason = "the adjusted variant was not run with both γ at two widths"
        return Evidence(len(seeds), not_testable=reason, beside=beside)
    by_width = {d: {seed: losses.gain("adjusted", d, seed) for seed in seeds} for d in widths}
    mean = {seed: float(np.mean([by_width[d][seed] for d in widths])) for seed in seeds}
    worse = [Condition("", by_width[d], "below", 0.0, c) for d in widths]
    name = "Δ(adjusted), mean over widths"
    points = {}
    if seeds:
        points = {
            f"Δ(adjusted), d = {d}": (condition.interval.estimate, not condition.holds)
            for d, condition in zip(widths, worse, strict=True)
        }
    required = [Condition(name, mean, "above", least, c)]
    against = [Condition(name, mean, "below", least, c)]
    if rivals:
        rival, gain = min(rivals.items(), key=lambda item: np.mean(list(item[1].values())))
        quantity = f"L({rival}) − L(γ = 1), d = {widths[-1]}, the better of {' and '.join(rivals)}"
        required.append(Condition(quantity, gain, "above", -least, c))
        against.append(Condition(quantity, gain, "below", -least, c))
        beside |= {
            f"L({scheme}) − L(γ = 1), d = {widths[-1]}": number_text(mean_interval(g.values()))
            for scheme, g in rivals.items()
        }
    pairs = min([len(seeds), *(len(gain) for gain in rivals.values())])
    return Evidence(
        pairs,
        required=required,
        points=points,
        against=against,
        beside=beside,
    )


def rival_gains(
    runs: Sequence[Run], losses: PairedLosses, width: int
) -> dict[str, dict[int, float]]:
    """Stronger baseline → seed → its loss minus that of γ = 1 in the adjusted variant at this
    width, nats per token, each at its own calibrated rate."""
    small = losses.by_seed((VARIANT, SMALL, width))
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        config = run.config
        if (
            config.init.scheme in RIVALS
            and (config.variant, config.model.d_model) == (VARIANT, width)
            and run.seed in small
        ):
            own = found.setdefault(config.init.scheme.value, {})
            own[run.seed] = run.val_loss - small[run.seed]
    return found
