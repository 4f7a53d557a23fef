"""Checkpoints of γ-drawn weights: what from_pretrained finds in them, and every refusal."""

import json
import sys
from pathlib import Path

import pytest
import torch

from small_init import cli
from small_init.diagnosis import huggingface
from small_init.diagnosis.huggingface import build, init_checkpoint, load_config
from small_init.errors import UserError
from small_init.rule.gamma import gamma_init_

transformers = pytest.importorskip("transformers")

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 88, "vocab_size": 128, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
    "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "transformers_version": "4.40.0",
}  # fmt: skip
PLAIN = {k: v for k, v in LLAMA.items() if k not in ("architectures", "rope_scaling")}
PLAIN |= {"torch_dtype": "float32"}
CONFIGS = {
    "llama": LLAMA,
    "qwen2": PLAIN | {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": PLAIN | {"model_type": "qwen3", "head_dim": 16},
    "mistral": PLAIN | {"model_type": "mistral", "sliding_window": 16},
    "mixtral": PLAIN | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {
        "model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 128,
        "n_positions": 64, "bos_token_id": 0, "eos_token_id": 0,
    },
    "gpt_neox": PLAIN | {"model_type": "gpt_neox"},
}  # fmt: skip
EPS_KEYS = {"gpt2": "layer_norm_epsilon", "gpt_neox": "layer_norm_eps"}


def source(folder: Path, values) -> Path:
    """A folder with a config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    text = values if isinstance(values, str) else json.dumps(values)
    (folder / "config.json").write_text(text)
    return folder


def loaded(folder: Path):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, local_files_only=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], (kind, info[kind])
    return model


@pytest.mark.parametrize("name", CONFIGS)
def test_from_pretrained_finds_the_very_weights(tmp_path: Path, name: str) -> None:
    config = source(tmp_path / "source", CONFIGS[name])
    out = tmp_path / "out"
    weights = init_checkpoint(config, out, gamma=1.0, groups={"attention": 0.5}, seed=3)
    model = loaded(out)
    expected = build(load_config(config))
    gamma_init_(expected, 1.0, groups={"attention": 0.5}, seed=3)
    dtype = torch.bfloat16 if name == "llama" else torch.float32
    mine = dict(model.named_parameters())
    for key, parameter in expected.named_parameters():
        assert mine[key].dtype == dtype, key
        assert torch.equal(mine[key], parameter.to(dtype)), key
    assert {w.name for w in weights} == set(mine)
    for weight in weights:
        if weight.std is not None:
            gamma = 0.5 if weight.group.value == "attention" else 1.0
            assert weight.std == pytest.approx(weight.fan_in**-gamma)
    assert (out / "config.json").read_bytes() == (config / "config.json").read_bytes()
    ids = torch.arange(8)[None]
    assert torch.isfinite(model(ids).logits).all()


@pytest.mark.parametrize("name", ["llama", "mixtral", "gpt2", "gpt_neox"])
def test_epsilon_and_dtype_are_written_where_asked(tmp_path: Path, name: str) -> None:
    config = source(tmp_path / "source", CONFIGS[name])
    out = tmp_path / "out"
    init_checkpoint(config, out, norm_eps=1e-12, dtype="float16")
    key = EPS_KEYS.get(name, "rms_norm_eps")
    dtype_key = "dtype" if name == "gpt2" else "torch_dtype"
    written = json.loads((out / "config.json").read_text())
    assert written == CONFIGS[name] | {key: 1e-12, dtype_key: "float16"}
    model = loaded(out)
    assert getattr(model.config, key) == 1e-12
    assert {p.dtype for p in model.parameters()} == {torch.float16}


def test_shards_and_companions(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(huggingface, "_SHARD", "20KB")
    config = source(tmp_path / "source", CONFIGS["qwen3"])
    (config / "tokenizer.json").write_text("{}")
    (config / "tokenizer_config.json").write_text('{"a": 1}')
    (config / "model.safetensors").write_text("old weights")
    (config / "notes.txt").write_text("mine")
    out = tmp_path / "new" / "out"
    init_checkpoint(config / "config.json", out)
    names = {path.name for path in out.iterdir()}
    assert "model.safetensors.index.json" in names
    assert len([name for name in names if name.endswith(".safetensors")]) > 2
    assert {"tokenizer.json", "tokenizer_config.json"} <= names
    assert not {"notes.txt", "generation_config.json", "model.safetensors"} & names
    assert (out / "tokenizer_config.json").read_text() == '{"a": 1}'
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o644}
    loaded(out)


def test_dry_run_writes_nothing_and_lists_everything(tmp_path: Path, capsys) -> None:
    config = source(tmp_path / "source", CONFIGS["mixtral"])
    out = tmp_path / "out"
    arguments = ["init-checkpoint", "--config", str(config), "--out", str(out)]
    arguments += ["--group", "router=0.5", "--gamma", "0.75"]
    cli.main([*arguments, "--dry-run"])
    dry = capsys.readouterr().out
    assert "Nothing was written" in dry
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    cli.main(arguments)
    wet = capsys.readouterr().out
    assert dry.splitlines()[:-1] == wet.splitlines()[:-1]
    assert "4×176×32" in wet
    loaded(out)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    config = source(tmp_path / "source", CONFIGS["llama"])

    def full(self, folder, **_):
        (Path(folder) / "model.safetensors").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transformers.PreTrainedModel, "save_pretrained", full)
    with pytest.raises(UserError, match="No space left on device"):
        init_checkpoint(config, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_folder_in_use_is_refused_and_an_empty_one_taken(tmp_path: Path) -> None:
    config = source(tmp_path / "source", CONFIGS["gpt2"])
    used = tmp_path / "used"
    used.mkdir()
    (used / "a").write_text("mine")
    for place in (used, used / "a", config):
        with pytest.raises(UserError, match="is not an empty folder"):
            init_checkpoint(config, place)
    assert (used / "a").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    init_checkpoint(config, tmp_path / "empty")
    loaded(tmp_path / "empty")


@pytest.mark.parametrize(
    ("values", "arguments", "sentence"),
    [
        ("not json", {}, "is not a JSON object"),
        (LLAMA | {"model_type": "mamba"}, {}, "'mamba' is not known here"),
        (LLAMA | {"hidden_size": 30}, {}, "is not a multiple of 'num_attention_heads'"),
        ({k: v for k, v in LLAMA.items() if k != "vocab_size"}, {}, "has no 'vocab_size'"),
        (LLAMA | {"rope_scaling": "yes"}, {}, "transformers refuses it"),
        (LLAMA | {"torch_dtype": "float8_e4m3fn"}, {}, "is not one of float32"),
        (LLAMA, {"gamma": -1.0}, "γ must be a finite number"),
        (LLAMA, {"norm_eps": 0.0}, "norm_eps is 0"),
        (LLAMA, {"groups": {"router": 0.5}}, "'router' matches no weight"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, values, arguments, sentence: str) -> None:
    config = source(tmp_path / "source", values)
    with pytest.raises(UserError, match=sentence) as stopped:
        init_checkpoint(config, tmp_path / "out", **arguments)
    assert "\n" not in str(stopped.value)
    assert not (tmp_path / "out").exists()


def test_without_transformers_it_says_what_to_install(tmp_path: Path, monkeypatch) -> None:
    config = source(tmp_path / "source", LLAMA)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'small-init\[hf\]'"):
        init_checkpoint(config, tmp_path / "out")
