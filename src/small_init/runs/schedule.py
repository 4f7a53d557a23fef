"""Learning rate by step, and the steps at which a run is looked at."""

from __future__ import annotations

import math

from small_init.config import OptimizerConfig, Schedule

_DECAY_SHARE = 0.2  # of a run under `wsd`


def learning_rate_factor(step: int, steps: int, config: OptimizerConfig) -> float:
    """Learning rate of the (step + 1)-th update over the peak: linear warm-up, then `schedule`."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule is Schedule.wsd:
        first = max(config.warmup_steps, steps - round(_DECAY_SHARE * steps))
        left = 1 - min(1.0, max(0, step - first) / max(1, steps - first))
    else:
        done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
        left = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * left


def curve_steps(steps: int, points: int) -> list[int]:
    """At most `points` steps: 0, then evenly spaced in logarithm from 1 % of the run on."""
    first = max(1, steps // 100)
    ratio = (steps / first) ** (1 / (points - 2))
    return sorted({0, steps} | {round(first * ratio**i) for i in range(points - 1)})


def snapshot_steps(steps: int, points: int) -> list[int]:
    """Four steps of the curve: the first, those nearest a tenth and a third of the run in ratio,
    and the last. A short or coarse curve may give fewer."""
    curve = curve_steps(steps, points)
    near = [min(curve[1:], key=lambda step: abs(math.log(step * n / steps))) for n in (10, 3)]
    return sorted({0, *near, steps})


def decay_left(step: int, steps: int, config: OptimizerConfig) -> float:
    """What decoupled weight decay alone leaves of a matrix after `step` updates, a factor.

    AdamW multiplies by 1 − learning rate · weight decay before it adds its update (1711.05101).
    """
    rates = (config.lr * learning_rate_factor(done, steps, config) for done in range(step))
    return math.prod(1 - rate * config.weight_decay for rate in rates)
