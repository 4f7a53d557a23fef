"""The numbers of Figure 7: gains of dense models and of mixtures of experts, and the routing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from paper.shared.runs import table, unique_in_order
from small_init.claims.gains import SMALL, USUAL
from small_init.errors import UserError
from small_init.measure.spectra import random_stable_rank
from small_init.model.weight_types import weight_type
from small_init.runs.record import Run
from small_init.runs.table import by_seed, demand_one_arm_each
from small_init.stats.intervals import Interval, mean_interval, paired_difference

UP = ("mlp.up", "mlp.experts.up")
MODELS = {"dense": "dense", "mixture": "experts"}  # as they are called in the CSV and in a panel


def model_of(run: Run) -> str:
    return "mixture" if run.config.model.n_experts else "dense"


def losses(runs: Sequence[Run], name: str) -> pd.DataFrame:
    """A row per run of either γ, dense or mixture, at the width of the mixtures; variants in their
    usual order, dense models first."""
    models = {run.arm: model_of(run) for run in runs}
    frame = table(runs)
    frame = frame.assign(model=frame["arm"].map(models))
    frame = frame[frame["gamma"].isin([USUAL, SMALL])]
    widths = unique_in_order(frame.loc[frame["model"] == "mixture", "d_model"])
    if len(widths) != 1:
        raise UserError(
            f"{name} shows the mixtures of experts of one width, its index names {len(widths)}; "
            "see configs/experiments/moe.yaml."
        )
    frame = frame[frame["d_model"] == widths[0]]
    demand_one_arm_each(frame, ["variant", "model", "gamma"], name)
    place = {variant: index for index, variant in enumerate(unique_in_order(frame["variant"]))}
    return frame.sort_values(
        ["variant", "model", "gamma", "seed"], ignore_index=True,
        key=lambda column: column.map(place) if column.name == "variant" else column,
    )  # fmt: skip


def gains(frame: pd.DataFrame) -> pd.DataFrame:
    """L(0.5) − L(1) per variant and model, paired by seed, and by how much the mixtures' is
    larger; `low` and `high` are missing where one seed is all there is."""
    by_model: dict[tuple[str, str], dict[int, float]] = {}
    cells: Any = frame.groupby(["variant", "model"], sort=False)
    for (variant, model), cell in cells:
        usual, small = (by_seed(cell[cell["gamma"] == gamma]) for gamma in (USUAL, SMALL))
        by_model[variant, model] = {s: usual[s] - small[s] for s in usual.keys() & small.keys()}
    rows = [
        gain_row(variant, model, mean_interval(found.values()))
        for (variant, model), found in by_model.items()
        if found
    ]
    for variant in unique_in_order(frame["variant"]):
        mixture, dense = (by_model.get((variant, model), {}) for model in ("mixture", "dense"))
        if difference := paired_difference(mixture, dense):
            rows.append(gain_row(variant, "mixture − dense", difference))
    columns = ["variant", "model", "gain", "low", "high", "pairs"]
    return pd.DataFrame(rows, columns=columns)


def gain_row(variant: str, model: str, found: Interval) -> dict[str, Any]:
    return {
        "variant": variant, "model": model, "gain": found.estimate, "low": found.low,
        "high": found.high, "pairs": found.n,
    }  # fmt: skip


# --- over training -------------------------------------------------------------------------------


def label(run: Run) -> dict[str, Any]:
    config = run.config
    return {
        "variant": config.variant,
        "model": model_of(run),
        "gamma": config.init.gamma,
        "seed": run.seed,
    }


def routing(run: Run) -> pd.DataFrame:
    """A row per step and layer of a mixture: the load of its busiest and idlest expert in units of
    the even share 1/E, its spread (standard deviation over mean), the router's entropy in nats."""
    rows = run.activations
    keys = ["step", "layer"]
    load = rows[rows["probe"] == "expert_load"].groupby(keys)["value"]
    entropy = rows[rows["probe"] == "router_entropy"].set_index(keys)["value"]
    found = pd.DataFrame(
        {
            "busiest": load.max() / load.mean(),
            "idlest": load.min() / load.mean(),
            "load_spread": load.std(ddof=0) / load.mean(),
            "router_entropy": entropy,
        }
    )
    return found.reset_index().assign(**label(run))


def stable_ranks(run: Run) -> pd.DataFrame:
    """A row per step: the stable rank of the up projections, mean over layers (and experts), as a
    share of a random matrix's."""
    spectra = run.spectra
    up = spectra[spectra["weight"].map(weight_type).isin(UP)]
    shape = run.init["weights"][up["weight"].iloc[0]]["shape"]
    rank = up.groupby("step")["stable_rank"].mean() / random_stable_rank(*shape[-2:])
    return rank.rename("stable_rank_share").reset_index().assign(**label(run))


def at_end(of_routing: pd.DataFrame) -> pd.DataFrame:
    """Per variant and γ, at the last step, over layers and seeds: the extremes of the load, its
    mean spread and the mean entropy of the router; `highest` is the load's maximum at any step."""
    arm = ["variant", "gamma"]
    last = of_routing[of_routing["step"] == of_routing["step"].max()]
    found = last.groupby(arm, sort=False).agg(
        busiest=("busiest", "max"), idlest=("idlest", "min"),
        load_spread=("load_spread", "mean"), router_entropy=("router_entropy", "mean"),
    )  # fmt: skip
    return found.assign(highest=of_routing.groupby(arm)["busiest"].max()).reset_index()
