"""The parts under the scripts: which runs count, how objects are stamped."""

import warnings
from pathlib import Path

import pytest

from small_init.errors import UserError
from small_init.runs.record import load_runs
from tests.paper.conftest import arm, write_project


def test_pilots_of_a_confirmed_arm_are_left_out(project, script) -> None:
    both = arm(32, 1.0, "adjusted", (0, 1, 10), lambda s: 3.0)
    only = arm(32, 0.5, "adjusted", (0,), lambda s: 3.0)
    write_project({"figure-1": [both, only]})
    kept = script("shared.runs").load("figure-1")
    assert [(run.arm, run.seed) for run in kept] == [(both.key, 10), (only.key, 0)]


def test_two_arms_in_one_cell_are_refused(project, script) -> None:
    twice = [
        arm(32, 1.0, "adjusted", (10,), lambda s: 3.0, suffix=suffix, lr=rate)
        for suffix, rate in (("-a", 1e-3), ("-b", 2e-3))
    ]
    write_project({"table-1": twice})
    with pytest.raises(UserError, match=r"two arms for one point .*-a and .*-b"):
        script("table_1").make()


def test_an_empty_index_says_where_to_name_arms(project, script) -> None:
    write_project({"figure-1": []})
    with pytest.raises(UserError, match="configs/experiments"):
        script("shared.runs").load("figure-1")


def test_the_stamp_follows_the_records(project, script) -> None:
    one = arm(32, 1.0, "adjusted", (10, 11, 12, 20), lambda s: 3.0)
    write_project({"figure-1": [one]})
    style = script("shared.style")
    runs = load_runs("figure-1")
    before = style.provenance(runs)
    assert before.startswith("profile cpu · seeds 10–12, 20 · inputs ")
    curve = runs[0].folder / "curve.csv"
    curve.write_text(curve.read_text().replace("0.5", "0.6"))
    assert style.provenance(runs) != before
    assert style.provenance(runs[::-1]) == style.provenance(runs)


def test_a_missing_glyph_is_an_error(project, script) -> None:
    write_project({"figure-1": [arm(32, 1.0, "adjusted", (10,), lambda s: 3.0)]})
    style = script("shared.style")
    fig, ax = style.plt.subplots()
    ax.set_title("\u6c49")
    with warnings.catch_warnings(), pytest.raises(UserWarning, match=r"[Gg]lyph"):
        style.save_figure(fig, "figure-1", None, load_runs("figure-1"), "")
    assert not Path("results/cpu/figures").exists()


def test_fonts_are_embedded_and_no_date_is_written(project, script) -> None:
    write_project({"figure-1": [arm(32, g, "adjusted", (10,), lambda s: 3.0) for g in (0.5, 1.0)]})
    content = script("figure_1").make().with_suffix(".pdf").read_bytes()
    assert b"/FontFile2" in content
    assert b"CreationDate" not in content
