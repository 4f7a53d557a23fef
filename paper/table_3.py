"""Table 3: the 2×2×2 of γ, ε and gate: loss of every cell, main effects and interactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from paper.shared.runs import load, table
from paper.shared.style import Row, limits, run_script, save_table, signed
from small_init.claims.contrasts.factors import FACTORIAL, FACTORS, factorial_losses, is_full
from small_init.claims.gains import SMALL, USUAL, PairedLosses
from small_init.errors import UserError
from small_init.runs.table import demand_one_arm_each
from small_init.stats.factorial import factorial_effects
from small_init.stats.intervals import Interval

NAME = "table-3"
# Beside the design: the literal ε of the standard setting, inert at small width.
LITERAL = {"literal": False, "gated-literal": True}


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load(NAME)
    frame = table(runs)
    frame = frame[frame["gamma"].isin([USUAL, SMALL])]
    widths = sorted(set(frame["d_model"]))
    if len(widths) != 1:
        raise UserError(f"{NAME} needs runs of one width, its index names {len(widths)}.")
    demand_one_arm_each(frame, ["variant", "gamma"], NAME)
    cells = factorial_losses(PairedLosses(runs), widths[0])
    effects = factorial_effects(cells, FACTORS) if is_full(cells) else {}
    rows = cell_rows(frame) + [effect_row(name, value) for name, value in effects.items()]
    return save_table(NAME, rows, COLUMNS, caption(widths[0], effects, cells), runs)


def cell_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    gates = {v: gate for v, (_, gate) in FACTORIAL.items()} | LITERAL
    rows = []
    for variant, gated in gates.items():
        for gamma in (USUAL, SMALL):
            cell = frame[(frame["variant"] == variant) & (frame["gamma"] == gamma)]
            if len(cell):
                losses = cell["val_loss"]
                rows.append(
                    {
                        "kind": "cell",
                        "gamma": gamma,
                        "norm_eps": cell["norm_eps"].iloc[0],
                        "gate": gated,
                        "variant": variant,
                        "value": losses.mean(),
                        "sd": losses.std() if len(losses) > 1 else None,
                        "n": len(losses),
                    }
                )
    return rows


def effect_row(name: str, effect: Interval) -> dict[str, Any]:
    return {
        "kind": "effect",
        "effect": name,
        "value": effect.estimate,
        "low": effect.low,
        "high": effect.high,
        "n": effect.n,
    }


def _cell_text(row: Row, text: str) -> str:
    return text if row["kind"] == "cell" else ""


def _value(row: Row) -> str:
    if row["kind"] == "effect":
        return signed(row["value"])
    spread = f" ± {row['sd']:.3f}" if row["sd"] is not None else ""
    return f"{row['value']:.3f}{spread}"


COLUMNS = {
    "cell or effect": lambda r: r["variant"] if r["kind"] == "cell" else r["effect"],
    "γ": lambda r: _cell_text(r, f"{r.get('gamma', 0):g}"),
    "ε": lambda r: _cell_text(r, f"{r.get('norm_eps', 0):.2g}"),
    "gate": lambda r: _cell_text(r, "yes" if r.get("gate") else "no"),
    "loss, or effect": _value,
    "95 % interval": lambda r: limits(r["low"], r["high"], r["n"]) if r["kind"] == "effect" else "",
    "seeds": lambda r: str(r["n"]),
}


def caption(width: int, effects: dict[str, Interval], cells: dict[tuple[bool, ...], Any]) -> str:
    if not is_full(cells):
        missing = 2 ** len(FACTORS) - len(cells)
        found = f"{missing} of the eight cells were not run, so no effect can be computed."
    elif not effects:
        found = "No seed has all eight cells, so no effect can be computed."
    else:
        named = {name: effects[name] for name in ("γ × ε", "γ × gate", "γ × ε × gate")}
        found = "; ".join(
            f"{name}: {signed(e.estimate)} {limits(e.low, e.high, e.n)}"
            for name, e in named.items()
        )
        found = (
            "A negative effect lowers the loss; a negative interaction means that γ = 1 gains more "
            f"with the small ε, or with the gate. {found}."
        )
    return f"""
Validation loss (nats per token) at d = {width} for γ, ε (the matched one or 1e-12) and the
elementwise gate, mean ± standard deviation over seeds, each cell at the learning rate calibrated
for its γ and gate. Effects are differences of means from the low to the high level (γ 0.5 → 1,
ε matched → 1e-12, gate no → yes), averaged over the other factors; interactions are differences of
differences. All are paired by seed. The cells with the literal ε = 1e-5 stand beside the design.
{found}
""".replace("\n", " ")


if __name__ == "__main__":
    main()
