"""Figure 6: do the weights condense, and expand again? Three pages.

figure-6: stable rank and |cos| of rows over training, per weight type, with the dip and the rise;
figure-6b: row cosines of one weight at four checkpoints; figure-6c: dip and final loss of all runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from paper.figure_6.losses import make_losses
from paper.figure_6.numbers import (
    GAMMAS,
    MATRICES,
    UP,
    condensation_runs,
    dips,
    gaussian_null,
    map_numbers,
    ordered_map,
    snapshots_of,
    trajectories,
)
from paper.shared.runs import load
from paper.shared.style import (
    PAGE,
    gamma_look,
    limits,
    panel_titles,
    plt,
    room_above,
    run_script,
    save_figure,
    signed,
    step_axis,
)
from small_init.errors import UserError
from small_init.runs.record import Run
from small_init.runs.table import demand_one_arm_each
from small_init.stats.intervals import mean_interval, paired_difference

NAME = "figure-6"
PAGES = ("figure-6", "figure-6b", "figure-6c")
SHOWN = ("adjusted", "standard")  # the variant drawn on the first two pages: the first there is
# The weight types of a column; their layers are averaged.
PANELS = {
    "query, key": ("attention.query", "attention.key"),
    "value, output": ("attention.value", "attention.output"),
    "MLP gate, up": ("mlp.gate", "mlp.up"),
    "MLP down": ("mlp.down",),
}


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    chosen = condensation_runs(runs)
    if not chosen:
        raise UserError(
            f"{NAME} needs runs of γ = 0.5 or 1 with `probes: all`; name them in "
            "configs/experiments/condensation.yaml."
        )
    made = make_trajectories(chosen)
    make_maps(chosen)
    make_losses(f"{NAME}c", runs)
    return made


def shown_variant(runs: list[Run]) -> str:
    present = {run.config.variant for run in runs}
    return next(variant for variant in SHOWN if variant in present)


# --- trajectories --------------------------------------------------------------------------------


def make_trajectories(runs: list[Run]) -> Path:
    table = trajectories(runs)
    demand_one_arm_each(table, ["variant", "d_model", "gamma"], NAME)
    found = dips(table)
    variant = shown_variant(runs)
    mine = table[table["variant"] == variant]
    rows = [(matrix, column) for column in ("stable_rank", "mean_abs_cos") for matrix in MATRICES]
    fig, grid = plt.subplots(4, 4, figsize=(PAGE, 7.0), sharex=True)
    for axes, (matrix, column) in zip(grid, rows, strict=True):
        for ax, types in zip(axes, PANELS.values(), strict=True):
            draw_types(ax, mine[mine["matrix"] == matrix], types, column)
        name = "W" if matrix == "W" else "W − c·W$_0$"
        what = "stable rank / random" if column == "stable_rank" else "mean |cos| of rows"
        axes[0].set_ylabel(f"{what}\n{name}")
        top = max(ax.get_ylim()[1] for ax in axes)
        for ax in axes:
            ax.set_ylim(0, top)
    for ax in grid[0]:
        room_above(ax)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="upper left", handlelength=2.2, fontsize=6, labelspacing=0.2)
    for ax in grid[-1]:
        step_axis(ax, int(mine["step"].max()))
    for ax in grid[:-1].flat:
        ax.tick_params(labelbottom=False)
    panel_titles(list(grid[0]), list(PANELS))
    data = pd.concat([table.assign(kind="spectra"), found.assign(kind="dip")], ignore_index=True)
    data = data[["kind", *data.columns.drop("kind")]]
    return save_figure(fig, NAME, data, runs, trajectory_caption(found, variant))


def draw_types(ax: Axes, table: pd.DataFrame, types: tuple[str, ...], column: str) -> None:
    """Colour tells γ, the line the weight type; bands are the range over seeds, grey is random."""
    for gamma in GAMMAS:
        color = gamma_look(gamma)["color"]
        for name, line in zip(types, ("-", "--"), strict=False):
            cell = table[(table["gamma"] == gamma) & (table["type"] == name)]
            if cell.empty:
                continue
            value = cell[column]
            if column == "stable_rank":
                value = value / cell["stable_rank_random"]
            by_seed = value.groupby([cell["step"], cell["seed"]]).first().unstack("seed")
            ax.plot(by_seed.index, by_seed.mean(axis=1), color=color, linestyle=line,
                    marker=gamma_look(gamma)["marker"], markersize=2,
                    label=f"γ = {gamma:g}, {name.rpartition('.')[2]}")  # fmt: skip
            ax.fill_between(by_seed.index, by_seed.min(axis=1), by_seed.max(axis=1), color=color,
                            alpha=0.2, linewidth=0)  # fmt: skip
    for name in types:
        cell = table[table["type"] == name]
        if not cell.empty:
            random = 1.0 if column == "stable_rank" else cell["mean_abs_cos_random"].iloc[0]
            ax.axhline(random, color="0.5", linewidth=0.8, zorder=0)


def trajectory_caption(found: pd.DataFrame, variant: str) -> str:
    widths = ", ".join(str(d) for d in sorted(set(found["d_model"])))
    others = sorted(set(found["variant"]) - {variant})
    beside = f" The CSV also holds {', '.join(others)}." if others else ""
    return f"""
Stable rank ‖W‖_F²/‖W‖₂² as a share of a Gaussian matrix's, m·n/(√m + √n)², and mean |cos| over row
pairs, per weight type (means over layers), in training; variant {variant}, d = {widths}. Lines are
means over seeds, bands their range, grey a Gaussian matrix. Upper rows of each pair: W; lower: W −
c·W₀, with c what weight decay alone leaves of the start, so that a large W₀ hides nothing.{beside}
After step 0: {dip_words(found, variant)}
""".strip().replace("\n", " ")


def dip_words(found: pd.DataFrame, variant: str) -> str:
    """Dip and rise of the up projections, claim C8's quantity, per γ and the paired difference."""
    said = []
    for matrix in MATRICES:
        cell = found[
            (found["variant"] == variant) & (found["type"] == UP) & (found["matrix"] == matrix)
        ]
        by_gamma: dict[float, pd.DataFrame] = {
            gamma: cell[cell["gamma"] == gamma].set_index("seed")
            for gamma in sorted(set(cell["gamma"]))
        }
        parts = []
        for gamma, some in by_gamma.items():
            steps = sorted({int(s) for s in some["step_of_lowest"]})
            value = mean_interval(some["dip_and_rise"])
            at = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]}–{steps[-1]}"
            parts.append(
                f"γ = {gamma:g}: lowest {some['lowest'].mean():.2f} at step {at}, last "
                f"{some['last'].mean():.2f}, {'dip-and-rise' if matrix == 'W' else 'rise'} "
                f"{signed(value.estimate, 2)}, {limits(value.low, value.high, value.n, 2)}"
            )
        if set(GAMMAS) <= set(by_gamma):
            pair = [dict(by_gamma[g]["dip_and_rise"]) for g in (1.0, 0.5)]
            if difference := paired_difference(pair[0], pair[1]):
                bounds = limits(difference.low, difference.high, difference.n, 2)
                parts.append(f"difference {signed(difference.estimate, 2)}, {bounds}")
        said.append(f"{'W' if matrix == 'W' else 'W − c·W₀'}, {'; '.join(parts)}")
    return (
        f"MLP up projections, shares of the random value: {'. '.join(said)}. The dip-and-rise is "
        "the smaller of (random − lowest) and (last − lowest); for the update, which has no random "
        "start, the rise (last − lowest) alone."
    )


# --- heat maps -----------------------------------------------------------------------------------


def make_maps(runs: list[Run]) -> Path:
    variant = shown_variant(runs)
    chosen = {}
    for gamma in GAMMAS:
        mine = [r for r in runs if (r.config.variant, r.config.init.gamma) == (variant, gamma)]
        if mine:
            chosen[gamma] = min(mine, key=lambda run: run.seed)
    kept = {gamma: snapshots_of(run, UP) for gamma, run in chosen.items()}
    steps = sorted({step for found in kept.values() for step in found["W"]})
    lines = [(gamma, matrix) for matrix in MATRICES for gamma in kept]
    fig, grid = plt.subplots(
        len(lines), len(steps), figsize=(PAGE, 1.75 * len(lines) + 0.5), squeeze=False
    )
    rows: list[dict[str, Any]] = []
    image = None
    for axes, (gamma, matrix) in zip(grid, lines, strict=True):
        name = "W" if matrix == "W" else "W − c·W$_0$"
        axes[0].set_ylabel(f"γ = {gamma:g}\n{name}", fontsize=8)
        for ax, step in zip(axes, steps, strict=True):
            is_null = matrix == "update" and step == 0
            value = gaussian_null(kept[gamma]["W"][0].shape) if is_null else (
                kept[gamma][matrix].get(step)
            )  # fmt: skip
            ax.set_xticks([])
            ax.set_yticks([])
            if value is None:
                ax.text(0.5, 0.5, "not recorded", ha="center", transform=ax.transAxes)
                continue
            shown = ordered_map(value)
            image = ax.imshow(shown, cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
            numbers = map_numbers(shown)
            ax.set_title("Gaussian null" if is_null else f"step {step}")
            ax.set_xlabel(f"|cos| {numbers['mean_abs_cos']:.2f}, "
                          f"neighbours {numbers['neighbour_abs_cos']:.2f}", fontsize=6)  # fmt: skip
            kind = "gaussian" if is_null else matrix
            rows.append({"gamma": gamma, "matrix": kind, "step": step} | numbers)
    assert image is not None
    fig.colorbar(image, ax=grid, shrink=0.4, aspect=30, label="|cos| of two rows")
    used = list(chosen.values())
    data = pd.DataFrame(rows).assign(variant=variant, weight=UP)
    return save_figure(fig, f"{NAME}b", data, used, map_caption(data, used))


def map_caption(data: pd.DataFrame, runs: list[Run]) -> str:
    config = runs[0].config
    null = data[data["matrix"] == "gaussian"]
    least = f"{null['neighbour_abs_cos'].mean():.2f}" if len(null) else "not drawn"
    most = data.to_dict("records")[int(data["neighbour_abs_cos"].argmax())]
    what = "W" if most["matrix"] == "W" else "W − c·W₀"
    block = config.model.n_layers // 2 + 1
    return f"""
|cos| between the rows of the MLP up projection of block {block} (variant {config.variant}, d =
{config.model.d_model}, seed {runs[0].seed}) at checkpoints, for W and for W − c·W₀, with c what
weight decay alone leaves of the start. Each panel's row order comes from hierarchical clustering
(average linkage on 1 − |cos|) of the even columns and is shown on the odd ones: sorting and showing
the same columns would make blocks out of noise. The null is a Gaussian matrix of the same shape,
treated alike. Under each panel: mean |cos| over all pairs and over neighbours in the order;
neighbours of the null have {least}, the largest is {most["neighbour_abs_cos"]:.2f} ({what}, γ =
{most["gamma"]:g}, step {most["step"]}). The matrices are in the records, snapshots.safetensors.
""".strip().replace("\n", " ")


if __name__ == "__main__":
    main()
