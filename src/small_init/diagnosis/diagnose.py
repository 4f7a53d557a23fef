"""Before a run: what the first step will look like, predicted for the whole model, and measured.

`diagnose` brings together `propagation` (every block, no weights), `measure` (the first blocks,
built and run) and `verdicts` (what to change).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from small_init.config import Gate, InitConfig, OptimizerConfig, plain
from small_init.diagnosis import huggingface
from small_init.diagnosis.architectures import Architecture
from small_init.diagnosis.findings import Verdict, better_norm_eps, judge
from small_init.diagnosis.measure import CONTEXT, Measurement, Model, measure, own_model, reduced
from small_init.diagnosis.propagation import Prediction, Stds, propagate, stds_of
from small_init.rule.theory import attention_average


@dataclass(frozen=True)
class Setting:
    """A model and how it would be trained; None is "not told", and no verdict rests on it."""

    source: str
    arch: Architecture
    init: InitConfig
    router_gamma: float | None = None
    lr: float | None = None  # peak
    warmup_steps: int | None = None
    adam_eps: float = OptimizerConfig.eps
    batch_tokens: int | None = None
    dtype: str = "float32"  # of the weights in training; the measurement is in float32
    config_json: Path | None = None  # of a Hugging Face model
    seed: int = 0

    @property
    def stds(self) -> Stds:
        return stds_of(self.arch, self.init, self.router_gamma)

    @property
    def gammas(self) -> dict[str, float]:
        """γ of the groups that have their own."""
        names = ("embedding", "attention", "mlp", "gate", "readout")
        own = {name: getattr(self.init, name) for name in names} | {"router": self.router_gamma}
        return {name: gamma for name, gamma in own.items() if gamma is not None}


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


def diagnose(setting: Setting, device: str | None = None) -> Diagnosis:
    """Predict, measure and judge; `device` is the machine's own unless told.

    Raises:
        UserError: a Hugging Face configuration that `transformers` refuses.
    """
    arch, stds = setting.arch, setting.stds
    context = min(CONTEXT, arch.context, arch.vocab_size)
    predicted = propagate(arch, stds, context)
    single = propagate(arch, stds, 1)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model, small, reason = _model(setting, device)
    measured = built_prediction = None
    if model is not None and small is not None:
        built_prediction = propagate(small, stds, context)
        measured = measure(model, small, device)
    first_std = predicted.blocks[0].qk_logit_std or 0.0
    average = attention_average(arch.context, first_std, arch.head_dim)
    here = attention_average(context, first_std, arch.head_dim)
    tokens = setting.batch_tokens or (measured.tokens if measured else 512)
    scale = average / here / math.sqrt(tokens)
    repaired = None
    if (eps := better_norm_eps(arch.norm_eps, predicted)) is not None:
        repaired = scale * _weakest(propagate(replace(arch, norm_eps=eps), stds, context))
    found = Diagnosis(
        setting=setting,
        stds=stds,
        context=context,
        predicted=predicted,
        predicted_single=single,
        built_prediction=built_prediction,
        measured=measured,
        not_measured=reason,
        flow_at_full_context=single.blocks[0].attention * average,
        qk_gradient=scale * _weakest(predicted),
        qk_gradient_repaired=repaired,
        gradient_tokens=tokens,
        steps=_steps(setting, stds),
    )
    found.verdicts.extend(judge(found))
    return found


def _weakest(predicted: Prediction) -> float:
    return min(predicted.query_gradient + predicted.key_gradient)


def _model(setting: Setting, device: str) -> tuple[Model | None, Architecture | None, str | None]:
    """What to measure, and where nothing can be, why."""
    arch = setting.arch
    small = reduced(arch, device)
    if small is None:
        return None, None, (
            f"one block has {arch.block_parameters():,} weights, too many to measure on this "
            f"machine's {device}"
        )  # fmt: skip
    if setting.config_json is not None and huggingface.available():
        model = huggingface.reduced_model(
            setting.config_json, small, setting.init.gamma, setting.gammas, setting.seed
        )
        return model, small, None
    own = own_model(small, arch, setting.init, setting.seed)
    if own is None:
        return None, None, (
            "transformers is not installed (pip install 'small-init[hf]') and our own model "
            f"differs from a {arch.family.value} of this shape"
        )  # fmt: skip
    return own, small, None


def _steps(setting: Setting, stds: Stds) -> list[Step]:
    arch = setting.arch
    kinds: list[tuple[str, int, float]] = [("embedding", arch.d_model, stds.embedding)]
    kinds += [("query, key, value", arch.d_model, stds.query)]
    kinds += [("attention output", arch.attention_width, stds.output)]
    if arch.gate is not Gate.none:
        kinds += [("attention gate", arch.d_model, stds.gate)]
    if arch.n_experts > 1:
        kinds += [("router", arch.d_model, stds.router)]
    kinds += [
        ("feed-forward in", arch.d_model, stds.up),
        ("feed-forward out", arch.d_ff, stds.down),
    ]
    if not arch.tied:
        kinds += [("readout", arch.d_model, stds.readout)]
    first = None
    if setting.lr is not None:
        first = setting.lr / max(1, setting.warmup_steps or 1)
    return [
        Step(
            weight, fan_in, std,
            first=first / std if first is not None and std else None,
            peak=setting.lr / std if setting.lr is not None and std else None,
        )
        for weight, fan_in, std in kinds
    ]  # fmt: skip


def as_json(found: Diagnosis) -> dict[str, Any]:
    """Plain values, for `--json`; what is None was not told or not measured."""
    setting, measured = found.setting, found.measured
    blocks = []
    for index, at_context in enumerate(found.predicted.blocks):
        single = found.predicted_single.blocks[index]
        row: dict[str, Any] = {
            "block": index + 1,
            "predicted": asdict(at_context) | {"attention_single": single.attention},
            "measured": None,
        }
        if measured is not None and index < len(measured.blocks):
            row["measured"] = asdict(measured.blocks[index]) | {
                "attention_single": measured.single[index].attention
            }
        blocks.append(row)
    built = found.built_prediction
    return {
        "source": setting.source,
        "architecture": plain(setting.arch),
        "init": plain(setting.init) | {"router": setting.router_gamma},
        "stds": asdict(found.stds),
        "optimizer": {
            "lr": setting.lr,
            "warmup_steps": setting.warmup_steps,
            "adam_eps": setting.adam_eps,
            "batch_tokens": setting.batch_tokens,
            "dtype": setting.dtype,
        },
        "context": found.context,
        "blocks": blocks,
        "attention_at_full_context": found.flow_at_full_context,
        "mlp_alone": found.predicted.mlp_alone,
        "excess_loss": found.predicted.excess_loss,
        "final_norm_rms": found.predicted.final_norm_rms,
        "steps": [asdict(step) for step in found.steps],
        "qk_gradient": found.qk_gradient,
        "qk_gradient_repaired": found.qk_gradient_repaired,
        "gradient_tokens": found.gradient_tokens,
        "not_measured": found.not_measured,
        "measurement": None if measured is None or built is None else {
            "implementation": measured.implementation,
            "device": measured.device,
            "blocks": measured.built.n_layers,
            "vocab_size": measured.built.vocab_size,
            "tokens": measured.tokens,
            "mlp_alone": [built.mlp_alone, measured.mlp_alone],
            "excess_loss": [built.excess_loss, measured.excess_loss],
            "final_norm_rms": [built.final_norm_rms, measured.final_norm_rms],
            "query_gradient": [
                [x / math.sqrt(measured.tokens) for x in built.query_gradient],
                measured.query_gradient,
            ],
            "key_gradient": [
                [x / math.sqrt(measured.tokens) for x in built.key_gradient],
                measured.key_gradient,
            ],
            "gradients": measured.gradients,
        },
        "verdicts": [plain(verdict) for verdict in found.verdicts],
    }  # fmt: skip
