"""Before a run: what the first step will look like, predicted for the whole model, and measured.

`diagnose` brings together `propagation` (every block, no weights), `measurement` (the first blocks,
built and run) and `findings` (what to change).
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import torch

from small_init.config import Gate, plain
from small_init.diagnosis import huggingface
from small_init.diagnosis.architectures import Architecture
from small_init.diagnosis.findings import better_norm_eps, judge
from small_init.diagnosis.measurement import CONTEXT, Model, measure, own_model, reduced
from small_init.diagnosis.propagation import Prediction, propagate
from small_init.diagnosis.results import Diagnosis, Step
from small_init.diagnosis.setting import Setting
from small_init.diagnosis.stds import Stds
from small_init.rule.theory import attention_average


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
        "init": plain(setting.init),
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
