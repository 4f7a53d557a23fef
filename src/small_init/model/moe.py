"""A mixture of experts in the place of the feed-forward layer, and what is read off its router.

A linear router sends each token to the K experts of highest softmax probability; their outputs are
added with these probabilities, renormalised to sum 1 (Mixtral, 2401.04088). No token is dropped:
tokens are sorted by expert, and one grouped product multiplies each group with its own matrix.

Two losses train the router besides the cross-entropy, per layer, over the tokens of a batch:
    balance   E · Σ_e f_e · P_e, f_e the share of choices that fell on expert e and P_e its mean
              probability; 1 when both are even (Switch Transformer, 2101.03961)
    z         mean of logsumexp(logits)², which keeps the logits small (ST-MoE, 2202.08906)

Shape suffixes, besides those of `model.transformer`:
    N tokens of the batch    E n_experts    K experts_per_token    M = N · K choices, by expert
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from small_init.config import ModelConfig
from small_init.model.loss import product_dtype


class _TrainedBy(torch.autograd.Function):
    """The identity, whose backward pass also descends on `loss`, with weight 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor) -> Tensor:
        ctx.save_for_backward(torch.ones_like(loss))
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, ctx.saved_tensors[0]


# torch.compile knows this product in bfloat16 alone.
_grouped_mm_uncompiled = torch.compiler.disable(F.grouped_mm)


def _grouped(x_MI: Tensor, w_EOI: Tensor, ends_E: Tensor) -> Tensor:
    """Rows ends_(e−1) … ends_e of x times the transpose of matrix e; autocast does not see it."""
    dtype = product_dtype(x_MI)
    product = F.grouped_mm if dtype is torch.bfloat16 else _grouped_mm_uncompiled
    return product(x_MI.to(dtype), w_EOI.to(dtype).transpose(1, 2), offs=ends_E)


class Experts(nn.Module):
    """E SwiGLU layers, their matrices stacked as (expert, out, in)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inner = (config.n_experts, config.d_ff, config.d_model)
        self.gate = nn.Parameter(torch.empty(inner))
        self.up = nn.Parameter(torch.empty(inner))
        self.down = nn.Parameter(torch.empty(config.n_experts, config.d_model, config.d_ff))

    def forward(self, x_MD: Tensor, ends_E: Tensor) -> Tensor:
        gate_MF, up_MF = _grouped(x_MD, self.gate, ends_E), _grouped(x_MD, self.up, ends_E)
        return _grouped(F.silu(gate_MF) * up_MF, self.down, ends_E)


class MixtureOfExperts(nn.Module):
    """K of E feed-forward layers for each token.

    In training mode the two losses reach the router through the backward pass alone; they are in
    no number that the model returns. `over_ranks` averages the choices' shares where the batch is
    divided over several processes: the balance is that of the whole batch, and whoever divides it
    sets the function.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.router = nn.Linear(config.d_model, config.n_experts, bias=False)
        self.experts = Experts(config)
        self.over_ranks: Callable[[Tensor], Tensor] = lambda share_E: share_E

    def route(self, x_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Router logits (N, E), and per token the weights and numbers of its experts (N, K).

        In float32 at any precision: a softmax over close logits decides who learns what.
        """
        with torch.autocast(x_ND.device.type, enabled=False):
            logits_NE = F.linear(x_ND.float(), self.router.weight.float())
        weights_NK, experts_NK = logits_NE.softmax(-1).topk(self.config.experts_per_token)
        return logits_NE, weights_NK / weights_NK.sum(-1, keepdim=True), experts_NK

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_ND = x_BTD.flatten(0, 1)
        logits_NE, weights_NK, experts_NK = self.route(x_ND)
        expert_M, order_M = experts_NK.flatten().sort(stable=True)
        numbers_E = torch.arange(self.config.n_experts, device=x_ND.device)
        ends_E = torch.searchsorted(expert_M, numbers_E, right=True).int()
        y_MD = self.experts(x_ND[order_M // self.config.experts_per_token], ends_E)
        y_NKD = y_MD[order_M.argsort()].unflatten(0, experts_NK.shape)
        y_ND = (y_NKD * weights_NK[..., None]).sum(1).to(x_ND.dtype)
        if self.training:
            y_ND = _TrainedBy.apply(y_ND, self.router_loss(logits_NE, ends_E))
        return y_ND.view_as(x_BTD)

    def router_loss(self, logits_NE: Tensor, ends_E: Tensor) -> Tensor:
        """The weighted sum of the balance and z losses, a scalar with gradient in the logits."""
        choices_E = ends_E.diff(prepend=ends_E.new_zeros(1))
        share_E = self.over_ranks(choices_E.float() / choices_E.sum())
        balance = self.config.n_experts * (share_E * logits_NE.softmax(-1).mean(0)).sum()
        z = logits_NE.logsumexp(-1).square().mean()
        return self.config.balance_weight * balance + self.config.z_weight * z


@torch.no_grad()
def routing(model: nn.Module, ids_BT: Tensor) -> list[dict[str, Any]]:
    """What the routers of `model` do with windows of T tokens, as rows of activations.csv.

    `expert_load`, per layer and expert ("part"): its share of the tokens' choices, 1/E when even.
    `router_entropy`, per layer: mean entropy of a token's softmax over experts in nats, at most
    ln E. No rows for a dense model.
    """
    rows: list[dict[str, Any]] = []
    context = ids_BT.shape[1]

    def add(probe: str, layer: int, part: str, value: float) -> None:
        row = {"probe": probe, "layer": layer, "part": part, "context": context, "value": value}
        rows.append(row)

    def watch(layer: int) -> Callable[[Any, Any, Any], None]:
        def hook(mixture: Any, inputs: Any, _: Any) -> None:
            logits_NE, _, experts_NK = mixture.route(inputs[0].flatten(0, 1))
            log_p_NE = logits_NE.double().log_softmax(-1)
            choices_E = experts_NK.flatten().bincount(minlength=mixture.config.n_experts)
            for expert, share in enumerate((choices_E / choices_E.sum()).tolist()):
                add("expert_load", layer, str(expert), share)
            entropy = -(log_p_NE.exp() * log_p_NE).sum(-1).mean()
            add("router_entropy", layer, "", float(entropy))

        return hook

    handles = [
        block.mlp.register_forward_hook(watch(layer))
        for layer, block in enumerate(model.blocks)  # type: ignore[arg-type]
        if isinstance(block.mlp, MixtureOfExperts)
    ]
    if handles:
        with torch.compiler.set_stance("force_eager"):  # compiled code does not see new hooks
            ids_BT = ids_BT.to(next(model.parameters()).device)
            model(ids_BT, ids_BT, per_token=True)  # not all logits at once
    for handle in handles:
        handle.remove()
    return rows
