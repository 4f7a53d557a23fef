from pathlib import Path

import pytest

from small_init.data.corpus.build import build_corpus
from small_init.data.corpus.config import CorpusConfig
from small_init.data.corpus.tokenizer import EOT_ID, load_tokenizer, token_lengths, train_tokenizer
from small_init.errors import UserError


@pytest.fixture
def trained(config: CorpusConfig, tmp_path: Path) -> Path:
    build_corpus(config, tmp_path / "corpus", tmp_path / "downloads")
    train_tokenizer(config, tmp_path / "corpus", tmp_path / "tokenizer.json")
    return tmp_path / "tokenizer.json"


TEXTS = [
    "Hello, world! It's 2026.",
    "小初始化对大语言模型很重要。龘",
    "def f(x):\n\treturn x ** 2  # ε, γ\n\n\n",
    "👩‍🔬 مرحبا \x00 <|endoftext|> ẞ",
    "   leading, trailing   ",
]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_comes_back(text: str, trained: Path) -> None:
    tokenizer = load_tokenizer(trained)
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert EOT_ID not in ids
    lengths = token_lengths(tokenizer)
    assert sum(lengths[token] for token in ids) == len(text.encode())


def test_the_vocabulary_has_the_size_asked_for_and_single_digits(trained: Path) -> None:
    tokenizer = load_tokenizer(trained)
    vocabulary = tokenizer.get_vocab()
    assert len(vocabulary) == 400
    assert vocabulary["<|endoftext|>"] == EOT_ID == 0
    numbers = [token for token in vocabulary if any(c.isascii() and c.isdigit() for c in token)]
    assert sorted(numbers) == list("0123456789")


def test_two_runs_give_the_same_file(trained: Path, config: CorpusConfig, tmp_path: Path) -> None:
    train_tokenizer(config, tmp_path / "corpus", tmp_path / "again.json")
    assert trained.read_bytes() == (tmp_path / "again.json").read_bytes()


def test_validation_text_is_not_used(trained: Path, config: CorpusConfig, tmp_path: Path) -> None:
    path = tmp_path / "corpus/wiki-leads.jsonl"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"split": "train"' in line), "utf-8")
    train_tokenizer(config, tmp_path / "corpus", tmp_path / "again.json")
    assert trained.read_bytes() == (tmp_path / "again.json").read_bytes()


def test_too_little_text_says_what_to_lower(
    trained: Path, config: CorpusConfig, tmp_path: Path
) -> None:
    config.vocab_size = 100_000
    with pytest.raises(UserError, match="vocab_size"):
        train_tokenizer(config, tmp_path / "corpus", tmp_path / "other.json")
    assert not (tmp_path / "other.json").exists()


def test_a_stage_out_of_order_names_the_one_before(config: CorpusConfig, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="small-init corpus"):
        train_tokenizer(config, tmp_path / "none", tmp_path / "tokenizer.json")
    with pytest.raises(UserError, match="small-init tokenizer"):
        load_tokenizer(tmp_path / "none.json")
