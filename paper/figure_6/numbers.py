"""The numbers of Figure 6: spectra over training, their dip and rise, and ordered row cosines."""

from __future__ import annotations

from statistics import mode
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.cluster.hierarchy import leaves_list, linkage

from paper.shared.runs import VARIANTS
from small_init.claims.contrasts.condensation import dip_of
from small_init.config import Probes, group_gammas
from small_init.measure.spectra import random_stable_rank
from small_init.model.weight_types import weight_type
from small_init.runs.record import Run
from small_init.runs.schedule import decay_left

GAMMAS = (0.5, 1.0)
UP = "mlp.up"
MATRICES = {"W": "", "update": "update_"}  # the update: W − c·W₀, c what weight decay leaves of W₀
MIN_RUNS = 4  # for a rank correlation
GROUP = ["d_model", "variant", "tokens", "context"]  # losses of runs that differ here are no match


def condensation_runs(runs: list[Run]) -> list[Run]:
    """The runs of the main pages: γ = 0.5 and 1, every probe recorded, at the largest width, in the
    usual context and length."""
    fit = []
    for run in runs:
        config = run.config
        recorded = config.train.probes is Probes.all and not group_gammas(config.init)
        if recorded and config.init.gamma in GAMMAS and config.variant in VARIANTS:
            fit.append((run, config.model.d_model, (config.model.context, config.train.tokens)))
    if not fit:
        return []
    widest = max(width for _, width, _ in fit)
    usual = mode(shape for _, _, shape in fit)
    return [run for run, width, shape in fit if width == widest and shape == usual]


# --- over training -------------------------------------------------------------------------------


def trajectories(runs: list[Run]) -> pd.DataFrame:
    """A row per run, weight type, matrix (W, update) and step; means over the type's layers."""
    tables = []
    for run in runs:
        spectra = run.spectra
        types = spectra["weight"].map(weight_type)
        mean = spectra.drop(columns="weight").groupby([types.rename("type"), "step"]).mean()
        for matrix, prefix in MATRICES.items():
            tables.append(
                pd.DataFrame(
                    {
                        "stable_rank": mean[f"{prefix}stable_rank"],
                        "stable_rank_random": mean["random_stable_rank"],
                        "mean_abs_cos": mean[f"{prefix}mean_abs_cos"],
                        "mean_cos": mean[f"{prefix}mean_cos"],
                        "mean_abs_cos_random": mean["random_mean_abs_cos"],
                    }
                )
                .reset_index()
                .assign(**label(run), matrix=matrix)
            )
    table = pd.concat(tables, ignore_index=True)
    # There is no update before the first step.
    return table[(table["matrix"] == "W") | (table["step"] > 0)]


def label(run: Run) -> dict[str, Any]:
    config = run.config
    return {
        "arm": run.arm,
        "seed": run.seed,
        "variant": config.variant,
        "gamma": config.init.gamma,
        "d_model": config.model.d_model,
    }


def dips(table: pd.DataFrame) -> pd.DataFrame:
    """Dip and rise of the stable rank per run, weight type and matrix, as shares of the random one.

    The depth is (random − lowest), the rise (last − lowest); `dip_and_rise` is what claim C8 is
    judged by (`condensation.dip_of`).
    """
    keys = ["variant", "d_model", "gamma", "arm", "seed", "type", "matrix"]
    rows = []
    for values, cell in table[table["step"] > 0].groupby(keys, sort=False):
        rank = cell.set_index("step")["stable_rank"] / cell["stable_rank_random"].iloc[0]
        found = dict(zip(keys, values, strict=True))
        dip = dip_of(rank, random_start=found["matrix"] == "W")
        rows.append(
            found
            | {
                "step_of_lowest": dip.step,
                "lowest": dip.lowest,
                "last": dip.last,
                "depth": 1 - dip.lowest,
                "rise": dip.last - dip.lowest,
                "dip_and_rise": dip.rise,
                "steps": len(rank),
            }
        )
    return pd.DataFrame(rows)


# --- heat maps -----------------------------------------------------------------------------------


def row_order(half: np.ndarray) -> np.ndarray:
    """The rows so that those of large |cos| are neighbours: average linkage on 1 − |cos|."""
    distance = 1 - np.abs(cosines(half))[np.triu_indices(len(half), 1)]
    tree = linkage(distance.clip(min=0), method="average", optimal_ordering=True)
    return leaves_list(tree)


def cosines(rows: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.maximum(length, 1e-30)
    return unit @ unit.T


def ordered_map(matrix: np.ndarray) -> np.ndarray:
    """|cos| of all row pairs on the odd columns, in the order found on the even ones.

    Sorting makes blocks out of noise; an order found elsewhere shows only what is there.
    """
    matrix = matrix.astype(np.float64)
    order = row_order(matrix[:, ::2])
    return np.abs(cosines(matrix[:, 1::2]))[np.ix_(order, order)]


def map_numbers(shown: np.ndarray) -> dict[str, float]:
    """What a map says in two numbers: |cos| over all pairs, and over neighbours in the order."""
    pairs = np.triu_indices(len(shown), 1)
    return {
        "mean_abs_cos": float(shown[pairs].mean()),
        "neighbour_abs_cos": float(np.diag(shown, 1).mean()),
    }


def gaussian_null(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


def snapshots_of(run: Run, weight: str) -> dict[str, dict[int, np.ndarray]]:
    """W and its update by step, of one of the two weights that a record holds in full."""
    name = next(n for n in next(iter(run.snapshots.values())) if n.endswith(f"{weight}.weight"))
    by_step = {step: np.asarray(found[name], np.float64) for step, found in run.snapshots.items()}
    first = by_step[0]
    arm = run.config
    left = {step: decay_left(step, arm.steps, arm.optimizer) for step in by_step}
    update = {step: w - left[step] * first for step, w in by_step.items() if step > 0}
    return {"W": by_step, "update": update}


# --- dip and loss --------------------------------------------------------------------------------


def loss_row(run: Run) -> dict[str, Any]:
    """A run's final loss and the deepest dip of its up projections' stable rank."""
    spectra = run.spectra
    up = spectra[(spectra["weight"].map(weight_type) == UP) & (spectra["step"] > 0)]
    random = random_stable_rank(*run.init["weights"][up["weight"].iloc[0]]["shape"])
    rank = up.groupby("step")["stable_rank"].mean() / random
    train = run.config.train
    return label(run) | {
        "tokens": train.tokens,
        "context": run.config.model.context,
        "lr": run.config.optimizer.lr,
        "depth": 1 - rank.min(),
        "step_of_lowest": rank.idxmin(),
        "last": rank.iloc[-1],
        "loss": run.val_loss,
    }


def correlations(data: pd.DataFrame) -> pd.DataFrame:
    """Spearman's correlation of depth and loss per width, variant, length and T; γ = 1 alone too.

    A larger, longer or otherwise built model has another loss whatever its ranks.
    """
    rows = []
    for keys, cell in data.groupby(GROUP):
        for gamma, some in ((None, cell), (1.0, cell[cell["gamma"] == 1.0])):
            if len(some) >= MIN_RUNS and some["depth"].nunique() > 1 and some["loss"].nunique() > 1:
                found = stats.spearmanr(some["depth"], some["loss"]).statistic
                row = dict(zip(GROUP, keys, strict=True))
                rows.append(row | {"gamma": gamma, "correlation": found, "runs": len(some)})
    return pd.DataFrame(rows, columns=[*GROUP, "gamma", "correlation", "runs"])
