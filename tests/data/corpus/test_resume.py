"""A stage killed with -9 at several points gives the bytes of an undisturbed one."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from small_init.data.corpus.processes import processes
from small_init.data.corpus.stage_work import keyed, only_one
from small_init.data.corpus.tokenizer import load_tokenizer, train_tokenizer
from small_init.errors import UserError
from tests import ROOT
from tests.data.corpus import stage_worker
from tests.data.corpus.samples import chinese, english

DOCUMENTS = 1_500  # in each set, before duplicates


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of numbered texts with duplicates inside and between them, and what comes of them
    undisturbed: corpus, tokenizer, packed tokens."""
    root = tmp_path_factory.mktemp("stages")
    rng = random.Random(0)
    texts = [f"{number:05d} {chinese(rng, 60)}" for number in range(DOCUMENTS)]
    texts += [f"{number:05d} {english(rng, 40)}" for number in range(DOCUMENTS, 2 * DOCUMENTS)]
    for copy in range(100, 2 * DOCUMENTS, 100):
        texts[copy] = texts[rng.randrange(copy)]
    for at, name in enumerate(("web-zh", "web-en")):
        (root / name).mkdir()
        mine = texts[at * DOCUMENTS : (at + 1) * DOCUMENTS]
        for part in range(2):
            lines = [json.dumps({"text": text}) for text in mine[part::2]]
            (root / name / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            patch.setenv(name, "1")
        patch.setattr("small_init.data.corpus.build.SAVE_EVERY", 200)
        patch.setattr("small_init.data.corpus.encode.PIECE_BYTES", 25_000)
        stage_worker.run("corpus", root, root)
        train_tokenizer(stage_worker.config(root), root / "corpus", root / "tokenizer.json")
        totals = {"train": 0, "val": 0}
        encoder = load_tokenizer(root / "tokenizer.json")
        for line in corpus_lines(root):
            totals[line["split"]] += len(encoder.encode(line["text"])) + 1
        (root / "tokens").write_text(f"{totals['train']} {totals['val']}")
        stage_worker.run("pack", root, root)
    return root


def corpus_lines(root: Path) -> list[dict[str, str]]:
    files = [root / "corpus" / f"{name}.jsonl" for name in ("web-zh", "web-en")]
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def start(stage: str, root: Path, home: Path, place: str = "", times: int = 0) -> int:
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.data.corpus.stage_worker"]
    command += [stage, str(root), str(home), place, str(times)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def test_a_killed_build_goes_on_where_it_was(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    # At a state of the first set; between two of the second, which has duplicates from the first.
    for place, times, name, rows in (
        ("saved", 6, "web-zh", 400),
        ("written", 1_900, "web-en", 800),
    ):
        assert start("corpus", root, home, place, times) == -signal.SIGKILL
        (state,) = home.glob(f".corpus-*/states/{name}.json")
        assert json.loads(state.read_text())["place"]["rows"] == rows
    assert start("corpus", root, home, "moved", 1) == -signal.SIGKILL
    assert contents(home / "corpus") == contents(root / "corpus")
    assert start("corpus", root, home) == 0
    assert contents(home / "corpus") == contents(root / "corpus")
    assert [path.name for path in home.iterdir() if path.is_dir()] == ["corpus"]


def test_a_killed_pack_goes_on_from_whole_pieces_and_shards(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    pieces = sum(-(-file.stat().st_size // 25_000) for file in (root / "corpus").glob("*.jsonl"))
    assert pieces > 20

    def made() -> dict[str, int]:
        """The files that are whole, and when each was written."""
        found = [*home.glob(".packed-*/pieces/*.npy"), *home.glob(".packed-*/packed-*/*.bin")]
        return {path.name: path.stat().st_mtime_ns for path in found}

    before: dict[str, int] = {}
    # Two in the pieces, one between pieces and shards, one in the shards.
    for place, times in (
        ("advanced", 1),
        ("advanced", pieces // 2),
        ("planned", 2),
        ("advanced", 1),
    ):
        assert start("pack", root, home, place, times) == -signal.SIGKILL
        now = made()
        assert before.items() <= now.items()
        assert len(now) > len(before)
        before = now
    assert any(name.startswith("train-") for name in before)
    (packed,) = home.glob(".packed-*/packed-*")
    (packed / ".val.bin.half").touch()
    assert start("pack", root, home, "published", 1) == -signal.SIGKILL
    assert start("pack", root, home) == 0
    assert contents(home / "packed") == contents(root / "packed")
    assert [path.name for path in home.iterdir() if path.is_dir()] == ["packed"]


def test_every_document_is_packed_exactly_once(root: Path) -> None:
    decoder = load_tokenizer(root / "tokenizer.json")
    files = [*sorted((root / "packed").glob("train-*.bin")), root / "packed/val.bin"]
    assert len(files) > 3
    tokens = np.concatenate([np.fromfile(file, np.uint16) for file in files])
    parts = np.split(tokens, np.flatnonzero(tokens == 0) + 1)[:-1]
    found = Counter(decoder.decode_batch([part[:-1].tolist() for part in parts]))
    assert found == Counter(line["text"] for line in corpus_lines(root))
    assert set(found.values()) == {1}


def test_a_killed_process_is_told_from_a_fault() -> None:
    told = pytest.raises(UserError, match="the same command again, which goes on")
    with told, processes(1) as pool:
        pool.submit(os._exit, 9).result()


def test_two_commands_do_not_write_one_out(tmp_path: Path) -> None:
    with only_one(tmp_path / "out"):
        with (
            pytest.raises(UserError, match="Another command is writing"),
            only_one(tmp_path / "out"),
        ):
            pass
        with only_one(tmp_path / "other"):
            pass
    with only_one(tmp_path / "out"):
        pass


def test_other_inputs_do_not_go_on_from_an_old_state(tmp_path: Path) -> None:
    first = keyed(tmp_path, ".out", {"seed": 1})
    (first / "piece").touch()
    assert keyed(tmp_path, ".out", {"seed": 1}) == first
    assert (first / "piece").exists()
    second = keyed(tmp_path, ".out", {"seed": 2})
    assert not list(second.iterdir())
    assert not first.exists()
