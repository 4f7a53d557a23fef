"""What is read off the weights: spectra, row cosines, norms and how far one step moves them.

Every function gathers a sharded weight whole, so the numbers do not depend on the world size. What
is read off the forward pass stands in `activations`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from small_init.config import InitConfig, ModelConfig, Norm
from small_init.model.init import draw, full, weight_table
from small_init.model.weight_types import weight_type
from small_init.rule.draws import canonical

TOKEN_CLASSES = 8  # parts of the vocabulary, by frequency
_COSINE_ROWS = 512  # rows compared in a tall matrix (embedding, readout): every k-th one
_SNAPSHOT_ROWS = 128  # most rows of a matrix that a record keeps: every k-th one


def matrices(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Name and parameter of every matrix, in the model's order."""
    return ((canonical(name), p) for name, p in model.named_parameters() if p.ndim > 1)


def singular_values(w: Tensor) -> Tensor:
    """Singular values of a matrix, descending, by its smaller Gram matrix in float64."""
    w = w.double()
    gram = w.T @ w if w.shape[0] > w.shape[1] else w @ w.T
    return torch.linalg.eigvalsh(gram).clamp_min(0).sqrt().flip(0)


def stable_rank(singular: Tensor) -> float:
    """‖W‖_F² / ‖W‖_2²; 0 for a zero matrix. 2606.17945."""
    largest = singular[0].square()
    return float(singular.square().sum() / largest) if largest > 0 else 0.0


def random_stable_rank(rows: int, columns: int) -> float:
    """Stable rank of a large matrix of independent entries, mn/(√m + √n)² (Bai and Yin, 1993)."""
    return rows * columns / (math.sqrt(rows) + math.sqrt(columns)) ** 2


def random_mean_abs_cos(columns: int) -> float:
    """Mean |cos| between independent Gaussian rows, Γ(n/2) / (√π Γ((n+1)/2)) ≈ √(2/(π n))."""
    return math.exp(math.lgamma(columns / 2) - math.lgamma((columns + 1) / 2)) / math.sqrt(math.pi)


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


def _shape_of(w: Tensor) -> dict[str, float]:
    singular = singular_values(w)
    mean_abs, mean = row_cosines(w)
    return {
        "norm": float(singular.square().sum().sqrt()),
        "spectral_norm": float(singular[0]),
        "stable_rank": stable_rank(singular),
        "mean_abs_cos": mean_abs,
        "mean_cos": mean,
    }


@torch.no_grad()
def weight_spectra(
    model: nn.Module,
    init: InitConfig,
    config: ModelConfig,
    seed: int,
    decay_left: float | None = None,
) -> list[dict[str, Any]]:
    """One row per matrix: norms, stable rank and row cosines of W and of the change W − W₀; of a
    stack of experts, the means over them.

    W₀ is drawn again rather than kept. At γ = 0.5 a large W₀ hides an update that is as
    low-rank as at γ = 1, so W alone would flatter the condensation claim. Weight decay shrinks W₀
    itself, and W − W₀ holds what is lost of it; with `decay_left`, the c of `schedule.decay_left`,
    a row also has W − c·W₀ ("update_…"), which holds nothing but AdamW's updates, and what a
    Gaussian matrix of this shape would have ("random_…").
    """
    rows = []
    table = weight_table(model, init, config)
    for weight, parameter in zip(table, model.parameters(), strict=True):
        if len(weight.shape) < 2:
            continue
        value = full(parameter)
        first = draw(weight, seed).to(value.device)
        variants = {"": value, "change_": value - first}
        if decay_left is not None:
            variants["update_"] = value - decay_left * first
        row: dict[str, Any] = {"weight": weight.name}
        for prefix, matrix in variants.items():
            experts = [_shape_of(w) for w in matrix.reshape(-1, *matrix.shape[-2:])]
            for name in experts[0]:
                row[prefix + name] = sum(values[name] for values in experts) / len(experts)
        if decay_left is not None:
            row["random_stable_rank"] = random_stable_rank(*weight.shape[-2:])
            row["random_mean_abs_cos"] = random_mean_abs_cos(weight.shape[-1])
        rows.append(row)
    return rows


def activation_row(
    probe: str, value: float, layer: int | None = None, part: str = "", context: int | None = None
) -> dict[str, Any]:
    """A line of activations.csv but for its step; `runs.record` describes the columns."""
    return {"probe": probe, "layer": layer, "part": part, "context": context, "value": value}


@torch.no_grad()
def weight_type_norms(
    model: nn.Module, before: dict[str, Tensor] | None = None
) -> list[dict[str, Any]]:
    """Rows `weight_norm` per weight type, and, with the matrices as they were one step ago, rows
    `relative_update`."""
    squares: dict[str, float] = defaultdict(float)
    moved: dict[str, float] = defaultdict(float)
    earlier: dict[str, float] = defaultdict(float)
    for name, parameter in matrices(model):
        value, kind = full(parameter).double(), weight_type(name)
        squares[kind] += float(value.square().sum())
        if before is not None:
            old = full(before[name]).double()
            moved[kind] += float((value - old).square().sum())
            earlier[kind] += float(old.square().sum())
    rows = [activation_row("weight_norm", math.sqrt(s), part=k) for k, s in squares.items()]
    for kind, square in earlier.items():
        # A type drawn at 0 has moved infinitely far, which is no number for a record.
        if square > 0:
            ratio = math.sqrt(moved[kind] / square)
            rows.append(activation_row("relative_update", ratio, part=kind))
    return rows


def token_classes(counts_V: np.ndarray) -> list[np.ndarray]:
    """The vocabulary in TOKEN_CLASSES parts of equal size, the most frequent tokens first; the
    smaller id first among equals."""
    return np.array_split(np.argsort(-counts_V, kind="stable"), TOKEN_CLASSES)


@torch.no_grad()
def embedding_saturation(
    model: nn.Module, config: ModelConfig, classes: list[np.ndarray]
) -> list[dict[str, Any]]:
    """Rows `embedding_rms` and `embedding_saturation` per token class: what the first norm lets
    through of the tokens' embeddings, 1/√(1 + ε/rms²)."""
    embedding_VD = full(model.embedding.weight).double()  # type: ignore[union-attr, arg-type]
    if config.norm is Norm.layernorm:  # which takes the mean away first
        embedding_VD = embedding_VD - embedding_VD.mean(1, keepdim=True)
    square_V = embedding_VD.square().mean(1)
    through_V = 1 / (1 + config.norm_eps / square_V).sqrt()
    rows = []
    for number, ids in enumerate(classes):
        mine = torch.from_numpy(ids).to(square_V.device)
        rms, through = float(square_V[mine].mean().sqrt()), float(through_V[mine].mean())
        rows.append(activation_row("embedding_rms", rms, part=str(number)))
        rows.append(activation_row("embedding_saturation", through, part=str(number)))
    return rows


def snapshot_weights(config: ModelConfig) -> tuple[str, str]:
    """The two weights of which a record keeps copies: of the block after the middle."""
    block = f"blocks.{config.n_layers // 2}"
    up = "mlp.experts.up" if config.n_experts else "mlp.up.weight"
    return f"{block}.attention.value.weight", f"{block}.{up}"


def snapshot(w: Tensor) -> Tensor:
    """A matrix as a record keeps it: float16 on the CPU, every k-th row, at most 128; of a stack
    of experts the first."""
    matrix = full(w) if w.ndim == 2 else full(w)[0]
    rows = matrix[:: -(-len(matrix) // _SNAPSHOT_ROWS)]
    return rows.to("cpu", torch.float16).contiguous()
