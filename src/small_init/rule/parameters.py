"""What a parameter of anyone's model is: its fan-in, or the constant it starts at, and its group.

    module                                  parameter            rule
    nn.Linear                               weight (out, in)     fan-in: axis 1
    transformers Conv1D (GPT-2)             weight (in, out)     fan-in: axis 0
    nn.Embedding                            weight (V, d)        fan-in: axis 1, or 0 when asked
    nn.Conv1d, 2d, 3d                       weight               fan-in: in/groups × kernel
    nn.MultiheadAttention                   in_proj_weight, …    fan-in: axis 1
    stacked experts, fused gate and up      (E, out, in)         fan-in: axis 2
      the same, transposed (GPT-OSS)        (E, in, out)         fan-in: axis 1
    router with a weight of its own         weight (E, d)        fan-in: axis 1
    norms                                   gain, bias           1 (0 where the norm adds 1), 0
    all of these but norms                  bias                 0

Fused matrices (QKV, gate-up) need no rule: what is fused shares its fan-in. Everything else is
unknown, and nothing is left at a default initialisation.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from small_init.rule.draws import canonical
from small_init.rule.groups import Group


class EmbeddingFanIn(Enum):
    """What counts as the fan-in of a (vocabulary, hidden) table."""

    hidden = "hidden"  # d: the rows are the first residual stream, branch/stream = d^(1-γ)
    vocabulary = "vocabulary"  # V: the table as a linear map of one-hot vectors


@dataclass(frozen=True)
class FanIn:
    """N(0, number^(-2γ)), with the fan-in given as a number."""

    number: int


@dataclass(frozen=True)
class Axis:
    """N(0, fan_in^(-2γ)), the fan-in being the size of one axis or the product of several."""

    axes: int | tuple[int, ...]


@dataclass(frozen=True)
class Constant:
    """Every entry starts at this value."""

    value: float


@dataclass(frozen=True)
class Keep:
    """The parameter stays as it is."""


Rule = FanIn | Axis | Constant | Keep


@dataclass(frozen=True)
class Use:
    """A parameter as one module holds it; a tied weight has several uses."""

    name: str  # canonical
    module: nn.Module
    leaf: str  # its name within the module
    parameter: nn.Parameter

    @property
    def module_name(self) -> str:
        return original_class(self.module).__name__


def original_class(module: nn.Module) -> type[nn.Module]:
    """The module's class; `fully_shard` puts a subclass of it in its place."""
    kind = type(module)
    if kind.__name__.startswith("FSDP") and kind.__bases__[0].__name__ == "FSDPModule":
        return kind.__bases__[1]
    return kind


def _plain_names(model: nn.Module) -> Callable[[str], str]:
    """A function from a name in `model` to the name without any wrapper's prefix."""
    parallel = [
        f"{path}." if path else ""
        for path, module in model.named_modules()
        if isinstance(module, (DataParallel, DistributedDataParallel))
    ]

    def plain(name: str) -> str:
        for prefix in parallel:
            if name.startswith(f"{prefix}module."):
                name = prefix + name.removeprefix(f"{prefix}module.")
        return canonical(name)

    return plain


def uses(model: nn.Module) -> Iterator[Use]:
    """Every parameter of `model` with each module that holds it, in the model's order."""
    plain = _plain_names(model)
    for path, module in model.named_modules(remove_duplicate=False):
        for leaf, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            yield Use(plain(f"{path}.{leaf}" if path else leaf), module, leaf, parameter)


# --- rules ---------------------------------------------------------------------------------------

_TORCH_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_LAST, _ZERO = Axis(-1), Constant(0.0)


def is_norm(module: nn.Module) -> bool:
    """Also the norms of other libraries, by the end of their class's name."""
    named_so = re.search("Norm(Gated)?$", original_class(module).__name__) is not None
    return isinstance(module, _TORCH_NORMS) or named_so


def is_router(module: nn.Module) -> bool:
    """A router that holds its matrix itself, as those of transformers do."""
    return original_class(module).__name__.endswith("Router")


def rules_of(module: nn.Module, embedding_fan_in: EmbeddingFanIn) -> Mapping[str, Rule]:
    """The rules of a module's own parameters, by their names in it; empty for an unknown module."""
    if is_norm(module):
        gain = 1.0 if isinstance(module, _TORCH_NORMS) else _gain_at_rest(module)
        return {} if gain is None else {"weight": Constant(gain), "bias": _ZERO}
    if isinstance(module, nn.Embedding):
        return {"weight": _LAST if embedding_fan_in is EmbeddingFanIn.hidden else Axis(0)}
    if isinstance(module, nn.MultiheadAttention):
        weights = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        return {"in_proj_bias": _ZERO} | dict.fromkeys(weights, _LAST)
    if isinstance(module, nn.Linear) or is_router(module):
        return {"weight": _LAST, "bias": _ZERO}
    # Of transformers, without importing it.
    if original_class(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        return {"weight": Axis(0), "bias": _ZERO}
    if isinstance(module, _CONVOLUTIONS):
        return {"weight": Axis(tuple(range(1, module.weight.ndim))), "bias": _ZERO}
    return _expert_rules(module)


def _expert_rules(module: nn.Module) -> Mapping[str, Rule]:
    """Stacked experts: (E, 2F, d) and (E, d, F), or both transposed; the shapes tell which."""
    up, down = getattr(module, "gate_up_proj", None), getattr(module, "down_proj", None)
    if not all(isinstance(w, Tensor) and w.ndim == 3 for w in (up, down)):
        return {}
    (_, a, b), (_, c, d) = up.shape, down.shape  # type: ignore[union-attr]
    if (a, b) == (2 * d, c):
        fan_in = Axis(2)
    elif (a, b) == (d, 2 * c):
        fan_in = Axis(1)
    else:
        return {}
    weights = dict.fromkeys(("gate_up_proj", "down_proj"), fan_in)
    return weights | dict.fromkeys(("gate_up_proj_bias", "down_proj_bias"), _ZERO)


def _gain_at_rest(module: nn.Module) -> float | None:
    """The gain with which a norm that is not torch's own passes a normalised input on unchanged.

    Gemma and Qwen3-Next multiply by 1 + weight, others by weight. Names do not tell, a forward
    pass with the weight at 0 does: its output is 0 where 1 is the gain at rest.
    """
    own = dict(module.named_parameters(recurse=False))
    weight = own.get("weight")
    has_state = any(True for _ in module.children()) or any(True for _ in module.buffers())
    if weight is None or weight.ndim != 1 or has_state:  # running statistics would be touched
        return None
    zeros = copy.copy(module)
    with torch.device("cpu"):  # wherever the module is
        zeros.__dict__["_parameters"] = {n: torch.zeros(p.shape) for n, p in own.items()}
        x = torch.linspace(-1, 1, weight.numel())[None]
        try:
            out = type(zeros).forward(zeros, x)  # without the module's hooks
        except Exception:  # a forward pass that wants more than its input: not a norm we know
            return None
        return 0.0 if out.any() else 1.0


# --- groups --------------------------------------------------------------------------------------

_ATTENTION = re.compile(r"attn|attention")
_MLP = re.compile(r"mlp|feed_forward|ffn|experts?$|moe")
_READOUTS = ("lm_head", "readout", "embed_out", "unembedding", "unembed")
_GATES = ("gate", "gate_proj", "g_proj")


def grouping(model: nn.Module) -> Callable[[Use], Group]:
    """A function from a parameter of `model` to its group."""
    plain = _plain_names(model)
    names = {plain(path) for path, _ in model.named_modules()}
    return lambda use: _group(use, names)


def _group(use: Use, names: set[str]) -> Group:
    """`names` are all modules' names: a linear map with `experts` beside it is a router."""
    path = use.name.removesuffix(use.leaf).removesuffix(".")
    parent, _, last = path.rpartition(".")
    beside = f"{parent}.experts" if parent else "experts"
    segments = path.split(".")
    if is_norm(use.module):
        return Group.norm
    if isinstance(use.module, nn.Embedding):
        return Group.embedding
    if is_router(use.module) or (last in ("gate", "router") and beside in names):
        return Group.router
    in_attention = any(_ATTENTION.search(segment) for segment in segments)
    if (in_attention and last in _GATES) or last == "shared_expert_gate":
        return Group.gate
    if in_attention:
        return Group.attention
    if any(_MLP.search(segment) for segment in segments):
        return Group.mlp
    if last in _READOUTS or path in ("output", "head"):  # deeper down: a sublayer's projection
        return Group.readout
    return Group.other
