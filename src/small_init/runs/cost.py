"""What an arm will cost, from its configuration alone: nothing is built, nothing is measured.

Parameters are counted as by `model.transformer.parameter_counts`. FLOPs of training are 6 per token
and parameter it is multiplied with (forward 2, backward 4), as `train.pretrain.flops_per_token`
says; those of the causal attention scores, 6·L·T·D per token, are given apart and are in no
utilisation.

Memory of one device, in bytes; the terms are added as if all had their largest value at once, and
a compiled block keeps less than said here, so this is an upper bound:

    weights       4·P/G: float32, P parameters divided over G devices (1 without FSDP2; with it all,
                  those of a node, or 1, by `shard`)
    gradients     4·P/G
    moments       8·P/G: AdamW's two
    copies        one process in bfloat16: 2 per number of the blocks' matrices (autocast's, kept
                  for the backward pass; routers stay in float32). FSDP2, s bytes a number: what is
                  not in blocks stays gathered, with its gradient and the float32 sum it travels in,
                  2s + 4; of blocks two are gathered and the gradients of one: 2s + s + 4
    activations   N tokens of a device · (L · block + 12·D + 12: what the last norm and the loss
                  keep); with checkpointing only the stream before each block, 4·D, and one block
    backward      N · (8·D + 3·s·F): gradients of the stream and inside one feed-forward layer
    loss          logits of one block of rows, 4 (and 2 more in bfloat16) each; the readout's
                  gradient, 4·V·D, and in bfloat16 its copy and one block's share of it, 2·V·D each

A block keeps, per token, at s bytes a number in matrix products (float32: 4; bfloat16: 2, where
each product keeps its own copy of its input):

    norms         2 · (8·D + 4): input and quotient, both float32 (a fused kernel keeps the first)
    attention     inputs s·D · (bfloat16: 3, or 4 with a gate; float32: 1); query, key, value and
                  output 4·s·D; logsumexp 4·H; input of the output projection s·D; gates s each;
                  with QK-norm 16·D + 8·H
    feed-forward  inputs s·D · (bfloat16: 2; float32: 1); four inner tensors, 4·s·F
    mixture       K experts of E: router 4·D + 12·E + 32·K + 8; inputs and outputs
                  s·K·D · (bfloat16: 3; float32: 2); inner tensors 4·s·K·F

Letters: D d_model, F d_ff, H n_heads, L n_layers, T context, V vocab_size.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from small_init.config import (
    Accelerator,
    ArmConfig,
    Gate,
    ModelConfig,
    ParallelConfig,
    Precision,
    Probes,
    Shard,
)

# Model FLOPs utilisation that hours are stated at: between the 35 to 42 % that MosaicML measured on
# H100 in bfloat16 for 0.76B and 1.3B parameters at 2,048 tokens, without checkpointing (table in
# llm-foundry, scripts/train/benchmarking). With it a quarter of the work is done twice over.
UTILISATION, CHECKPOINTED_UTILISATION = 0.40, 0.30
# Logits that `model.loss` holds at a time.
CPU_LOSS_BLOCK, GPU_LOSS_BLOCK = 1 << 17, 1 << 27
WEIGHT_COPIES = 3  # of final weights on disk: scratch/, models/ and DVC's cache
# Text bytes of a record's tables, as in the published ones: a weight at one step, an activation
# row, a weight in init.json.
_SPECTRUM_BYTES, _ACTIVATION_BYTES, _INIT_BYTES = 170, 50, 270


@dataclass(frozen=True)
class Parameters:
    """Numbers of a model; `model.transformer.parameter_counts` has the first two."""

    total: int
    active: int  # that one token meets
    multiplied: int  # of the active ones in matrix products: no looked-up embedding, no norm gain
    in_block: int  # of one block
    cast_in_block: int  # of these, in matrices that autocast copies
    outside: int  # embedding, readout and last norm


def count_parameters(model: ModelConfig) -> Parameters:
    d, heads, experts = model.d_model, model.n_heads, model.n_experts
    attention = 4 * d * d + d * gates_per_token(model)
    router = d * experts
    expert = 3 * d * model.d_ff
    feed_forward = max(1, experts) * expert
    used = (model.experts_per_token if experts else 1) * expert
    norms = 2 * d + (2 * d // heads if model.qk_norm else 0)
    block = attention + router + feed_forward + norms
    tables = model.vocab_size * d * (1 if model.tied else 2)
    total = model.n_layers * block + tables + d
    return Parameters(
        total=total,
        active=total - model.n_layers * (feed_forward - used),
        multiplied=model.n_layers * (attention + router + used) + model.vocab_size * d,
        in_block=block,
        cast_in_block=attention + feed_forward,
        outside=tables + d,
    )


def gates_per_token(model: ModelConfig) -> int:
    """Attention gates of a token in one block."""
    return {Gate.none: 0, Gate.headwise: model.n_heads, Gate.elementwise: model.d_model}[model.gate]


@dataclass(frozen=True)
class Memory:
    """Bytes of one device; the terms stand at the top of the file."""

    weights: int
    gradients: int
    moments: int
    copies: int
    activations: int
    backward: int
    loss: int

    @property
    def total(self) -> int:
        return sum(astuple(self))


def block_activation_bytes(model: ModelConfig, precision: Precision) -> int:
    """What one block keeps of a token for the backward pass."""
    d, heads, k = model.d_model, model.n_heads, model.experts_per_token
    low = precision is Precision.bf16
    size = 2 if low else 4
    gated = model.gate is not Gate.none
    norms = 2 * (8 * d + 4)
    inputs = 3 + gated if low else 1
    attention = size * d * (inputs + 5) + 4 * heads + size * gates_per_token(model)
    if model.qk_norm:
        attention += 16 * d + 8 * heads
    if model.n_experts:
        router = 4 * d + 12 * model.n_experts + 32 * k + 8
        feed_forward = router + size * k * (d * (3 if low else 2) + 4 * model.d_ff)
    else:
        feed_forward = size * (d * (2 if low else 1) + 4 * model.d_ff)
    return norms + attention + feed_forward


def memory_per_device(arm: ArmConfig, parallel: ParallelConfig) -> Memory:
    model, counts = arm.model, count_parameters(arm.model)
    world = parallel.devices * parallel.nodes
    parts = {Shard.full: world, Shard.hybrid: parallel.devices, Shard.none: 1}[parallel.shard]
    low = arm.train.precision is Precision.bf16
    size = 2 if low else 4
    if world > 1:
        copies = (2 * size + 4) * counts.outside + (3 * size + 4) * counts.in_block
    else:
        copies = 2 * model.n_layers * counts.cast_in_block if low else 0

    d, tokens = model.d_model, arm.train.batch_tokens // world
    block = block_activation_bytes(model, arm.train.precision)
    blocks = model.n_layers * (4 * d if parallel.checkpoint_activations else block)
    recomputed = block if parallel.checkpoint_activations else 0
    inner = model.d_ff * (model.experts_per_token if model.n_experts else 1)

    on_gpu = parallel.accelerator is Accelerator.cuda
    rows = max(16, (GPU_LOSS_BLOCK if on_gpu else CPU_LOSS_BLOCK) // model.vocab_size)
    logits = min(rows, tokens) * model.vocab_size
    return Memory(
        weights=4 * counts.total // parts,
        gradients=4 * counts.total // parts,
        moments=8 * counts.total // parts,
        copies=copies,
        activations=tokens * (blocks + recomputed + 12 * d + 12),
        backward=tokens * (8 * d + 3 * size * inner),
        loss=logits * (6 if low else 4) + model.vocab_size * d * (8 if low else 4),
    )


@dataclass(frozen=True)
class RunCost:
    """One run of an arm."""

    parameters: Parameters
    tokens: int
    flops: int  # of the whole run, without attention scores
    score_flops: int  # of the attention scores
    memory: Memory  # of one device
    device_hours: float | None  # None where the profile states no peak of its devices
    weights_bytes: int  # on disk when the run is done
    record_bytes: int  # about
    checkpoint_bytes: int  # on disk while it trains: the last checkpoint and the next


def utilisation(parallel: ParallelConfig, mfu: float | None) -> float:
    """The share of the devices' peak that 6·N·D makes up: the one asked for, or a usual one."""
    if mfu is not None:
        return mfu
    return CHECKPOINTED_UTILISATION if parallel.checkpoint_activations else UTILISATION


def run_cost(arm: ArmConfig, parallel: ParallelConfig, mfu: float | None = None) -> RunCost:
    """The cost of one run; `mfu` as for `utilisation`."""
    model, counts, tokens = arm.model, count_parameters(arm.model), arm.train.tokens
    flops = 6 * counts.multiplied * tokens
    peak, share = parallel.device_tflops, utilisation(parallel, mfu)
    return RunCost(
        parameters=counts,
        tokens=tokens,
        flops=flops,
        score_flops=6 * model.n_layers * model.context * model.d_model * tokens,
        memory=memory_per_device(arm, parallel),
        device_hours=None if peak is None else flops / (share * peak * 1e12) / 3600,
        weights_bytes=WEIGHT_COPIES * 4 * counts.total,
        record_bytes=_record_bytes(arm),
        checkpoint_bytes=2 * 12 * counts.total,
    )


def _record_bytes(arm: ArmConfig) -> int:
    model, points = arm.model, arm.train.curve_points
    matrices = model.n_layers * (7 + (model.gate is not Gate.none) + (model.n_experts > 0)) + 2
    size = matrices * _INIT_BYTES
    if arm.train.probes is not Probes.none:
        size += points * matrices * _SPECTRUM_BYTES
    if arm.train.probes is Probes.all:
        rows = points * model.n_layers * (2 * model.n_heads + model.n_experts + 8)
        snapshots = 4 * 128 * 2 * model.d_model * 2
        size += rows * _ACTIVATION_BYTES + snapshots
    return size
