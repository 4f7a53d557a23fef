"""Figure 3: attention to the first token, by γ and gate, in language and on Bigram-Backcopy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from paper.shared.runs import load, unique_in_order
from paper.shared.style import (
    PAGE,
    gamma_look,
    look,
    panel_titles,
    plt,
    run_script,
    save_figure,
    seed_ranges,
    step_axis,
)
from small_init.config import Gate
from small_init.runs.record import Run
from small_init.runs.table import demand_one_arm_each

NAME = "figure-3"
SINK = 0.3  # α₀ above which a head is a sink, as in claims.yaml, C3
TASK = "backcopy"  # train.corpus of the synthetic task's arms
CELL = ["task", "gamma", "gate", "n_layers"]
STRONGEST: dict[str, Any] = {"color": "#000000", "linestyle": (0, (1, 1)), "linewidth": 1.0}
UNIFORM: dict[str, Any] = {"color": "0.55", "linewidth": 0.9, "zorder": 1}


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    data = pd.concat([head_table(run) for run in runs], ignore_index=True)
    language, all_rates = data[data["task"] != TASK], data[data["task"] == TASK]
    demand_one_arm_each(language, CELL, NAME)
    demand_one_arm_each(all_rates, [*CELL, "lr"], NAME)
    task = at_shared_rate(all_rates)
    gammas = sorted(set(language["gamma"]))
    gates = [gate.value for gate in Gate if gate.value in set(data["gate"])]
    lines = len(gammas) + (not task.empty)

    size = (PAGE, 1.75 * lines + 0.4)
    fig, grid = plt.subplots(lines, len(gates), figsize=size, squeeze=False, sharey="row")
    titles = []
    for axes, gamma in zip(grid, gammas, strict=False):
        for ax, gate in zip(axes, gates, strict=True):
            draw_layers(ax, language[(language["gamma"] == gamma) & (language["gate"] == gate)])
            titles.append(f"γ = {gamma:g}, {gate_word(gate)}")
        axes[0].set_ylabel("attention on position 0")
    top = 1.4 * float(language["share"].max())
    for ax in grid[: len(gammas)].flat:
        ax.set_ylim(0, top)
    if not task.empty:
        for ax, gate in zip(grid[-1], gates, strict=True):
            draw_task(ax, task[task["gate"] == gate])
            titles.append(f"Backcopy, {gate_word(gate)}")
        grid[-1][0].set_ylabel("α₀ of the strongest head")
        grid[-1][0].set_ylim(0, 1.5 * max(SINK, task["alpha"].max()))
        task_legend(grid[-1], task)
    full = next((ax for ax in grid[: len(gammas)].flat if ax.lines), None)
    if full is not None:
        full.legend(loc="upper left", ncols=2, columnspacing=1, handlelength=2)
    panel_titles(list(grid.flat), titles)
    return save_figure(fig, NAME, data, runs, caption(data))


# --- numbers -------------------------------------------------------------------------------------


def head_table(run: Run) -> pd.DataFrame:
    """One row per step, layer and head of a run: share and α₀, with those of uniform attention."""
    found, config = run.activations, run.config
    by_head = found[found["probe"].isin(["first_token_share", "first_token_alpha"])]
    table = by_head.pivot(index=["step", "layer", "part"], columns="probe", values="value")
    table = table.reset_index().rename(
        columns={"part": "head", "first_token_share": "share", "first_token_alpha": "alpha"}
    )
    uniform = found.set_index("probe")["value"]
    return table.assign(
        arm=run.arm,
        seed=run.seed,
        task=config.train.corpus.value,
        gamma=config.init.gamma,
        gate=config.model.gate.value,
        n_layers=config.model.n_layers,
        context=config.model.context,
        lr=config.optimizer.lr,
        layer=table["layer"].astype(int),
        uniform_share=uniform["uniform_share"].iloc[0],
        uniform_alpha=uniform["uniform_alpha"].iloc[0],
        loss=run.val_loss,
    )


def strongest(data: pd.DataFrame, column: str) -> pd.Series:
    """Step → the largest value over layers and heads, a mean over seeds."""
    return data.groupby(["seed", "step"])[column].max().groupby("step").mean()


def at_shared_rate(task: pd.DataFrame) -> pd.DataFrame:
    """The runs at the learning rate that most gates and depths share: what the panels draw."""
    if task.empty:
        return task
    cells = task[["lr", "gate", "n_layers"]].drop_duplicates()
    return task[task["lr"] == cells["lr"].value_counts().idxmax()]


# --- drawing -------------------------------------------------------------------------------------


def gate_word(gate: str) -> str:
    return "no gate" if gate == Gate.none.value else f"{gate} gate"


def draw_layers(ax: Axes, cell: pd.DataFrame) -> None:
    """Per layer the mean over its heads; lines are means over seeds, bands their range."""
    if cell.empty:
        absent(ax)
        return
    for layer in sorted(set(cell["layer"])):
        mine = cell[cell["layer"] == layer]
        by_seed = mine.groupby(["seed", "step"])["share"].mean().unstack("seed")
        style = look((4, 2, 3, 5, 1, 6)[layer % 6])
        style = {k: style[k] for k in ("color", "linestyle")}
        ax.plot(by_seed.index, by_seed.mean(axis=1), **style, label=f"layer {layer + 1}")
        ax.fill_between(by_seed.index, by_seed.min(axis=1), by_seed.max(axis=1),
                        color=style["color"], alpha=0.2, linewidth=0)  # fmt: skip
    top = strongest(cell, "share")
    ax.plot(top.index, top, **STRONGEST, label="strongest head")
    ax.axhline(cell["uniform_share"].iloc[0], **UNIFORM, label="uniform")
    step_axis(ax, int(cell["step"].max()))


def draw_task(ax: Axes, cell: pd.DataFrame) -> None:
    """Colour and marker tell γ, the filling the number of layers."""
    if cell.empty:
        absent(ax)
        return
    depths = sorted(set(cell["n_layers"]))
    for gamma, depth in unique_in_order(zip(cell["gamma"], cell["n_layers"], strict=True)):
        mine = cell[(cell["gamma"] == gamma) & (cell["n_layers"] == depth)]
        style = gamma_look(gamma)
        fill = (style["color"], "white", "0.7")[depths.index(depth) % 3]
        line = strongest(mine, "alpha")
        ax.plot(line.index, line, **style | {"markerfacecolor": fill, "markersize": 3.5})
    ax.axhline(SINK, color="0.3", linewidth=0.6, linestyle="--", zorder=0)
    ax.axhline(cell["uniform_alpha"].iloc[0], **UNIFORM)
    step_axis(ax, int(cell["step"].max()))


def task_legend(axes: Any, task: pd.DataFrame) -> None:
    """γ in the first panel, depth in the second, where lines that start low leave room."""
    for gamma in sorted(set(task["gamma"])):
        axes[0].plot([], [], **gamma_look(gamma) | {"markersize": 3.5}, label=f"γ = {gamma:g}")
    axes[0].plot([], [], **UNIFORM, label="uniform")
    for depth, fill in zip(sorted(set(task["n_layers"])), ("0.2", "white", "0.7"), strict=False):
        axes[-1].plot([], [], "o", color="0.2", markerfacecolor=fill, markersize=3.5,
                      label=f"{depth} layer{'s' * (depth > 1)}")  # fmt: skip
    axes[0].legend(loc="upper left")
    if len(axes) > 1:
        axes[-1].legend(loc="upper left")


def absent(ax: Axes) -> None:
    ax.text(0.5, 0.5, "not run", ha="center", va="center", color="0.5", transform=ax.transAxes)
    ax.set_xticks([])


# --- words ---------------------------------------------------------------------------------------


def caption(data: pd.DataFrame) -> str:
    language, task = data[data["task"] != TASK], data[data["task"] == TASK]
    on_task = ""
    if not task.empty:
        on_task = f" {task_words(at_shared_rate(task))} {rate_words(task)}"
    return f"""
Attention probability on the first position of a window, which holds the end-of-text token, in
training. Language: the share is the mean over queries at positions ≥ T/4, per layer over heads
(lines; bands: range over seeds), for the head with the largest share (dotted), and for uniform
attention (grey, the mean of 1/(i + 1)). α₀ is the mean over all queries; a head with α₀ >
{SINK:g} counts as a sink (2410.10781). {language_words(language)}{on_task}
""".strip().replace("\n", " ")


def language_words(language: pd.DataFrame) -> str:
    if language.empty:
        return "No language run is in the index."
    last = language[language["step"] == language.groupby("arm")["step"].transform("max")]
    shares = by_cell(last.groupby(["gamma", "gate"])["share"].mean(), ".4f")
    contexts = ", ".join(str(t) for t in sorted(set(language["context"])))
    return (
        f"T = {contexts}, uniform share {language['uniform_share'].iloc[0]:.4f}. Mean share over "
        f"layers and heads at the end: {shares}. {verdict(language, 'the language runs')}"
    )


def verdict(data: pd.DataFrame, where: str) -> str:
    """Whether any head of any run is a sink, with the number that says so."""
    worst = data.to_dict("records")[int(data["alpha"].argmax())]
    at = (
        f"α₀ = {worst['alpha']:.3f} (uniform {worst['uniform_alpha']:.3f}; γ = {worst['gamma']:g}, "
        f"{gate_word(worst['gate'])}, layer {worst['layer'] + 1}, step {worst['step']})"
    )
    last = data[data["step"] == data.groupby("arm")["step"].transform("max")]
    if worst["alpha"] <= SINK:
        return (
            f"No head of {where} exceeds {SINK:g} at any recorded step; the largest has {at}: "
            "what γ and the gate do to sinks is **not testable at this scale** there."
        )
    rates = last.assign(sink=last["alpha"] > SINK).groupby(["gamma", "gate"])["sink"].mean()
    return (
        f"The strongest head of {where} reaches {at}. Heads that are sinks at the end: "
        f"{by_cell(rates, '.0%')}."
    )


def by_cell(values: pd.Series, digits: str) -> str:
    """One value per γ and gate, in words."""
    rows = values.rename("value").reset_index().to_dict("records")
    return "; ".join(
        f"γ = {row['gamma']:g}, {gate_word(row['gate'])}: {row['value']:{digits}}" for row in rows
    )


def task_words(task: pd.DataFrame) -> str:
    depths = unique_in_order(sorted(task["n_layers"]))
    contexts = ", ".join(str(t) for t in sorted(set(task["context"])))
    return (
        f"Bigram-Backcopy (2410.13835; {seed_ranges(depths)} layers, T = {contexts}, peak learning "
        f"rate {task['lr'].iloc[0]:g}): α₀ of the strongest head (dashed: {SINK:g}), a mean over "
        "seeds. "
        f"{verdict(task, 'the Backcopy runs')}"
    )


def rate_words(task: pd.DataFrame) -> str:
    """How far the sink hangs on the learning rate: the strongest head at the end, without gate."""
    last = task[task["step"] == task.groupby("arm")["step"].transform("max")]
    shallow = last[(last["gate"] == Gate.none.value) & (last["n_layers"] == last["n_layers"].min())]
    if shallow["lr"].nunique() < 2:
        return ""
    strong = shallow.groupby(["gamma", "lr", "seed"])["alpha"].max()
    cells = []
    for gamma in sorted(set(shallow["gamma"])):
        by_rate = strong[gamma].groupby("lr").agg(list)
        values = ", ".join(
            f"{rate:g}: {' and '.join(f'{alpha:.2f}' for alpha in found)}"
            for rate, found in by_rate.items()
        )
        cells.append(f"γ = {gamma:g} {values}")
    return (
        "The rate decides with γ: strongest α₀ at the end by peak rate, without gate, "
        f"{shallow['n_layers'].iloc[0]} layer, every seed: {'; '.join(cells)}. The task's share of "
        "triggers and the rate of the panels were chosen after seeing where sinks form."
    )


if __name__ == "__main__":
    main()
