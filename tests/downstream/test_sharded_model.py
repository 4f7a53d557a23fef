"""Real processes hold a share of the weights each; their answers are those of one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from small_init import cli
from small_init.config import Gate
from small_init.runs.paths import weights_file
from tests.downstream.conftest import ARM, tiny_model, write_run
from tests.downstream.sharded_model_worker import answers
from tests.downstream.test_harness import LONG, PAIRS

WORKER = Path(__file__).with_name("sharded_model_worker.py")
MIXTURE = "cpu-mixture"
WRITTEN = {"until": ["e", "。"], "max_gen_toks": 20}
REQUESTS = {
    "loglikelihood": PAIRS,
    "loglikelihood_rolling": [("The quick brown fox",), (LONG,)],
    "generate_until": [(context, WRITTEN) for context, _ in PAIRS if context],
}


def torchrun(task: dict) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(WORKER), json.dumps(task)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_processes_answer_as_one(project, capsys):
    mixture = tiny_model(n_experts=4, gate=Gate.headwise, qk_norm=True, tied=True)
    write_run(MIXTURE, mixture)
    weights = str(weights_file(ARM, 0))
    ask = ["evaluate", "--checkpoint", weights, "--tasks", "orders_zh", "arithmetic_exact_zh"]
    printed = torchrun({"arms": [ARM, MIXTURE], "requests": REQUESTS, "command": ask, "out": "out"})
    found = json.loads(Path("out").read_text())
    for arm in (ARM, MIXTURE):
        expected = answers(arm, REQUESTS)
        assert expected["share"] == 1
        assert found[arm]["share"] == pytest.approx(0.5, abs=0.02)
        for (mine, greedy), (other, same) in zip(
            found[arm]["loglikelihood"], expected["loglikelihood"], strict=True
        ):
            assert mine == pytest.approx(other, rel=1e-5)
            assert greedy is same
        rolling = expected["loglikelihood_rolling"]
        assert found[arm]["loglikelihood_rolling"] == pytest.approx(rolling, rel=1e-5)
        assert found[arm]["generate_until"] == expected["generate_until"]
        assert len(set(expected["generate_until"])) > 2
    cli.main(ask)
    assert printed == capsys.readouterr().out, "one process writes, and what one process would"
