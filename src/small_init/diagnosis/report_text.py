"""A diagnosis as text for the terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from small_init.config import Gate
from small_init.diagnosis.propagation import Block
from small_init.diagnosis.results import Diagnosis

_WIDTH = 100
_ALL_BLOCKS = 12  # deeper models show the first and the last, and some between
_FIRST_BLOCKS = 4
_OWN_GAMMAS = ("embedding", "attention", "readout", "gate_gamma")


def text(found: Diagnosis) -> str:
    """The whole report."""
    parts = [_head(found), _blocks(found), _ends(found), _gradients(found), _steps(found)]
    return "\n\n".join([*parts, _verdicts(found)])


def _number(value: float | None) -> str:
    """Three significant digits; a missing one is left out."""
    if value is None:
        return ""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{value:.1e}"


def _signed(nats: float) -> str:
    return f"{round(nats, 3) + 0.0:+.3f}"  # without a negative zero


def _table(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _head(found: Diagnosis) -> str:
    setting, arch = found.setting, found.setting.arch
    heads = f"{arch.n_heads} heads × {arch.head_dim}"
    if arch.n_kv_heads != arch.n_heads:
        heads += f" ({arch.n_kv_heads} key-value)"
    ends = arch.vocab_size * arch.d_model * (1 if arch.tied else 2)
    size = (arch.n_layers * arch.block_parameters() + ends) / 1e9
    mlp = f"feed-forward {arch.d_ff}"
    if arch.n_experts > 1:
        mlp += f" × {arch.n_experts} experts, {arch.top_k} at a time"
    own = "".join(f", {name} {gamma:g}" for name, gamma in setting.gammas.items())
    scheme = setting.init.scheme.value
    rule = f"γ = {setting.init.gamma:g}{own}" if scheme == "gamma" else f"scheme {scheme}{own}"
    traits = [
        f"{arch.norm.value} ε {arch.norm_eps:g}",
        "no gate" if arch.gate is Gate.none else f"{arch.gate.value} gate",
        *(["QK-norm"] if arch.qk_norm else []),
        *(["tied"] if arch.tied else []),
        *(["parallel branches"] if arch.parallel else []),
    ]
    lines = [
        f"{setting.source}: {arch.n_layers} blocks, width {arch.d_model}, {heads}, {mlp},",
        f"vocabulary {arch.vocab_size:,}, context {arch.context:,}, {size:.3g} B weights; "
        f"{', '.join(traits)}; {rule}.",
    ]
    measured = found.measured
    if measured is None:
        lines.append(f"Predicted only: {found.not_measured}.")
    else:
        built = measured.built
        whole = "all" if built.n_layers == arch.n_layers else f"the first {built.n_layers} of the"
        lines.append(
            f"Measured on {measured.tokens} random tokens in windows of {measured.context}, "
            f"float32, {measured.device}: {whole} {arch.n_layers} blocks and "
            f"{built.vocab_size:,} of the vocabulary, {measured.implementation}."
        )
    return "\n".join(line for text in lines for line in textwrap.wrap(text, _WIDTH))


def _pair(theory: str, seen: str) -> str:
    return f"{theory:>7} {seen:>7}"


def _shown_blocks(count: int) -> list[int]:
    if count <= _ALL_BLOCKS:
        return list(range(count))
    later = [round(i * (count - 1) / 6) for i in range(2, 7)]
    return sorted({*range(_FIRST_BLOCKS), *later})


def _blocks(found: Diagnosis) -> str:
    """One line per block, each quantity predicted and measured."""
    predicted, measured = found.predicted.blocks, found.measured
    columns: list[tuple[str, Callable[[Block], float | None], bool]] = [
        ("attention T=1", lambda b: b.attention, True),
        (f"T={found.context}", lambda b: b.attention, False),
        ("MLP", lambda b: b.mlp, False),
        ("norm rms", lambda b: b.attention_norm_rms, False),
        ("MLP norm", lambda b: b.mlp_norm_rms, False),
        ("QK std", lambda b: b.qk_logit_std, False),
        ("gate std", lambda b: b.gate_logit_std, False),
        ("router std", lambda b: b.router_logit_std, False),
    ]
    columns = [column for column in columns if column[1](predicted[0]) is not None]
    first, second, lines = ["block"], [""], []
    for name, _, _ in columns:
        first.append(f"{name:^15}" if measured else name)
        second.append(_pair("theory", "seen") if measured else "theory")
    for index in _shown_blocks(len(predicted)):
        line = [str(index + 1)]
        for _, of, alone in columns:
            theory = _number(of((found.predicted_single.blocks if alone else predicted)[index]))
            if measured:
                seen = measured.single if alone else measured.blocks
                theory = _pair(theory, _number(of(seen[index])) if index < len(seen) else "")
            line.append(theory)
        lines.append(line)
    title = "Residual flow (rms added / rms of the stream), norms' output, logits:"
    return f"{title}\n{_table([first, second, *lines])}"


def _ends(found: Diagnosis) -> str:
    predicted, measured, built = found.predicted, found.measured, found.built_prediction
    loss = math.log(found.setting.arch.vocab_size) + predicted.excess_loss
    line = (
        f"Initial loss {loss:.4g} = ln V {_signed(predicted.excess_loss)} nats; "
        "final norm's output "
        f"{predicted.final_norm_rms:.3g}; first attention over the full context of "
        f"{found.setting.arch.context:,}: {_number(found.flow_at_full_context)}; first MLP on the "
        f"embedding alone: {_number(predicted.mlp_alone)}."
    )
    if measured and built:
        line += (
            f" What was built: {_signed(built.excess_loss)} nats predicted, "
            f"{_signed(measured.excess_loss)} seen; final norm {built.final_norm_rms:.3g} and "
            f"{measured.final_norm_rms:.3g}; first MLP alone {_number(built.mlp_alone)} and "
            f"{_number(measured.mlp_alone)}."
        )
    return "\n".join(textwrap.wrap(line, _WIDTH))


def _gradients(found: Diagnosis) -> str:
    setting, measured, built = found.setting, found.measured, found.built_prediction
    lines = [
        f"Gradient of queries and keys against AdamW's ε = {setting.adam_eps:g}: "
        f"{_number(found.qk_gradient)} rms expected at {found.gradient_tokens:,} tokens a step and "
        "the full context, the smallest over blocks; random tokens, whose part falls as 1/√tokens."
    ]
    out = "\n".join(textwrap.wrap(lines[0], _WIDTH))
    if measured is None or built is None:
        return out
    rows = [["block", "query theory", "seen", "key theory", "seen"]]
    scale = math.sqrt(measured.tokens)
    for index in range(measured.built.n_layers):
        rows.append(
            [
                str(index + 1),
                _number(built.query_gradient[index] / scale),
                _number(measured.query_gradient[index]),
                _number(built.key_gradient[index] / scale),
                _number(measured.key_gradient[index]),
            ]
        )
    groups = ", ".join(f"{name} {_number(rms)}" for name, rms in measured.gradients.items())
    return f"{out}\n{_table(rows)}\nSeen at {measured.tokens} tokens, per group: {groups}."


def _steps(found: Diagnosis) -> str:
    rows = [["weight", "fan-in", "std", "first step / std", "at peak / std"]]
    rows += [
        [s.weight, str(s.fan_in), _number(s.std), _number(s.first), _number(s.peak)]
        for s in found.steps
    ]
    if found.setting.lr is None:
        shown = _table([row[:3] for row in rows])
        return f"First AdamW steps: name --lr (and --warmup-steps) to see them.\n{shown}"
    warmup = found.setting.warmup_steps or 0
    return (
        f"First AdamW steps, peak rate {found.setting.lr:g}, {warmup:,} steps of warm-up:\n"
        f"{_table(rows)}"
    )


def _verdicts(found: Diagnosis) -> str:
    marks = {"problem": "!!", "advice": " !", "fine": "ok"}
    lines = []
    for verdict in found.verdicts:
        lines += textwrap.wrap(
            f"{marks[verdict.level.value]} {verdict.topic}: {verdict.text}", _WIDTH,
            subsequent_indent="   ",
        )  # fmt: skip
    changes: dict[str, Any] = {}
    for verdict in found.verdicts:
        changes |= {key: value for key, value in verdict.change.items() if key not in changes}
    if "gamma" in changes:  # it is every group's
        changes = {key: value for key, value in changes.items() if key not in _OWN_GAMMAS}
    shown = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in changes.items()
    )
    return "\n".join(["Verdict", *lines, f"Change: {shown or 'nothing'}."])
