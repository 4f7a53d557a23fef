"""Table 2 on synthetic task records: hand-computed numbers, marks, faults in one sentence."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from small_init.errors import UserError
from small_init.files import json_text, write_text
from small_init.runs.paths import tasks_file
from tests.paper.conftest import PAPER, Arm, arm, write_project

SEEDS = (10, 11)
# name: (family, shared, items, chance, accuracy at γ = 0.5, at γ = 1, groups of so many items)
TASKS = {
    "arithmetic_en": ("reasoning", "arithmetic_en", 200, 0.25, 0.40, 0.60, 1),
    "orders_zh": ("reasoning", "orders_zh", 200, 0.25, 0.26, 0.25, 1),
    "arithmetic_exact_en": ("written", "arithmetic_exact_en", 200, 0.01, 0.10, 0.20, 1),
    "titles_en": ("knowledge", "titles_en", 100, 0.25, 0.97, 0.99, 1),
    "local_en": ("language", "passages_en", 200, 0.25, 0.50, 0.55, 4),
    "long_en": ("language", "passages_en", 200, 0.25, 0.60, 0.65, 4),
}


def entry(name: str, gamma: float, seed: int) -> dict:
    family, shared, items, chance, usual, small, size = TASKS[name]
    right = round(items * (small if gamma == 1.0 else usual))
    # Which items are right differs by seed, and is independent of the groups.
    order = np.random.default_rng([seed, int(10 * gamma)]).permutation(items)
    digits = "".join("1" if place < right else "0" for place in order)
    written = family == "written"
    task = {
        "family": family, "language": name[-2:], "shared": shared, "file_sha256": name,
        "items": items, "chance": chance, "metric": "exact_match" if written else "acc",
        "accuracy": right / items, "correct": digits,
        "loss": None if written else 2.0 - 0.1 * gamma - 0.1 * usual,
    }  # fmt: skip
    if family == "reasoning":
        task["samples"] = [{"context": f"{name}?\nAnswer:", "right": " 7", "written": f" {gamma}"}]
    return task | ({"groups": [n // size for n in range(items)]} if size > 1 else {})


def write_tasks(one: Arm) -> None:
    for seed in one.seeds:
        gamma = one.overrides["init"]["gamma"]
        tasks = {name: entry(name, gamma, seed) for name in TASKS}
        record = {"schema": 1, "profile": "cpu", "arm": one.key, "seed": seed, "tasks": tasks}
        path = tasks_file("cpu", one.key, seed)
        write_text(path, json_text(record))


def arms(seeds: tuple[int, ...], widths: tuple[int, ...] = (64,)) -> list[Arm]:
    return [
        arm(w, g, v, seeds, lambda seed: 3.5)
        for v in ("standard", "adjusted")
        for w in widths
        for g in (0.5, 1.0)
    ]


def shorter(tokens: int, loss: float, seeds: tuple[int, ...]) -> Arm:
    more = {"train": {"tokens": tokens}}
    return arm(64, 1.0, "adjusted", seeds, lambda seed: loss, f"-tokens-{tokens}", more=more)


@pytest.fixture
def made(project, script):
    (project / "paper").mkdir()
    shutil.copy(PAPER / "claims.yaml", project / "paper")

    def make(
        seeds: tuple[int, ...] = SEEDS, widths: tuple[int, ...] = (64,), more: Sequence[Arm] = ()
    ) -> pd.DataFrame:
        group = [*arms(seeds, widths), *more]
        write_project({"table-2": group})
        for one in group:
            write_tasks(one)
        script("table_2").make()
        return pd.read_csv(project / "results/cpu/tables/table-2.csv")

    return make


def test_rows_are_tasks_and_family_means_of_both_variants(made, project):
    rows = made(widths=(32, 64))
    assert len(rows) == 2 * (len(TASKS) + 4)
    first = rows[rows["variant"] == "standard"].set_index(["family", "task"])
    arithmetic = first.loc["reasoning", "arithmetic_en"]
    assert arithmetic["difference"] == pytest.approx(0.20)
    assert (arithmetic["pairs"], arithmetic["items"], arithmetic["room"]) == (2, 200, "yes")
    assert arithmetic["low"] < 0.20 < arithmetic["high"]
    assert first.loc["reasoning", "mean"]["difference"] == pytest.approx((0.20 - 0.01) / 2)
    assert first.loc["reasoning", "mean"]["room"] == "1 of 2"
    assert first.loc["reasoning", "orders_zh"]["room"] == "floor"
    assert first.loc["knowledge", "titles_en"]["room"] == "ceiling"
    text = (project / "results/cpu/tables/table-2.md").read_text()
    assert "PILOT" not in text
    assert "| standard | reasoning | arithmetic en | 200 | 25.0 | 40.0 | 60.0 | +20.0 |" in text
    assert "items and seeds" in text
    assert r"$\gamma$" in (project / "results/cpu/tables/table-2.tex").read_text()
    assert (project / "results/cpu/figures/figure-t2.png").stat().st_size > 10_000


def test_a_shorter_run_of_equal_loss_stands_beside(made, project):
    """The one that the pilots chose, on the deciding seeds; another one is not shown."""
    seeds = (0, 1, *SEEDS)
    near, far = shorter(1_433_600, 3.492, seeds[:3]), shorter(1_024_000, 3.52, seeds)
    rows = made(seeds=seeds, more=[near, far])
    equal = rows[rows["variant"] == "adjusted, equal loss"].set_index(["family", "task"])
    assert len(equal) == len(TASKS) + 4
    assert equal.loc["reasoning", "arithmetic_en"]["pairs"] == 1
    assert equal.loc["reasoning", "arithmetic_en"]["difference"] == pytest.approx(0.20)
    text = (project / "results/cpu/tables/table-2.md").read_text()
    assert "run of 1.43M tokens (70.0 % of the length)" in text
    assert "here L(0.5) − L(1) is +0.008" in text
    assert "PILOT" not in text
    drawn = pd.read_csv(project / "results/cpu/figures/figure-t2.csv")
    assert len(drawn[drawn["variant"] == "adjusted, equal loss"]) == 5
    assert "at equal loss" in (project / "results/cpu/figures/figure-t2.md").read_text()
    samples = (project / "results/cpu/tables/table-2-samples.md").read_text()
    assert near.key in samples
    assert far.key not in samples


def test_without_a_run_of_equal_loss_the_caption_says_so(made, project):
    rows = made(seeds=(0, 1), more=[shorter(1_024_000, 3.511, (0, 1))])
    assert set(rows["variant"]) == {"standard", "adjusted"}
    assert "no comparison at equal loss" in (project / "results/cpu/tables/table-2.md").read_text()


def test_a_reader_sees_what_the_models_wrote(made, project):
    made()
    tables = project / "results/cpu/tables"
    assert "`table-2-samples.md`" in (tables / "table-2.md").read_text()
    text = (tables / "table-2-samples.md").read_text()
    question = "> orders_zh?\n> Answer:\n\n- right answer: `` 7 ``\n"
    assert question in text
    assert "- cpu-d64-g050-standard: `` 0.5 ``\n" in text


def test_tasks_of_the_same_items_are_no_two_samples(made):
    rows = made(seeds=(10,)).query("variant == 'standard'").set_index(["family", "task"])
    local, mean = rows.loc["language", "local_en"], rows.loc["language", "mean"]
    assert mean["difference"] == pytest.approx(0.05)
    # Both tasks' errors are independent here, so the mean of the two has the smaller interval, but
    # it is that of 200 items, in 50 groups.
    width, single = mean["high"] - mean["low"], local["high"] - local["low"]
    assert width < single
    assert width > 0.5 * single


def test_pilots_and_single_seeds_say_so(made, project):
    made(seeds=(0,))
    text = (project / "results/cpu/tables/table-2.md").read_text()
    assert "PILOT" in text
    assert "items alone, for want of a second seed" in text


def test_same_records_same_bytes(made, project):
    """In processes of their own, as the pipeline runs it."""
    files = ["tables/table-2.csv", "tables/table-2.md", "tables/table-2.tex",
             "tables/table-2-samples.md",
             "figures/figure-t2.png", "figures/figure-t2.pdf", "figures/figure-t2.csv"]  # fmt: skip
    contents = []
    made()
    for _ in range(2):
        subprocess.run([sys.executable, "-m", "paper.table_2"], check=True, capture_output=True)
        contents.append([(project / "results/cpu" / name).read_bytes() for name in files])
    assert contents[0] == contents[1]


def test_faults_are_one_sentence(made, project, script):
    made()
    path = tasks_file("cpu", "cpu-d64-g100-adjusted", 10)
    record = json.loads(path.read_text())
    record["tasks"]["orders_zh"]["file_sha256"] = "another"
    path.write_text(json.dumps(record))
    with pytest.raises(UserError, match="different items of orders_zh"):
        script("table_2").make()
    path.unlink()
    with pytest.raises(UserError, match="small-init evaluate --arm cpu-d64-g100-adjusted"):
        script("table_2").make()
