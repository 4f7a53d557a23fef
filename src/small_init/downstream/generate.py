"""Greedy generation, with the keys and values of past tokens kept, or everything computed anew.

The model's own modules are run block by block, so that they need not know about caches.
Shape suffixes as in `model.transformer`; S: keys a query can see, L: blocks.
Prompts of different lengths are padded on the left and the padding is masked; positions count from
each prompt's first token, as in training.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from small_init.downstream.sharded_model import agreed, whole
from small_init.model.transformer import Block, Transformer, rotate

Following = Generator[Tensor, Tensor, None]  # yields logits (B, V), is sent tokens (B,)
Stop = Callable[[int, list[int]], bool]  # (row, tokens generated so far) → finished


class Cache:
    """Rotated keys and values of every block, written in place: (L, B, H, length, K) each."""

    def __init__(self, model: Transformer, rows: int, length: int) -> None:
        config = model.config
        shape = (config.n_layers, rows, config.n_heads, length, config.d_model // config.n_heads)
        like = model.embedding.weight
        self.keys = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.values = torch.empty_like(self.keys)
        self.filled = 0


def _attend(
    block: Block, keys: Tensor, values: Tensor, x_BTD: Tensor, tables: Tensor, start: int,
    mask: Tensor | None,
) -> Tensor:  # fmt: skip
    """`Attention.forward` for tokens from position `start` on, over all keys up to theirs."""
    attention = block.attention
    end = start + x_BTD.shape[1]
    q_BHTK = attention.heads(attention.query(x_BTD))
    k_BHTK = attention.heads(attention.key(x_BTD))
    if attention.query_norm is not None and attention.key_norm is not None:
        q_BHTK, k_BHTK = attention.query_norm(q_BHTK), attention.key_norm(k_BHTK)
    keys[:, :, start:end] = rotate(k_BHTK, tables)
    values[:, :, start:end] = attention.heads(attention.value(x_BTD))
    y_BHTK = F.scaled_dot_product_attention(
        rotate(q_BHTK, tables), keys[:, :, :end], values[:, :, :end], attn_mask=mask
    )
    y_BTHK = y_BHTK.transpose(1, 2)
    if attention.gate is not None:
        gate = torch.sigmoid(attention.gate(x_BTD))
        y_BTHK = y_BTHK * gate.unflatten(-1, (attention.n_heads, -1))
    return attention.output(y_BTHK.flatten(2))


def step(
    model: Transformer, cache: Cache, ids_BT: Tensor, positions_BT: Tensor, mask: Tensor | None
) -> Tensor:
    """Logits after the last of the tokens given, (B, V); their keys and values go into `cache`.

    Args:
        positions_BT: each token's place in its own text.
        mask: (B, 1, T, S), True where a query may look; None for one token that may see all.
    """
    tables = model.tables[:, positions_BT][:, :, None]  # (2, B, 1, T, K/2)
    x_BTD = model.embedding(ids_BT)
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        with whole(block):
            x_BTD = x_BTD + _attend(
                block, cache.keys[layer], cache.values[layer], block.attention_norm(x_BTD), tables,
                cache.filled, mask,
            )  # fmt: skip
            x_BTD = x_BTD + block.mlp(block.mlp_norm(x_BTD))
    cache.filled += ids_BT.shape[1]
    return model.readout(model.norm(x_BTD[:, -1]))


@torch.inference_mode()
def generate(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    most: int,
    stop: Stop = lambda row, tokens: False,
    cached: bool = True,
) -> list[list[int]]:
    """The most probable next token, again and again.

    Args:
        prompts: token ids, none empty; with `most` tokens more each must fit the trained context.
        most: tokens at most.
        stop: asked after every token; the token that stops a row is the last of its tokens.
        cached: False computes every prompt anew for every token: the check, not for use.

    Returns:
        The new tokens of each prompt.
    """
    if max(map(len, prompts)) + most > model.config.context:
        raise ValueError("a prompt and its continuation do not fit the trained context")
    following = _cached(model, prompts, most) if cached else _anew(model, prompts)
    new: list[list[int]] = [[] for _ in prompts]
    running = set(range(len(prompts)))
    logits_BV = next(following)
    for count in range(1, most + 1):
        tokens_B = agreed(logits_BV.argmax(-1))
        for row, token in enumerate(tokens_B.tolist()):
            if row in running:
                new[row].append(token)
                if stop(row, new[row]):
                    running.remove(row)
        if not running or count == most:
            break
        logits_BV = following.send(tokens_B)
    return new


def _cached(model: Transformer, prompts: Sequence[Sequence[int]], most: int) -> Following:
    device = model.embedding.weight.device
    width = max(map(len, prompts))
    padding_B = torch.tensor([width - len(prompt) for prompt in prompts], device=device)
    ids_BT = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=device)
    slot_S = torch.arange(width + most, device=device)
    seen_BS = slot_S >= padding_B[:, None]
    # A padding token looks at itself, because a row of nothing would come out as NaN.
    diagonal = torch.eye(width, dtype=torch.bool, device=device)
    causal = slot_S[:width, None] >= slot_S[:width]
    mask = (seen_BS[:, None, :width] & causal | diagonal)[:, None]
    cache = Cache(model, len(prompts), width + most)
    positions_BT = (slot_S[:width] - padding_B[:, None]).clamp(min=0)
    padded = bool(padding_B.any())
    tokens_B = yield step(model, cache, ids_BT, positions_BT, mask)
    while True:
        at = cache.filled
        seen = seen_BS[:, None, None, : at + 1] if padded else None
        tokens_B = yield step(model, cache, tokens_B[:, None], at - padding_B[:, None], seen)


def _anew(model: Transformer, prompts: Sequence[Sequence[int]]) -> Following:
    """As `_cached`, from a full pass each time; padding on the right, which no query looks at."""
    device = model.embedding.weight.device
    texts = [list(prompt) for prompt in prompts]
    while True:
        width = max(map(len, texts))
        ids_BT = torch.tensor([t + [0] * (width - len(t)) for t in texts], device=device)
        last_B = torch.tensor([len(t) - 1 for t in texts], device=device)
        x_BD = model.hidden(ids_BT)[torch.arange(len(texts), device=device), last_B]
        tokens_B = yield model.readout(x_BD)
        for text, token in zip(texts, tokens_B.tolist(), strict=True):
            text.append(token)
