import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small_init.data.corpus import generated_en, generated_zh
from small_init.data.corpus.build import build_corpus
from small_init.data.corpus.config import CorpusConfig
from small_init.data.corpus.documents import sha256_of
from small_init.data.corpus.pack import pack, token_dtype
from small_init.data.corpus.tokenizer import load_tokenizer, train_tokenizer
from small_init.errors import UserError

GROUPS = {"laws": "zh", "cedict": "zh", "wiki-leads": "en", "networkx": "code"}


@pytest.fixture
def stages(config: CorpusConfig, tmp_path: Path) -> Path:
    build_corpus(config, tmp_path / "corpus", tmp_path / "downloads")
    train_tokenizer(config, tmp_path / "corpus", tmp_path / "tokenizer.json")
    return tmp_path


def run(config: CorpusConfig, root: Path, out: str = "packed") -> dict[str, Any]:
    pack(config, root / "corpus", root / "tokenizer.json", root / out, root / "SOURCES.md")
    meta: dict[str, Any] = json.loads((root / out / "meta.json").read_text())
    return meta


def test_shares_follow_the_mixture(stages: Path, config: CorpusConfig) -> None:
    meta = run(config, stages)
    val = {part["source"]: part["end"] - part["start"] for part in meta["val"]["segments"]}
    for tokens, sources in ((20_000, meta["train"]["sources"]), (2_000, val)):
        assert sum(sources.values()) == tokens
        shares: dict[str, int] = {}
        for source, count in sources.items():
            group = GROUPS.get(source, source)
            shares[group] = shares.get(group, 0) + count
        for group, weight in config.mixture.items():
            assert abs(shares[group] / tokens - weight) < 0.01
        assert sources["cedict"] <= 0.10 * shares["zh"]


def test_every_hash_and_count_in_the_meta_file_is_true(stages: Path, config: CorpusConfig) -> None:
    meta = run(config, stages)
    folder = stages / "packed"
    shards = meta["train"]["shards"]
    assert [shard["tokens"] for shard in shards] == [7_000, 7_000, 6_000]
    for entry in [*shards, meta["val"], meta["token_bytes"]]:
        assert sha256_of(folder / entry["file"]) == entry["sha256"]
    for entry in [*shards, meta["val"]]:
        assert (folder / entry["file"]).stat().st_size == 2 * entry["tokens"]
    assert meta["tokenizer_sha256"] == sha256_of(stages / "tokenizer.json")
    assert {path.name for path in folder.iterdir()} == {
        "meta.json",
        "token_bytes.bin",
        "val.bin",
        *(shard["file"] for shard in shards),
    }
    sizes = np.fromfile(folder / "token_bytes.bin", np.uint16)
    val = np.fromfile(folder / "val.bin", np.uint16)
    position = 0
    for part in meta["val"]["segments"]:
        tokens = val[part["start"] : part["end"]]
        assert part["start"] == position
        assert tokens[-1] == meta["eot"]
        assert part["documents"] == (tokens == meta["eot"]).sum()
        assert part["bytes"] == sizes[tokens].sum()
        position = part["end"]
    assert position == meta["val"]["tokens"] == len(val)


def test_documents_are_whole_unrepeated_and_of_the_right_split(
    stages: Path, config: CorpusConfig
) -> None:
    meta = run(config, stages)
    tokenizer = load_tokenizer(stages / "tokenizer.json")
    known: dict[str, set[str]] = {"train": set(), "val": set()}
    for file in (stages / "corpus").glob("*.jsonl"):
        for line in file.read_text("utf-8").splitlines():
            document = json.loads(line)
            known[document["split"]].add(document["text"])
    train = np.concatenate(
        [np.fromfile(stages / "packed" / s["file"], np.uint16) for s in meta["train"]["shards"]]
    )
    val = np.fromfile(stages / "packed/val.bin", np.uint16)
    for split, tokens in (("train", train), ("val", val)):
        parts = np.split(tokens, np.flatnonzero(tokens == 0) + 1)[:-1]
        texts = [tokenizer.decode(part[:-1].tolist()) for part in parts]
        assert len(set(texts)) == len(texts)
        # The last document of each share is cut: five groups, one of them in two parts.
        assert sum(text not in known[split] for text in texts) <= 6


def test_two_runs_give_the_same_bytes(
    stages: Path, config: CorpusConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(config, stages)
    page = (stages / "SOURCES.md").read_bytes()
    monkeypatch.setattr("small_init.data.corpus.encode.PIECE_BYTES", 40_000)
    monkeypatch.setenv("SMALL_INIT_JOBS", "1")
    run(config, stages, "again")
    first = {path.name: path.read_bytes() for path in (stages / "packed").iterdir()}
    assert first == {path.name: path.read_bytes() for path in (stages / "again").iterdir()}
    assert page == (stages / "SOURCES.md").read_bytes()


def test_another_seed_is_another_order(stages: Path, config: CorpusConfig) -> None:
    first = run(config, stages)["train"]["shards"][0]["sha256"]
    config.seed += 1
    assert first != run(config, stages)["train"]["shards"][0]["sha256"]


def test_the_sources_page_has_a_row_per_source(stages: Path, config: CorpusConfig) -> None:
    run(config, stages)
    page = (stages / "SOURCES.md").read_text("utf-8")
    table, _, problems = page.partition("## Generated problems")
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(config.embedded) + 2
    assert "no copyright" in page
    assert "contributors of CC-CEDICT" in page
    assert "contributors of the English Wikipedia" in page
    assert "Left out" in page
    drawn = {row.split("|")[1].strip(): row for row in problems.splitlines() if row[:2] == "| "}
    families = [set(FAMILIES) for FAMILIES in (generated_en.FAMILIES, generated_zh.FAMILIES)]
    assert set(drawn) == {"family", "**math-en**", "**math-zh**"}.union(*families)
    assert "| 250 |" in drawn["**math-en**"]


def test_too_little_text_names_the_group_and_both_numbers(
    stages: Path, config: CorpusConfig
) -> None:
    run(config, stages)
    before = (stages / "packed/meta.json").read_bytes()
    config.train_tokens = 10_000_000
    with pytest.raises(UserError, match=r"Group 'zh' has [\d,]+ train tokens and 3,150,000 are"):
        run(config, stages)
    assert (stages / "packed/meta.json").read_bytes() == before


@pytest.mark.parametrize(
    ("configured", "vocabulary", "name"),
    [
        ("auto", 2048, "uint16"),
        ("auto", 65_536, "uint16"),
        ("auto", 65_537, "uint32"),
        ("uint32", 300, "uint32"),
    ],
)
def test_token_types(configured: str, vocabulary: int, name: str) -> None:
    assert token_dtype(configured, vocabulary).name == name


def test_a_vocabulary_too_large_for_its_type_is_refused() -> None:
    with pytest.raises(UserError, match="set dtype to auto or uint32"):
        token_dtype("uint16", 65_537)
