"""The script for a machine with a GPU, tried out in small without one."""

import json
import sys
from functools import partial

import pytest
import torch

from tests import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu
import memory

pytestmark = pytest.mark.filterwarnings("ignore")
SMALL = ["--device", "cpu", "--tiny", "--peak-tflops", "1e-6", "--out"]


@pytest.fixture
def quick(monkeypatch):
    """No C++ compiler, and no processes for what test_loss looks at."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    monkeypatch.setattr(memory, "in_fresh_process", lambda *_: 1.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    with pytest.raises(SystemExit, match="torch finds no GPU on this machine"):
        gpu.main([])


def test_every_part_runs_in_small_on_the_cpu(tmp_path, quick, capsys):
    out = tmp_path / "gpu.json"
    with pytest.raises(SystemExit) as end:
        gpu.main([*SMALL, str(out)])
    assert not end.value.code, capsys.readouterr().out
    found = json.loads(out.read_text())
    assert set(found["tests"]) & {"passed", "skipped"}
    assert set(found["precision"]) >= {"float32", "bfloat16", "bfloat16_compiled"}
    for way in ("eager", "compiled"):
        assert found["speed"][way]["tokens_per_second"]["ours"] > 0
        assert set(found["speed"][way]["speed_over"]) == set(gpu.installed())
    assert set(found["memory"]["step_mb"]) >= {"ours", "logits"}
    assert found["pair"]["gamma-0.5"]["loss"] != found["pair"]["gamma-1"]["loss"]
    assert found["pair"]["gamma-1"]["mfu"] > 0
    assert found["speed"]["eager"]["ours_mfu"] > 0
    assert found["torch"] == torch.__version__


def test_a_part_that_fails_is_kept_and_the_next_one_runs(tmp_path, monkeypatch):
    def fail(task):
        raise RuntimeError("a fault")

    monkeypatch.setattr(gpu, "PARTS", {"first": fail, "second": lambda task: {"kept": 1}})
    out = tmp_path / "gpu.json"
    with pytest.raises(SystemExit) as end:
        gpu.main([*SMALL, str(out)])
    assert end.value.code == 1
    found = json.loads(out.read_text())
    assert "RuntimeError: a fault" in found["first"]["failed"]
    assert found["second"]["kept"] == 1


def test_what_does_not_begin_in_time_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PARTS", {"late": lambda task: {"kept": 1}})
    out = tmp_path / "gpu.json"
    with pytest.raises(SystemExit):
        gpu.main([*SMALL, str(out), "--minutes", "-1"])
    assert json.loads(out.read_text())["late"] == {"left_out": "the -1 minutes were over"}
