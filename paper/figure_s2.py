"""Figure S2: the slow mode. Do runs that condense most end worse, and what decides it?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mode
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from paper.shared.runs import load
from paper.shared.style import LOOKS, PAGE, look, panel_titles, plt, run_script, save_figure, signed
from small_init.config import ArmConfig
from small_init.runs.record import Run

NAME = "figure-s2"
UP = re.compile(r"blocks\.\d+\.mlp\.up\.weight")
MIN_RUNS = 4  # of one width, for a rank correlation


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    configs = {run.arm: run.config for run in runs}
    labels, usual = arm_labels(configs)
    data = pd.DataFrame([row(run, labels[run.arm]) for run in runs])
    # The arms in the order of their worst run: the slow mode shows in the tail, not in the mean.
    arms = data.groupby("arm")["loss"].max().sort_values().index.tolist()
    data["place"] = data["arm"].map(arms.index)
    data = data.sort_values(["place", "seed"], ignore_index=True).drop(columns="place")

    height = max(2.8, 0.22 * len(arms) + 1.1)
    fig, (scatter, strip) = plt.subplots(1, 2, figsize=(PAGE, height))
    looks = arm_looks(data, arms)
    draw_scatter(scatter, data, looks)
    draw_strip(strip, data, looks)
    panel_titles([scatter, strip], ["loss against the deepest condensation", "loss by arm"])
    return save_figure(fig, NAME, data, runs, caption(data, arms, usual, configs))


# --- numbers -------------------------------------------------------------------------------------


def random_stable_rank(shape: tuple[int, int]) -> float:
    """The stable rank of a large m × n matrix of independent entries: mn / (√m + √n)².

    ‖W‖_F² → σ²·mn and ‖W‖₂ → σ·(√m + √n) (Geman, 1980). It grows with the size, so that ranks of
    different widths can only be compared as shares of it.
    """
    m, n = shape
    return m * n / (math.sqrt(m) + math.sqrt(n)) ** 2


def row(run: Run, label: str) -> dict[str, Any]:
    """The run's final loss and its up projections' stable rank, averaged over layers per step."""
    spectra = run.spectra
    up = spectra[spectra["weight"].str.fullmatch(UP)]
    rank = up.groupby("step")["stable_rank"].mean()
    # The up projections of a run are all of one shape.
    of_random = random_stable_rank(run.init["weights"][up["weight"].iloc[0]]["shape"])
    return {
        "arm": run.arm,
        "label": label,
        "d_model": run.config.model.d_model,
        "seed": run.seed,
        "loss": run.val_loss,
        "stable_rank_random": of_random,
        "stable_rank_first": rank.iloc[0],
        "stable_rank_lowest": rank.min(),
        "step_of_lowest": rank.idxmin(),
        "stable_rank_last": rank.iloc[-1],
        "share_lowest": rank.min() / of_random,
        "clipped_share": run.metrics.clipped_share,
    }


def correlations(data: pd.DataFrame) -> dict[int, tuple[float, int]]:
    """Width → Spearman's correlation of share and loss over its runs, and how many they are.

    Within a width only: larger models have lower losses whatever their ranks.
    """
    found = {}
    for width in sorted(set(data["d_model"])):
        cell = data[data["d_model"] == width]
        if len(cell) >= MIN_RUNS:
            rho = stats.spearmanr(cell["share_lowest"], cell["loss"]).statistic
            found[width] = (rho, len(cell))
    return found


# How a setting is written in a label; one that is not named here is written by its own name.
WORDS: dict[str, Callable[[Any], str]] = {
    "model.d_model": lambda v: f"d {v}",
    "model.gate": lambda v: "no gate" if v == "none" else f"{v} gate",
    "model.norm_eps": lambda v: f"ε {v:g}",
    "model.qk_norm": lambda v: "QK-norm" if v else "no QK-norm",
    "init.gamma": lambda v: f"γ {v:g}",
    "optimizer.lr": lambda v: f"rate {v:g}",
    "optimizer.warmup_steps": lambda v: f"warm-up {v}",
    "optimizer.clip": lambda v: "no clip" if v is None else f"clip {v:g}",
    "optimizer.eps": lambda v: f"Adam ε {v:g}",
    "train.batch_tokens": lambda v: f"batch {v}",
    "train.tokens": lambda v: f"{v / 1e6:.3g}M tokens",
}
# What a label leaves out where it follows from the rest; the caption spells the variants out.
FOLLOWS = {
    "model.gate": ("variant",),
    "model.norm_eps": ("variant", "init.gamma"),
    "model.d_ff": ("model.d_model",),
}


def setting(config: ArmConfig) -> dict[str, str]:
    """Every setting of an arm, as it is written in a label."""
    words = {"variant": config.variant}
    for part, fields in config.identity().items():
        for name, value in fields.items():
            key = f"{part}.{name}"
            words[key] = WORDS.get(key, lambda v, name=name: f"{name} {v}")(value)
    return words


def arm_labels(arms: dict[str, ArmConfig]) -> tuple[dict[str, str], str]:
    """Arm → its variant and what sets it apart from most arms; and what most arms have."""
    settings = {arm: setting(config) for arm, config in arms.items()}

    def kinds(*names: str) -> int:
        return len({tuple(words[n] for n in names) for words in settings.values()})

    def follows(name: str) -> bool:
        return name in FOLLOWS and kinds(*FOLLOWS[name]) == kinds(*FOLLOWS[name], name)

    names = [n for n in next(iter(settings.values())) if kinds(n) > 1 and not follows(n)]
    usual = {n: mode(words[n] for words in settings.values()) for n in names if n != "variant"}
    labels = {
        arm: ", ".join([words["variant"], *(words[n] for n in usual if words[n] != usual[n])])
        for arm, words in settings.items()
    }
    return labels, ", ".join(usual.values())


def variant_words(arms: dict[str, ArmConfig]) -> str:
    """What the variants of these arms are: standard: no gate, ε 0.00256; …"""
    words = [setting(config) for config in arms.values()]
    parts = {f"{w['variant']}: {w['model.gate']}, {w['model.norm_eps']}" for w in words}
    return "; ".join(sorted(parts))


# --- drawing -------------------------------------------------------------------------------------


def width_color(data: pd.DataFrame, width: int) -> str:
    widths = sorted(set(data["d_model"]))
    return look((4, 2, 3, 5, 1, 6, 0)[widths.index(width) % 7])["color"]


def arm_looks(data: pd.DataFrame, arms: list[str]) -> dict[str, dict[str, Any]]:
    """Colour tells the width, the marker the arm; after one round they are open, then small."""
    looks = {}
    for index, arm in enumerate(arms):
        turn, place = divmod(index, len(LOOKS))
        color = width_color(data, data.loc[data["arm"] == arm, "d_model"].iloc[0])
        looks[arm] = {
            "color": color,
            "marker": LOOKS[place]["marker"],
            "markerfacecolor": "white" if turn % 2 else color,
            "linestyle": "none",
            "markersize": 5 if turn < 2 else 3.5,
        }
    return looks


def draw_scatter(ax: Axes, data: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    for arm, style in looks.items():
        cell = data[data["arm"] == arm]
        ax.plot(cell["share_lowest"], cell["loss"], **style)
    for width in sorted(set(data["d_model"])):
        ax.plot([], [], color=width_color(data, width), linewidth=3, label=f"d = {width}")
    ax.set_xlabel("lowest stable rank of the up projections (random: 1)")
    ax.set_ylabel("validation loss (nats per token)")
    ax.legend(handlelength=1)


def draw_strip(ax: Axes, data: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    """The arm names stand at the axis, so that this panel is the legend of the other."""
    for index, (arm, style) in enumerate(looks.items()):
        cell = data[data["arm"] == arm]
        ax.plot(cell["loss"], [index] * len(cell), **style)
    labels = [data.loc[data["arm"] == arm, "label"].iloc[0] for arm in looks]
    ax.set_yticks(range(len(looks)), labels)
    ax.set_ylim(-0.6, len(looks) - 0.4)
    ax.grid(axis="y", linewidth=0.3)
    ax.set_xlabel("validation loss (nats per token)")


# --- words ---------------------------------------------------------------------------------------


def caption(data: pd.DataFrame, arms: list[str], usual: str, configs: dict[str, ArmConfig]) -> str:
    worst = data.to_dict("records")[int(data["loss"].argmax())]
    losses = data.groupby("label", sort=False)["loss"]
    spread = losses.max() - losses.min()
    widest = spread.index[int(spread.argmax())]
    ranks = "; ".join(
        f"{signed(rho, 2)} at d = {width} (n = {n})"
        for width, (rho, n) in correlations(data).items()
    )
    found = (
        f"Spearman's rank correlation of loss and share, within a width over all its arms: {ranks}."
        if ranks
        else f"No width has the {MIN_RUNS} runs that a rank correlation needs."
    )
    return f"""
Every seed of every arm a point: its final validation loss against the lowest stable rank
(‖W‖_F²/‖W‖₂²) that the feed-forward up projections, averaged over layers, reach during training, as
a share of a random matrix's of their shape, m·n/(√m + √n)². Colours are widths, markers arms. The
arm names at the right are also the legend; they name what sets an arm apart from most of these
{len(arms)} ({usual or "which differ in their variant only"}). Variants: {variant_words(configs)}.
The worst run ({worst["label"]}, seed {worst["seed"]}) ends at {worst["loss"]:.3f}, its lowest
stable rank {worst["stable_rank_lowest"]:.1f} ({worst["share_lowest"]:.0%} of a random matrix's) at
step {worst["step_of_lowest"]}. The widest spread over seeds is {spread.max():.3f} nats ({widest}).
{found}
""".strip().replace("\n", " ")


if __name__ == "__main__":
    main()
