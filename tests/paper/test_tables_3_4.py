"""Table 3 computes the factorial effects of planted cells; Table 4 shows verdicts as they are."""

import json
from pathlib import Path

import pandas as pd
import pytest

from small_init.errors import UserError
from small_init.files import write_text
from small_init.runs.paths import claims_file
from tests import ROOT
from tests.paper.conftest import arm, write_project

SEEDS = (10, 11, 12, 13, 14)
CELLS = {"standard": ("none", 2.56e-3), "epsilon": ("none", 1e-12),
         "gated": ("elementwise", 2.56e-3), "adjusted": ("elementwise", 1e-12)}  # fmt: skip


def factorial(seeds: tuple[int, ...] = SEEDS) -> list:
    """γ = 1 gains 0.10, the gate 0.02, and both together 0.04 more."""
    arms = []
    for variant, (gate, eps) in CELLS.items():
        for gamma in (0.5, 1.0):
            gain = 0.1 * (gamma == 1) + 0.02 * (gate != "none")
            gain += 0.04 * (gamma == 1 and gate != "none")
            arms.append(
                arm(64, gamma, variant, seeds, lambda s, gain=gain: 3.6 - gain + 0.001 * s,
                    more={"model": {"gate": gate, "norm_eps": eps}})
            )  # fmt: skip
    return arms


def test_effects_of_the_factorial(project, script) -> None:
    write_project({"table-3": factorial()})
    script("table_3").make()
    table = pd.read_csv("results/cpu/tables/table-3.csv")
    effects = table[table["kind"] == "effect"].set_index("effect")["value"]
    assert effects["γ"] == pytest.approx(-0.12)
    assert effects["ε"] == pytest.approx(0, abs=1e-9)
    assert effects["gate"] == pytest.approx(-0.04)
    assert effects["γ × gate"] == pytest.approx(-0.04)
    assert effects["γ × ε × gate"] == pytest.approx(0, abs=1e-9)
    text = Path("results/cpu/tables/table-3.md").read_text()
    assert "γ × gate: −0.040 [−0.040, −0.040]" in text
    assert "PILOT" not in text


def test_a_missing_cell_is_said_and_nothing_is_invented(project, script) -> None:
    write_project({"table-3": factorial((0,))[:-1]})
    script("table_3").make()
    text = Path("results/cpu/tables/table-3.md").read_text()
    assert "1 of the eight cells were not run" in text
    assert "effect" not in set(pd.read_csv("results/cpu/tables/table-3.csv")["kind"])
    assert "PILOT" in text


def test_two_widths_are_refused(project, script) -> None:
    write_project({"table-3": [arm(w, 1.0, "adjusted", (0,), lambda s: 3.0) for w in (32, 64)]})
    with pytest.raises(UserError, match="one width"):
        script("table_3").make()


def claim(identity: str, verdict: str, pairs: int) -> dict:
    condition = {
        "quantity": "Δ", "estimate": 0.1, "low": 0.05, "high": 0.15, "n": 5, "side": "above",
        "bound": 0.02, "holds": True, "detectable": 0.06, "detectable_holm": 0.08,
    }  # fmt: skip
    found = {"pairs": pairs, "not_testable": None, "conditions": [condition] if pairs else [],
             "points": [], "beside": {}}  # fmt: skip
    return {
        "id": identity, "statement": f"Statement {identity}.", "object": "table-1",
        "criterion": "c", "scale_note": "s", "verdict": verdict, "why": "because",
        "p_value": 0.001, "p_adjusted": 0.01, "confirmatory": found,
        "pilot": found | {"pairs": 0, "conditions": [], "not_testable": "no pilot"},
    }  # fmt: skip


def test_table_4_has_a_column_per_scale(project, script) -> None:
    paper = ROOT / "paper/claims.yaml"
    Path("paper").mkdir()
    Path("paper/claims.yaml").write_text(paper.read_text())
    write_project({"table-4": [arm(32, 1.0, "adjusted", SEEDS, lambda s: 3.0)]})
    mine = [claim("C1", "replicated", 5), claim("C2", "inconclusive", 0)]
    other = [claim("C1", "not replicated", 5)]
    for name, rows in (("cpu", mine), ("paper", other)):
        write_text(claims_file(name), json.dumps(rows))
    script("table_4").make()
    text = Path("results/cpu/tables/table-4.md").read_text()
    assert "verdict, cpu" in text
    assert "verdict, paper" in text
    line = next(line for line in text.splitlines() if line.startswith("| C1"))
    assert line.rstrip(" |").endswith("| replicated | not replicated")
    assert "+0.100 [+0.050, +0.150]" in line
    assert "> +0.02" in line
    assert "no pilot" in text
    assert "1 of 2 entries have them" in text
