"""Table 1: final validation loss by size, variant and γ, and what γ = 1 gains over γ = 0.5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from paper.shared.runs import load, published, table, unique_in_order
from paper.shared.style import Row, compact, limits, run_script, save_table, signed
from small_init.runs.table import by_seed, demand_one_arm_each
from small_init.stats.intervals import noise_floor, paired_difference

NAME = "table-1"
SMALL, USUAL = 1.0, 0.5  # the two γ compared


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    frame = table(runs)
    demand_one_arm_each(frame, ["variant", "d_model", "gamma"], NAME)
    rows = [row(cell) for _, cell in frame.groupby(["variant", "d_model"], sort=False)]
    return save_table(
        NAME, rows, columns(unique_in_order(sorted(frame["gamma"]))), caption(rows), runs
    )


def row(cell: pd.DataFrame) -> dict[str, Any]:
    """One variant at one width, all its γ."""
    first = published(cell).iloc[0]
    out: dict[str, Any] = {
        key: first[key]
        for key in ("variant", "d_model", "parameters", "non_embedding", "tokens", "flops")
    }
    gammas = unique_in_order(cell["gamma"])
    arms = {gamma: by_seed(cell[cell["gamma"] == gamma]) for gamma in gammas}
    for gamma, losses in arms.items():
        values = pd.Series(losses)
        out |= {
            f"loss_{gamma:g}": values.mean(),
            f"sd_{gamma:g}": values.std() if len(values) > 1 else None,
            f"n_{gamma:g}": len(values),
        }
    difference = paired_difference(arms.get(USUAL, {}), arms.get(SMALL, {}))
    if difference:
        out |= {
            "difference": difference.estimate,
            "low": difference.low,
            "high": difference.high,
            "pairs": difference.n,
        }
    out["noise_floor"] = noise_floor([list(losses.values()) for losses in arms.values()])
    return out


def columns(gammas: list[float]) -> dict[str, Any]:
    """Heading → how a row's cell is written."""

    def loss(gamma: float) -> Any:
        def cell(r: Row) -> str:
            if f"loss_{gamma:g}" not in r:
                return "–"
            sd = r[f"sd_{gamma:g}"]
            spread = f" ± {sd:.3f}" if sd is not None else ""
            return f"{r[f'loss_{gamma:g}']:.3f}{spread} ({r[f'n_{gamma:g}']})"

        return cell

    def noise(r: Row) -> str:
        return "–" if r["noise_floor"] is None else f"{r['noise_floor']:.3f}"

    return {
        "variant": lambda r: r["variant"],
        "d": lambda r: str(r["d_model"]),
        "parameters": lambda r: compact(r["parameters"]),
        "without emb.": lambda r: compact(r["non_embedding"]),
        "tokens": lambda r: compact(r["tokens"]),
        "FLOPs": lambda r: f"{r['flops']:.1e}",
        **{f"loss, γ = {gamma:g}": loss(gamma) for gamma in gammas},
        f"Δ({USUAL:g} − {SMALL:g})": lambda r: signed(r["difference"]) if "pairs" in r else "–",
        "95 % interval": lambda r: limits(r["low"], r["high"], r["pairs"]) if "pairs" in r else "–",
        "noise floor": noise,
    }


def caption(rows: list[dict[str, Any]]) -> str:
    intervals = [(r["low"], r["high"]) for r in rows if r.get("low") is not None]
    above = sum(low > 0 for low, _ in intervals)
    below = sum(high < 0 for _, high in intervals)
    found = (
        f"The interval of Δ lies above 0 in {above} and below 0 in {below} of {len(intervals)} "
        "comparisons."
        if intervals
        else "No comparison has the two pairs of seeds that an interval needs."
    )
    return f"""
Validation loss in nats per token, mean ± standard deviation over the seeds (their number). Δ is the
loss at γ = {USUAL:g} minus that at γ = {SMALL:g}, paired by seed: positive where γ = {SMALL:g} is
better. The noise floor is the standard deviation of the difference between two runs of one arm that
differ only in their seed. {found} FLOPs are 6·N·tokens of the whole run, N with the readout
and without the looked-up embedding; attention scores are not counted.
""".replace("\n", " ")


if __name__ == "__main__":
    main()
