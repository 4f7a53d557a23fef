"""What a wide random transformer does to random tokens, block by block, without building it.

With independent Gaussian weights, all that a block's weights see of the stream is the T × T matrix
of inner products of its positions, K_ts = x_t·x_s / D, and each sublayer adds a matrix of its own
to it (mean-field signal propagation: Noci et al. 2022, arXiv 2206.03126); `sublayers` has these. It
starts as a multiple of the identity, as the tokens of a window are taken to be distinct. Exact for
infinite width with heads of the true size, up to Monte-Carlo error.

Two effects need the whole matrix: small logits still make attention average less than 1/t
(`theory.concentration`), and once attention outweighs the stream (γ < 1), positions resemble each
other and later blocks have nothing left to average away.

Letters in shapes: T position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from small_init.diagnosis.architectures import Architecture
from small_init.diagnosis.stds import Stds
from small_init.diagnosis.sublayers import (
    attention_branch,
    feed_forward_branch,
    inverse_square,
    kernel_rms,
    normed,
)
from small_init.rule.theory import concentration, log_sum_exp


@dataclass(frozen=True)
class Block:
    """One block at step 0; rms and std over positions, channels and, for logits, a query's keys."""

    attention: float  # residual flow
    mlp: float
    attention_norm_rms: float
    mlp_norm_rms: float
    qk_logit_std: float | None  # None with one position: there is nothing to tell apart
    gate_logit_std: float | None
    router_logit_std: float | None


@dataclass(frozen=True)
class Prediction:
    """What `propagate` finds."""

    blocks: list[Block]
    mlp_alone: float  # flow of the first feed-forward layer, were there no attention before it
    final_norm_rms: float
    excess_loss: float  # initial loss on random targets minus ln V
    query_gradient: list[float]  # rms · √(tokens of a batch), per block, of the query projection
    key_gradient: list[float]


def propagate(arch: Architecture, stds: Stds, context: int) -> Prediction:
    """The stream through all blocks on windows of `context` distinct random tokens."""
    random = np.random.default_rng(0)
    stream_TT = (stds.embedding**2 + stds.position**2) * np.eye(context)
    alone_TT, *_ = feed_forward_branch(arch, stds, normed(stream_TT, arch.norm_eps), random)
    mlp_alone = kernel_rms(alone_TT) / kernel_rms(stream_TT)
    blocks, backward = [], []
    for _ in range(arch.n_layers):
        attention_in_TT = normed(stream_TT, arch.norm_eps)
        attention = attention_branch(arch, stds, attention_in_TT, random)
        middle_TT = stream_TT if arch.parallel else stream_TT + attention.added_TT
        mlp_in_TT = normed(middle_TT, arch.norm_eps)
        mlp_TT, mlp_gain, router_std = feed_forward_branch(arch, stds, mlp_in_TT, random)
        blocks.append(
            Block(
                attention=kernel_rms(attention.added_TT) / kernel_rms(stream_TT),
                mlp=kernel_rms(mlp_TT) / kernel_rms(middle_TT),
                attention_norm_rms=kernel_rms(attention_in_TT),
                mlp_norm_rms=kernel_rms(mlp_in_TT),
                qk_logit_std=attention.logit_std,
                gate_logit_std=attention.gate_std,
                router_logit_std=router_std,
            )
        )
        attention_gain = attention.gain * inverse_square(stream_TT, arch.norm_eps)
        mlp_gain *= inverse_square(middle_TT, arch.norm_eps)
        backward.append((attention, attention_gain, mlp_gain))
        stream_TT = stream_TT + attention.added_TT + mlp_TT

    vocab_size = arch.vocab_size
    final_T = np.diag(normed(stream_TT, arch.norm_eps))
    logit_std = math.sqrt(arch.d_model * final_T.mean()) * stds.readout
    excess = log_sum_exp(vocab_size, logit_std) - math.log(vocab_size)
    if arch.tied:  # the stream still holds the token's own embedding, and its logit stands out
        own_T = stds.embedding**2 * arch.d_model * np.sqrt(final_T / np.diag(stream_TT))
        total = math.log(vocab_size) + excess
        excess = float(np.logaddexp(total, own_T).mean()) - math.log(vocab_size)

    # Backwards: (p − onehot)·W_readout/tokens per position, then each branch adds its gain.
    confident = float(concentration([vocab_size], logit_std)[0])
    gradient = stds.readout**2 * (1 + confident) * inverse_square(stream_TT, arch.norm_eps)
    query: list[float] = []
    key: list[float] = []
    for attention, attention_gain, mlp_gain in reversed(backward):
        at_attention = gradient if arch.parallel else gradient * (1 + mlp_gain)
        query.insert(0, math.sqrt(at_attention * attention.query_gain))
        key.insert(0, math.sqrt(at_attention * attention.key_gain))
        gradient *= 1 + mlp_gain + attention_gain if arch.parallel else (
            (1 + mlp_gain) * (1 + attention_gain)
        )  # fmt: skip
    return Prediction(
        blocks=blocks,
        mlp_alone=mlp_alone,
        final_norm_rms=math.sqrt(float(final_T.mean())),
        excess_loss=excess,
        query_gradient=query,
        key_gradient=key,
    )
