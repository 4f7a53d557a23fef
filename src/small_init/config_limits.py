"""What no run could use: limits of a configuration's values, checked where one is read.

Apart from `config`, because no number of a run depends on it.
"""

from __future__ import annotations

import math

from small_init.config import ArmConfig, ModelConfig, Precision, Probes, group_gammas
from small_init.errors import UserError


def check(arm: ArmConfig, where: str) -> None:
    """Values that no run could use; types and names were checked when they were read."""
    model, optimizer, train = arm.model, arm.optimizer, arm.train
    for part, positive in (
        (model, ("d_model", "n_layers", "n_heads", "d_ff", "vocab_size", "context", "norm_eps",
                 "rope_theta")),
        (optimizer, ("lr", "eps")),
        (train, ("tokens", "batch_tokens", "curve_tokens", "final_tokens")),
    ):  # fmt: skip
        for name in positive:
            value = getattr(part, name)
            if not 0 < value < math.inf:
                raise UserError(f"{where}: {name} is {value:g}; it must be above 0 and finite.")
    gammas = [arm.init.gamma, *group_gammas(arm.init).values()]
    demands = [
        (model.d_model % model.n_heads == 0, "model.d_model must be a multiple of model.n_heads"),
        (model.d_model // model.n_heads % 2 == 0, "model.d_model / model.n_heads must be even"),
        *mixture_demands(model, train.precision),
        (
            train.batch_tokens % model.context == 0,
            "train.batch_tokens must be a multiple of model.context",
        ),
        (
            train.tokens % train.batch_tokens == 0,
            "train.tokens must be a multiple of train.batch_tokens",
        ),
        (train.curve_points >= 3, "train.curve_points must be at least 3"),
        (train.curve_tokens >= model.context, "train.curve_tokens must hold at least one window"),
        (
            train.final_tokens >= train.curve_tokens,
            "train.final_tokens must be at least train.curve_tokens",
        ),
        (
            0 <= optimizer.warmup_steps <= arm.steps,
            "optimizer.warmup_steps must lie within the run",
        ),
        (0 <= optimizer.min_lr_ratio <= 1, "optimizer.min_lr_ratio must lie in [0, 1]"),
        (
            0 <= optimizer.beta1 < 1 and 0 <= optimizer.beta2 < 1,
            "optimizer.beta1 and beta2 must lie in [0, 1)",
        ),
        (
            not (optimizer.width_rates and train.probes is Probes.all),
            "train.probes all takes one learning rate for all matrices; set probes to weights, or "
            "optimizer.width_rates to false",
        ),
        (0 <= optimizer.weight_decay < math.inf, "optimizer.weight_decay must not be negative"),
        (optimizer.clip is None or optimizer.clip > 0, "optimizer.clip must be above 0, or null"),
        (
            len(arm.seeds) == len(set(arm.seeds)) > 0 and min(arm.seeds) >= 0,
            "seeds must be named, each once, none negative",
        ),
        # d^−8 is still a number in float32 at any width there is; at γ = 1000 all weights are 0.
        (all(0 <= gamma <= 8 for gamma in gammas), "every γ must lie in [0, 8]"),
    ]
    for holds, sentence in demands:
        if not holds:
            raise UserError(f"{where}: {sentence}.")


def mixture_demands(model: ModelConfig, precision: Precision) -> list[tuple[bool, str]]:
    """What a mixture of experts asks of its configuration, with the sentence for when it fails."""
    if model.n_experts == 0:
        return []
    multiple = 4 if precision is Precision.fp32 else 8  # grouped products want rows of 16 bytes
    weights = (model.balance_weight, model.z_weight)
    return [
        (
            # A single expert's weight is renormalised to 1: no gradient would reach the router.
            2 <= model.experts_per_token <= model.n_experts,
            "model.experts_per_token must be 2 or more, and at most model.n_experts",
        ),
        (
            model.d_model % multiple == model.d_ff % multiple == 0,
            f"with experts, model.d_model and model.d_ff must be multiples of {multiple}",
        ),
        (
            all(0 <= weight < math.inf for weight in weights),
            "model.balance_weight and model.z_weight must not be negative",
        ),
    ]
