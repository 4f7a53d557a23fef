"""What a model does to random tokens at step 0, measured: one forward and one backward pass.

Large models are built at their true width with fewer blocks and a smaller vocabulary: what the
first blocks do does not depend on those that follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from small_init.config import InitConfig
from small_init.diagnosis.architectures import Architecture, Family
from small_init.diagnosis.propagation import Block
from small_init.model.init import initialise_, weight_table
from small_init.model.transformer import Transformer

CONTEXT = 128  # tokens of a window
_WINDOWS = 4
_VOCABULARY = 4096
_BLOCKS = 3
# Numbers in a model, with as many gradients beside them: about 10 s on two cores.
_PARAMETERS = {"cpu": 80_000_000, "cuda": 300_000_000}
_LARGEST_BLOCK = {"cpu": 300_000_000, "cuda": 2_000_000_000}  # where not even two fit


@dataclass(frozen=True)
class Measurement:
    """What was built, and what it did."""

    built: Architecture  # the architecture with the blocks and the vocabulary that were built
    implementation: str
    device: str
    context: int
    tokens: int
    blocks: list[Block]
    single: list[Block]  # every token alone in its window: T = 1
    mlp_alone: float
    final_norm_rms: float
    excess_loss: float  # on random targets, minus ln V of what was built
    query_gradient: list[float]  # rms per block
    key_gradient: list[float]
    gradients: dict[str, float]  # rms per weight group


@dataclass(frozen=True)
class Model:
    """A model with its first weights, and where its parts are."""

    module: nn.Module
    implementation: str
    groups: dict[str, str]  # parameter → group
    parts: Parts


@dataclass(frozen=True)
class Parts:
    """Where the parts of a model are, as attribute paths."""

    blocks: str
    final_norm: str
    attention_norm: str
    attention: str
    mlp_norm: str
    mlp: str
    query_key: Callable[[nn.Module, Architecture], tuple[Tensor, Tensor]]  # gradients
    gate: str | None = None  # within a block
    router: str | None = None


def reduced(arch: Architecture, device: str) -> Architecture | None:
    """`arch` at its true width, with as many blocks as are quickly measured; None if not even one.

    The vocabulary keeps at least as many entries as a window has tokens, so that these differ.
    """
    size, vocab_size = arch.block_parameters(), min(arch.vocab_size, _VOCABULARY)
    ends = vocab_size * arch.d_model * (1 if arch.tied else 2)
    blocks = min(arch.n_layers, _BLOCKS, (_PARAMETERS[device] - ends) // size)
    if blocks < 1:
        if size > _LARGEST_BLOCK[device]:
            return None
        blocks = 1
    return replace(arch, n_layers=blocks, vocab_size=vocab_size)


def own_model(arch: Architecture, full: Architecture, init: InitConfig, seed: int) -> Model | None:
    """Our Transformer with `arch`, drawn as part of `full`; None where it is another model."""
    config, whole = arch.own_config(), full.own_config()
    if config is None or whole is None:
        return None
    module = Transformer(config)
    initialise_(module, init, whole, seed)  # √(2L) of depth scaling is that of the whole model
    groups = {weight.name: weight.group.value for weight in weight_table(module, init, whole)}
    return Model(module, "this repository's Transformer", groups, OWN_PARTS)


def _separate(query: str, key: str) -> Callable[[nn.Module, Architecture], tuple[Tensor, Tensor]]:
    def gradients(block: nn.Module, arch: Architecture) -> tuple[Tensor, Tensor]:
        q, k = attrgetter(query)(block), attrgetter(key)(block)
        return q.weight.grad, k.weight.grad

    return gradients


def _gpt2_query_key(block: nn.Module, arch: Architecture) -> tuple[Tensor, Tensor]:
    query, key, _ = attrgetter("attn.c_attn.weight.grad")(block).chunk(3, dim=1)
    return query, key


def _neox_query_key(block: nn.Module, arch: Architecture) -> tuple[Tensor, Tensor]:
    grad = attrgetter("attention.query_key_value.weight.grad")(block)
    parts = grad.view(arch.n_heads, 3, arch.head_dim, arch.d_model)
    return parts[:, 0], parts[:, 1]


OWN_PARTS = Parts(
    blocks="blocks", final_norm="norm", attention_norm="attention_norm", attention="attention",
    mlp_norm="mlp_norm", mlp="mlp", query_key=_separate("attention.query", "attention.key"),
    gate="attention.gate",
)  # fmt: skip
_LLAMA_PARTS = Parts(
    blocks="model.layers", final_norm="model.norm", attention_norm="input_layernorm",
    attention="self_attn", mlp_norm="post_attention_layernorm", mlp="mlp",
    query_key=_separate("self_attn.q_proj", "self_attn.k_proj"),
)  # fmt: skip
PARTS = {
    Family.llama: _LLAMA_PARTS,
    Family.qwen2: _LLAMA_PARTS,
    Family.qwen3: _LLAMA_PARTS,
    Family.mistral: _LLAMA_PARTS,
    Family.mixtral: replace(_LLAMA_PARTS, router="mlp.gate"),
    Family.gpt2: Parts(
        blocks="transformer.h", final_norm="transformer.ln_f", attention_norm="ln_1",
        attention="attn", mlp_norm="ln_2", mlp="mlp", query_key=_gpt2_query_key,
    ),
    Family.gpt_neox: Parts(
        blocks="gpt_neox.layers", final_norm="gpt_neox.final_layer_norm",
        attention_norm="input_layernorm", attention="attention",
        mlp_norm="post_attention_layernorm", mlp="mlp", query_key=_neox_query_key,
    ),
}  # fmt: skip


def measure(model: Model, arch: Architecture, device: str) -> Measurement:
    """Forward and backward on random tokens, all different within a window."""
    module = model.module.to(device).eval()
    blocks = attrgetter(model.parts.blocks)(module)
    random = torch.Generator().manual_seed(0)
    context = min(CONTEXT, arch.context, arch.vocab_size)
    ids_BT = torch.stack(
        [torch.randperm(arch.vocab_size, generator=random)[:context] for _ in range(_WINDOWS)]
    ).to(device)
    targets_BT = torch.randint(arch.vocab_size, ids_BT.shape, generator=random).to(device)
    with torch.no_grad(), _watched(model) as single:
        _logits(module, ids_BT.reshape(-1, 1)[:CONTEXT])
    with _watched(model) as seen:
        logits_BTV = _logits(module, ids_BT).float()
    F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten()).backward()
    # Averaged over all targets: the few that were drawn would add noise of their own.
    with torch.no_grad():
        stream_BTD, first = seen.blocks[0]["attention_stream"], blocks[0]
        norm, mlp = getattr(first, model.parts.mlp_norm), getattr(first, model.parts.mlp)
        mlp_alone = _rms(mlp(norm(stream_BTD))) / _rms(stream_BTD)
        loss = (logits_BTV.logsumexp(-1) - logits_BTV.mean(-1)).double().mean()
    squares: dict[str, tuple[float, int]] = {}
    for name, parameter in module.named_parameters():
        if parameter.ndim > 1 and parameter.grad is not None:
            total, count = squares.get(model.groups[name], (0.0, 0))
            square = float(parameter.grad.double().square().sum())
            squares[model.groups[name]] = total + square, count + parameter.numel()
    pairs = [model.parts.query_key(block, arch) for block in blocks]
    return Measurement(
        built=arch,
        implementation=model.implementation,
        device=device,
        context=context,
        tokens=ids_BT.numel(),
        blocks=[_block(store) for store in seen.blocks],
        single=[_block(store) for store in single.blocks],
        mlp_alone=mlp_alone,
        final_norm_rms=_rms(seen.final_norm),
        excess_loss=float(loss) - math.log(arch.vocab_size),
        query_gradient=[_rms(query) for query, _ in pairs],
        key_gradient=[_rms(key) for _, key in pairs],
        gradients={group: math.sqrt(s / n) for group, (s, n) in squares.items()},
    )


def _logits(module: nn.Module, ids_BT: Tensor) -> Tensor:
    out = module(ids_BT)
    return out if isinstance(out, Tensor) else out.logits


def _rms(x: Tensor) -> float:
    return float(x.detach().double().square().mean().sqrt())


class _Seen(TorchFunctionMode):
    """What hooks kept of each block, and the attention logits, block after block."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks: list[dict[str, Any]] = [{} for _ in range(blocks)]
        self.final_norm = torch.empty(0)
        self.attended = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            query, key = args[:2]
            spread = _spread(query.detach(), key.detach(), kwargs.get("scale"))
            self.blocks[self.attended]["qk_logit_std"] = spread
            self.attended += 1
        return func(*args, **kwargs)


def _spread(q_BHTK: Tensor, k_BHTK: Tensor, scale: float | None) -> float | None:
    """Standard deviation of a query's logits over the keys it sees, over all queries."""
    size = q_BHTK.shape[2]
    if size == 1:
        return None
    k_BHTK = k_BHTK.repeat_interleave(q_BHTK.shape[1] // k_BHTK.shape[1], dim=1)
    logits_BHTT = q_BHTK @ k_BHTK.mT * (q_BHTK.shape[-1] ** -0.5 if scale is None else scale)
    causal_TT = torch.ones(size, size, dtype=torch.bool, device=q_BHTK.device).tril()
    keys_T1 = causal_TT.sum(-1, keepdim=True)
    mean = (logits_BHTT * causal_TT).sum(-1, keepdim=True) / keys_T1
    squares = ((logits_BHTT - mean).double().square() * causal_TT).sum((-1, -2)).mean()
    return math.sqrt(float(squares) / (size * (size - 1) / 2))


@contextmanager
def _watched(model: Model) -> Iterator[_Seen]:
    """Hooks on norms, sublayers, gates and routers while the model runs."""
    parts = model.parts
    blocks = attrgetter(parts.blocks)(model.module)
    seen, handles = _Seen(len(blocks)), []

    def keep(module: nn.Module, store: dict[str, Any], output: str, source: str = "") -> None:
        def hook(_: Any, inputs: Any, result: Any) -> None:
            if source:
                store[source] = inputs[0].detach()
            store[output] = (result if isinstance(result, Tensor) else result[0]).detach()

        handles.append(module.register_forward_hook(hook))

    for block, store in zip(blocks, seen.blocks, strict=True):
        for name in ("attention", "mlp"):
            norm = getattr(block, getattr(parts, f"{name}_norm"))
            keep(norm, store, f"{name}_norm", f"{name}_stream")
            keep(getattr(block, getattr(parts, name)), store, name)
        for name, path in (("gate", parts.gate), ("router", parts.router)):
            if path and (part := attrgetter(path)(block)) is not None:
                keep(part, store, name)
    end: dict[str, Any] = {}
    keep(attrgetter(parts.final_norm)(model.module), end, "norm")
    try:
        with seen:
            yield seen
        seen.final_norm = end["norm"]
    finally:
        for handle in handles:
            handle.remove()


def _block(store: dict[str, Any]) -> Block:
    return Block(
        attention=_rms(store["attention"]) / _rms(store["attention_stream"]),
        mlp=_rms(store["mlp"]) / _rms(store["mlp_stream"]),
        attention_norm_rms=_rms(store["attention_norm"]),
        mlp_norm_rms=_rms(store["mlp_norm"]),
        qk_logit_std=store["qk_logit_std"],
        gate_logit_std=_rms(store["gate"]) if "gate" in store else None,
        router_logit_std=_rms(store["router"]) if "router" in store else None,
    )
