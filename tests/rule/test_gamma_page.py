"""docs/gamma-rule.md: its recipes run, and its tables say what the code and the formulas say."""

import hashlib
import json
import math
import os
import re
import subprocess
import sys

import pytest
import torch

from small_init import gamma_init_
from small_init.config import Gate, ModelConfig
from small_init.model.transformer import Transformer
from tests import ROOT

PAGE = (ROOT / "docs/gamma-rule.md").read_text()


def recipe(title: str) -> str:
    section = PAGE.split(f"### {title}\n")[1]
    return re.search(r"```python\n(.*?)```", section, flags=re.DOTALL).group(1)


def table(header: str) -> list[dict[str, str]]:
    lines = PAGE[PAGE.index(header) :].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def test_plain_pytorch_recipe(capsys):
    names: dict = {}
    exec(recipe("Plain PyTorch"), names)
    stds = {w.name: w.std for w in names["weights"]}
    assert stds["2.weight"] == 1 / 256
    assert stds["5.weight"] == 1024**-0.5
    assert torch.all(names["model"][4].scale == 1)
    assert "5.weight" in capsys.readouterr().out


def test_hugging_face_recipe(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(recipe("Hugging Face"), names)
    loaded = transformers.AutoModelForCausalLM.from_pretrained("gamma-1")
    assert loaded.config.rms_norm_eps == 1e-12
    saved = dict(names["model"].named_parameters())
    for name, weight in loaded.named_parameters():
        assert torch.equal(weight, saved[name]), name
    assert loaded.lm_head.weight.std().item() == pytest.approx(1 / 256, rel=0.02)


_CHECK = """
import hashlib, json, sys
from torch.distributed.tensor import DTensor

assert all(isinstance(p, DTensor) for p in model.parameters())
full = {n: p.detach().full_tensor().cpu().numpy().tobytes() for n, p in model.named_parameters()}
ids = torch.arange(16, device=device)[None]
loss = model(input_ids=ids, labels=ids).loss
loss.backward()
if dist.get_rank() == 0:
    result = {n: hashlib.sha256(v).hexdigest() for n, v in full.items()}
    with open(sys.argv[1], "w") as file:
        json.dump({"weights": result, "loss": loss.item()}, file)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_fsdp_recipe(ranks, tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    script, result = tmp_path / "train.py", tmp_path / "result.json"
    script.write_text(recipe("FSDP2") + _CHECK)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc-per-node={ranks}", str(script), str(result),
    ]  # fmt: skip
    source = str(ROOT / "src")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    sharded = json.loads(result.read_text())
    names: dict = {}
    monkeypatch.chdir(tmp_path)  # the recipe saves a checkpoint
    exec(recipe("Hugging Face"), names)  # the same model, in one process
    for name, weight in names["model"].named_parameters():
        digest = hashlib.sha256(weight.detach().numpy().tobytes()).hexdigest()
        assert sharded["weights"][name] == digest, name
    ids = torch.arange(16)[None]  # and the same loss: the rotary buffers are right
    assert sharded["loss"] == pytest.approx(names["model"](ids, labels=ids).loss.item(), rel=1e-5)


# --- tables --------------------------------------------------------------------------------------

D, F, L, V = 1536, 4096, 24, 60_416
WEIGHTS = {
    "embedding": "embedding.weight",
    "Q, K, V, gate": "blocks.7.attention.key.weight",
    "attention output": "blocks.7.attention.output.weight",
    "MLP gate, up": "blocks.7.mlp.up.weight",
    "MLP down": "blocks.7.mlp.down.weight",
    "readout": "readout.weight",
}


def test_stds_of_the_schemes():
    config = ModelConfig(d_model=D, n_layers=8, n_heads=16, d_ff=F, vocab_size=V, gate=Gate.none)
    with torch.device("meta"):
        model = Transformer(config)
    rows = table("| weight | γ = 0.5 |")
    assert [row["weight"] for row in rows] == list(WEIGHTS)
    done = {g: {w.name: w for w in gamma_init_(model, g, dry_run=True)} for g in (0.5, 0.75, 1.0)}
    for row in rows:
        name = WEIGHTS[row["weight"]]
        out, fan_in = done[1.0][name].shape
        outer, into = name == "embedding.weight", "output" in name or "down" in name
        expected = {f"γ = {g:g}": done[g][name].std for g in done}
        expected |= {
            "fixed": 0.02,
            "GPT-2, depth-scaled": 0.02 / math.sqrt(2 * L) if into else 0.02,
            "muP": 1 if outer else fan_in ** (-1 if name == "readout.weight" else -0.5),
            "spectral": 1 if outer else fan_in**-0.5 * min(1, math.sqrt(out / fan_in)),
        }
        for column, value in expected.items():
            assert float(row[column]) == pytest.approx(value, rel=4e-3), (name, column)


def test_first_updates():
    rate, warmup = 2.5e-4, 1000
    first, wide, steps = table("| | γ = 0.5 | γ = 1 |")
    for column, gamma in (("γ = 0.5", 0.5), ("γ = 1", 1.0)):
        percent = lambda row, column=column: float(row[column].removesuffix(" %"))
        assert percent(first) == pytest.approx(100 * rate * D**gamma, rel=0.03)
        assert percent(wide) == pytest.approx(100 * rate * F**gamma, rel=0.03)
        # LR·t²/(2·warm-up) = σ
        expected = math.sqrt(2 * warmup * D**-gamma / rate)
        assert float(steps[column]) == pytest.approx(expected, rel=0.01)


def test_what_the_norms_let_through():
    for share, eps in (("20 %", 1e-5), ("99 %", 1e-8)):
        assert share in PAGE
        assert f"{100 / math.sqrt(1 + eps * D**2):.0f} %" == share
    assert round(V / D, -1) == 40  # "forty times smaller"
