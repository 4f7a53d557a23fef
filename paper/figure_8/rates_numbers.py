"""The numbers of Figure 8's second page: curves over the rate, their collapse, best rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from paper.figure_8.numbers import SCHEMES
from small_init.claims.gains import SMALL, USUAL
from small_init.runs.table import by_seed, demand_one_arm_each
from small_init.stats.fits import Minimum, log_minimum

CURVE = ["d_model", "gamma", "start"]


def rate_grid(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The runs that change nothing but the rate and the start, of curves with two rates and more.

    The recipe's own rate is interpolated between those of the grid: it belongs to it only where
    another curve has it too.
    """
    start_alone = frame["fields"].isin([(), ("init.scheme",)])
    some = frame[start_alone].assign(start=frame["scheme"])
    common = set(some.loc[~some["recipe"], "lr"])
    some = some[~some["recipe"] | some["lr"].isin(common)]
    demand_one_arm_each(some, [*CURVE, "lr"], name)
    # A start of a single rate is still a point beside the curves.
    has_curve = some.groupby(CURVE)["lr"].transform("nunique") > 1
    return some[has_curve | (some["start"] != "gamma")] if has_curve.any() else some[has_curve]


def optimum(curve: pd.DataFrame) -> Minimum:
    mean = curve.groupby("lr")["val_loss"].mean()
    return log_minimum(mean.index.tolist(), mean.tolist())


def excess(curve: pd.DataFrame) -> pd.Series:
    """Mean loss per rate, over the curve's lowest."""
    mean = curve.groupby("lr")["val_loss"].mean()
    return mean - mean.min()


def step_scale(curve: pd.DataFrame) -> float:
    """d^γ, the inverse of the first weights' standard deviation."""
    first = curve.iloc[0]
    return float(first["d_model"] ** first["gamma"])


def alignment(curves: list[pd.DataFrame]) -> dict[str, float]:
    """Do the curves collapse when rates are multiplied by d^(pγ)? For p = 0 and 1.

    `spread_…` is the standard deviation of ln(best rate) over the curves, `residual_…` the rms
    distance of all points from one parabola in the logarithm, in nats. `power` is the p that brings
    the best rates together, by least squares: 1 if the relative step decided, 0 if the rate did.
    """
    if len(curves) < 2:
        return {}
    log_best = np.array([math.log(optimum(curve).x) for curve in curves])
    log_scale = np.array([math.log(step_scale(curve)) for curve in curves])
    y = np.concatenate([excess(curve) for curve in curves])
    found = {"power": -float(np.polyfit(log_scale, log_best, 1)[0])}
    for power, label in ((0, "rate"), (1, "relative")):
        x = np.concatenate([np.log(excess(curve).index) + power * math.log(step_scale(curve))
                            for curve in curves])  # fmt: skip
        fitted = np.polyval(np.polyfit(x - x.mean(), y, 2), x - x.mean())
        found[f"spread_{label}"] = float((log_best + power * log_scale).std(ddof=1))
        found[f"residual_{label}"] = float(np.sqrt(np.mean((y - fitted) ** 2)))
    return found


def best_of_each(grid: pd.DataFrame) -> pd.DataFrame:
    """Per start (γ = 0.5, γ = 1, the other schemes) its best rate by mean loss, measured not
    fitted, and whether that is the first or last of its grid."""
    rows = []
    by_start: Any = grid.groupby(["gamma", "start"])
    for (gamma, start), cell in by_start:
        if start == "gamma" and gamma not in (USUAL, SMALL):
            continue
        mean = cell.groupby("lr")["val_loss"].mean()
        rate = mean.idxmin()
        rows.append(
            {
                "gamma": gamma,
                "start": start,
                "said": f"γ = {gamma:g}" if start == "gamma" else SCHEMES.get(start, start),
                "lr": rate,
                "loss": mean.min(),
                "rates": len(mean),
                "edge": rate in (mean.index[0], mean.index[-1]),
                "by_seed": by_seed(cell[cell["lr"] == rate]),
            }
        )
    order = ["gamma", *SCHEMES]
    columns = ["gamma", "start", "said", "lr", "loss", "rates", "edge", "by_seed"]
    found = pd.DataFrame(rows, columns=columns)
    found["order"] = found["start"].map(lambda s: order.index(s) if s in order else len(order))
    return found.sort_values(["order", "gamma"], ignore_index=True).drop(columns="order")
