"""Every task from the configuration to the record, against a scorer of twenty lines."""

import json
import math
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save

from small_init import cli
from small_init.data.corpus.tokenizer import EOT_ID
from small_init.downstream import checkpoint, evaluate, own_tasks, scores, suite
from small_init.downstream.benchmarks import VARIABLE
from small_init.errors import UserError
from small_init.runs.paths import tasks_file, weights_file
from tests.downstream.conftest import ARM, ITEMS, ROOT, tiny_model
from tests.downstream.test_benchmarks import GSM8K, write


def log_likelihood(model, tokenizer, context: str, answer: str) -> float:
    """Of the tokens of `context + answer` that `context` alone does not have."""
    text = [EOT_ID, *tokenizer.encode(context + answer).ids]
    alone = [EOT_ID, *tokenizer.encode(context).ids] if context else [EOT_ID]
    shared = next((n for n, (a, b) in enumerate(zip(text, alone, strict=False)) if a != b),
                  min(len(text), len(alone)))  # fmt: skip
    with torch.no_grad():
        log_p = model(torch.tensor([text]))[0].double().log_softmax(-1)
    return sum(float(log_p[at - 1, text[at]]) for at in range(shared, len(text)))


def line(model, tokenizer, context: str) -> str:
    ids = [EOT_ID, *tokenizer.encode(context).ids][-40:]
    new: list[int] = []
    while len(new) < 24 and EOT_ID not in new and "\n" not in tokenizer.decode(new):
        with torch.no_grad():
            new.append(int(model(torch.tensor([ids + new]))[0, -1].argmax()))
    return tokenizer.decode([n for n in new if n != EOT_ID]).split("\n")[0].strip()


@pytest.fixture
def evaluated(project):
    found = checkpoint.of_run("cpu", ARM, 0)
    return found, evaluate.task_record(found, own_tasks.embedded("cpu"))


def test_lm_evals_numbers_are_the_reference_scorers(evaluated):
    found, record = evaluated
    model, tokenizer = found.model(), found.tokenizer()
    for name in (*ITEMS, "arithmetic_exact_zh"):
        items = own_tasks.embedded("cpu")[name].items()
        task = record["tasks"][name]
        assert task["items"] == len(items) == 50
        right, normalised, nats = "", "", 0.0
        for item in items:
            if "exact" in name:
                right += str(int(line(model, tokenizer, item["context"]) == item["target"]))
                continue
            lls = [log_likelihood(model, tokenizer, item["context"], c) for c in item["choices"]]
            by_length = [x / len(c) for x, c in zip(lls, item["choices"], strict=True)]
            nats -= lls[item["answer"]]
            if task["metric"] == "acc_mutual_info":
                lls = [x - log_likelihood(model, tokenizer, "", c)
                       for x, c in zip(lls, item["choices"], strict=True)]  # fmt: skip
            right += str(int(max(range(len(lls)), key=lls.__getitem__) == item["answer"]))
            normalised += str(int(by_length.index(max(by_length)) == item["answer"]))
        assert task["correct"] == right, name
        assert task["accuracy"] == right.count("1") / 50
        if "exact" not in name:
            assert task["correct_normalised"] == normalised, name
            size = sum(len(item["target"].encode()) for item in items)
            assert task["loss"] == pytest.approx(nats / size, rel=1e-5)


def test_record_says_what_a_reader_needs(evaluated):
    _, record = evaluated
    tasks = record["tasks"]
    assert set(tasks) == set(own_tasks.embedded("cpu"))
    assert tasks["orders_zh"]["chance"] == 0.5
    assert tasks["long_en"]["groups"][:7] == [0, 0, 0, 1, 1, 1, 2]
    assert "groups" not in tasks["orders_zh"]
    assert tasks["arithmetic_exact_zh"]["loss"] is None
    shown = tasks["arithmetic_zh"]["samples"]
    assert len(shown) == scores.SAMPLES
    assert set(shown[0]) == {"context", "right", "written"}
    others = [t for t in tasks.values() if t["family"] != "reasoning"]
    assert others
    assert not any("samples" in task for task in others), "text that is not ours to pass on"


def test_command_writes_the_same_bytes_twice(project, capsys):
    path = tasks_file("cpu", ARM, 0)
    contents = []
    for _ in range(2):
        cli.main(["evaluate", "--arm", ARM])
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
    assert str(path) in capsys.readouterr().out
    record = json.loads(contents[0])
    assert (record["arm"], record["seed"], record["profile"]) == (ARM, 0, "cpu")
    assert math.isfinite(record["tasks"]["long_en"]["loss"])


def test_command_prints_any_task_for_any_checkpoint(project, capsys):
    weights = str(weights_file(ARM, 0))
    cli.main(["evaluate", "--checkpoint", weights, "--tasks", "orders_zh", "--limit", "5"])
    printed = capsys.readouterr().out
    assert "orders_zh" in printed
    assert "acc" in printed
    assert not tasks_file("cpu", ARM, 0).exists()


OFFLINE = """
import importlib.machinery, importlib.metadata, socket

EXTRAS = ("transformers", "accelerate", "pynvml", "nvidia-ml-py")
finder, distribution = importlib.machinery.PathFinder, importlib.metadata.distribution
find = finder.find_spec

@staticmethod
def findable(name, *rest):
    return None if name.split(".")[0] in EXTRAS else find(name, *rest)

def hidden(name):
    if name in EXTRAS:
        raise importlib.metadata.PackageNotFoundError(name)
    return distribution(name)

def refused(*_):
    raise OSError("the network was asked")

finder.find_spec = findable
importlib.metadata.distribution = hidden
socket.socket.connect = socket.getaddrinfo = refused
from small_init import cli
cli.main(["evaluate", "--arm", ARM, "--tasks", "gsm8k", "--limit", "2"])
cli.main(["evaluate", "--arm", ARM])
"""


def test_neither_the_network_nor_the_extras_are_needed(project, monkeypatch):
    """For the project's tasks and for benchmarks in local files; extras as if not installed."""
    monkeypatch.setenv(VARIABLE, str(project))
    write(project, "gsm8k_test.jsonl", GSM8K, 7)
    script = OFFLINE.replace("ARM", repr(ARM))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert tasks_file("cpu", ARM, 0).is_file()
    assert "gsm8k" in done.stdout


@pytest.mark.parametrize(("arguments", "sentence"), [
    (["--arm", "cpu-none"], "no arm cpu-none"),
    (["--arm", ARM, "--tasks", "orders_zz"], "did you mean orders_zh"),
    (["--checkpoint", "weights.bin"], "does not say which run it is"),
])  # fmt: skip
def test_wrong_input_is_one_sentence(project, capsys, arguments, sentence):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["evaluate", *arguments])
    assert sentence in str(stopped.value)
    assert "\n" not in str(stopped.value)


def test_missing_items_name_the_stage(project):
    (project / "data/cpu/tasks/orders_zh.jsonl").unlink()
    with pytest.raises(UserError, match="dvc repro tasks"):
        suite.load_tasks(["orders_zh"], "cpu")


def test_another_tokenizer_is_refused(project):
    path = project / "data/cpu/tokenizer.json"
    path.write_text(path.read_text().replace("\n", "\n\n", 1))
    with pytest.raises(UserError, match="another corpus or with another tokenizer"):
        checkpoint.of_run("cpu", ARM, 0).tokenizer()


def test_other_weights_are_refused(project):
    found = checkpoint.of_run("cpu", ARM, 0)
    whole = found.weights.read_bytes()
    fewer = {
        name: value for name, value in tiny_model().named_parameters() if "readout" not in name
    }
    longer = dict(tiny_model().named_parameters()) | {"foreign": torch.zeros(1)}
    wider = dict(tiny_model(qk_norm=True).named_parameters())
    for content in (b"\0" * 16, whole[:-4], save(fewer), save(longer), save(wider)):
        found.weights.write_bytes(content)
        with pytest.raises(UserError, match="does not hold the weights"):
            checkpoint.of_run("cpu", ARM, 0).model()
    found.weights.unlink()
    with pytest.raises(UserError, match="no weights"):
        checkpoint.of_run("cpu", ARM, 0).model()


def test_lm_eval_itself_finds_every_configuration(project):
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(ROOT / "configs/tasks"), include_defaults=False)
    assert set(manager.all_tasks) == set(own_tasks.embedded("cpu"))
