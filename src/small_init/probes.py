"""What is read off the weights and the forward pass: spectra, row cosines, residual flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from small_init.config import InitConfig, ModelConfig
from small_init.init import draw, plan

_COSINE_ROWS = 512  # rows compared in a tall matrix (embedding, readout): every k-th one


def full(parameter: Tensor) -> Tensor:
    """The whole weight, float32; gathers a sharded one."""
    value = parameter.detach()
    if hasattr(value, "full_tensor"):
        value = value.full_tensor()
    return value.float()


def singular_values(w: Tensor) -> Tensor:
    """Singular values of a matrix, descending, by its smaller Gram matrix in float64."""
    w = w.double()
    gram = w.T @ w if w.shape[0] > w.shape[1] else w @ w.T
    return torch.linalg.eigvalsh(gram).clamp_min(0).sqrt().flip(0)


def stable_rank(singular: Tensor) -> float:
    """‖W‖_F² / ‖W‖_2²; 0 for a zero matrix. 2606.17945."""
    largest = singular[0].square()
    return float(singular.square().sum() / largest) if largest > 0 else 0.0


def row_cosines(w: Tensor) -> tuple[float, float]:
    """Mean |cos| and mean cos over pairs of different rows; of every k-th row in a tall matrix."""
    rows = w[:: max(1, len(w) // _COSINE_ROWS)].double()
    length = rows.norm(dim=1, keepdim=True)
    rows = rows / length.clamp_min(1e-300)
    cosine = rows @ rows.T
    pairs = len(rows) * (len(rows) - 1)
    diagonal = cosine.diagonal()
    return (
        float((cosine.abs().sum() - diagonal.abs().sum()) / pairs),
        float((cosine.sum() - diagonal.sum()) / pairs),
    )


@torch.no_grad()
def weight_spectra(
    model: nn.Module, init: InitConfig, config: ModelConfig, seed: int
) -> list[dict[str, Any]]:
    """One row per matrix: norms, stable rank and row cosines of W and of the change W − W₀.

    W₀ is drawn again rather than kept. At γ = 0.5 a large W₀ hides an update that is as
    low-rank as at γ = 1, so W alone would flatter the condensation claim.
    """
    rows = []
    for weight, parameter in zip(plan(model, init, config), model.parameters(), strict=True):
        if len(weight.shape) < 2:
            continue
        value = full(parameter)
        row: dict[str, Any] = {"weight": weight.name}
        for prefix, matrix in (
            ("", value),
            ("change_", value - draw(weight, seed).to(value.device)),
        ):
            singular = singular_values(matrix)
            mean_abs, mean = row_cosines(matrix)
            row[f"{prefix}norm"] = float(singular.square().sum().sqrt())
            row[f"{prefix}spectral_norm"] = float(singular[0])
            row[f"{prefix}stable_rank"] = stable_rank(singular)
            row[f"{prefix}mean_abs_cos"] = mean_abs
            row[f"{prefix}mean_cos"] = mean
        rows.append(row)
    return rows


def _rms(x: Tensor) -> float:
    return float(x.double().square().mean().sqrt())


@contextmanager
def _captured(model: nn.Module) -> Iterator[list[dict[str, Tensor]]]:
    """Per block and sublayer: the stream, its normalised form, and what the sublayer adds to it."""
    seen: list[dict[str, Tensor]] = []
    handles = []
    for block in model.blocks:  # type: ignore[union-attr]
        store: dict[str, Tensor] = {}
        seen.append(store)
        for name in ("attention", "mlp"):

            def at_norm(_: Any, inputs: Any, output: Tensor, store: Any = store, name: str = name):  # type: ignore[no-untyped-def]
                store[f"{name}_stream"], store[f"{name}_norm"] = inputs[0], output

            def at_sublayer(_: Any, __: Any, output: Tensor, store: Any = store, name: str = name):  # type: ignore[no-untyped-def]
                store[name] = output

            handles.append(getattr(block, f"{name}_norm").register_forward_hook(at_norm))
            handles.append(getattr(block, name).register_forward_hook(at_sublayer))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def residual_flow(model: nn.Module, ids_BT: Tensor) -> dict[str, Any]:
    """rms(what a sublayer adds) / rms(the stream it adds to), per block, on windows of T tokens.

    "attention" and "mlp" are over all positions. Uniform attention averages the values it sees and
    shrinks with T ("context"), so "attention_single" is measured with every token alone in its
    window: T = 1, where the paper's d^(1−γ) applies to the first block. "…_norm_rms" are the rms
    of the norms' outputs, 1 where ε does not matter.
    """
    with _captured(model) as seen:
        model(ids_BT)
        flow: dict[str, Any] = {"context": ids_BT.shape[1]}
        for name in ("attention", "mlp"):
            flow[name] = [_rms(s[name]) / _rms(s[f"{name}_stream"]) for s in seen]
            flow[f"{name}_norm_rms"] = [_rms(s[f"{name}_norm"]) for s in seen]
        model(ids_BT.reshape(-1, 1))
        flow["attention_single"] = [
            _rms(s["attention"]) / _rms(s["attention_stream"]) for s in seen
        ]
    return flow
