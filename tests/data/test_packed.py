"""Batches: a permutation, the same tokens whatever the world size, windows that begin with EOT."""

import json

import numpy as np
import pytest
import torch

from small_init.data.packed import PackedTokens, TrainingBatches, permuted
from small_init.errors import UserError
from tests.tiny import VOCAB, write_packed


@pytest.fixture
def tokens(tmp_path):
    return PackedTokens(write_packed(tmp_path / "packed"))


@pytest.mark.parametrize("size", [1, 2, 3, 100, 1000, 4097])
def test_permutation_visits_each_place_once(size):
    places = permuted(np.arange(size), size, key=7)
    assert sorted(places) == list(range(size))
    if size >= 100:
        assert not np.array_equal(places, np.arange(size))
        assert not np.array_equal(places, permuted(np.arange(size), size, key=8))
        # Neighbours do not stay neighbours: the share of steps of ±1 is that of chance.
        assert np.mean(np.abs(np.diff(places)) == 1) < 10 / size + 0.02


def test_inputs_begin_with_end_of_text_and_predict_the_stream(tokens):
    inputs, targets = TrainingBatches(tokens, 0, 16, 4, rank=0, world=1)[0]
    assert inputs.dtype == targets.dtype == torch.int64
    assert (inputs[:, 0] == tokens.eot).all()
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_where_windows_end_in_answers_these_are_the_only_targets(tmp_path):
    folder = write_packed(tmp_path / "packed")
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"answers": 2}))
    whole = np.arange(32).reshape(2, 16) % VOCAB
    inputs, targets = PackedTokens(folder).pair(whole)
    assert inputs[:, 1:].tolist() == whole[:, :-1].tolist()
    assert targets.tolist() == whole[:, -2:].tolist()


def test_an_epoch_has_every_window_once_and_the_next_another_order(tokens):
    available = tokens.windows(16)
    batches = TrainingBatches(tokens, 0, 16, 1, rank=0, world=1)
    first = [bytes(batches[step][1].numpy().astype(np.uint16)) for step in range(available)]
    second = [
        bytes(batches[step][1].numpy().astype(np.uint16))
        for step in range(available, 2 * available)
    ]
    whole = [bytes(tokens.window(i, 16).tobytes()) for i in range(available)]
    assert sorted(first) == sorted(second) == sorted(whole)
    assert first != second


@pytest.mark.parametrize("world", [2, 3, 6])
def test_ranks_share_the_global_batch(tokens, world):
    whole = TrainingBatches(tokens, 5, 16, 12, rank=0, world=1)
    parts = [TrainingBatches(tokens, 5, 16, 12, rank=r, world=world) for r in range(world)]
    for step in (0, 3, 40):  # also across the end of an epoch
        together = torch.cat([part[step][1] for part in parts])
        assert torch.equal(together, whole[step][1])


def test_seeds_give_other_orders(tokens):
    one, two = (TrainingBatches(tokens, seed, 16, 4, rank=0, world=1) for seed in (0, 1))
    assert not torch.equal(one[0][1], two[0][1])


def test_validation_is_stratified_and_fixed(tokens):
    chosen = tokens.validation_windows(16, 480)
    assert len(chosen) == 30
    assert [sum(s == segment for s, _ in chosen) for segment in range(3)] == [10, 10, 10]
    for segment, start in chosen:
        assert tokens.segments[segment].start <= start <= tokens.segments[segment].end - 16
    assert len(set(chosen)) == 30
    seen = torch.cat([source for _, _, source in tokens.validation_batches(16, 480)])
    assert seen.tolist() == [segment for segment, _ in chosen]


def test_more_validation_than_there_is_is_refused(tokens):
    with pytest.raises(UserError, match=r"validation tokens in windows of 16"):
        tokens.validation_windows(16, 10_000)


def test_context_longer_than_the_split_is_refused(tokens):
    with pytest.raises(UserError, match=r"holds 0 training windows of 4096 tokens"):
        TrainingBatches(tokens, 0, 4096, 1, rank=0, world=1)


def test_batch_that_does_not_divide_is_refused(tokens):
    with pytest.raises(UserError, match=r"does not divide over 5 devices"):
        TrainingBatches(tokens, 0, 16, 12, rank=0, world=5)


@pytest.mark.parametrize("name", ["train-00001.bin", "val.bin", "token_bytes.bin"])
@pytest.mark.parametrize("fault", ["flip", "short", "gone"])
def test_corrupt_bins_are_refused_by_name(tmp_path, name, fault):
    path = write_packed(tmp_path / "packed") / name
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    if fault == "gone":
        path.unlink()
    else:
        path.write_bytes(content if fault == "flip" else content[:-2])
    with pytest.raises(UserError, match=name):
        PackedTokens(tmp_path / "packed")


def test_broken_meta_is_refused(tmp_path):
    folder = write_packed(tmp_path / "packed")
    meta = json.loads((folder / "meta.json").read_text())
    del meta["train"]
    (folder / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match=r"meta\.json is broken"):
        PackedTokens(folder)
    with pytest.raises(UserError, match=r"dvc repro pack"):
        PackedTokens(tmp_path / "elsewhere" / "packed")


def test_tokens_stay_in_the_vocabulary(tokens):
    assert max(int(shard.max()) for shard in tokens.shards) < VOCAB
