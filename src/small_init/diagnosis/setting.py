"""What `diagnose` is asked: a model, and how it would be trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from small_init.config import InitConfig, OptimizerConfig, group_gammas
from small_init.diagnosis.architectures import Architecture
from small_init.diagnosis.stds import Stds, stds_of


@dataclass(frozen=True)
class Setting:
    """A model and how it would be trained; None is "not told", and no verdict rests on it."""

    source: str
    arch: Architecture
    init: InitConfig
    lr: float | None = None  # peak
    warmup_steps: int | None = None
    adam_eps: float = OptimizerConfig.eps
    batch_tokens: int | None = None
    dtype: str = "float32"  # of the weights in training; the measurement is in float32
    config_json: Path | None = None  # of a Hugging Face model
    seed: int = 0

    @property
    def stds(self) -> Stds:
        return stds_of(self.arch, self.init)

    @property
    def gammas(self) -> dict[str, float]:
        """γ of the groups that have their own."""
        return group_gammas(self.init)
