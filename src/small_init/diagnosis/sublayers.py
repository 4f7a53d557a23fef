"""What attention and the feed-forward layer of a wide random model make of the stream's kernel.

The kernel is the T × T matrix of inner products of the stream's positions, K_ts = x_t·x_s / D; why
nothing else is needed stands in `propagation`. For one head, queries and keys are drawn with the
covariance K, rotated and put through the very softmax; likewise the pre-activations of the
feed-forward layer. What is left is Monte-Carlo error, about 1 %, the same at every call.

Letters in shapes: T position, N heads or hidden units drawn, K head_dim, E experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr, softmax

from small_init.config import Gate
from small_init.diagnosis.architectures import Activation, Architecture
from small_init.diagnosis.stds import Stds
from small_init.rule.theory import gate_rms

_HEADS = 16  # heads drawn per block
_UNITS = 4096  # hidden units, gates and router draws per block
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_STEP = 1e-4  # of the difference quotient that stands for an activation's derivative


def kernel_rms(k_TT: np.ndarray) -> float:
    return math.sqrt(float(np.trace(k_TT)) / len(k_TT))


def normed(k_TT: np.ndarray, eps: float) -> np.ndarray:
    """Inner products after a normalisation; LayerNorm's mean is 0 up to 1/D."""
    scale_T = 1 / np.sqrt(np.diag(k_TT) + eps)
    return k_TT * np.outer(scale_T, scale_T)


def inverse_square(k_TT: np.ndarray, eps: float) -> float:
    """What a normalisation multiplies a gradient's square with."""
    return float((1 / (np.diag(k_TT) + eps)).mean())


def _root(k_TT: np.ndarray) -> np.ndarray:
    """L with L·Lᵀ = K; by eigenvalues, since positions may have become one and the same."""
    values, vectors = np.linalg.eigh(k_TT)
    return vectors * np.sqrt(values.clip(min=0))


@dataclass(frozen=True)
class AttentionBranch:
    added_TT: np.ndarray
    logit_std: float | None
    gate_std: float | None
    gain: float  # of a gradient's square through values and output, but for the norm
    query_gain: float  # squared gradient of the query projection · tokens, over the stream's
    key_gain: float


def attention_branch(
    arch: Architecture, stds: Stds, k_TT: np.ndarray, random: np.random.Generator
) -> AttentionBranch:
    size, head = len(k_TT), arch.head_dim
    root_TT, width = _root(k_TT), math.sqrt(arch.d_model)

    def projected(std: float, count: int) -> np.ndarray:
        shape = (_HEADS, size, count)
        return width * std * (root_TT @ random.standard_normal(shape))

    q_NTK, k_NTK = projected(stds.query, head), projected(stds.query, head)
    query_std = float(np.sqrt((q_NTK**2).mean()))
    if arch.qk_norm:
        q_NTK, k_NTK = (
            x / np.sqrt((x**2).mean(-1, keepdims=True) + arch.norm_eps) for x in (q_NTK, k_NTK)
        )
    key_square = float((k_NTK**2).mean())
    q_NTK, k_NTK = _rotated(arch, q_NTK), _rotated(arch, k_NTK)
    logits_NTT = q_NTK @ k_NTK.transpose(0, 2, 1) / math.sqrt(head)
    causal_TT = np.tri(size, dtype=bool)
    spread = logits_NTT - logits_NTT.mean(-1, keepdims=True, where=causal_TT)
    pairs = size * (size - 1) / 2  # keys of all queries, less one mean each
    logit_std = (
        math.sqrt(float((spread**2).mean(0).sum(where=causal_TT)) / pairs) if pairs else None
    )
    p_NTT = softmax(np.where(causal_TT, logits_NTT, -np.inf), axis=-1)

    value_gain = arch.d_model * stds.query**2
    output_gain = arch.attention_width * stds.output**2
    added_TT = value_gain * output_gain * (p_NTT @ k_TT @ p_NTT.transpose(0, 2, 1)).mean(0)
    gate_std, gate_square = None, 1.0
    if arch.gate is not Gate.none:
        z_TN = width * stds.gate * (root_TT @ random.standard_normal((size, _UNITS)))
        gate_std = width * stds.gate * kernel_rms(k_TT)
        gate_square = gate_rms(gate_std) ** 2
        open_TN = expit(z_TN)
        added_TT = added_TT * (open_TN @ open_TN.T / _UNITS)

    # dL/dlogit_tj = p_tj·(a_tj − Σ p·a) with a_tj = (gradient of the head's output at t)·v_j, and
    # dL/dq_t sums it times k_j; v and k have the covariance K, so what positions share drops out.
    mean_NTT = p_NTT @ k_TT
    own_NT = (p_NTT * mean_NTT).sum(-1)
    softmax_NT = (p_NTT * (p_NTT @ k_TT**2)).sum(-1) - 2 * (p_NTT * mean_NTT**2).sum(-1) + own_NT**2
    diagonal_T = np.diag(k_TT)
    through_output = arch.d_model * stds.output**2 * gate_square
    query_gain = through_output * value_gain * key_square / float(diagonal_T.mean())
    query_gain *= float((softmax_NT * diagonal_T).mean())
    if arch.qk_norm:
        query_gain /= query_std**2 + arch.norm_eps
    return AttentionBranch(
        added_TT=added_TT,
        logit_std=logit_std,
        gate_std=gate_std,
        gain=value_gain * output_gain * gate_square * float((p_NTT**2).sum(-1).mean()),
        query_gain=query_gain,
        key_gain=query_gain * arch.n_heads / arch.n_kv_heads,
    )


def _rotated(arch: Architecture, x_NTK: np.ndarray) -> np.ndarray:
    """Rotary positions, where the model has them."""
    if arch.rope_theta is None:
        return x_NTK
    turned = int(arch.head_dim * arch.rotary_share)
    half = turned // 2
    angle = np.arange(x_NTK.shape[1])[:, None] * arch.rope_theta ** (-np.arange(half) / half)
    first, second = x_NTK[..., :half], x_NTK[..., half : 2 * half]
    cos, sin = np.cos(angle), np.sin(angle)
    parts = [first * cos - second * sin, second * cos + first * sin, x_NTK[..., 2 * half :]]
    return np.concatenate(parts, axis=-1)


_FUNCTIONS: dict[Activation, Callable[[np.ndarray], np.ndarray]] = {
    Activation.silu: lambda g: g * expit(g),
    Activation.gelu: lambda g: g * ndtr(g),
    Activation.gelu_tanh: lambda g: (
        g * (1 + np.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3))) / 2
    ),
    Activation.relu: lambda g: np.maximum(g, 0),
}


def feed_forward_branch(
    arch: Architecture, stds: Stds, k_TT: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, float, float | None]:
    """What the branch adds, its gain for a gradient's square, the router's logit std."""
    size, root_TT = len(k_TT), _root(k_TT)
    width = math.sqrt(arch.d_model)
    function = _FUNCTIONS[arch.activation]
    g_TN = width * stds.up * (root_TT @ random.standard_normal((size, _UNITS)))
    hidden_TN = function(g_TN)
    std_T = width * stds.up * np.sqrt(np.diag(k_TT))
    nodes_TN = std_T[:, None] * _NODES
    exact_T = function(nodes_TN) ** 2 @ _WEIGHTS
    slope_T = (
        (function(nodes_TN + _STEP) - function(nodes_TN - _STEP)) / (2 * _STEP)
    ) ** 2 @ _WEIGHTS
    if arch.glu:
        up_TN = width * stds.up * (root_TT @ random.standard_normal((size, _UNITS)))
        hidden_TN = hidden_TN * up_TN
        slope_T = slope_T * std_T**2 + exact_T
        exact_T = exact_T * std_T**2
    hidden_TT = hidden_TN @ hidden_TN.T / _UNITS
    scale_T = np.sqrt(exact_T / np.diag(hidden_TT))  # the diagonal is known; draws give the rest
    hidden_TT = hidden_TT * np.outer(scale_T, scale_T)
    down = arch.d_ff * stds.down**2
    gain = arch.d_model * stds.up**2 * down * float(slope_T.mean())
    if arch.n_experts == 1:
        return down * hidden_TT, gain, None
    share_TT = np.zeros((size, size))
    draws = max(1, _UNITS // (16 * arch.n_experts))
    for _ in range(draws):
        z_TE = width * stds.router * (root_TT @ random.standard_normal((size, arch.n_experts)))
        kept_TE = z_TE >= np.partition(z_TE, -arch.top_k, axis=-1)[:, -arch.top_k, None]
        w_TE = np.where(kept_TE, np.exp(z_TE - z_TE.max(-1, keepdims=True)), 0)
        w_TE /= w_TE.sum(-1, keepdims=True)
        share_TT += w_TE @ w_TE.T / draws
    router_std = width * stds.router * kernel_rms(k_TT)
    share = float(np.diag(share_TT).mean())
    return down * hidden_TT * share_TT, gain * share, router_std
