"""Weights out of a checkpoint, whole: the model that its run validated, in one process."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from small_init.cli import main
from small_init.data.packed import PackedTokens
from small_init.errors import UserError
from small_init.launch.consolidate import consolidate
from small_init.measure.validation import validate
from small_init.model.transformer import Transformer
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import train
from tests import tiny
from tests.train.test_sharding import MIXTURE, arm_of, work

pytestmark = pytest.mark.filterwarnings("ignore")
KINDS = {"mixture": MIXTURE, "tied": {"model": {"tied": True}}}
STEP = 7  # of the checkpoints


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A project whose runs have stopped at a checkpoint: one that two processes trained together
    (arm `mixture`), preempted, and one of a plain process (arm `tied`), killed a step later."""
    home, before = tmp_path_factory.mktemp("project"), Path.cwd()
    tiny.write_packed(home / "data/test/packed")
    os.chdir(home)
    code, output = work(2, runs=[["mixture", MIXTURE, {}]], preempt=[1, STEP])
    assert code != 0, output

    def stop(step: int, loss: float) -> None:
        if step == STEP + 1:
            raise EOFError

    spec = RunSpec("test", "pretrain", "tied", arm_of(KINDS["tied"]), 0)
    with pytest.raises(EOFError):
        train(spec, stop, checkpoint_seconds=0)
    arms = {key: arm_of(changes).identity() | {"seeds": [0, 1]} for key, changes in KINDS.items()}
    params = {"profile": "test", "arms": {"pretrain": arms}, "objects": {"table-1": ["tied"]}}
    Path("params.json").write_text(json.dumps(params))
    yield home
    os.chdir(before)


def recorded_loss(arm: str) -> float:
    """What the run itself measured on the weights of its last checkpoint."""
    (path,) = Path("scratch/runs", arm).glob("seed-0-*/last.ckpt")
    assert path.is_dir() == (arm == "mixture"), "it is not the kind of checkpoint meant"
    state = torch.load(path / "meta.pt" if path.is_dir() else path, weights_only=True)
    (curve,) = [found["curve"] for found in state["callbacks"].values() if "curve" in found]
    assert curve[-1]["step"] == STEP
    return curve[-1]["val_loss"]


@pytest.mark.parametrize("arm", KINDS)
def test_the_file_is_the_model_that_the_run_validated(stopped, arm, capsys):
    main(["consolidate", "--arm", arm, "--seed", "0", "--out", f"out/{arm}.safetensors"])
    assert f"out/{arm}.safetensors" in capsys.readouterr().out
    path = Path(f"out/{arm}.safetensors")
    model = Transformer(arm_of(KINDS[arm]).model)
    missing, foreign = model.load_state_dict(load_file(path), strict=False)
    assert not foreign
    assert missing == (["readout.weight"] if arm == "tied" else [])
    found = validate(model, PackedTokens(stopped / "data/test/packed"), 16, 256)["loss"]
    assert found == pytest.approx(recorded_loss(arm), abs=1e-6)
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"arm": arm, "seed": "0", "step": str(STEP)}


def test_a_kill_between_two_renames_hides_no_checkpoint(stopped):
    (path,) = Path("scratch/runs/mixture").glob("seed-0-*/last.ckpt")
    aside = path.rename(path.with_name(".last.ckpt.old"))
    out = consolidate("mixture")
    assert out == Path("scratch/consolidated/mixture/seed-0.safetensors")
    assert out.is_file()
    aside.rename(path)


def test_what_cannot_be_consolidated_is_said_in_one_sentence(stopped):
    with pytest.raises(UserError, match=r"'other' is not in params\.json"):
        consolidate("other")
    with pytest.raises(UserError, match=r"no checkpoint in scratch/runs/tied/seed-1-"):
        consolidate("tied", 1)
    params = Path("params.json").read_text()
    Path("params.json").write_text(
        params.replace('"d_ff": 16', '"d_ff": 24').replace('"d_ff": 32', '"d_ff": 40')
    )
    for arm in KINDS:
        with pytest.raises(UserError, match="another configuration than the arm has now") as error:
            consolidate(arm)
        assert "\n" not in str(error.value)
    Path("params.json").write_text(params)
