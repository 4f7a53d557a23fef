"""A script that reads what its stage does not depend on is stopped."""

import subprocess
import sys
from pathlib import Path

import pytest

from paper.shared.reads import undeclared

ROOT = Path("/project")


@pytest.mark.parametrize(
    "path",
    [
        "results/cpu/runs/a/seed-0/curve.csv",
        "results/cpu/index/figure-1.json",
        "/project/results/cpu/claims.json",
        "paper/claims.yaml",
        "configs/calibration/cpu.yaml",
        "results/cpu/tokens/a/seed-1.npz",
        "paper/figure_1.py",
        "/usr/share/fonts/a.ttf",
        "params.json",
    ],
)
def test_declared(path):
    reads = (
        "results/{profile}/claims.json", "paper/claims.yaml", "configs/calibration/{profile}.yaml",
        "results/{profile}/tokens",
    )  # fmt: skip
    assert not undeclared(path, ROOT, reads)


@pytest.mark.parametrize(
    "path",
    [
        "results/cpu/claims.json",
        "/project/configs/models/d32.yaml",
        "results/cpu/tokens/a.npz",
        "data/cpu/packed.json",
        "paper/claims.yaml",
    ],
)
def test_undeclared(path):
    assert undeclared(path, ROOT, ("results/{profile}/tables", "configs/experiments"))


def test_the_script_ends_with_one_sentence(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/a.yaml").write_text("a: 1")
    program = (
        "from pathlib import Path\nfrom paper.shared.style import run_script\n"
        "READS = ('configs/{profile}.yaml',) if SAID else ()\n"
        "run_script(lambda: Path('configs/a.yaml').read_text())\n"
    )
    for said in (True, False):
        command = [sys.executable, "-c", f"SAID = {said}\n{program}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is said, done.stderr
    assert done.stderr.startswith("The script reads configs/a.yaml, which its READS does not name")
    assert len(done.stderr.splitlines()) == 1
