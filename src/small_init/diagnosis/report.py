"""A diagnosis as text for the terminal and as a picture."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from small_init.config import Gate
from small_init.diagnosis.diagnose import Diagnosis
from small_init.diagnosis.propagation import Block
from small_init.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


# --- picture -------------------------------------------------------------------------------------

# Okabe and Ito's colours; markers and dashes say the same in black and white.
_STYLES = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    {"color": "#009E73", "linestyle": ":", "marker": "^"},
)


def plot(found: Diagnosis, path: Path) -> None:
    """Four panels over the blocks: lines are theory, points what was measured.

    Raises:
        UserError: the file cannot be written, or its ending is no picture format.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    settings: dict[Any, Any] = {
        "font.size": 8,
        "axes.titlelocation": "left",
        "axes.titlesize": 8.5,
        "legend.frameon": False,
    }
    settings |= {"axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(settings):
        fig, axes = plt.subplots(2, 2, figsize=(7.0, 5.2), layout="constrained")
        blocks = range(1, found.setting.arch.n_layers + 1)
        _flow_panel(found, axes[0, 0], blocks)
        _norm_panel(found, axes[0, 1], blocks)
        _logit_panel(found, axes[1, 0], blocks)
        _gradient_panel(found, axes[1, 1], blocks)
        for ax in axes.flat:
            ax.set_xlabel("block")
            ax.xaxis.get_major_locator().set_params(integer=True)
            if ax.get_legend_handles_labels()[0]:
                ax.legend(fontsize=7, handlelength=2.6)
        rule = f"γ = {found.setting.init.gamma:g}, ε = {found.setting.arch.norm_eps:g}"
        seen = "points measured" if found.measured else "nothing measured"
        fig.suptitle(
            f"{found.setting.source}: d = {found.setting.arch.d_model}, {rule}; lines theory, "
            f"{seen}", x=0.01, ha="left", fontsize=8,
        )  # fmt: skip
        try:
            fig.savefig(path, dpi=200)
        except (OSError, ValueError) as error:
            raise UserError(f"Cannot write {path}: {error}.") from None
        finally:
            plt.close(fig)


def _series(
    ax: Axes,
    blocks: Sequence[int],
    index: int,
    label: str,
    theory: Sequence[float | None],
    seen: Sequence[float | None],
) -> None:
    """One quantity; nothing where the model does not have it."""
    if theory[0] is None:
        return
    style = _STYLES[index]
    color, marker = style["color"], style["marker"]
    values = [float("nan") if v is None else v for v in theory]
    ax.plot(blocks, values, color=color, linestyle=style["linestyle"])
    if len(values) == 1:  # a line through one block would not be seen
        ax.plot(blocks, values, "_", color=color, markersize=16)
    points = [float("nan") if v is None else v for v in seen]
    ax.plot(blocks[: len(points)], points, marker, color=color, markerfacecolor="white")
    shown = marker if points else ""
    ax.plot([], [], color=color, linestyle=style["linestyle"], marker=shown,
            markerfacecolor="white", label=label)  # fmt: skip


def _log_axis(ax: Axes) -> None:
    """Logarithmic over two decades at least, so that noise does not look like a trend."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    if high / low < 100:
        middle = math.sqrt(low * high)
        ax.set_ylim(middle / 10, middle * 10)


def _flow_panel(found: Diagnosis, ax: Axes, blocks: Sequence[int]) -> None:
    measured = found.measured
    seen, single = (measured.blocks, measured.single) if measured else ([], [])
    theory, theory_single = found.predicted.blocks, found.predicted_single.blocks
    attention = lambda rows: [block.attention for block in rows]
    _series(ax, blocks, 0, "attention, T = 1", attention(theory_single), attention(single))
    _series(ax, blocks, 1, f"attention, T = {found.context}", attention(theory), attention(seen))
    _series(ax, blocks, 2, "feed-forward", [b.mlp for b in theory], [b.mlp for b in seen])
    ax.axhline(1, color="0.7", linewidth=0.7, zorder=0)
    _log_axis(ax)
    ax.set_title("residual flow")


def _norm_panel(found: Diagnosis, ax: Axes, blocks: Sequence[int]) -> None:
    seen = found.measured.blocks if found.measured else []
    theory = found.predicted.blocks
    before = lambda rows: [block.attention_norm_rms for block in rows]
    _series(ax, blocks, 0, "before attention", before(theory), before(seen))
    after = lambda rows: [block.mlp_norm_rms for block in rows]
    _series(ax, blocks, 1, "before feed-forward", after(theory), after(seen))
    ax.axhline(1, color="0.7", linewidth=0.7, zorder=0)
    ax.set_ylim(0, 1.08)
    ax.set_title("norm output, rms")


def _logit_panel(found: Diagnosis, ax: Axes, blocks: Sequence[int]) -> None:
    seen = found.measured.blocks if found.measured else []
    theory = found.predicted.blocks
    names = (("query · key", "qk"), ("attention gate", "gate"), ("router", "router"))
    for index, (label, name) in enumerate(names):
        of = lambda rows, name=name: [getattr(block, f"{name}_logit_std") for block in rows]
        _series(ax, blocks, index, label, of(theory), of(seen))
    _log_axis(ax)
    ax.set_title("std of logits")


def _gradient_panel(found: Diagnosis, ax: Axes, blocks: Sequence[int]) -> None:
    """At the measured number of tokens; a built part is shallower than the model of the line."""
    measured = found.measured
    tokens = measured.tokens if measured else found.gradient_tokens
    theory, scale = found.predicted, math.sqrt(tokens)
    query, key = (measured.query_gradient, measured.key_gradient) if measured else ([], [])
    _series(ax, blocks, 0, "query", [x / scale for x in theory.query_gradient], query)
    _series(ax, blocks, 1, "key", [x / scale for x in theory.key_gradient], key)
    eps = found.setting.adam_eps
    ax.axhline(eps, color="0.3", linewidth=1, linestyle="-.", label=f"AdamW's ε, {eps:g}")
    _log_axis(ax)
    part = measured is not None and measured.built.n_layers < found.setting.arch.n_layers
    note = f"; points: {measured.built.n_layers} blocks alone" if part and measured else ""
    ax.set_title(f"gradient rms, {tokens:,} tokens{note}")
