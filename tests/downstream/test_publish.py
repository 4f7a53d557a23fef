"""The published copies: half precision, with their tokenizer, enough for a clone."""

import shutil
from pathlib import Path

import datasets
import pytest
import torch
from safetensors import safe_open

from small_init import cli
from small_init.data.packed import PackedTokens
from small_init.downstream import benchmarks, checkpoint
from small_init.errors import UserError
from small_init.measure.validation import validate
from small_init.runs.paths import published_weights, weights_file
from tests.downstream.conftest import ARM, ROOT, tiny_model
from tests.downstream.test_benchmarks import GSM8K, write

COPY = published_weights("cpu", ARM, 0)


@pytest.fixture
def clone(project, monkeypatch):
    """What git has of the project: neither weights nor text, but the published copy."""
    cli.main(["weights", "--arm", ARM])
    shutil.rmtree("models")
    shutil.rmtree("data")
    monkeypatch.setenv(benchmarks.VARIABLE, str(project))
    write(project, "gsm8k_test.jsonl", GSM8K, 7)


def test_same_weights_same_bytes(project, capsys):
    contents = []
    for _ in range(2):
        cli.main(["weights", "--arm", ARM])
        contents.append({path.name: path.read_bytes() for path in COPY.parent.iterdir()})
    assert contents[0] == contents[1]
    assert set(contents[0]) == {COPY.name, "tokenizer.json"}
    assert contents[0]["tokenizer.json"] == Path("data/cpu/tokenizer.json").read_bytes()
    assert capsys.readouterr().out.splitlines() == [str(COPY)] * 2
    with safe_open(COPY, "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118


def test_a_model_too_large_for_git_is_not_published(project, monkeypatch, capsys):
    monkeypatch.setattr(checkpoint, "_MOST_PARAMETERS", 1000)
    cli.main(["weights", "--arm", ARM])
    assert [path.name for path in COPY.parent.iterdir()] == ["README.md"]
    assert "too many for git" in (COPY.parent / "README.md").read_text()
    assert capsys.readouterr().out.strip() == str(COPY.parent / "README.md")


@pytest.mark.parametrize("which", [
    ["--arm", ARM],
    ["--checkpoint", str(COPY)],
    ["--checkpoint", str(weights_file(ARM, 0))],
])  # fmt: skip
def test_a_clone_answers_new_tasks(clone, capsys, which):
    cli.main(["evaluate", *which, "--tasks", "gsm8k", "--limit", "2"])
    printed = capsys.readouterr().out
    assert f"{COPY} (the published copy in half precision)" in printed
    assert "gsm8k" in printed


def test_a_task_may_be_a_file_of_its_own(clone, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write(tmp_path, "colours.jsonl", {"asked": "The sky is", "says": [" blue", " red"]}, 4)
    Path("colours.yaml").write_text(
        "task: colours\ndataset_path: json\noutput_type: multiple_choice\ntest_split: test\n"
        f"dataset_kwargs: {{data_files: {{test: {tmp_path}/colours.jsonl}}}}\n"
        "doc_to_text: asked\ndoc_to_choice: says\ndoc_to_target: 0\n"
    )
    cli.main(["evaluate", "--arm", ARM, "--tasks", "colours.yaml"])
    assert "colours" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"no task in none\.yaml"):
        cli.main(["evaluate", "--arm", ARM, "--tasks", "none.yaml"])


def test_a_clone_writes_no_record_from_the_copy(clone):
    with pytest.raises(SystemExit, match=f"no weights at {weights_file(ARM, 0)}"):
        cli.main(["evaluate", "--arm", ARM])


def test_a_task_that_needs_the_text_says_so(clone):
    with pytest.raises(SystemExit, match="dvc repro tasks"):
        cli.main(["evaluate", "--arm", ARM, "--tasks", "orders_zh"])


def test_the_weights_that_training_left_come_first(project):
    cli.main(["weights", "--arm", ARM])
    whole = checkpoint.of_run("cpu", ARM, 0)
    assert checkpoint.or_published(whole) is whole
    assert whole.published is None


def test_another_tokenizer_beside_the_copy_is_refused(clone):
    path = COPY.with_name("tokenizer.json")
    path.write_text(path.read_text().replace("\n", "\n\n", 1))
    with pytest.raises(UserError, match=rf"another tokenizer .* `git checkout {COPY.parent}"):
        checkpoint.of_file(COPY).tokenizer()


def test_half_precision_weights_load(clone):
    expected = dict(tiny_model().named_parameters())
    for name, value in checkpoint.of_file(COPY).model().named_parameters():
        assert value.dtype is torch.float32
        torch.testing.assert_close(value, expected[name], rtol=2**-11, atol=2**-25)


@pytest.mark.skipif(not (ROOT / "data/cpu/packed").is_dir(), reason="the text is not in git")
def test_half_precision_costs_no_loss(monkeypatch):
    """Of the models in git; docs/tasks.md names the bound."""
    monkeypatch.chdir(ROOT)
    copies = sorted(Path("results/cpu/weights").glob("*/*.safetensors"))
    for copy in copies:
        found = checkpoint.of_file(copy)
        loss = validate(found.model(), PackedTokens(Path("data/cpu/packed")), 128, 4_096)["loss"]
        whole = weights_file(found.run.arm, found.run.seed)
        if whole.is_file():
            exact = checkpoint.of_file(whole).model()
            expected = validate(exact, PackedTokens(Path("data/cpu/packed")), 128, 4_096)["loss"]
            assert loss == pytest.approx(expected, abs=1e-4), copy
