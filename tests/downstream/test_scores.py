"""Real benchmarks from the profile's choice to the record and to Table 2, on data made here."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
import yaml

from small_init import cli
from small_init.downstream import benchmarks, checkpoint, suite
from small_init.downstream.harness import SmallInitLM
from small_init.downstream.tasks import build_tasks
from small_init.files import sha256, write_text
from small_init.runs.paths import index_file, tasks_file
from tests.downstream.conftest import ARM, ROOT, tiny_model, write_run
from tests.downstream.test_benchmarks import GSM8K
from tests.downstream.test_evaluate import log_likelihood

ASKED = ("gsm8k", "arc_challenge", "ceval-valid", "winogrande", "lambada_openai")
COMMIT = "0123abc"
STEMS = ("What falls?", "Who is a fox?", "What jumps?")
CHOICES = (["rain", "the sky"], ["a quick dog", "no"], ["it", "the lazy dog"])
ARC = [
    {"id": str(n), "answerKey": "AB"[n % 2], "question": {"stem": stem, "choices": [
        {"text": text, "label": label} for text, label in zip(texts, "AB", strict=True)]}}
    for n, (stem, texts) in enumerate(zip(STEMS, CHOICES, strict=True))
]  # fmt: skip
HUB = {
    "ceval/ceval-exam": [
        {"question": "谁？", "A": "小明", "B": "小红", "C": "他", "D": "她", "answer": "B"},
        {"question": "几？", "A": "1", "B": "2", "C": "3", "D": "4", "answer": "D"},
    ],
    "allenai/winogrande": [
        {"sentence": "A dog saw a fox; _ ran.", "option1": "dog", "option2": "fox", "answer": "2"},
        {
            "sentence": "A fox saw Six, so _ jumps.",
            "option1": "it",
            "option2": "Six",
            "answer": "1",
        },
    ],
    "EleutherAI/lambada_openai": [
        {"text": "the fox jumps over"}, {"text": "the answer is number"}, {"text": "Six and seven"},
    ],
}  # fmt: skip


@pytest.fixture
def asking(project, monkeypatch):
    """The project's profile asks five benchmarks: two of local files, three of the hub."""
    local = project / "benchmarks"
    local.mkdir()
    files = {"gsm8k_test": [GSM8K] * 9, "gsm8k_train": [GSM8K] * 5,
             "ARC-Challenge-Test": ARC, "ARC-Challenge-Train": ARC}  # fmt: skip
    for name, rows in files.items():
        (local / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv(benchmarks.VARIABLE, str(local))
    entries = yaml.safe_load((ROOT / "configs/tasks/paper.yaml").read_text())["tasks"]
    # Without examples a prompt fits into the tiny model's context.
    shorter = {n: entries[n] | {"shots": 5 if n == "gsm8k" else 0} for n in ASKED}
    for entry in shorter.values():
        entry["revision"] = "" if "files" in entry else COMMIT
    (project / "paper.yaml").write_text(yaml.safe_dump({"tasks": shorter}, sort_keys=False))
    (project / "items.yaml").write_text("cpu: {benchmarks: true}\n")
    monkeypatch.setattr(benchmarks, "PAPER", project / "paper.yaml")
    monkeypatch.setattr(suite, "PROFILES", project / "items.yaml")

    def load(path, revision, **_):
        assert revision == COMMIT
        rows = datasets.Dataset.from_list(HUB[path])
        return datasets.DatasetDict(dict.fromkeys(("train", "dev", "val", "validation"), rows)
                                    | {"test": rows})  # fmt: skip

    monkeypatch.setattr(datasets, "load_dataset", load)
    # What a model writes that knows the first and the last answer.
    right, wrong = " 2+3=5\n#### 5", " #### 6"

    def generate(lm, asked, **_):
        return [right, *[wrong] * (len(asked) - 2), right]

    monkeypatch.setattr(SmallInitLM, "generate_until", generate)
    return project


def test_a_profile_that_asks_benchmarks_records_and_draws_them(asking):
    cli.main(["evaluate", "--arm", ARM])
    path = tasks_file("cpu", ARM, 0)
    record = json.loads(path.read_text())
    tasks = record["tasks"]
    assert set(tasks) == set(ASKED)
    for name, task in tasks.items():
        assert len(task["correct"]) == task["items"], name
        assert task["accuracy"] == task["correct"].count("1") / task["items"], name
        assert (task["shared"], task["version"]) == (name, benchmarks.paper_tasks()[name].version)

    gsm8k = tasks["gsm8k"]
    assert gsm8k["correct"] == "100000001"
    assert (gsm8k["filter"], gsm8k["loss"], gsm8k["shots"]) == ("strict-match", None, 5)
    for key, split in (("file_sha256", "test"), ("examples_sha256", "train")):
        assert gsm8k[key] == sha256(asking / f"benchmarks/gsm8k_{split}.jsonl")
    assert [s["written"] for s in gsm8k["samples"]] == [" 2+3=5\n#### 5", " #### 6", " #### 6"]
    assert gsm8k["samples"][0]["context"] == f"Question: {GSM8K['question']}\nAnswer:"
    assert gsm8k["samples"][0]["right"] == GSM8K["answer"]
    assert [name for name, task in tasks.items() if "samples" in task] == ["gsm8k"]

    right = {
        "arc_challenge": [
            (f"Question: {STEMS[n]}\nAnswer:", f" {CHOICES[n][n % 2]}") for n in range(len(STEMS))
        ],
        "winogrande": [("A dog saw a fox; fox", " ran."), ("A fox saw Six, so it", " jumps.")],
        "lambada_openai": [
            ("the fox jumps", " over"),
            ("the answer is", " number"),
            ("Six and", " seven"),
        ],
    }
    found = checkpoint.of_run("cpu", ARM, 0)
    model, tokenizer = found.model(), found.tokenizer()
    for name, pairs in right.items():
        nats = -sum(log_likelihood(model, tokenizer, *pair) for pair in pairs)
        size = sum(len(answer.encode()) for _, answer in pairs)
        assert tasks[name]["loss"] == pytest.approx(nats / size, rel=1e-5), name
    assert tasks["arc_challenge"]["metric"] == "acc_norm"
    assert tasks["arc_challenge"]["correct"] == tasks["arc_challenge"]["correct_normalised"]
    assert "file_sha256" in tasks["arc_challenge"]
    assert tasks["winogrande"]["revision"] == COMMIT

    # One row for all subjects, whose items are drawn together.
    ceval = tasks["ceval-valid"]
    assert ceval["items"] == 104
    assert ceval["groups"] == [n // 2 for n in range(104)]

    other = "cpu-tiny-usual"
    write_run(other, tiny_model(), gamma=0.5)
    tasks["gsm8k"] = gsm8k | {"correct": "0" * 9, "accuracy": 0.0}
    write_text(tasks_file("cpu", other, 0),
                       json.dumps(record | {"arm": other}))  # fmt: skip
    index = {"runs": [{"arm": arm, "seed": 0} for arm in (ARM, other)]}
    write_text(index_file("cpu", "table-2"), json.dumps(index))
    Path("paper").mkdir()
    shutil.copy(ROOT / "paper/claims.yaml", "paper")
    command = [sys.executable, "-m", "paper.table_2"]
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    text = Path("results/cpu/tables/table-2.md").read_text()
    assert "| adjusted | reasoning | gsm8k | 9 | 0.0 | 0.0 | 22.2 | +22.2 |" in text
    assert "| adjusted | knowledge | ceval-valid | 104 | 25.0 |" in text
    lambada = next(line for line in text.splitlines() if "| lambada openai |" in line)
    assert lambada.endswith("| floor |")
    assert "public benchmarks" in text
    assert "by acc_norm: arc challenge; by acc: ceval-valid, lambada openai, winogrande" in text
    assert "by exact_match (strict-match): gsm8k after 5 examples." in text
    samples = Path("results/cpu/tables/table-2-samples.md").read_text()
    assert f"- {ARM}: `` 2+3=5 #### 5 ``\n" in samples


def test_every_profile_says_what_it_asks(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert suite.asked("paper") == benchmarks.paper_tasks()
    for profile in ("smoke", "cpu", "gpu"):
        assert not set(suite.asked(profile)) & set(benchmarks.paper_tasks())


def test_a_corpus_whose_profile_asks_benchmarks_is_not_read(tmp_path):
    """There is none in the folder; the manifest is there for the pipeline."""
    build_tasks(tmp_path, benchmarks=True)
    manifest = tmp_path / "tasks/manifest.json"
    assert [*tmp_path.rglob("*.*")] == [manifest]
    assert json.loads(manifest.read_text()) == {"schema": 1, "tasks": {}}
