"""The composite-function task: its rule, what is held out, and its windows."""

import json
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from small_init.config import Corpus
from small_init.config_files import merged
from small_init.data.composite import (
    CONFLICT,
    ITEMS,
    LENGTH,
    SEEN,
    VOCAB_SIZE,
    CompositeConfig,
    key_items,
    load_composite_config,
    write_composite,
)
from small_init.data.packed import PackedTokens, TrainingBatches
from small_init.errors import UserError
from small_init.runs.paths import packed_folder
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import train
from tests.tiny import tiny_arm

SMALL = CompositeConfig(train_sequences=70_000, val_sequences=900, seed=3)
# The table of 2405.05409, written out: what a pair of anchors adds to the key item.
SUMS = {
    (1, 1): 10, (1, 2): 6, (1, 3): 3, (1, 4): -3, (2, 1): 6, (2, 2): 2, (2, 3): -1, (2, 4): -7,
    (3, 1): 3, (3, 2): -1, (3, 3): -4, (3, 4): -6, (4, 1): -3, (4, 2): -7, (4, 4): -16,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "composite"
    write_composite(SMALL, folder)
    return folder


@pytest.fixture(scope="module")
def tokens(folder):
    return PackedTokens(folder)


def rows_of(stream: np.ndarray) -> np.ndarray:
    return np.array(stream).reshape(-1, LENGTH + 1).astype(int)


def source(tokens: PackedTokens, name: str) -> np.ndarray:
    segment = next(s for s in tokens.segments if s.source == name)
    return rows_of(tokens.validation[segment.start : segment.end])


def parts(rows: np.ndarray) -> list[tuple[int, int, tuple[int, int], int]]:
    """(place, key item, pair, answer) of each sequence, whose anchors are its only small items."""
    found = []
    for row in rows:
        anchors = np.flatnonzero(row[:-1] < ITEMS.start)
        assert len(anchors) == 2
        assert anchors[1] == anchors[0] + 1
        place = anchors[0] - 1
        found.append((place, row[place], tuple(row[anchors]), row[-1]))
    return found


@pytest.fixture(scope="module")
def training(tokens):
    return parts(rows_of(tokens.shards[0]))


def test_the_answers_of_training_follow_the_table(training):
    assert {answer - key - SUMS[pair] for _, key, pair, answer in training} == {0}


def test_training_holds_every_pair_but_one_alike(training):
    counts = Counter(pair for _, _, pair, _ in training)
    assert set(counts) == {*SEEN, CONFLICT} == set(SUMS)
    assert len(SEEN) == 14
    share = 1 / len(counts)
    error = np.sqrt(share * (1 - share) / len(training))
    assert all(abs(n / len(training) - share) < 4 * error for n in counts.values())


def test_answers_give_no_pair_away(training):
    """Of answers that every pair can have, a pair's share is the same whatever the answer."""
    shared = range(ITEMS.start + max(SUMS.values()), ITEMS.stop + min(SUMS.values()))
    answers = np.array([answer for _, _, _, answer in training])
    counts = np.bincount(answers, minlength=VOCAB_SIZE)
    assert counts[: ITEMS.start + min(SUMS.values())].sum() == 0
    assert counts[VOCAB_SIZE - 1] > 0
    usual = len(training) / len(ITEMS)
    assert (np.abs(counts[list(shared)] - usual) < 5 * np.sqrt(usual)).all()


def test_key_items_of_validation_are_new_at_their_place(tokens, training):
    known = {(place, key) for place, key, _, _ in training}
    assert {place for place, _ in known} == set(range(LENGTH - 2))
    for segment in tokens.segments:
        seen = {(place, key) for place, key, _, _ in parts(source(tokens, segment.source))}
        assert not seen & known
        assert {place for place, _ in seen} == set(range(LENGTH - 2))
    for place in range(LENGTH - 2):
        both = key_items(place, True), key_items(place, False)
        assert sorted(both[0] + both[1]) == list(ITEMS)


def test_no_sequence_of_validation_is_in_training(tokens):
    known = {tuple(row[:-1]) for row in rows_of(tokens.shards[0])}
    assert not any(tuple(row[:-1]) in known for row in rows_of(tokens.validation))


def test_each_source_asks_what_it_says(tokens):
    assert [s.source for s in tokens.segments] == [
        "seen-pairs", "conflict", "held-out-composed", "held-out-mirrored",
    ]  # fmt: skip
    seen = parts(source(tokens, "seen-pairs"))
    assert {pair for _, _, pair, _ in seen} == set(SEEN)
    assert all(answer == key + SUMS[pair] for _, key, pair, answer in seen)
    for name, pair, shift in (
        ("conflict", (3, 4), -6),
        ("held-out-composed", (4, 3), -2 - 8),
        ("held-out-mirrored", (4, 3), -6),
    ):
        found = parts(source(tokens, name))
        assert {p for _, _, p, _ in found} == {pair}
        assert {answer - key for _, key, _, answer in found} == {shift}


def test_the_held_out_sources_differ_in_every_answer_and_in_nothing_else(tokens):
    composed, mirrored = (source(tokens, f"held-out-{name}") for name in ("composed", "mirrored"))
    assert (composed[:, :-1] == mirrored[:, :-1]).all()
    assert (composed[:, -1] != mirrored[:, -1]).all()
    # And whatever share of the windows is read, it is the same one of both.
    for amount in (2_000, 16_380, 36_000):
        read = tokens.validation_windows(LENGTH + 1, amount)
        starts = [[at - tokens.segments[n].start for m, at in read if m == n] for n in (2, 3)]
        assert starts[0] == starts[1]


def test_a_window_is_a_sequence_and_its_answer_the_only_target(tokens):
    inputs, targets = TrainingBatches(tokens, 0, LENGTH + 1, 64, rank=0, world=1)[0]
    assert (inputs[:, 0] == tokens.eot).all()
    assert inputs.shape == (64, LENGTH + 1)
    assert targets.shape == (64, 1)
    known = {tuple(row) for row in rows_of(tokens.shards[0])}
    rows = np.concatenate([inputs[:, 1:].numpy(), targets.numpy()], axis=1)
    assert all(tuple(row) in known for row in rows)


def test_the_bytes_depend_on_the_configuration_alone(folder, tmp_path):
    def written(name, **changes):
        write_composite(replace(SMALL, **changes), tmp_path / name)
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert written("again") == first
    assert written("other", seed=4)["val.bin"] != first["val.bin"]
    # More training data is more of the same: the validation tokens stay.
    assert written("more", train_sequences=71_000)["val.bin"] == first["val.bin"]


def test_a_run_records_the_share_of_either_answer(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, packed_folder("test", Corpus.composite))
    changes = {
        "train": {"corpus": "composite", "tokens": 8_000, "batch_tokens": 1_000,
                  "curve_points": 3, "final_tokens": 2_000, "probes": "none"},
        "model": {"vocab_size": VOCAB_SIZE, "context": LENGTH + 1},
    }  # fmt: skip
    arm = merged(tiny_arm(), changes, where="test")
    record = train(RunSpec("test", "reason", "test-cf", arm, 0)) / "record/metrics.json"
    final = json.loads(record.read_text())["final"]
    assert list(final["accuracy_by_source"]) == list(final["by_source"])
    assert all(0 <= share <= 1 for share in final["accuracy_by_source"].values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train_sequences: 0", "train_sequences is 0"),
        ("val_sequences: -1", "val_sequences is -1"),
        ("sequences: 12", "sequences"),
    ],
)
def test_a_wrong_configuration_is_refused(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs/composite").mkdir(parents=True)
    (tmp_path / "configs/composite/x.yaml").write_text(f"{text}\n")
    with pytest.raises(UserError, match=message):
        load_composite_config("x")
