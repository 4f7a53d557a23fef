"""A tiny model and a tiny tokenizer of the real kind."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from small_init.config import ArmConfig, Gate, InitConfig, ModelConfig, differences
from small_init.data.corpus.tokenizer import END_OF_TEXT, SPLIT
from small_init.files import sha256, write_bytes, write_text
from small_init.model.init import initialise_
from small_init.model.transformer import Transformer
from small_init.runs.paths import weights_file
from small_init.runs.record import Data
from tests import ROOT, records

ARM = "cpu-tiny"
VOCAB = 400
TEXT = [
    "The quick brown fox jumps over the lazy dog. Question: Calculate 3 + 4. Answer: 7",
    "Six and seven are thirteen. The answer is not always the number that was asked for.",
    "问题：小明有三个苹果。答案：三个。问题：计算：3 + 4 + 5。答案：12",
    "答案：小明。答案：小红。答案：小明。答案：小红。",
]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"), byte_level]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 20, trainer)
    tokenizer.encode_special_tokens = True
    return tokenizer


def tiny_model(**changes: object) -> Transformer:
    """Weights wide enough apart that no two tokens are equally probable."""
    config = ModelConfig(
        d_model=32, n_layers=2, n_heads=2, d_ff=48, vocab_size=VOCAB, context=64, **changes
    )
    model = Transformer(config)
    initialise_(model, InitConfig(gamma=0.25), config, seed=3)
    return model.eval()


@pytest.fixture(scope="session")
def plain_model() -> Transformer:
    """Ungated: what a Llama can be."""
    torch.manual_seed(0)
    return tiny_model(gate=Gate.none, norm_eps=1e-6)


ITEMS = {
    "arithmetic_en": [("Question: Calculate 3 + 4.\nAnswer:", [" 7", " 8", " 12", " 5"], 0)] * 2,
    "arithmetic_zh": [("问题：计算：3 + 4 + 5。\n答案：", ["11", "12", "7", "35"], 1)] * 2,
    "orders_zh": [("问题：小明比小红高。谁最高？\n答案：", ["小红", "小明"], 1)],
    "titles_en": [("In one phrase, the fox:", [" quick and brown.", " a lazy dog."], 0)] * 3,
    "long_en": [("The quick brown fox", [" jumps over the", " number that was"], 0)] * 3,
}


def write_items(folder: Path, counts: int = 50) -> None:
    """Items for every task of configs/tasks, made of those above."""
    for path in sorted((ROOT / "configs/tasks").glob("*.yaml")):
        name = path.stem.replace("_exact", "")
        if path.stem.startswith("_") or path.stem == "paper":
            continue
        kind = name if name in ITEMS else "arithmetic_zh" if name.endswith("zh") else "long_en"
        rows = []
        for number in range(counts):
            context, choices, answer = ITEMS[kind][number % len(ITEMS[kind])]
            # The dots make the items different; groups of three are from one document.
            context = context.replace("Question", "Question" + "." * (number % 7))
            rows.append(
                {"id": f"{name}/{number}", "context": context, "choices": choices,
                 "answer": answer, "target": choices[answer],
                 "group": str(number // 3 if kind == "long_en" else number)}
            )  # fmt: skip
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_text(folder / f"{name}.jsonl", text)


@pytest.fixture
def project(tmp_path, monkeypatch, tokenizer):
    """A project with one trained run (its weights as drawn) and items for every task."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    home = tmp_path / "data/cpu"
    write_items(home / "tasks")
    tokenizer.save(str(home / "tokenizer.json"))
    meta = {"tokenizer_sha256": sha256(home / "tokenizer.json")}
    write_text(home / "packed/meta.json", json.dumps(meta))
    entry = write_run(ARM, tiny_model())
    params = {"profile": "cpu", "arms": {"pretrain": {ARM: entry}}, "objects": {"table-2": [ARM]}}
    Path("params.json").write_text(json.dumps(params))
    return tmp_path


def write_run(arm: str, model: Transformer, gamma: float = 1.0) -> dict:
    """The record and the weights of seed 0 of an arm; returns the arm as params.json has it."""
    config = ArmConfig(seeds=[0], model=model.config, init=InitConfig(gamma=gamma))
    data = Data(sha256(Path("data/cpu/packed/meta.json")), "1" * 64)
    weights = save({name: value.detach() for name, value in model.named_parameters()})
    digest = hashlib.sha256(weights).hexdigest()
    records.write(records.metrics_of(config, arm, data=data, weights_sha256=digest))
    write_bytes(weights_file(arm, 0), weights)
    return {"seeds": [0], "model": differences(model.config, ModelConfig())}
