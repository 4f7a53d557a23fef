"""The pipeline is what the scripts and their imports say, and DVC sees what it should."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from small_init.errors import UserError
from small_init.runs import code_identity, code_meaning, stages
from small_init.runs.experiments import make_params
from small_init.runs.objects import object_names, paper_objects
from small_init.runs.plan import load_plan
from small_init.runs.stages import CODE, PIPELINE, check_stages, code, code_text, pipeline_text
from small_init.runs.table import pending_runs
from tests import ROOT


@pytest.fixture
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_pipeline_is_that_of_the_code(at_root):
    assert PIPELINE.read_text() == pipeline_text(), "run `small-init plan` and commit dvc.yaml"
    assert CODE.read_text() == code_text(code()), "run `small-init plan` and commit code.json"


def stale(root: Path) -> list[str]:
    """What DVC would run; runs that are still to be made are among it, and what waits for them."""
    command = [sys.executable, "-m", "dvc", "repro", "--dry", "--allow-missing", "--keep-going"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "No such file or directory: '" in done.stderr, done.stderr
    return re.findall(r"^Running stage '(.+)':$", done.stdout, flags=re.MULTILINE)


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A scratch copy of the project, whose own code is read; without text and weights."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs the git checkout")
    root = tmp_path / "copy"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():  # not one that is about to be removed
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, root / name)
    (root / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    monkeypatch.chdir(root)
    monkeypatch.setattr(code_meaning, "PACKAGE", root / "src/small_init")
    code_identity.run_code.cache_clear()
    yield root
    code_identity.run_code.cache_clear()


def write_stages() -> None:
    """What `small-init plan` does with the code."""
    code_meaning._parsed.cache_clear()
    code_identity.run_code.cache_clear()
    stages.write_stages()


def test_comments_make_nothing_stale_and_a_default_every_arm(copy):
    before = stale(copy)
    for name in code_identity.run_code()["modules"]:
        path = code_meaning.module_file(name)
        text = path.read_text()
        assert '"""\n' in text
        path.write_text("# A remark.\n" + text.replace('"""\n', '"""  # and one\n', 1))
    write_stages()
    assert stale(copy) == before

    config = copy / "src/small_init/config.py"
    text = config.read_text()
    assert text.count("beta2: float = 0.95") == 1
    config.write_text(text.replace("beta2: float = 0.95", "beta2: float = 0.96"))
    code_meaning._parsed.cache_clear()
    code_identity.run_code.cache_clear()
    with pytest.raises(UserError, match=r"code\.json does not belong to the present code.*plan"):
        check_stages()
    write_stages()
    arms = json.loads((copy / "params.json").read_text())["arms"]
    wanted = {f"{stage}@{key}" for stage, group in arms.items() for key in group}
    assert wanted <= set(stale(copy))


FIGURE = '''"""Figure 99: an example."""

from paper.shared.runs import load, table
from paper.shared.style import plt, run_script, save_figure

NAME = "figure-99"


def make():
    runs = load(NAME)
    fig, ax = plt.subplots()
    ax.plot(table(runs)["gamma"], table(runs)["val_loss"], "o")
    return save_figure(fig, NAME, table(runs), runs, "An example.")


if __name__ == "__main__":
    run_script(make)
'''


def test_a_new_figure_is_a_script_and_an_experiment(copy):
    """And its test. No other file names it."""
    before = stale(copy)
    (copy / "paper/figure_99.py").write_text(FIGURE)
    (copy / "configs/experiments/example.yaml").write_text(
        "question: Does a new figure need a list?\nstage: pretrain\nobjects: [figure-99]\n"
        "profiles:\n  cpu:\n"
        "    - {model: [d64], gamma: [0.5, 1.0], variant: [standard], seeds: pilot, "
        "fields: {optimizer.warmup_steps: [600], optimizer.lr: [1.2e-2]}}\n"
    )
    Path("params.json").write_text(make_params("cpu"))
    write_stages()
    assert "figure-99" in object_names()
    environment = {"PYTHONPATH": f"{copy / 'src'}:{copy}"}
    for arguments in (["-m", "small_init", "runs"], ["-m", "paper.figure_99"]):
        command = [sys.executable, *arguments]
        subprocess.run(command, env=environment, check=True, capture_output=True)
    ran = stale(copy)
    assert {"figure-99", "runs"} <= set(ran)
    new = set(ran) - set(before)
    assert not [name for name in new if "@" in name], "its arms are trained already"
    for name in next(item for item in paper_objects() if item.name == "figure-99").files():
        assert (copy / "results/cpu" / name).stat().st_size > 0


def test_every_object_depends_on_its_index_and_what_it_says_it_reads(at_root):
    pipeline = stages.pipeline()["stages"]
    for item in paper_objects():
        stage = pipeline[item.name]
        assert stage["cmd"] == f"python -m {item.module}"
        assert f"results/${{profile}}/index/{item.name}.json" in stage["deps"]
        assert {"code.json": [f"stages.{item.name}"]} in stage["params"]
        for path in item.reads:
            there = Path(path.replace("{profile}", "cpu"))
            waits = path.startswith("results/") and pending_runs(load_plan())
            assert there.exists() or waits, f"{item.name} says it reads {there}"


def test_a_script_follows_what_it_imports(at_root):
    """Table 3 depends on the module that computes its gains, Figure 4 on the theory."""
    for name, module in (
        ("table-3", "small_init.stats.factorial"),
        ("figure-4", "small_init.rule.theory"),
        ("report", "small_init.runs.schedule"),
    ):
        assert module in code_meaning.reach([stages.entries()[name]]).pieces, name
