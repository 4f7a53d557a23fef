"""Validation: nats per token by source and bits per byte by language, as a torchmetrics metric."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from small_init.data.packed import PackedTokens


class SourceLoss(Metric):
    """Sums of loss, tokens and text bytes for each of `sources` validation segments.

    Bits per byte compare tokenizers; the end-of-text token counts as a token of no bytes.
    """

    full_state_update = False
    nats: Tensor
    tokens: Tensor
    bytes: Tensor

    def __init__(self, sources: int) -> None:
        # Every rank reads every window, and has the whole sums already.
        super().__init__(sync_on_compute=False)
        for name in ("nats", "tokens", "bytes"):
            self.add_state(name, torch.zeros(sources, dtype=torch.float64), dist_reduce_fx="sum")
        self.set_dtype(torch.float64)

    def update(self, losses_BT: Tensor, bytes_BT: Tensor, source_B: Tensor) -> None:
        self.nats.index_add_(0, source_B, losses_BT.double().sum(1))
        self.bytes.index_add_(0, source_B, bytes_BT.double().sum(1))
        per_window = torch.full_like(source_B, losses_BT.shape[1], dtype=torch.float64)
        self.tokens.index_add_(0, source_B, per_window)

    def compute(self) -> dict[str, Tensor]:
        return {"nats": self.nats, "tokens": self.tokens, "bytes": self.bytes}


@torch.no_grad()
def validate(model: nn.Module, tokens: PackedTokens, context: int, amount: int) -> dict[str, Any]:
    """Loss of `model` on `amount` validation tokens in windows of `context`.

    Returns nats per token in all ("loss") and "by_source", "bits_per_byte" by language, "tokens";
    where windows end in answers also the "accuracy_by_source": the share of them that the model
    thinks likeliest. Every rank reads every window, so that a sharded model runs the same passes
    everywhere.
    """
    device = next(model.parameters()).device
    lengths = torch.from_numpy(np.asarray(tokens.token_bytes, dtype=np.int64)).to(device)
    metric = SourceLoss(len(tokens.segments)).to(device)
    right = torch.zeros(len(tokens.segments), dtype=torch.float64, device=device)
    training = model.training
    model.eval()
    for inputs, targets, source in tokens.validation_batches(context, amount):
        inputs, targets, source = inputs.to(device), targets.to(device), source.to(device)
        losses = model(inputs, targets, per_token=True)
        metric.update(losses, lengths[targets], source)
        if tokens.answers:
            likeliest = model(inputs)[:, -tokens.answers :].argmax(-1)
            right.index_add_(0, source, (likeliest == targets).double().sum(1))
    model.train(training)
    # Of a single source torchmetrics makes a scalar.
    sums = {name: value.cpu().numpy().reshape(-1) for name, value in metric.compute().items()}
    languages = sorted({segment.language for segment in tokens.segments})
    bits = {}
    for language in languages:
        mine = [segment.language == language for segment in tokens.segments]
        if (size := sums["bytes"][mine].sum()) > 0:
            bits[language] = sums["nats"][mine].sum() / math.log(2) / size

    def by_source(totals: np.ndarray) -> dict[str, float]:
        rows = zip(tokens.segments, totals, sums["tokens"], strict=True)
        return {segment.source: float(total / count) for segment, total, count in rows if count}

    found = {
        "loss": float(sums["nats"].sum() / sums["tokens"].sum()),
        "tokens": int(sums["tokens"].sum()),
        "bits_per_byte": {language: float(value) for language, value in bits.items()},
        "by_source": by_source(sums["nats"]),
    }
    if tokens.answers:
        found["accuracy_by_source"] = by_source(right.cpu().numpy())
    return found
