"""The optimizer of a run, and which weights it treats how."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from small_init.config import Optimizer, OptimizerConfig
from small_init.errors import UserError
from small_init.rule.draws import canonical

_BASE_WIDTH = 32  # d_in at which `width_rates` changes nothing


def optimizer_of(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW for all weights, or Muon for the blocks' matrices and AdamW for the rest.

    Weight decay is on matrices alone. With `width_rates` a matrix but the embedding has
    lr · 32/d_in (2203.03466, Table 3, which scales Adam's rate of hidden and output weights so).

    Raises:
        UserError: Muon for a sharded model; its update needs each matrix whole.
    """
    muon: dict[float, list[Tensor]] = defaultdict(list)
    adamw: dict[tuple[float, float], list[Tensor]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        name, matrix = canonical(name), parameter.ndim > 1
        narrow = config.width_rates and matrix and name != "embedding.weight"
        rate = config.lr * (_BASE_WIDTH / parameter.shape[-1] if narrow else 1)
        if config.name is Optimizer.muon and parameter.ndim == 2 and name.startswith("blocks."):
            if hasattr(parameter, "full_tensor"):
                raise UserError(
                    "optimizer.name muon needs whole matrices; set shard to none, or the optimizer "
                    "to adamw."
                )
            muon[rate].append(parameter)
        else:
            adamw[rate, config.weight_decay if matrix else 0.0].append(parameter)
    rest = torch.optim.AdamW(
        [{"params": p, "lr": lr, "weight_decay": decay} for (lr, decay), p in adamw.items()],
        lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True,
    )  # fmt: skip
    if not muon:
        return rest
    hidden = torch.optim.Muon(
        [{"params": p, "lr": lr} for lr, p in muon.items()],
        lr=config.lr, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw",
    )  # fmt: skip
    return Together(hidden, rest)


class Together(torch.optim.Optimizer):
    """Two optimizers of different weights as one, for Lightning and the learning-rate schedule."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        self._share_groups()

    def _share_groups(self) -> None:
        # The very dicts of the parts: who changes a rate here changes it there.
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {str(number): part.state_dict() for number, part in enumerate(self.parts)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for number, part in enumerate(self.parts):
            part.load_state_dict(state_dict[str(number)])
        self._share_groups()
