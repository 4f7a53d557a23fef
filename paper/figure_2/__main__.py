"""Figure 2: ε and the norm. Where it saturates, what that costs, for which tokens and how long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from paper.figure_2.numbers import (
    LITERAL_EPS,
    SENSES,
    class_table,
    control_cells,
    delay_table,
    point,
)
from paper.shared.runs import load, published
from paper.shared.style import (
    PAGE,
    compact,
    gamma_look,
    limits,
    look,
    panel_titles,
    plt,
    room_above,
    run_script,
    save_figure,
    signed,
    step_axis,
)
from small_init.runs.table import by_seed, demand_one_arm_each
from small_init.stats.intervals import paired_difference

NAME = "figure-2"
SHADES = plt.get_cmap("viridis")


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    points = pd.DataFrame([point(run) for run in runs])
    axis = points[(points["gate"] == "none") & points["one_gamma"]]
    many = axis.groupby(["d_model", "gamma"])["norm_eps"].transform("nunique") > 1
    axis = axis[many]
    demand_one_arm_each(axis, ["d_model", "gamma", "norm_eps"], NAME)
    control = control_cells(points)
    classes = class_table([run for run in runs if run.config.variant == "standard"])
    delays = delay_table(classes)

    fig, axes = plt.subplot_mosaic("AABBCC;DDDEEE", figsize=(PAGE, 5.0))
    draw_saturation(axes["A"], points)
    draw_axis(axes["B"], axis)
    draw_control(axes["C"], control)
    draw_classes(axes["D"], classes)
    draw_ends(axes["E"], delays)
    panel_titles(
        [axes[letter] for letter in "ABCDE"],
        [
            "first norm at step 0",
            "loss, no gate",
            "control: embedding × ε",
            "norm output by token class, in training",
            "the same, step 0 and last",
        ],
    )
    data = pd.concat(
        [
            published(points).assign(kind="run"),
            published(control).assign(kind="control"),
            classes.assign(kind="class"),
            delays.assign(kind="delay"),
        ],
        ignore_index=True,
    )
    data = data[["kind", *data.columns.drop("kind")]]
    return save_figure(fig, NAME, data, runs, caption(points, axis, control, classes, delays))


# --- drawing -------------------------------------------------------------------------------------


def draw_saturation(ax: Axes, points: pd.DataFrame) -> None:
    ratio = np.geomspace(points["eps_over_variance"].min() / 3, 1e5, 400)
    ax.plot(ratio, 1 / np.sqrt(1 + ratio), color="0.4", linewidth=1, zorder=1)
    ax.plot([], [], color="0.4", label=r"$1/\sqrt{1+\epsilon/\sigma^2}$")
    for gamma in sorted(set(points["gamma"])):
        cell = points[points["gamma"] == gamma]
        style = gamma_look(gamma) | {"linestyle": "none"}
        ax.plot(cell["eps_over_variance"], cell["norm_rms"], **style, label=f"γ = {gamma:g}")
    ax.set_xscale("log")
    ax.set_xlabel("ε / σ²   (= ε·d$^{2γ}$)")
    ax.set_ylabel("rms of the norm's output")
    ax.set_ylim(0, 1.08)
    ax.legend(loc="lower left")


def draw_axis(ax: Axes, axis: pd.DataFrame) -> None:
    """Means as lines, every seed a point; the paper's ε is open, the matched one ringed."""
    for gamma in sorted(set(axis["gamma"])):
        style = gamma_look(gamma)
        for _, cell in axis[axis["gamma"] == gamma].groupby("d_model"):
            mean = cell.groupby("eps_over_variance")["val_loss"].mean()
            ax.plot(mean.index, mean, color=style["color"], linestyle=style["linestyle"])
            for literal, face in ((False, style["color"]), (True, "white")):
                some = cell[(cell["norm_eps"] == LITERAL_EPS) == literal]
                ax.plot(some["eps_over_variance"], some["val_loss"], style["marker"],
                        color=style["color"], markerfacecolor=face)  # fmt: skip
            ring = cell[cell["variant"] == "standard"]
            ax.plot(ring["eps_over_variance"], ring["val_loss"], "o", color=style["color"],
                    markerfacecolor="none", markersize=9, markeredgewidth=0.8)  # fmt: skip
        ax.plot([], [], **style, label=f"γ = {gamma:g}")
    ax.plot([], [], "o", color="0.3", markerfacecolor="white", label="ε = 1e-5, literal")
    ax.plot([], [], "o", color="0.3", markerfacecolor="none", markersize=8, label="ε matched")
    ax.set_xscale("log")
    ax.set_xlabel("ε / σ²   (= ε·d$^{2γ}$)")
    ax.set_ylabel("validation loss (nats per token)")
    room_above(ax)
    ax.legend(loc="upper left")


def draw_control(ax: Axes, control: pd.DataFrame) -> None:
    sizes = sorted(set(control["norm_eps"]))
    for index, gamma in enumerate(sorted(set(control["gamma_embedding"]), reverse=True)):
        cell = control[control["gamma_embedding"] == gamma]
        place = cell["norm_eps"].map(sizes.index)
        style = look((4, 2)[index % 2])
        mean = cell.groupby(place)["val_loss"].mean()
        ax.plot(mean.index, mean, color=style["color"], linestyle=style["linestyle"])
        ax.plot(place, cell["val_loss"], style["marker"], color=style["color"])
        ax.plot([], [], **style, label=f"embedding std d$^{{-{gamma:g}}}$")
    ax.set_xticks(range(len(sizes)), [f"ε = {size:.3g}" for size in sizes])
    ax.set_xlim(-0.3, max(len(sizes), 2) - 0.7)
    ax.set_ylabel("validation loss (nats per token)")
    room_above(ax)
    rest = ", ".join(f"{gamma:g}" for gamma in sorted(set(control["gamma"])))
    if rest:
        ax.legend(loc="upper left", title=f"rest: γ = {rest}", title_fontsize=6.5, alignment="left")


def draw_classes(ax: Axes, classes: pd.DataFrame) -> None:
    """All classes of the γ that saturates most, and of any other γ its rarest class."""
    if classes.empty:
        return
    most = classes["gamma"].iloc[int(classes["saturation"].argmin())]
    lowest = sorted(set(classes["token_class"]))
    for token_class in lowest:
        cell = classes[(classes["gamma"] == most) & (classes["token_class"] == token_class)]
        mean = cell.groupby("step")["saturation"].mean()
        shade = 0.9 * token_class / max(lowest[-1], 1)
        ends = {lowest[0]: "most frequent", lowest[-1]: "rarest"}
        label = f"γ = {most:g}, {ends[token_class]}" if token_class in ends else None
        line = "-" if token_class < len(lowest) / 2 else "--"
        ax.plot(mean.index, mean, line, color=SHADES(shade), label=label)
    norm = classes[classes["gamma"] == most].groupby("step")["first_norm"].mean()
    ax.plot(norm.index, norm, "k.", markersize=5, label=f"γ = {most:g}, as used")
    for gamma in sorted(set(classes["gamma"]) - {most}):
        cell = classes[(classes["gamma"] == gamma) & (classes["token_class"] == lowest[-1])]
        mean = cell.groupby("step")["saturation"].mean()
        style = gamma_look(gamma) | {"markersize": 3}
        ax.plot(mean.index, mean, **style, label=f"γ = {gamma:g}, rarest")
    ax.axhline(SENSES, color="0.6", linewidth=0.6, zorder=0)
    step_axis(ax, int(classes["step"].max()))
    ax.set_ylim(0, 1.5)  # room for the legend
    ax.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    ax.set_ylabel("rms of the norm's output")
    ax.legend(loc="upper left", ncols=2, columnspacing=1)


def draw_ends(ax: Axes, delays: pd.DataFrame) -> None:
    """Per class where every run starts (open) and ends."""
    if delays.empty:
        return
    for index, gamma in enumerate(sorted(set(delays["gamma"]))):
        cell = delays[delays["gamma"] == gamma]
        style = gamma_look(gamma)
        place = cell["token_class"] + 0.12 * (2 * index - 1)
        ax.vlines(place, cell["saturation"], cell["saturation_last"], color=style["color"],
                  linewidth=0.8)  # fmt: skip
        for column, face in (("saturation", "white"), ("saturation_last", style["color"])):
            ax.plot(place, cell[column], style["marker"], color=style["color"],
                    markerfacecolor=face)  # fmt: skip
        ax.plot([], [], **style | {"linestyle": "none"}, label=f"γ = {gamma:g}, last step")
    ax.plot([], [], "o", color="0.3", markerfacecolor="white", label="step 0")
    ax.axhline(SENSES, color="0.6", linewidth=0.6, zorder=0)
    share = delays.groupby("token_class")["share"].mean()
    ax.set_xticks(share.index, [f"{100 * s:.1f}" for s in share])
    ax.set_xlabel("% of training tokens, by eighth of the vocabulary")
    ax.set_ylim(0, 1.35)  # room for the legend
    ax.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    ax.set_ylabel("rms of the norm's output")
    ax.legend(loc="upper left", ncols=2, columnspacing=1, handletextpad=0.2)


# --- words ---------------------------------------------------------------------------------------


def caption(
    points: pd.DataFrame,
    axis: pd.DataFrame,
    control: pd.DataFrame,
    classes: pd.DataFrame,
    delays: pd.DataFrame,
) -> str:
    off = (points["norm_rms"] / points["norm_rms_theory"] - 1).abs().max()
    return f"""
RMSNorm divides by √(σ² + ε): what counts is ε over the variance σ² of the stream, for the first
norm σ = d^(−γ) and ε/σ² = ε·d^(2γ). **A** The first norm's output rms at step 0, over every run,
against 1/√(1 + ε/σ²): they differ by at most {off:.1%}. **B** {axis_words(axis)} **C**
{control_words(control)} **D, E** {class_words(classes, delays)}
""".strip().replace("\n", " ")


def axis_words(axis: pd.DataFrame) -> str:
    """What each γ pays for a larger ε, against its smallest."""
    if axis.empty:
        return "No γ was run at two ε."
    widths = ", ".join(f"d = {d}" for d in sorted(set(axis["d_model"])))
    said = []
    for (_, gamma), cell in axis.groupby(["d_model", "gamma"]):
        least = cell["norm_eps"].min()
        base = by_seed(cell[cell["norm_eps"] == least])
        parts = []
        for eps, group in cell[cell["norm_eps"] > least].groupby("norm_eps"):
            found = paired_difference(by_seed(group), base)
            if found is None:
                continue
            matched = ", matched" if "standard" in set(group["variant"]) else ""
            word = ", literal" if eps == LITERAL_EPS else matched
            bounds = f", {limits(found.low, found.high, found.n)}" if found.n > 1 else ""
            ratio = compact(group["eps_over_variance"].iloc[0])
            parts.append(f"{signed(found.estimate)} at {ratio}{word}{bounds}")
        said.append(f"γ = {gamma:g}: " + ", ".join(parts))
    return (
        f"Final validation loss against the same ratio, no gate, {widths}, at the learning rate "
        "calibrated for the γ with the matched ε. Loss above that at the smallest ε, by ε/σ² (with "
        f"one seed there is no interval): {'; '.join(said)}."
    )


def control_words(control: pd.DataFrame) -> str:
    if control["gamma_embedding"].nunique() < 2:
        return "The control with an embedding γ of its own was not run."
    said = []
    for gamma, cell in control.groupby("gamma_embedding"):
        parts = [
            f"{group['val_loss'].mean():.3f} at ε = {eps:.3g} "
            f"(norm output {group['norm_rms'].mean():.2f})"
            for eps, group in cell.groupby("norm_eps")
        ]
        small, large = (
            by_seed(cell[cell["norm_eps"] == edge])
            for edge in (cell["norm_eps"].min(), cell["norm_eps"].max())
        )
        cost = paired_difference(large, small) if cell["norm_eps"].nunique() > 1 else None
        more = f", so the large ε costs {signed(cost.estimate)}" if cost else ""
        said.append(f"embedding d^(−{gamma:g}): {', '.join(parts)}{more}")
    return (
        "If the ratio is what counts, a larger embedding takes the large ε's effect away while all "
        f"other weights stay at their γ. Loss: {'; '.join(said)}."
    )


def class_words(classes: pd.DataFrame, delays: pd.DataFrame) -> str:
    if classes.empty:
        return "No run of the standard variant recorded its token classes."
    said = []
    for gamma, cell in delays.groupby("gamma"):
        ends = cell[cell["token_class"].isin([0, cell["token_class"].max()])]
        words = [
            f"{'most frequent' if c == 0 else 'rarest'} eighth {delay_word(group)}"
            for c, group in ends.groupby("token_class")
        ]
        said.append(f"γ = {gamma:g}: {', '.join(words)}")
    return (
        "The same number for the embedding rows of eighths of the vocabulary, by count in the "
        "training data, during training with the matched ε (means over rows, lines means over "
        "seeds; dots, as used: the first norm's measured output over all positions). First "
        f"recorded step from which it stays at {SENSES:g} or above: {'; '.join(said)}."
    )


def delay_word(group: pd.DataFrame) -> str:
    steps = group["step"]
    last = group["saturation_last"].mean()
    if steps.isna().all():
        return f"not within the run (from {group['saturation'].mean():.2f} to {last:.2f})"
    span = sorted({int(s) for s in steps.dropna()})
    found = f"{span[0]}" if len(span) == 1 else f"{span[0]}–{span[-1]}"
    some = f", {steps.isna().sum()} of {len(steps)} runs not" if steps.isna().any() else ""
    return f"step {found}{some} (from {group['saturation'].mean():.2f} to {last:.2f})"


if __name__ == "__main__":
    main()
