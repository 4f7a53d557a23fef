"""The Bigram-Backcopy task: its rule, its bigrams, its optimum, and its windows."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from small_init.config import Corpus
from small_init.config_files import merged
from small_init.data.backcopy import BackcopyConfig, Task, load_backcopy_config, write_backcopy
from small_init.data.packed import PackedTokens, TrainingBatches
from small_init.errors import UserError
from small_init.measure.validation import validate
from small_init.runs.paths import packed_folder
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import train
from tests.tiny import tiny_arm

SMALL = BackcopyConfig(
    vocab_size=12, triggers=2, length=16, train_sequences=5_000, val_sequences=400, seed=3
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "backcopy"
    write_backcopy(SMALL, folder)
    return folder


@pytest.fixture(scope="module")
def tokens(folder):
    return PackedTokens(folder)


def sequences(tokens: PackedTokens) -> np.ndarray:
    return np.array(tokens.shards[0]).reshape(-1, SMALL.length).astype(int)


def entropy(p: np.ndarray) -> float:
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def test_the_folder_is_read_as_any_packed_one(tokens):
    assert len(tokens.shards) == 1
    assert tokens.windows(SMALL.length) == SMALL.train_sequences
    assert len(tokens.validation) == SMALL.val_sequences * SMALL.length
    assert [s.source for s in tokens.segments] == ["backcopy"]
    assert not tokens.token_bytes.any()


def test_the_bytes_depend_on_the_configuration_alone(folder, tmp_path):
    def written(name, **changes):
        write_backcopy(replace(SMALL, **changes), tmp_path / name)
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert written("again") == first
    assert written("other", seed=4)["val.bin"] != first["val.bin"]
    # More training data is more of the same: the validation tokens stay.
    assert written("more", train_sequences=6_000)["val.bin"] == first["val.bin"]


def test_a_window_is_a_sequence(tokens):
    inputs, targets = TrainingBatches(tokens, 0, SMALL.length, 64, rank=0, world=1)[0]
    assert (inputs[:, 0] == tokens.eot).all()
    assert (targets != tokens.eot).all()
    assert (targets[:, 0] > SMALL.triggers).all()  # a sequence begins without a trigger
    known = {tuple(row) for row in sequences(tokens)}
    assert all(tuple(row) in known for row in targets.numpy())


def test_after_a_trigger_comes_the_token_before_it(tokens):
    rows = sequences(tokens)
    before, trigger, after = rows[:, :-2], rows[:, 1:-1], rows[:, 2:]
    at = trigger <= SMALL.triggers
    assert at.mean() > 0.05
    assert (after[at] == before[at]).all()
    assert (before[at] > SMALL.triggers).all()  # so that no copy is of a trigger


def test_other_tokens_are_followed_by_the_bigram_table(tokens):
    rows, task = sequences(tokens), Task.draw(SMALL)
    before, after = rows[:, :-1].ravel(), rows[:, 1:].ravel()
    counts = np.zeros((SMALL.vocab_size, SMALL.vocab_size))
    np.add.at(counts, (before, after), 1)
    for token in range(SMALL.triggers + 1, SMALL.vocab_size):
        seen = counts[token].sum()
        error = np.sqrt(task.next_VV[token] * (1 - task.next_VV[token]) / seen)
        assert (np.abs(counts[token] / seen - task.next_VV[token]) <= 4.5 * error).all()
    first = np.bincount(rows[:, 0], minlength=SMALL.vocab_size) / len(rows)
    assert np.abs(first - task.first_V).max() < 0.03


def test_rows_are_distributions_over_the_tasks_tokens():
    task = Task.draw(SMALL)
    assert task.next_VV[SMALL.triggers + 1 :].sum(1) == pytest.approx(1)
    assert not task.next_VV[: SMALL.triggers + 1].any()
    assert not task.next_VV[:, 0].any()
    assert task.first_V.sum() == pytest.approx(1)
    assert np.argsort(-task.first_V, kind="stable")[0] == SMALL.triggers + 1


def test_the_optimum_is_the_entropy_of_the_rule(tokens):
    """By the law of large numbers: no loss after a trigger, elsewhere the row's entropy."""
    task, optimum = Task.draw(SMALL), tokens.meta["optimum"]
    rows = sequences(tokens)
    before = rows[:, :-1]
    of_row = np.array([entropy(row) for row in task.next_VV])  # 0 for triggers
    expected = (of_row[before].sum() + len(rows) * entropy(task.first_V)) / rows.size
    assert optimum["loss"] == pytest.approx(expected, rel=0.03)
    at = before <= SMALL.triggers
    assert optimum["trigger_share"] == pytest.approx(at.sum() / rows.size, rel=0.05)
    # Without copying: also the entropy of what follows each trigger.
    blind = 0.0
    for trigger in range(1, SMALL.triggers + 1):
        chosen = rows[:, 1:][before == trigger]
        blind += len(chosen) * entropy(np.bincount(chosen) / len(chosen))
    assert optimum["bigram_loss"] == pytest.approx(expected + blind / rows.size, rel=0.03)


class Rule(nn.Module):
    """The task's own rule in the place of a model: the loss of each target, (B, T)."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task, self.weight = task, nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor, targets: Tensor, per_token: bool) -> Tensor:
        rows = [self.task.optimum(row[None])["loss"] * len(row) for row in targets.numpy()]
        return torch.tensor(rows)[:, None].expand(targets.shape) / targets.shape[1]


def test_validation_of_the_rule_ends_at_the_optimum(tokens):
    """So that a run's final loss minus `optimum` is its excess over the task's entropy."""
    found = validate(Rule(Task.draw(SMALL)), tokens, SMALL.length, len(tokens.validation))
    assert found["loss"] == pytest.approx(tokens.meta["optimum"]["loss"], rel=1e-6)
    assert found["by_source"] == {"backcopy": found["loss"]}
    assert found["bits_per_byte"] == {}


def test_an_arm_reads_the_folder_its_corpus_names():
    arm = merged(tiny_arm(), {"train": {"corpus": "backcopy"}}, where="test")
    assert arm.train.corpus is Corpus.backcopy
    spec = RunSpec("test", "sink", "test-bb", arm, 0)
    assert spec.data_folder == packed_folder("test", Corpus.backcopy)
    assert RunSpec("test", "sink", "test-d16", tiny_arm(), 0).data_folder == packed_folder("test")


def test_windows_that_would_cut_sequences_are_refused(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, packed_folder("test", Corpus.backcopy))
    changes = {"train": {"corpus": "backcopy"}, "model": {"vocab_size": 12, "context": 8}}
    arm = merged(tiny_arm(), changes, where="test")
    with pytest.raises(UserError, match=r"context 8, but the sequences .* have 16 tokens"):
        train(RunSpec("test", "sink", "test-bb", arm, 0))


def test_a_missing_folder_names_its_own_stage(tmp_path):
    with pytest.raises(UserError, match="dvc repro backcopy"):
        PackedTokens(tmp_path / "backcopy")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("triggers: 11", "triggers is 11"),
        ("triggers: 0", "triggers is 0"),
        ("length: 0", "length is 0"),
        ("concentration: .inf", "concentration is inf"),
        ("vocabulary: 12", "vocabulary"),
    ],
)
def test_a_wrong_configuration_is_refused(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs/backcopy").mkdir(parents=True)
    (tmp_path / "configs/backcopy/x.yaml").write_text(f"vocab_size: 12\n{text}\n")
    with pytest.raises(UserError, match=message):
        load_backcopy_config("x")
