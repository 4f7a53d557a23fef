"""What the γ rule predicts for the first block's residual flow at step 0.

Residual flow of a branch = rms(branch output) / rms(residual stream before it). Every matrix has
std d_in^(-γ), the embedding d^(-γ), all entries independent; r is what the norm lets through,

    r = 1/√(1 + ε/rms(x)²),   rms(x) = d^(-γ) for the first block's attention.

Attention. Value and output projection multiply the rms by d^(1/2-γ) each, so one position alone
(T = 1) has the flow  r · d^(1-2γ) / d^(-γ) = r · d^(1-γ),  the paper's scale. Two more factors:

    gate    √E[sigmoid(z)²], z ~ N(0, (r·d^(1/2-γ))²): ½ for γ > ½ and large d, 0.54 at γ = ½, more
            below, where the gates open and close at random
    context √(H_T/T) where attention is uniform, H_T = 1 + 1/2 + … + 1/T: position i averages i
            values, and mean(1/i) = H_T/T. It takes the tokens of a window for distinct

Where attention is not uniform, position i has logits of std s = r²·d^(1-2γ) over its i keys, and
1/i becomes E[Σ p²] of their softmax (`concentration`). The logits of one query are independent
normal numbers given that query, so the expectation is exact but for the length of the query, which
differs from token to token (`attention_average` integrates over it). For s = 1 (γ = ½) and many
keys it approaches e/i: attention then averages as if over i/e values.

Feed-forward (SwiGLU). The pre-activations g and u have std s = r · d^(1/2-γ). For small s
silu(g) ≈ g/2, so silu(g)·u has rms s²/2, and the down projection multiplies by d_ff^(1/2-γ):

    flow ≈ ½ · (d_ff/d)^(1/2-γ) · d^(3/2-2γ)   for r = 1 and a small attention branch.

The constant ½ becomes √E[silu(g)²]/s for s that is not small (0.60 at s = 1, towards 1/√2); that is
what `mlp_flow` uses, together with the stream that already carries the attention branch.
At d = 1024, d_ff = 4096 and γ = 0.5, 0.75, 1 it gives 19, 0.36 and 0.008 without such a branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

# Gauss–Hermite nodes for E[f(z)], z ~ N(0, 1); 64 are exact to 1e-6 up to std 3, 1e-3 up to 6.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def _rms_of(function: Callable[[np.ndarray], np.ndarray], std: float) -> float:
    return math.sqrt(float(_WEIGHTS @ function(std * _NODES) ** 2))


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def gate_rms(std: float) -> float:
    """√E[sigmoid(z)²] for logits of standard deviation `std`."""
    return _rms_of(_sigmoid, std)


def silu_rms(std: float) -> float:
    """√E[silu(g)²] for pre-activations of standard deviation `std`."""
    return _rms_of(lambda g: g * _sigmoid(g), std)


def norm_rms(stream_rms: float, norm_eps: float) -> float:
    """rms of RMSNorm's output (gain 1) for an input of rms `stream_rms` (1910.07467)."""
    return 1 / math.sqrt(1 + norm_eps / stream_rms**2)


def uniform_average(context: int) -> float:
    """√(H_T/T): what uniform causal attention leaves of the values' rms, over all positions."""
    return math.sqrt(sum(1 / i for i in range(1, context + 1)) / context)


def concentration(keys: Sequence[int], std: float) -> np.ndarray:
    """E[Σ p²] of a softmax over n independent logits ~ N(0, std²), for each n in `keys`.

    1/(Σ e^z)² = ∫ t·exp(−t·Σ e^z) dt turns it into  n ∫ t·φ''(t)·φ(t)^(n−1) dt  with the Laplace
    transform φ(t) = E[exp(−t·e^z)] of a lognormal number; integrated over log t. Beyond a std of
    30 the largest logit has nearly all, and what it lacks falls as 1/std.
    """
    n = np.asarray(keys, dtype=float)
    if std > _LARGEST_STD:
        return 1 - (1 - concentration(keys, _LARGEST_STD)) * _LARGEST_STD / std
    log_t, log_phi, second = _lognormal_transform(int(n.max()), std)
    return n * np.trapezoid(second * np.exp((n[:, None] - 1) * log_phi), log_t)


def log_sum_exp(terms: int, std: float) -> float:
    """E[ln Σ e^z] over `terms` independent z ~ N(0, std²); ln(terms) + std²/2 for small std.

    ln X = ∫ (e^(−t) − e^(−t·X))/t dt, by the same transform as in `concentration`. Beyond a std of
    30 it is the largest z, which grows as std.
    """
    if std > _LARGEST_STD:
        return log_sum_exp(terms, _LARGEST_STD) * std / _LARGEST_STD
    log_t, log_phi, _ = _lognormal_transform(terms, std)
    return float(np.trapezoid(np.exp(-np.exp(log_t)) - np.exp(terms * log_phi), log_t))


_LARGEST_STD = 30.0


def _lognormal_transform(terms: int, std: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log t, log φ(t) and t²·φ''(t); the range of t is wide enough for `terms` numbers.

    Both integrands are smooth on the scale 1 of log t + z, so that steps of ¼ are exact to 1e-6.
    """
    reach = 9.5  # in units of std; a million draws stay below 5.5
    points = max(77, int(2 * reach * std / 0.25))
    z = np.linspace(-reach, reach, points)
    weight = np.exp(-(z**2) / 2)
    weight /= weight.sum()
    low, high = -math.log(terms) - std * reach - 20, std * reach + 5
    log_t = np.arange(low, high, 0.25)
    x = np.exp(np.minimum(log_t[:, None] + std * z, 50))  # t·e^z
    lost = (-np.expm1(-x)) @ weight  # 1 − φ(t)
    return log_t, np.log1p(-np.minimum(lost, 1 - 1e-15)), (x**2 * np.exp(-x)) @ weight


def attention_average(context: int, std: float, head_dim: int) -> float:
    """What causal attention leaves of the values' rms, over all positions; √(H_T/T) for std 0.

    `std` is that of the logits over all queries and keys. One query's logits have std·|q|/√K with
    K = `head_dim`; three nodes stand for |q|²/K, which has mean 1 and variance 2/K.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    lengths = np.sqrt((1 + math.sqrt(2 / head_dim) * nodes).clip(min=0))
    sizes = sorted({round(x) for x in np.geomspace(1, context, 64)})
    means = weights @ [concentration(sizes, std * length) for length in lengths] / weights.sum()
    keys = np.arange(1, context + 1)
    over_positions = np.exp(np.interp(np.log(keys), np.log(sizes), np.log(means)))
    return math.sqrt(float(over_positions.mean()))


def attention_flow(gamma: float, d_model: int, norm_eps: float, gated: bool, context: int) -> float:
    """Residual flow of the first block's attention branch; `context` 1 is the paper's d^(1-γ)."""
    r = norm_rms(d_model**-gamma, norm_eps)
    gate = gate_rms(r * d_model ** (0.5 - gamma)) if gated else 1.0
    return r * d_model ** (1 - gamma) * gate * uniform_average(context)


def mlp_flow(gamma: float, d_model: int, d_ff: int, norm_eps: float, attention: float) -> float:
    """Residual flow of the first block's feed-forward branch.

    `attention` is the flow of the attention branch before it: both now share the stream.
    """
    stream = d_model**-gamma * math.sqrt(1 + attention**2)
    s = norm_rms(stream, norm_eps) * d_model ** (0.5 - gamma)
    return silu_rms(s) * s * d_ff ** (0.5 - gamma) / stream
