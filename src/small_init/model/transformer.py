"""A decoder-only transformer: pre-norm, rotary positions, SwiGLU, optionally gated attention and
a mixture of experts.

It knows nothing of training, sharding or the paper. Shape suffixes:
    B batch    T position    D d_model    H head    K d_model / n_heads    F d_ff    V vocabulary
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from small_init.config import Gate, ModelConfig, Norm
from small_init.model.loss import mean_loss, token_losses
from small_init.model.moe import MixtureOfExperts


class _Norm(nn.Module):
    """A normalisation with a gain and an explicit ε, computed in float32 whatever comes in.

    Autocast does not upcast these functions, and ε = 1e-12 is 0 beside a bfloat16 variance.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))


class RMSNorm(_Norm):
    """x / sqrt(mean(x²) + ε) · gain (1910.07467).

    ε decides whether the norm still sees how small x is: the output's rms is
    1/sqrt(1 + ε/rms(x)²).
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], self.weight.float(), self.eps).to(x.dtype)


class LayerNorm(_Norm):
    """(x − mean(x)) / sqrt(var(x) + ε) · gain, without bias (1607.06450)."""

    def forward(self, x: Tensor) -> Tensor:
        gain = self.weight.float()
        return F.layer_norm(x.float(), x.shape[-1:], gain, None, self.eps).to(x.dtype)


def make_norm(config: ModelConfig, size: int) -> nn.Module:
    kind = {Norm.rmsnorm: RMSNorm, Norm.layernorm: LayerNorm}[config.norm]
    return kind(size, config.norm_eps)


def rotary_tables(config: ModelConfig, length: int, device: torch.device | None = None) -> Tensor:
    """cos and sin of every (position, pair) angle: (2, length, K/2), float32 (2104.09864)."""
    half = config.d_model // config.n_heads // 2
    pair = torch.arange(half, device=device, dtype=torch.float32)
    frequency = config.rope_theta ** (-pair / half)
    angle = torch.arange(length, device=device, dtype=torch.float32)[:, None] * frequency
    return torch.stack([angle.cos(), angle.sin()])


def _turned(x_BHTK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x_BHTK.chunk(2, dim=-1)
    turned = torch.empty_like(x_BHTK, memory_format=torch.contiguous_format)
    out_first, out_second = turned.chunk(2, dim=-1)
    torch.mul(first, cos, out=out_first).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=out_second).addcmul_(first, sin)
    return turned


class _Rotate(torch.autograd.Function):
    """A rotation's gradient is the rotation back; saying so saves half the passes over memory."""

    @staticmethod
    def forward(ctx: Any, x_BHTK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x_BHTK, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(grad, cos, -sin), None, None


def rotate(x_BHTK: Tensor, tables: Tensor) -> Tensor:
    """Rotate each (k, k + K/2) pair of channels by its position's angle."""
    cos, sin = tables.to(x_BHTK.dtype)
    if torch.compiler.is_compiling():  # it fuses the formula, and cannot write into views
        first, second = x_BHTK.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return _Rotate.apply(x_BHTK, cos, sin)


class Attention(nn.Module):
    """Causal self-attention; a gate multiplies its output by sigmoid(W_g x) (2505.06708)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.d_model
        self.n_heads = config.n_heads
        self.query = nn.Linear(d, d, bias=False)
        self.key = nn.Linear(d, d, bias=False)
        self.value = nn.Linear(d, d, bias=False)
        self.output = nn.Linear(d, d, bias=False)
        gates = {Gate.none: 0, Gate.headwise: config.n_heads, Gate.elementwise: d}[config.gate]
        self.gate = nn.Linear(d, gates, bias=False) if gates else None
        head = d // config.n_heads
        self.query_norm = make_norm(config, head) if config.qk_norm else None
        self.key_norm = make_norm(config, head) if config.qk_norm else None

    def heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def queries_and_keys(self, x_BTD: Tensor, tables: Tensor) -> tuple[Tensor, Tensor]:
        q_BHTK, k_BHTK = self.heads(self.query(x_BTD)), self.heads(self.key(x_BTD))
        if self.query_norm is not None and self.key_norm is not None:
            q_BHTK, k_BHTK = self.query_norm(q_BHTK), self.key_norm(k_BHTK)
        return rotate(q_BHTK, tables), rotate(k_BHTK, tables)

    def forward(self, x_BTD: Tensor, tables: Tensor) -> Tensor:
        q_BHTK, k_BHTK = self.queries_and_keys(x_BTD, tables)
        v_BHTK = self.heads(self.value(x_BTD))
        y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        y_BTHK = y_BHTK.transpose(1, 2)
        if self.gate is not None:
            y_BTHK = y_BTHK * torch.sigmoid(self.gate(x_BTD)).unflatten(-1, (self.n_heads, -1))
        return self.output(y_BTHK.flatten(2))


class SwiGLU(nn.Module):
    """Gated feed-forward layer (2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.up = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x_BTD)) * self.up(x_BTD))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = make_norm(config, config.d_model)
        self.attention = Attention(config)
        self.mlp_norm = make_norm(config, config.d_model)
        self.mlp = MixtureOfExperts(config) if config.n_experts else SwiGLU(config)

    def forward(self, x_BTD: Tensor, tables: Tensor) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), tables)
        return x_BTD + self.mlp(self.mlp_norm(x_BTD))


class Transformer(nn.Module):
    """Token ids to logits, or, given the targets, to the cross-entropy in nats.

    Everything goes through `forward`, so that a sharded model gathers its readout there.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layers)])
        self.norm = make_norm(config, config.d_model)
        self.readout = nn.Linear(config.d_model, config.vocab_size, bias=False)
        if config.tied:
            self.readout.weight = self.embedding.weight
        self.register_buffer("tables", rotary_tables(config, config.context), persistent=False)
        self.tables: Tensor

    def hidden(self, ids_BT: Tensor) -> Tensor:
        """Final normalised states, (B, T, D)."""
        tables = self.tables[:, : ids_BT.shape[1]]
        # The stream stays in float32 at any precision: at γ = 1 it is small and so are its updates.
        x_BTD = self.embedding(ids_BT).float()
        for block in self.blocks:
            x_BTD = block(x_BTD, tables)
        return self.norm(x_BTD)

    def forward(
        self, ids_BT: Tensor, targets_BT: Tensor | None = None, per_token: bool = False
    ) -> Tensor:
        """Logits (B, T, V); with targets the mean loss, a scalar with gradient; with `per_token`
        the loss of each target, (B, T), without gradient. Fewer targets than ids are those of the
        last positions."""
        x_BTD = self.hidden(ids_BT)
        if targets_BT is None:
            return self.readout(x_BTD)
        if targets_BT.shape != ids_BT.shape:
            x_BTD = x_BTD[:, -targets_BT.shape[1] :]
        x_ND, targets_N = x_BTD.flatten(0, 1), targets_BT.flatten()
        if per_token:
            return token_losses(x_ND, self.readout.weight, targets_N).view_as(targets_BT)
        return mean_loss(x_ND, self.readout.weight, targets_N)


def parameter_counts(model: nn.Module) -> dict[str, int]:
    """Trainable numbers in total, those one token meets ("active": in a mixture, all but the
    experts it is not sent to), in the embedding and readout, and without these."""
    total = sum(p.numel() for p in model.parameters())
    active = sum(active_size(n, p, model.config) for n, p in model.named_parameters())  # type: ignore
    tables = {id(p): p.numel() for n, p in model.named_parameters() if n in _TABLES}
    outer = sum(tables.values())
    return {
        "total": total, "active": active,
        "embedding_and_readout": outer, "non_embedding": total - outer,
    }  # fmt: skip


def active_size(name: str, parameter: Tensor, config: ModelConfig) -> int:
    """How many numbers of a weight one token meets; the embedding counts as a whole."""
    if ".experts." in name:
        return parameter.numel() // config.n_experts * config.experts_per_token
    return parameter.numel()


_TABLES = ("embedding.weight", "readout.weight")
