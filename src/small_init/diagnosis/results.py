"""What `diagnose` finds: everything that a report prints, draws or writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from small_init.diagnosis.measurement import Measurement
from small_init.diagnosis.propagation import Prediction
from small_init.diagnosis.setting import Setting
from small_init.diagnosis.stds import Stds


class Level(Enum):
    """How much a finding matters."""

    problem = "problem"  # swallows or breaks the effect of the initialisation
    advice = "advice"  # worth a change
    fine = "fine"


@dataclass(frozen=True)
class Verdict:
    """One finding and, where something should change, the new values."""

    level: Level
    topic: str
    text: str
    change: dict[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """The first AdamW step of one kind of weight: it moves each entry by about the rate."""

    weight: str
    fan_in: int
    std: float
    first: float | None  # rate of the first step / std; None where no rate was told
    peak: float | None


@dataclass(frozen=True)
class Diagnosis:
    """Everything the report prints, draws or writes."""

    setting: Setting
    stds: Stds
    context: int  # of the predictions below
    predicted: Prediction  # all blocks at `context`
    predicted_single: Prediction  # T = 1
    built_prediction: Prediction | None  # of the very model that was measured
    measured: Measurement | None
    not_measured: str | None  # why there is no measurement
    flow_at_full_context: float  # of the first block's attention
    qk_gradient: float  # rms, the smallest over blocks, at `gradient_tokens` and full context
    qk_gradient_repaired: float | None  # the same with the norms' ε lowered, if it should be
    gradient_tokens: int
    steps: list[Step]
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def adam_share(self) -> float:
        """What AdamW's ε leaves of the first step of the weakest query or key projection."""
        return self.qk_gradient / (self.qk_gradient + self.setting.adam_eps)
