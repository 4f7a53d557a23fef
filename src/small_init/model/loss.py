"""Cross-entropy through the readout, a block of rows at a time, so that logits never exist whole.

The gradient of softmax cross-entropy is cheap once the logits are there, so it is taken in the
forward pass while a block still lies in the cache; the backward pass only scales it. On one core
this shortens a training step at small width, and at V = 60,000 it decides the peak memory.
Shapes: N tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Logits held at a time. The CPU's block fits a core's L2 cache; a GPU wants large products.
_CPU_BLOCK, _GPU_BLOCK = 1 << 17, 1 << 27


def _blocks(x_ND: Tensor, w_VD: Tensor) -> Iterator[slice]:
    elements = _CPU_BLOCK if x_ND.device.type == "cpu" else _GPU_BLOCK
    rows = max(16, elements // w_VD.shape[0])
    for start in range(0, len(x_ND), rows):
        yield slice(start, start + rows)


def product_dtype(x: Tensor) -> torch.dtype:
    """The type a matrix product of `x` is done in: autocast's, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _normalised(x: Tensor, w_VD: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """exp(logit − max), its sum per row, and the losses, all float32; `target` is (rows, 1)."""
    p = (x @ w_VD.T).float()
    p -= p.amax(dim=1, keepdim=True)
    at_target = p.gather(1, target)
    p.exp_()
    total = p.sum(dim=1, keepdim=True)
    return p, total, total.log() - at_target


class _MeanLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, w_VD: Tensor, targets_N: Tensor) -> Tensor:
        dtype, n = product_dtype(x_ND), len(targets_N)
        w = w_VD.to(dtype)
        grad_x = torch.empty_like(x_ND)
        grad_w = torch.zeros_like(w_VD, dtype=torch.float32)
        summed = torch.zeros((), dtype=torch.float32, device=x_ND.device)
        for block in _blocks(x_ND, w_VD):
            x, target = x_ND[block].to(dtype), targets_N[block, None]
            p, total, losses = _normalised(x, w, target)
            summed += losses.sum()
            p *= (1 / n) / total
            p.scatter_add_(1, target, torch.full_like(total, -1 / n))
            p = p.to(dtype)
            grad_x[block] = p @ w
            if dtype == torch.float32:
                grad_w.addmm_(p.T, x)
            else:
                grad_w += p.T @ x
        ctx.save_for_backward(grad_x, grad_w.to(w_VD.dtype))
        return summed / n

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        grad_x, grad_w = ctx.saved_tensors
        return grad_x * grad, grad_w * grad, None


def mean_loss(x_ND: Tensor, w_VD: Tensor, targets_N: Tensor) -> Tensor:
    """Mean cross-entropy in nats, float32, differentiable once in `x_ND` and `w_VD`."""
    return _MeanLoss.apply(x_ND, w_VD, targets_N)


@torch.no_grad()
def token_losses(x_ND: Tensor, w_VD: Tensor, targets_N: Tensor) -> Tensor:
    """Cross-entropy of each target in nats, (N,), float32, without gradient."""
    dtype = product_dtype(x_ND)
    w = w_VD.to(dtype)
    losses = torch.empty(len(x_ND), dtype=torch.float32, device=x_ND.device)
    for block in _blocks(x_ND, w_VD):
        losses[block] = _normalised(x_ND[block].to(dtype), w, targets_N[block, None])[2][:, 0]
    return losses
