"""The calibrated peak learning rates, from the records of the calibration arms (Figure S1)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import mean

from small_init.config import Gate
from small_init.config_files import dump
from small_init.errors import UserError
from small_init.files import write_text
from small_init.runs.paths import CONFIGS
from small_init.runs.plan import Plan
from small_init.runs.record import load_run
from small_init.stats.fits import log_minimum

OBJECT = "figure-s1"  # the object whose arms are the calibration


def rates_file(profile: str) -> Path:
    return CONFIGS / "calibration" / f"{profile}.yaml"


def rates_text(plan: Plan) -> str:
    """Per gate, width and γ the best rate: the vertex in log(rate) of the mean losses.

    `edge: true` says that the best rate tried was the lowest or highest of its grid: then the
    optimum may lie beyond, and the grid wants another value.
    """
    losses: dict[tuple[bool, int, float], dict[float, dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for key in plan.objects[OBJECT]:
        arm = plan.arms[key]
        cell = (arm.model.gate is not Gate.none, arm.model.d_model, arm.init.gamma)
        for seed in arm.seeds:
            run = load_run(plan.profile, key, seed)
            losses[cell][arm.optimizer.lr][seed] = run.val_loss
    if not losses:
        raise UserError(f"No arm of profile {plan.profile} serves {OBJECT}: nothing to calibrate.")
    rows = []
    for (gated, width, gamma), by_rate in sorted(losses.items()):
        tried = sorted(by_rate)
        # A rate that another experiment gave more seeds is no better known than the others.
        seeds = set.intersection(*(set(by_rate[rate]) for rate in tried))
        if not seeds:
            raise UserError(f"The calibration of d {width}, γ {gamma:g} has no seed at every rate.")
        means = [mean(by_rate[rate][seed] for seed in seeds) for rate in tried]
        best = log_minimum(tried, means)
        rows.append(
            {
                "gated": gated,
                "d_model": width,
                "gamma": gamma,
                "lr": float(f"{best.x:.3g}"),
                "edge": bool(best.edge),
            }
        )
    head = (
        "# Written by `small-init calibrate` from the calibration's records. Peak learning rate\n"
        "# per gate, width and γ; `small-init plan` interpolates between them.\n"
    )
    return head + dump({"rates": rows})


def write_rates(plan: Plan) -> None:
    write_text(rates_file(plan.profile), rates_text(plan))
