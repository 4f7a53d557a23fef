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

Feed-forward (SwiGLU). The pre-activations g and u have std s = r · d^(1/2-γ). For small s
silu(g) ≈ g/2, so silu(g)·u has rms s²/2, and the down projection multiplies by d_ff^(1/2-γ):

    flow ≈ ½ · (d_ff/d)^(1/2-γ) · d^(3/2-2γ)   for r = 1 and a small attention branch.

The constant ½ becomes √E[silu(g)²]/s for s that is not small (0.60 at s = 1, towards 1/√2); that is
what `mlp_flow` uses, together with the stream that already carries the attention branch.
At d = 1024, d_ff = 4096 and γ = 0.5, 0.75, 1 it gives 19, 0.36 and 0.008 without such a branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from small_init.config import ArmConfig, Gate, Norm, Scheme, group_gammas

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


def uncovered(config: ArmConfig) -> str | None:
    """What an arm has that the derivation above does not cover, or None."""
    model, init = config.model, config.init
    faults = {
        f"the scheme {init.scheme.name}": init.scheme is not Scheme.gamma,
        "a γ per weight group": bool(group_gammas(init)),
        "depth-scaled output projections": init.depth_scaled,
        "a headwise gate": model.gate is Gate.headwise,
        "layer normalisation": model.norm is not Norm.rmsnorm,
    }
    return next((fault for fault, present in faults.items() if present), None)
