"""The numbers of Figure 4: residual flow with its theory, and where a loss is lowest over γ."""

from __future__ import annotations

from typing import Any

import pandas as pd

from paper.shared.runs import published
from small_init.claims.contrasts.optimum import LowestLoss, lowest_loss
from small_init.config import ArmConfig, Gate, Norm, Probes, Scheme, group_gammas
from small_init.errors import UserError
from small_init.rule.theory import attention_flow, mlp_flow
from small_init.runs.record import Run
from small_init.stats.fits import quadratic_minimum

CURVE = ["variant", "d_model", "context"]  # a curve is the loss over γ at one of each
MIN_GAMMAS = 3  # a parabola has three parameters


def flow_table(runs: list[Run]) -> pd.DataFrame:
    """Residual flow of the first block: a row per run at step 0, with theory, and one at the end.

    At the end only of runs that recorded their activations.

    Raises:
        UserError: an arm that theory.py says nothing about.
    """
    rows = []
    for run in runs:
        config, measured = run.config, run.init["residual_flow"]
        if fault := uncovered(config):
            raise UserError(
                f"Figure 4 draws theory beside every arm, and small_init/theory.py does not cover "
                f"{fault} (arm {run.arm}); leave that arm out in configs/experiments/."
            )
        context = measured["context"]
        single, whole, mlp = (measured[n][0] for n in ("attention_single", "attention", "mlp"))
        at_start = {
            **place(config, run.seed), "step": 0,
            "attention_single": single, "attention_single_theory": attention_theory(config, 1),
            "attention": whole, "attention_theory": attention_theory(config, context),
            "mlp": mlp, "mlp_theory": mlp_theory(config, whole),
        }  # fmt: skip
        rows.append({"kind": "flow"} | at_start)
        if config.train.probes is Probes.all:
            rows.append(
                {"kind": "flow at the end"} | place(config, run.seed) | last_flow(run, context)
            )
    return pd.DataFrame(rows)


def place(config: ArmConfig, seed: int) -> dict[str, Any]:
    model = config.model
    return {
        "variant": config.variant,
        "d_model": model.d_model,
        "gamma": config.init.gamma,
        "seed": seed,
        "gated": model.gate is not Gate.none,
        "context": model.context,
    }


def uncovered(config: ArmConfig) -> str | None:
    """What an arm has that the derivation of `rule.theory` does not cover, or None."""
    model, init = config.model, config.init
    faults = {
        f"the scheme {init.scheme.name}": init.scheme is not Scheme.gamma,
        "a γ per weight group": bool(group_gammas(init)),
        "depth-scaled output projections": init.depth_scaled,
        "a headwise gate": model.gate is Gate.headwise,
        "layer normalisation": model.norm is not Norm.rmsnorm,
    }
    return next((fault for fault, present in faults.items() if present), None)


def attention_theory(config: ArmConfig, context: int) -> float:
    model = config.model
    gated = model.gate is not Gate.none
    return attention_flow(config.init.gamma, model.d_model, model.norm_eps, gated, context)


def mlp_theory(config: ArmConfig, attention: float) -> float:
    model = config.model
    return mlp_flow(config.init.gamma, model.d_model, model.d_ff, model.norm_eps, attention)


def last_flow(run: Run, context: int) -> dict[str, Any]:
    """The first block's flow after the last step."""
    found = run.activations
    step = found["step"].max()
    found = found[(found["step"] == step) & (found["layer"] == 0)]
    whole = found[found["context"] == context]
    whole = whole[whole["probe"] == "residual_flow"].set_index("part")["value"]
    single = found[found["probe"] == "residual_flow_single"]["value"].iloc[0]
    parts = {part: whole[part] for part in ("attention", "mlp")}
    return {"step": step, "attention_single": single} | parts


def context_table(runs: list[Run]) -> pd.DataFrame:
    """The first block's attention flow by window length, at the first and the last step.

    Of the runs of the longest context alone: a model per γ, on windows cut to shorter lengths.
    """
    rows = []
    for run in runs:
        config = run.config
        if config.train.probes is not Probes.all:
            continue
        found = run.activations
        found = found[(found["probe"] == "residual_flow") & (found["part"] == "attention")]
        found = found[found["layer"] == 0]
        for step, length, value in found[["step", "context", "value"]].itertuples(index=False):
            if step not in (0, found["step"].max()):
                continue
            theory = attention_theory(config, int(length)) if step == 0 else None
            rows.append(
                place(config, run.seed)
                | {"kind": "flow by context", "step": step, "window": int(length)}
                | {"attention": value, "attention_theory": theory}
            )
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    longest = table.groupby(["variant", "d_model"])["context"].transform("max")
    return table[table["context"] == longest]


def seed_table(curve: pd.DataFrame) -> pd.DataFrame:
    """Losses of a variant at one width, seeds × γ, of the seeds that have every γ, or else all."""
    losses = curve.pivot(index="seed", columns="gamma", values="val_loss")
    complete = losses.dropna()
    return losses if complete.empty else complete


def minimum(curve: pd.DataFrame) -> dict[str, Any]:
    """Where one variant's loss at one width is lowest, with its interval: claim C5's `lowest_loss`.

    Where no seed has every γ it is the vertex of the means; `no_interval` says why there is none.
    """
    losses = seed_table(curve)
    gammas, seeds = sorted(set(curve["gamma"])), len(losses)
    row = {
        "kind": "minimum",
        "variant": curve["variant"].iloc[0],
        "d_model": curve["d_model"].iloc[0],
        "context": curve["context"].iloc[0],
    }
    if losses.isna().any(axis=None):
        of_means = quadratic_minimum(gammas, losses.mean().tolist())
        found = LowestLoss(of_means.x, of_means.y, None, of_means.edge)
        reason = "no seed has every γ"
    else:
        found = lowest_loss(
            gammas, dict(zip(losses.index, losses.to_numpy().tolist(), strict=True))
        )
        reason = "n = 1" if seeds == 1 else "for some seed the lowest γ is an edge"
    interval = found.interval
    return row | {
        "gamma": found.gamma,
        "loss": found.loss,
        "edge": found.edge and interval is None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "seeds": seeds,
        "no_interval": reason if interval is None or seeds == 1 else None,
    }


def mean_rows(curve: pd.DataFrame) -> pd.DataFrame:
    losses = seed_table(curve)
    numbers = {"gamma": losses.columns, "loss": losses.mean(), "seeds": losses.count()}
    first = curve.iloc[0]
    return pd.DataFrame(numbers).assign(
        kind="mean",
        variant=first["variant"],
        d_model=first["d_model"],
        context=first["context"],
    )


def loss_rows(frame: pd.DataFrame) -> pd.DataFrame:
    columns = ["variant", "d_model", "context", "gamma", "seed", "val_loss"]
    return published(frame[columns]).assign(kind="run")
