"""The whole report from synthetic records: a number changed in one record changes it, and a
record that is missing or foreign stops it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from small_init.claims.judge import assess
from small_init.errors import UserError
from small_init.files import json_text, write_text
from small_init.runs.objects import object_names
from small_init.runs.paths import claims_file, record_folder
from tests.paper.conftest import PAPER, arm, write_project

SEEDS = (10, 11, 12, 13, 14)
CHANGED = record_folder("cpu", "cpu-d32-g100-adjusted", 12)


@pytest.fixture
def build(project, script, monkeypatch) -> Callable[[], str]:
    """Judge the claims and make the report; returns the HTML page.

    γ = 1 gains 0.1 less 0.0005·seed at both widths.
    """
    ladder = [
        arm(
            d, g, "adjusted", SEEDS, lambda s, d=d, g=g: 4 - d / 100 - 0.2 * (g - 0.5) + s / 1e3 * g
        )
        for d in (32, 64)
        for g in (0.5, 1.0)
    ]
    write_project({"table-1": ladder, "figure-1": ladder})
    for folder in Path("results/cpu/runs").glob("*/seed-*"):
        write_text(folder / "perf.json", json.dumps({"seconds": 1800, "threads": 2}))
    shutil.copytree(PAPER, "paper", ignore=shutil.ignore_patterns("__pycache__"))
    report = script("report")
    monkeypatch.setattr(report, "TEMPLATE", Path("paper/report/report.typ"))
    plt = script("shared.style").plt
    fig = plt.figure(figsize=(1, 1))
    for page in (*(n for n in object_names() if n.startswith("figure")), "figure-t2"):
        for kind in ("png", "pdf"):
            path = Path(f"results/cpu/figures/{page}.{kind}")
            path.parent.mkdir(parents=True, exist_ok=True)
            fig.savefig(path)
        write_text(path.with_suffix(".md"), f"**Caption of {page}.** δ² ≤ 1\n")
    plt.close(fig)
    write_text(Path("results/cpu/figures/figure-6c.csv"), "kind,correlation,gamma\n")
    for name in (n for n in object_names() if n.startswith("table")):
        table = f"**Caption of {name}.**\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
        write_text(Path(f"results/cpu/tables/{name}.md"), table)

    def make() -> str:
        assess("cpu")
        report.make()
        assert Path("results/cpu/report.pdf").read_bytes().startswith(b"%PDF")
        return Path("results/cpu/report.html").read_text()

    return make


def verdict_of(claim: str) -> str:
    rows = json.loads(claims_file("cpu").read_text())
    return next(row["verdict"] for row in rows if row["id"] == claim)


def change_a_loss() -> None:
    path = CHANGED / "metrics.json"
    metrics = json.loads(path.read_text())
    metrics["final"]["loss"] += 0.5
    path.write_text(json_text(metrics))


def test_one_number_in_one_record_changes_the_verdict_and_the_text(build) -> None:
    before = build()
    assert verdict_of("R") == "replicated"
    assert "Δ(adjusted), mean over widths: +0.094 [+0.093, +0.095]" in before
    # 20 runs of half an hour on two threads, at 15 W a core
    assert "took 20.0 core-hours" in before
    assert "about 0.30 kWh" in before
    change_a_loss()
    after = build()
    assert verdict_of("R") == "inconclusive"
    assert "mean over widths: +0.094" not in after
    assert "Δ(adjusted), mean over widths: +0.044 [" in after


def test_a_missing_and_a_foreign_record_stop_the_report_by_name(build, script) -> None:
    report = script("report")
    foreign = CHANGED.with_name("seed-99")
    shutil.copytree(CHANGED, foreign)
    with pytest.raises(UserError, match=r"g100-adjusted/seed-99 is not in params\.json"):
        report.make()
    foreign.rename(foreign.with_name("aside"))
    shutil.rmtree(CHANGED)
    with pytest.raises(UserError, match="1 planned runs have no record yet, cpu-d32-g100"):
        report.make()


def test_a_character_without_a_glyph_stops_the_report(build) -> None:
    path = Path("results/cpu/figures/figure-1.md")
    path.write_text("**Figure 1.** 词元\n")
    with pytest.raises(UserError, match="no glyph for 元 词"):
        build()


def test_glyphs_are_looked_up_in_the_fonts_of_the_report(script) -> None:
    report = script("report")
    assert report.missing_glyphs('γ ε·d^(2γ) Δ ‖W‖ √ ∂ α₀ — « » " \\ # $ ← ≤ \n') == []
    assert report.missing_glyphs("a中🙂") == ["中", "🙂"]
    assert f'font: "{report.FONT}"' in report.TEMPLATE.read_text()
