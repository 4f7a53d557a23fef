"""Table 4: every claim, the interval it is judged by, and the verdict at each scale."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paper.shared.style import Row, limits, profile_of, run_script, save_table, signed
from small_init.claims.criteria import load_claims
from small_init.claims.judge import scales
from small_init.runs.paths import claims_file
from small_init.runs.record import load_runs

NAME = "table-4"
READS = ("paper/claims.yaml", "results/{profile}/claims.json")


def main() -> None:
    run_script(make)


def make() -> Path:
    runs = load_runs(NAME)
    active = profile_of(runs)
    names = scales(active)
    by_scale = {
        name: {row["id"]: row for row in json.loads(claims_file(name).read_text())}
        for name in names
    }
    rows = [
        line for claim_id in by_scale[active] for line in claim_rows(claim_id, by_scale, active)
    ]
    return save_table(NAME, rows, columns(names), caption(by_scale[active], names), runs)


def claim_rows(
    claim_id: str, by_scale: dict[str, dict[str, Any]], active: str
) -> list[dict[str, Any]]:
    """One row per required condition; the verdict stands in the first."""
    claim = by_scale[active][claim_id]
    kind = "confirmatory" if claim["confirmatory"]["pairs"] else "pilot"
    evidence = claim[kind]
    conditions = evidence["conditions"] or [{"quantity": evidence["not_testable"] or "no runs"}]
    conditions = conditions + [
        {"quantity": point["quantity"], "point": point["estimate"], "holds": point["holds"]}
        for point in evidence["points"]
    ]
    first = {
        "id": claim_id,
        "statement": claim["statement"],
        "why": claim["why"],
        "p_adjusted": claim["p_adjusted"],
    } | {f"verdict_{name}": rows.get(claim_id, {}).get("verdict", "–") for name, rows in
         by_scale.items()}  # fmt: skip
    return [
        (first if index == 0 else {"id": claim_id}) | condition | {"seeds": kind}
        for index, condition in enumerate(conditions)
    ]


def columns(names: list[str]) -> dict[str, Any]:
    def measured(row: Row) -> str:
        if "point" in row:
            return f"{row['point']:.2f}"
        if "estimate" not in row:
            return "–"
        return f"{signed(row['estimate'])} {limits(row['low'], row['high'], row['n'])}"

    def needed(row: Row) -> str:
        if "point" in row:
            return "holds" if row["holds"] else "does not hold"
        if "bound" not in row:
            return "–"
        return f"{'>' if row['side'] == 'above' else '<'} {signed(row['bound'], 2)}"

    def detectable(row: Row) -> str:
        value = row.get("detectable")
        return "–" if value is None else signed(value)

    return {
        "claim": lambda r: r["id"] if "statement" in r else "",
        "statement": lambda r: r.get("statement", ""),
        "quantity": lambda r: r["quantity"],
        "seeds": lambda r: r["seeds"],
        "measured, 95 % interval": measured,
        "needed": needed,
        "detectable": detectable,
        **{f"verdict, {name}": lambda r, n=name: r.get(f"verdict_{n}", "") for name in names},
    }


def caption(claims: dict[str, Any], names: list[str]) -> str:
    rules = load_claims().rules
    counts: dict[str, int] = {}
    for row in claims.values():
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    tally = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    confirmed = sum(row["confirmatory"]["pairs"] >= rules.min_pairs for row in claims.values())
    return f"""
The claims in our words and their verdicts by the criteria of paper/claims.yaml, which were written
before any confirmatory run. A verdict needs {rules.min_pairs} confirmatory pairs of seeds;
{confirmed} of {len(claims)} entries have them. Where there are none the numbers shown are of pilot
seeds and decide nothing. Needed: the whole interval beyond the bound, and p below {rules.alpha:g}
after Holm's adjustment over all entries. Detectable: the true value that would have met the
condition with 80 % probability, without the adjustment. Scale {names[0]}: {tally}.
""".replace("\n", " ")


if __name__ == "__main__":
    main()
