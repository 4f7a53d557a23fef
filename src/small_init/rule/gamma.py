"""The γ rule for anyone's model: every matrix ~ N(0, σ²) with σ = d_in^(-γ) (2606.17945).

    from small_init import gamma_init_

    gamma_init_(model, gamma=1.0, seed=0)                    # all matrices
    gamma_init_(model, groups={"readout": 0.5})              # another γ for a group
    gamma_init_(model, groups={"*.layers.0.*": 0.75})        # or for names (glob, or re.compile)
    gamma_init_(model, rules={"*.scale": Constant(1.0)})     # a parameter the library cannot know
    print(table(gamma_init_(model, dry_run=True)))           # what it would do

What a parameter is, `parameters` says; the numbers, `draws` makes. The weights are the same for any
world size, device, wrapper and order of modules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from small_init.errors import UserError
from small_init.rule.draws import draw_all_, fill_, fill_row_, target
from small_init.rule.groups import Group
from small_init.rule.parameters import (
    Axis,
    Constant,
    EmbeddingFanIn,
    FanIn,
    Keep,
    Rule,
    Use,
    grouping,
    rules_of,
    uses,
)

__all__ = ["Axis", "Constant", "EmbeddingFanIn", "FanIn", "Group", "Keep", "Weight"]
__all__ += ["gamma_init_", "table"]

Pattern = str | re.Pattern[str]
RuleKey = Pattern | type[nn.Module]
_SIDES = ("input", "output")


@dataclass(frozen=True)
class Weight:
    """One parameter and its first value: N(0, std²) where `std` is set, else a constant or kept."""

    name: str  # without wrappers' prefixes; the embedding's name for a tied weight
    module: str  # class of the module that holds it
    group: Group
    shape: tuple[int, ...]
    fan_in: int | None = None
    gamma: float | None = None
    std: float | None = None
    constant: float | None = None
    zero_row: int | None = None  # an embedding's padding entry, which gets no gradient

    @property
    def action(self) -> str:
        """`normal`, `constant` or `keep`."""
        if self.std is not None:
            return "normal"
        return "keep" if self.constant is None else "constant"


def gamma_init_(
    model: nn.Module,
    gamma: float = 1.0,
    *,
    seed: int = 0,
    groups: Mapping[Pattern, float] | None = None,
    rules: Mapping[RuleKey, Rule] | None = None,
    embedding_fan_in: EmbeddingFanIn | str = EmbeddingFanIn.hidden,
    dry_run: bool = False,
) -> list[Weight]:
    """Overwrite every parameter of `model` by the γ rule; returns what was done, in model order.

    Matrices get N(0, fan_in^(-2γ)), norms a gain that passes the normalised input on (1, or 0 where
    the norm adds 1) and bias 0, other biases 0. Buffers are left alone.

    groups: γ by group (`Group`) or by weight name (glob, or a compiled regular expression that
        matches the whole name); of several that match, the last counts.
    rules: what a parameter is, by weight name or by module type, over the library's own knowledge;
        the last that matches counts.
    embedding_fan_in: `hidden` (d) or `vocabulary` (V) for embedding tables.
    dry_run: only return the table; works on the meta device and draws nothing.

    Each rank of a sharded model (FSDP2, tensor parallel) calls it alike; nobody communicates.
    Raises UserError, before anything is written, for a parameter it does not know, a pattern that
    matches nothing, a γ that is negative or not finite, a weight tied between two different rules,
    a parameter on the meta device, a sharding other than Shard and Replicate, and NaN in a
    parameter that is kept.
    """
    if not dry_run:
        _check_memory(model, list(uses(model)))
    if embedding_fan_in not in (*EmbeddingFanIn, *(choice.value for choice in EmbeddingFanIn)):
        raise UserError(f"embedding_fan_in is 'hidden' or 'vocabulary', not {embedding_fan_in!r}.")
    fan_in = EmbeddingFanIn(embedding_fan_in)
    weights = _first_values(model, gamma, groups or {}, rules or {}, fan_in)
    if dry_run:
        return weights
    held = {use.name: use.parameter for use in uses(model)}
    places = {weight.name: target(weight.name, held[weight.name]) for weight in weights}
    for weight in weights:
        if weight.action == "keep" and torch.isnan(places[weight.name].local).any():
            raise UserError(f"'{weight.name}' is to be kept but holds NaN; give it a rule instead.")
    draw_all_([(places[w.name], w.std) for w in weights if w.std is not None], seed)
    for weight in weights:
        if weight.constant is not None:
            fill_(places[weight.name], weight.constant)
        if weight.zero_row is not None:
            fill_row_(places[weight.name], weight.zero_row, 0.0)
    return weights


def table(weights: list[Weight]) -> str:
    """The weights as aligned text, a line each."""
    lines = [("name", "module", "group", "shape", "fan-in", "γ", "std", "action")]
    for w in weights:
        fan_in = "" if w.fan_in is None else str(w.fan_in)
        gamma = "" if w.gamma is None else f"{w.gamma:g}"
        std = "" if w.std is None else f"{w.std:.4g}"
        action = f"constant {w.constant:g}" if w.constant is not None else w.action
        if w.zero_row is not None:
            action += f", row {w.zero_row} zero"
        shape = "×".join(map(str, w.shape))
        lines.append((w.name, w.module, w.group.value, shape, fan_in, gamma, std, action))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


# --- from uses to weights ------------------------------------------------------------------------


def _first_values(
    model: nn.Module,
    gamma: float,
    groups: Mapping[Pattern, float],
    rules: Mapping[RuleKey, Rule],
    embedding_fan_in: EmbeddingFanIn,
) -> list[Weight]:
    for value in (gamma, *groups.values()):
        if not (math.isfinite(value) and value >= 0):
            raise UserError(f"γ must be a finite number of at least 0, not {value}.")
    held: dict[int, list[Use]] = {}  # the uses of each parameter: several where it is tied
    for use in uses(model):
        if isinstance(use.parameter, UninitializedParameter):
            raise UserError(f"'{use.name}' has no shape yet; run a batch through its lazy module.")
        held.setdefault(id(use.parameter), []).append(use)
    group = grouping(model)
    weights, drawn, unknown = [], [], []
    for tied in held.values():
        # Not simply the one listed first: the order of modules must not decide what is drawn.
        main = min(tied, key=lambda use: (not isinstance(use.module, nn.Embedding), use.name))
        rule = _rule(tied, rules, embedding_fan_in)
        if rule is None:
            unknown.append(main)
            continue
        weight = Weight(main.name, main.module_name, group(main), tuple(main.parameter.shape))
        if isinstance(rule, FanIn):
            drawn += tied
            asked = _asked_gamma(tied, groups, group)
            own = gamma if asked is None else asked
            std = float(rule.number**-own)
            row = getattr(main.module, "padding_idx", None)
            weight = replace(weight, fan_in=rule.number, gamma=own, std=std, zero_row=row)
        elif isinstance(rule, Constant):
            weight = replace(weight, constant=rule.value)
        weights.append(weight)
    if unknown:
        raise UserError(_unknown(unknown))
    for key in rules:
        if not any(_declares(key, use) for tied in held.values() for use in tied):
            raise UserError(f"rules: {_shown(key)} matches no parameter of this model.")
    for name in groups:
        if not any(_selects(name, use, group(use)) for use in drawn):
            known = ", ".join(sorted({group(use).value for use in drawn}))
            raise UserError(
                f"groups: {_shown(name)} matches no weight that is drawn; this model has the "
                f"groups {known}."
            )
    return weights


def _rule(
    tied: list[Use], rules: Mapping[RuleKey, Rule], embedding_fan_in: EmbeddingFanIn
) -> FanIn | Constant | Keep | None:
    """The one rule for a parameter, its fan-in as a number; None if nobody knows it."""
    declared = [rule for key, rule in rules.items() if any(_declares(key, u) for u in tied)]
    if declared:
        return _numbered(declared[-1], tied[0])
    found = {}
    for use in tied:
        rule = rules_of(use.module, embedding_fan_in).get(use.leaf)
        if rule is None or not use.parameter.is_floating_point():
            return None
        found[use.name] = _numbered(rule, use)
    if len(set(found.values())) > 1:
        (one, its), (other, others), *_ = found.items()
        raise UserError(
            f"'{one}' and '{other}' are the same parameter under two rules, {its} and {others}; "
            f"declare which holds: rules={{'{one}': {its}}}."
        )
    return next(iter(found.values()))


def _numbered(rule: Rule, use: Use) -> FanIn | Constant | Keep:
    shape = tuple(use.parameter.shape)
    if not isinstance(rule, Rule):
        raise UserError(
            f"rules: '{use.name}' is given {rule!r}; use Axis, FanIn, Constant or Keep of "
            "small_init.rule.gamma."
        )
    if isinstance(rule, Axis):
        axes = (rule.axes,) if isinstance(rule.axes, int) else rule.axes
        if any(not -len(shape) <= axis < len(shape) for axis in axes):
            raise UserError(f"'{use.name}' has the shape {shape} and no axis {rule.axes}.")
        rule = FanIn(math.prod(shape[axis] for axis in axes))
    if isinstance(rule, FanIn) and rule.number < 1:
        raise UserError(f"'{use.name}' {shape} has a fan-in of {rule.number}; it must be positive.")
    return rule


def _asked_gamma(
    tied: list[Use], groups: Mapping[Pattern, float], group: Callable[[Use], Group]
) -> float | None:
    """γ from `groups`, None where it says nothing."""
    asked = {}
    for use in tied:
        for pattern, value in groups.items():
            if _selects(pattern, use, group(use)):
                asked[use.name] = value
    if len(set(asked.values())) > 1:
        shown = " and ".join(f"γ = {value:g} as '{name}'" for name, value in asked.items())
        raise UserError(f"One parameter is tied under two rules, {shown}; give both the same γ.")
    return next(iter(asked.values()), None)


def _matches(pattern: Pattern, name: str) -> bool:
    if isinstance(pattern, re.Pattern):
        return pattern.fullmatch(name) is not None
    return fnmatchcase(name, pattern)


def _selects(pattern: Pattern, use: Use, group: Group) -> bool:
    return pattern == group.value or _matches(pattern, use.name)


def _declares(key: RuleKey, use: Use) -> bool:
    return isinstance(use.module, key) if isinstance(key, type) else _matches(key, use.name)


def _shown(key: RuleKey) -> str:
    if isinstance(key, type):
        return key.__name__
    return f"'{key.pattern if isinstance(key, re.Pattern) else key}'"


# --- refusals ------------------------------------------------------------------------------------


def _unknown(unknown: list[Use]) -> str:
    use, *others = unknown
    kind = "" if use.parameter.is_floating_point() else f", {use.parameter.dtype}"
    more = f" (and {len(others)} more, the next is '{others[0].name}')" if others else ""
    return (
        f"No γ rule for the parameter '{use.name}' {tuple(use.parameter.shape)}{kind} of a "
        f"{use.module_name}{more}: declare it, rules={{'{use.name}': r}} with r = Axis(i) for the "
        "axis that is its fan-in, FanIn(number), Constant(value) or Keep(), all from "
        "small_init.rule.gamma."
    )


def _check_memory(model: nn.Module, held: list[Use]) -> None:
    """Refuse what has no memory yet, or what getting it has torn apart."""
    for use in held:
        if use.parameter.is_meta:
            raise UserError(
                f"'{use.name}' is on the meta device; call model.to_empty(device=…) first and "
                "restore the buffers, or ask for dry_run=True."
            )
    if getattr(getattr(model, "config", None), "tie_word_embeddings", False) is not True:
        return
    tables = [getattr(model, f"get_{side}_embeddings", lambda: None)() for side in _SIDES]
    owned = [getattr(module, "weight", None) for module in tables]
    if None not in owned and owned[0] is not owned[1]:
        raise UserError(
            "The model's config ties the word embeddings but they are two parameters (to_empty "
            "separates them); call model.tie_weights() first."
        )
