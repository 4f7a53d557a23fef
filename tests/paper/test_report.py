"""The report takes captions, tables and verdicts as they are, and stops where one is missing."""

from pathlib import Path

import pytest

from small_init.errors import UserError
from small_init.files import write_bytes, write_text
from tests.paper.test_tables_3_4 import claim


def test_captions_keep_their_emphasis_and_nothing_else(script) -> None:
    (first, second) = script("report").spans("**Figure 1.** A *small* `x*y` #hash\n\nnext $5")
    assert [(p["style"], p["text"]) for p in first] == [
        ("strong", "Figure 1."), ("plain", " A "), ("emph", "small"), ("plain", " "),
        ("code", "x*y"), ("plain", " #hash"),
    ]  # fmt: skip
    assert second == [{"style": "plain", "text": "next $5"}]


def test_a_claim_shows_confirmatory_numbers_where_there_are_some(script) -> None:
    report = script("report")
    entry = report.claim_entry(claim("C1", "replicated", 5))
    assert entry["kind"] == "confirmatory"
    assert entry["numbers"] == ["Δ: +0.100 [+0.050, +0.150]"]
    assert report.claim_entry(claim("C2", "inconclusive", 0))["kind"] == "pilot"
    assert report.tally([claim("C1", "replicated", 5), claim("C2", "replicated", 5)]) == [
        {"verdict": "replicated", "count": 2}
    ]


def test_a_table_is_read_from_its_markdown_and_figures_with_all_pages(project, script) -> None:
    report = script("report")
    tables, figures = Path("results/cpu/tables"), Path("results/cpu/figures")
    text = "**Table 1.** Caption.\n\n*stamp*\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    write_text(tables / "table-1.md", text)
    (entry,) = report.object_entries("cpu", "table-1")
    assert (entry["head"], entry["rows"]) == (["a", "b"], [["1", "2"]])
    for page in ("figure-6", "figure-6b"):
        write_text(figures / f"{page}.md", "Caption.")
        for kind in ("png", "pdf"):
            write_bytes(figures / f"{page}.{kind}", b"drawn")
    pages = report.object_entries("cpu", "figure-6")
    assert [p["label"] for p in pages] == ["Figure 6", "Figure 6B"]
    assert pages[1]["image"] == "/results/cpu/figures/figure-6b"


def test_table_2_has_its_plot_under_it(project, script) -> None:
    report = script("report")
    write_text(Path("results/cpu/tables/table-2.md"), "Caption.\n\n| a |\n| - |\n| 1 |\n")
    with pytest.raises(UserError, match=r"figure-t2\.pdf does not exist"):
        report.object_entries("cpu", "table-2")
    for kind, content in (("png", b"drawn"), ("pdf", b"drawn"), ("md", b"Plot.")):
        write_bytes(Path(f"results/cpu/figures/figure-t2.{kind}"), content)
    entries = report.object_entries("cpu", "table-2")
    assert [(e["kind"], e["label"]) for e in entries] == [
        ("tables", "Table 2"), ("figures", "Figure T2"),
    ]  # fmt: skip


def test_what_is_missing_is_named(project, script) -> None:
    report = script("report")
    with pytest.raises(UserError, match=r"figure-2\.png does not exist; draw it with `dvc repro"):
        report.object_entries("cpu", "figure-2")
    with pytest.raises(UserError, match="small-init claims"):
        report.read_claims("cpu")
