"""The γ rule and the other ways of drawing the first weights of our own model.

Standard deviation per weight (d_in: fan-in; L: n_layers; "output projection": the matrix that
writes a sublayer's result to the residual stream):

    scheme     weight                      std
    gamma      every matrix                d_in^(-γ), γ per group (2606.17945)
               token embedding             d_model^(-γ): its rows are the first residual stream,
                                           and the first branch/stream ratio is then d^(1-γ)
    fixed      every matrix, embedding     0.02
    gpt2       every matrix, embedding     0.02, output projections 0.02/√(2L)
    zero_out   as gamma                    output projections 0
    any        norm gains                  the constant 1

with `depth_scaled`, the scheme `gamma` also divides the output projections by √(2L).

The numbers come from `rule.draws`: W = σ·Z, Z keyed by the seed and the weight's name. `rule.gamma`
has the rule for anyone's model, with the same draws and, for this model, the same stds.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass

import torch
from torch import nn

from small_init.config import InitConfig, ModelConfig, Scheme
from small_init.rule.draws import canonical, draw_all_, fill_, standard_normal, target
from small_init.rule.groups import Group

FIXED_STD = 0.02


# What a weight of our own model is, by its name; a name that matches nothing is an error.
_GROUPS: tuple[tuple[str, Group, bool], ...] = (
    (r"embedding\.weight", Group.embedding, False),
    (r"readout\.weight", Group.readout, False),
    (r"blocks\.\d+\.attention\.(query|key|value)\.weight", Group.attention, False),
    (r"blocks\.\d+\.attention\.output\.weight", Group.attention, True),
    (r"blocks\.\d+\.attention\.gate\.weight", Group.gate, False),
    (r"blocks\.\d+\.mlp\.(gate|up)\.weight", Group.mlp, False),
    (r"blocks\.\d+\.mlp\.down\.weight", Group.mlp, True),
    (r"blocks\.\d+\.mlp\.router\.weight", Group.router, False),
    (r"blocks\.\d+\.mlp\.experts\.(gate|up)", Group.mlp, False),
    (r"blocks\.\d+\.mlp\.experts\.down", Group.mlp, True),
    (r"(.*\.)?(\w+_)?norm\.(weight|bias)", Group.norm, False),
)


@dataclass(frozen=True)
class Weight:
    """One parameter and how it is drawn."""

    name: str
    group: Group
    shape: tuple[int, ...]
    fan_in: int
    std: float


def classify(name: str) -> tuple[Group, bool]:
    """The group of a weight of our `Transformer`, and whether it is an output projection.

    Raises ValueError for a name it does not know: nothing is left at a default initialisation.
    """
    for pattern, group, is_output in _GROUPS:
        if re.fullmatch(pattern, name):
            return group, is_output
    raise ValueError(f"no rule for the weight '{name}'; add it to _GROUPS in small_init.model.init")


def weight_std(
    group: Group, fan_in: int, is_output: bool, init: InitConfig, n_layers: int
) -> float:
    """Standard deviation of a matrix under `init`; the table at the top of this file."""
    depth = math.sqrt(2 * n_layers)
    if init.scheme is Scheme.fixed:
        return FIXED_STD
    if init.scheme is Scheme.gpt2:
        return FIXED_STD / depth if is_output else FIXED_STD
    if init.scheme is Scheme.zero_out and is_output:
        return 0.0
    own = getattr(init, group.value)
    gamma = init.gamma if own is None else own
    std = float(fan_in ** (-gamma))
    return std / depth if init.depth_scaled and is_output else std


def weight_table(model: nn.Module, init: InitConfig, config: ModelConfig) -> list[Weight]:
    """How each parameter of `model` would be drawn, in the model's order; draws nothing.

    A tied weight appears once, under the name the model lists first (the embedding).
    """
    weights = []
    for wrapped, parameter in model.named_parameters():
        name = canonical(wrapped)
        group, is_output = classify(name)
        # (out, in), (vocabulary, hidden) of the embedding, (expert, out, in) of stacked experts
        fan_in = parameter.shape[-1]
        std = (
            0.0
            if group is Group.norm
            else weight_std(group, fan_in, is_output, init, config.n_layers)
        )
        weights.append(Weight(name, group, tuple(parameter.shape), fan_in, std))
    return weights


def _constant(weight: Weight) -> float | None:
    """The value a parameter starts at, None where it is drawn."""
    if weight.group is Group.norm:
        return 0.0 if weight.name.endswith("bias") else 1.0
    return 0.0 if weight.std == 0.0 else None


def draw(weight: Weight, seed: int) -> torch.Tensor:
    """The first value of one parameter, float32 on the CPU, in full."""
    constant = _constant(weight)
    if constant is not None:
        return torch.full(weight.shape, constant)
    return torch.from_numpy(standard_normal(seed, weight.name, weight.shape)).mul_(weight.std)


def full(parameter: torch.Tensor) -> torch.Tensor:
    """The whole weight, float32; gathers a sharded one."""
    value = parameter.detach()
    if hasattr(value, "full_tensor"):
        value = value.full_tensor()
    return value.float()


def initialise_(model: nn.Module, init: InitConfig, config: ModelConfig, seed: int) -> None:
    """Overwrite every parameter of `model` with its first value.

    Of a sharded model each process writes its own part, the same numbers as in a whole one; nobody
    communicates, and no weight is held in full.
    """
    drawn = []
    table = weight_table(model, init, config)
    for weight, parameter in zip(table, model.parameters(), strict=True):
        place, constant = target(weight.name, parameter), _constant(weight)
        if constant is None:
            drawn.append((place, weight.std))
        else:
            fill_(place, constant)
    draw_all_(drawn, seed)


def weight_record(model: nn.Module, init: InitConfig, config: ModelConfig) -> dict[str, dict]:
    """Per weight: group, shape, fan-in, the std asked for, the std and SHA-256 of what is there."""
    record = {}
    table = weight_table(model, init, config)
    for weight, parameter in zip(table, model.parameters(), strict=True):
        values = full(parameter).cpu().contiguous()
        record[weight.name] = {
            "group": weight.group.value,
            "shape": list(weight.shape),
            "fan_in": weight.fan_in,
            "std_asked": round(weight.std, 10),
            "std": round(values.double().pow(2).mean().sqrt().item(), 10),
            "sha256": hashlib.sha256(values.numpy().tobytes()).hexdigest(),
        }
    return record
