"""A diagnosis as a picture: four panels over the blocks, lines theory, points measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from small_init.diagnosis.results import Diagnosis
from small_init.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
