"""Figure S2: the slow mode. Do runs that condense most end worse, and what decides it?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from statistics import mode
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from runs import load
from scipy import stats
from style import LOOKS, PAGE, panel_titles, plt, run_script, save_figure, signed

from small_init.config import ArmConfig
from small_init.records import Run

NAME = "figure-s2"
UP = re.compile(r"blocks\.\d+\.mlp\.up\.weight")


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
    fig, (scatter, strip) = plt.subplots(
        1, 2, figsize=(PAGE, height), width_ratios=[1, 1], sharey=False
    )
    draw_scatter(scatter, data, arms)
    draw_strip(strip, data, arms)
    panel_titles([scatter, strip], ["loss against the deepest condensation", "loss by arm"])
    return save_figure(fig, NAME, data, runs, caption(data, arms, usual, configs))


# --- numbers -------------------------------------------------------------------------------------


def row(run: Run, label: str) -> dict[str, Any]:
    """The run's final loss and its up projections' stable rank, averaged over layers per step."""
    spectra = run.spectra
    up = spectra[spectra["weight"].str.fullmatch(UP)]
    rank = up.groupby("step")["stable_rank"].mean()
    return {
        "arm": run.arm,
        "label": label,
        "seed": run.seed,
        "loss": run.val_loss,
        "stable_rank_first": rank.iloc[0],
        "stable_rank_lowest": rank.min(),
        "step_of_lowest": rank.idxmin(),
        "stable_rank_last": rank.iloc[-1],
        "clipped_share": run.metrics["clipped_share"],
    }


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


def arm_look(index: int) -> dict[str, Any]:
    """Colour and marker; after one round of both the markers are open, then small."""
    turn, place = divmod(index, len(LOOKS))
    color = LOOKS[place]["color"]
    return {
        "color": color,
        "marker": LOOKS[(place + turn) % len(LOOKS)]["marker"],
        "markerfacecolor": "white" if turn % 2 else color,
        "linestyle": "none",
        "markersize": 5,
    }


def draw_scatter(ax: Axes, data: pd.DataFrame, arms: list[str]) -> None:
    for index, arm in enumerate(arms):
        cell = data[data["arm"] == arm]
        ax.plot(cell["stable_rank_lowest"], cell["loss"], **arm_look(index))
    ax.set_xlabel("lowest stable rank of the up projections")
    ax.set_ylabel("validation loss (nats per token)")


def draw_strip(ax: Axes, data: pd.DataFrame, arms: list[str]) -> None:
    """The arm names stand at the axis, so that this panel is the legend of the other."""
    for index, arm in enumerate(arms):
        cell = data[data["arm"] == arm]
        ax.plot(cell["loss"], [index] * len(cell), **arm_look(index))
    ax.set_yticks(range(len(arms)), [data.loc[data["arm"] == a, "label"].iloc[0] for a in arms])
    ax.set_ylim(-0.6, len(arms) - 0.4)
    ax.grid(axis="y", linewidth=0.3)
    ax.set_xlabel("validation loss (nats per token)")


# --- words ---------------------------------------------------------------------------------------


def caption(data: pd.DataFrame, arms: list[str], usual: str, configs: dict[str, ArmConfig]) -> str:
    worst = data.to_dict("records")[int(data["loss"].argmax())]
    losses = data.groupby("label", sort=False)["loss"]
    spread = losses.max() - losses.min()
    widest = spread.index[int(spread.argmax())]
    ranks = ""
    if len(data) > 2:
        rho = stats.spearmanr(data["stable_rank_lowest"], data["loss"]).statistic
        ranks = f" Spearman's rank correlation over all {len(data)} runs is {signed(rho, 2)}."
    return f"""
Every seed of every arm a point: its final validation loss against the lowest stable rank
(‖W‖_F²/‖W‖₂²) that the feed-forward up projections, averaged over layers, reach during training.
The arm names at the right are also the legend; they name what sets an arm apart from most of these
{len(arms)} ({usual or "which differ in their variant only"}). Variants: {variant_words(configs)}.
The worst run ({worst["label"]}, seed {worst["seed"]}) ends at {worst["loss"]:.3f}, its lowest
stable rank {worst["stable_rank_lowest"]:.1f} at step {worst["step_of_lowest"]}. The widest spread
over seeds is {spread.max():.3f} nats ({widest}).{ranks}
""".strip().replace("\n", " ")


if __name__ == "__main__":
    main()
