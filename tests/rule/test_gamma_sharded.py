"""The same full weights for 1, 2 and 3 ranks as for one process, bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from small_init.model.transformer import Transformer
from tests.rule import gamma_worker

WORKER = Path(__file__).with_name("gamma_worker.py")


@pytest.fixture(scope="module", params=[1, 2, 3], ids="{}-ranks".format)
def result(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks") / "result.json"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc-per-node={request.param}", str(WORKER), str(path),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, str]]:
    own = gamma_worker.apply(Transformer(gamma_worker.CONFIG))
    small = gamma_worker.apply(gamma_worker.small())
    same = dict.fromkeys(("fsdp", "fsdp_after_init", "hybrid", "ddp", "own"), own)
    same["tied"] = gamma_worker.apply(Transformer(gamma_worker.TIED))
    return same | dict.fromkeys(("columns", "tensor_parallel"), small)


def test_sharded_models_have_the_weights_of_one_process(result, alone):
    for case, expected in alone.items():
        assert result["cases"][case] == expected, case


def test_stacked_experts_are_sharded_alike(result):
    pytest.importorskip("transformers")
    model: nn.Module = gamma_worker.mixtral()
    assert result["cases"]["mixtral"] == gamma_worker.apply(model)


def test_other_placements_are_refused(result):
    for name in ("Partial", "_StridedShard"):
        assert "'weight' is sharded as" in result["refusals"][name]
