"""Published runs trained anew: an honest record passes, and what is not honest is named."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from safetensors.numpy import load_file, save_file

from small_init.cli import main
from small_init.config import Corpus, Probes
from small_init.launch.audit import HOME, choose, compare_run, table
from small_init.launch.reproduce import train_arms
from small_init.runs.paths import audit_file, record_folder
from small_init.runs.record import load_run, record_files
from small_init.runs.same import Verdict
from small_init.runs.tolerance import EARLY, EARLY_STEPS, LATE
from tests import tiny
from tests.launch.test_pool import write_params

pytestmark = pytest.mark.filterwarnings("ignore")
FILES = record_files(Probes.all)
RECORD = record_folder("test", "test-a", 0)


def contents(*folders: str) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for folder in folders
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A project with one published run, once audited."""
    root, before = tmp_path_factory.mktemp("audit"), Path.cwd()
    os.chdir(root)
    try:
        tiny.write_packed(root / "data/test/packed")
        arm = tiny.tiny_arm()
        arm.train.probes = Probes.all
        write_params(test_a=arm)
        train_arms(["test-a"], jobs=1)
        shutil.copytree("scratch", "scratch-before")
        shutil.copytree("results", "results-before")
        main(["audit", "--runs", "1", "--jobs", "1"])
    finally:
        os.chdir(before)
    return root


@pytest.fixture
def audited(original, tmp_path, monkeypatch):
    """A copy of it, to do harm to; the current directory."""
    shutil.copytree(original, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")
    # As if that audit had been interrupted when its run was finished: it is not trained again.
    (HOME / "test/finished").unlink()


def anew() -> Path:
    (folder,) = (HOME / "test/scratch/runs/test-a").glob("seed-0-*/record")
    return folder


def compared():
    return compare_run(load_run("test", "test-a", 0), anew())


def change(name: str, old: str, new: str) -> None:
    text = (RECORD / name).read_text()
    assert old in text
    (RECORD / name).write_text(text.replace(old, new, 1))


def of_other_machine() -> None:
    perf = json.loads((RECORD / "perf.json").read_text())
    (RECORD / "perf.json").write_text(json.dumps(perf | {"cpu_vendor": "Another"}))


def test_an_honest_record_passes_bit_for_bit(original):
    report = json.loads((original / audit_file("test")).read_text())
    (run,) = report["runs"]
    assert (run["verdict"], run["standard"]) == ("same", "bitwise")
    assert run["files"] == {name: {"verdict": "same"} for name in FILES}
    assert run["code"]["published"] == run["code"]["now"]
    assert report["asked"] == {"runs": 1, "seed": 0, "arms": []}
    assert report["overall"] == "1 of 1 runs: same"


def test_the_project_is_left_as_it_was(original, monkeypatch):
    monkeypatch.chdir(original)
    after = contents("results", "scratch")
    assert after.pop(str(audit_file("test")))
    before = contents("results-before", "scratch-before")
    assert after == {name.replace("-before", "", 1): content for name, content in before.items()}
    assert (HOME / "test/data").is_symlink()


def test_a_changed_digit_is_found_with_file_column_and_step(audited):
    row = (RECORD / "curve.csv").read_text().splitlines()[3].split(",")
    value = row[4]
    digit = "1" if value[-1] != "1" else "2"
    change("curve.csv", ",".join(row), ",".join([*row[:4], value[:-1] + digit, *row[5:]]))
    with pytest.raises(SystemExit, match=r"1 of 1 runs differ .* test-a, seed 0") as stop:
        main(["audit", "--arm", "test-a"])
    assert "\n" not in str(stop.value)
    report = json.loads(audit_file("test").read_text())
    files = report["runs"][0]["files"]
    assert {name for name in FILES if files[name]["verdict"] == "differs"} == {"curve.csv"}
    assert files["curve.csv"]["differing"] == 1
    assert files["curve.csv"]["first"]["place"] == f"val_loss at step {row[0]}"
    assert files["curve.csv"]["first"]["now"] == float(value)
    assert files["curve.csv"]["largest_absolute"]["value"] < 1e-5
    assert report["overall"] == "1 of 1 runs: differs"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_field_that_runs_write_now_is_named(audited, elsewhere):
    """No standard lets that pass."""
    metrics = json.loads((RECORD / "metrics.json").read_text())
    del metrics["config"]["optimizer"]["schedule"]
    metrics["final"]["by_source"]["old"] = 1.0
    (RECORD / "metrics.json").write_text(json.dumps(metrics))
    if elsewhere:
        of_other_machine()
    found = compared()
    assert found.verdict is Verdict.differs
    lines = "\n".join(table([found]))
    assert "metrics.json: differs: fields added since: config.optimizer.schedule; " in lines
    assert "fields gone since: final.by_source.old" in lines


def test_another_machine_has_the_tolerance(audited):
    of_other_machine()
    assert compared().verdict is Verdict.same  # the same bytes are the same anywhere
    curve = (RECORD / "curve.csv").read_text().splitlines()
    for line, limit in ((1, EARLY.loss), (-1, LATE[Corpus.packed].loss)):
        fields = curve[line].split(",")
        assert (int(fields[0]) <= EARLY_STEPS) == (limit is EARLY.loss)
        loss = float(fields[4])
        for away, verdict in ((0.5, Verdict.within), (2.0, Verdict.differs)):
            fields[4] = f"{loss + away * limit:.7g}"
            rows = curve.copy()
            rows[line] = ",".join(fields)
            (RECORD / "curve.csv").write_text("\n".join([*rows, ""]))
            found = compared()
            assert (found.verdict, found.standard) == (verdict, "tolerance")
            assert found.unlike[0].startswith("cpu_vendor Another and ")
    assert "largest absolute difference" in "\n".join(table([found]))


def test_a_record_that_does_not_name_its_vendor_has_the_tolerance(audited):
    perf = json.loads((RECORD / "perf.json").read_text())
    del perf["cpu_vendor"]
    (RECORD / "perf.json").write_text(json.dumps(perf))
    assert compared().unlike == ["cpu_vendor is not recorded"]


def test_first_values_are_exact_and_weights_are_tensors(audited):
    of_other_machine()
    digest = next(iter(load_run("test", "test-a", 0).init["weights"].values()))["sha256"]
    change("init.json", digest, "0" * 64)
    snapshots = load_file(RECORD / "snapshots.safetensors")
    last = list(load_run("test", "test-a", 0).snapshots)[-1]
    name = next(key for key in snapshots if key.startswith(f"step-{last}/"))
    snapshots[name] = (snapshots[name] * np.float16(1 / (2 + LATE[Corpus.packed].weights))).astype(
        np.float16
    )
    save_file(snapshots, RECORD / "snapshots.safetensors")
    files = compared().files
    assert files["init.json"].verdict is Verdict.differs
    assert files["init.json"].differences[0].place.endswith(".sha256")
    assert files["snapshots.safetensors"].verdict is Verdict.differs
    assert [d.place for d in files["snapshots.safetensors"].differences] == [name]


def test_rows_and_files_may_not_be_missing(audited):
    of_other_machine()
    rows = (RECORD / "spectra.csv").read_text().splitlines(keepends=True)
    (RECORD / "spectra.csv").write_text("".join(rows[:-1]))
    (anew() / "activations.csv").unlink()
    found = compared()
    assert found.files["spectra.csv"].note == f"{len(rows) - 2} rows published, {len(rows) - 1} now"
    assert found.files["activations.csv"].note == "the new record has no activations.csv"
    assert found.verdict is Verdict.differs


def test_the_choice_is_a_function_of_the_seed():
    runs = [(f"arm-{i}", seed) for i in range(20) for seed in (0, 1)]
    assert choose(runs, 3, 0) == choose(runs[::-1], 3, 0) == choose(runs, 5, 0)[:3]
    assert len({tuple(choose(runs, 3, seed)) for seed in range(10)}) > 5
    assert choose(runs, 3, 0) == [("arm-2", 0), ("arm-17", 1), ("arm-8", 0)]


def test_what_is_not_there_is_one_sentence(audited):
    def sentence(*words: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["audit", *words])
        assert "\n" not in str(stop.value)
        return str(stop.value)

    assert "There are 1 runs to choose from" in sentence("--runs", "2")
    assert "Arm 'b' is not in params.json" in sentence("--arm", "b")
    with FileLock(HOME / "audit.lock"):
        assert "Another `make audit`" in sentence("--runs", "1")
    meta = Path("data/test/packed/meta.json")
    meta.write_text(meta.read_text() + " ")
    assert "are not those of the record" in sentence("--runs", "1")
    shutil.rmtree("data/test/packed")
    assert sentence("--runs", "1").endswith(
        "data/test/packed are not there; make it with `dvc repro pack`."
    )
    shutil.rmtree("results/test/runs")
    assert "no published record" in sentence("--runs", "1")


def test_after_a_finished_audit_the_next_trains_from_nothing(audited, capsys):
    (HOME / "test/finished").touch()
    mark = anew() / "mark"
    mark.touch()
    main(["audit", "--runs", "1", "--jobs", "1"])
    assert not mark.exists()
    assert "same" in capsys.readouterr().out
