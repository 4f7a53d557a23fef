"""The real benchmarks' loading; real files where there are any, else files of the same schema."""

import json
import os
from pathlib import Path

import datasets
import lm_eval.tasks
import pytest

from small_init.downstream import benchmarks, evaluate, own_tasks, suite
from small_init.downstream.harness import SmallInitLM
from small_init.errors import UserError
from tests.downstream.conftest import ROOT, tiny_model

ARC = {
    "id": "1", "answerKey": "B",
    "question": {"stem": "What falls?", "choices": [
        {"text": "the sky", "label": "A"}, {"text": "rain", "label": "B"},
    ]},
}  # fmt: skip
HELLASWAG = {
    "ind": 1, "activity_label": "Cooking", "ctx_a": "A man cuts an onion.", "ctx_b": "he",
    "ctx": "A man cuts an onion. he", "label": 1, "endings": ["flies.", "cries.", "sings.", "is."],
}  # fmt: skip
GSM8K = {"question": "How many are 2 and 3?", "answer": "2+3=<<2+3=5>>5\n#### 5"}
MATH = {"problem": "What is $1+1$?", "solution": "It is $\\boxed{2}$.", "answer": "2",
        "subject": "Prealgebra", "level": 1, "unique_id": "x"}  # fmt: skip
LOGIQA = {"passage": "甲比乙高。", "question": "谁高？", "label": "A", "answer": None,
          "options": ["(A)甲", "(B)乙", "(C)丙", "(D)丁"]}  # fmt: skip


def write(folder: Path, name: str, row: dict, count: int) -> None:
    rows = "".join(json.dumps(row, ensure_ascii=False) + "\n" for _ in range(count))
    (folder / name).write_text(rows)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv(benchmarks.VARIABLE, str(tmp_path))
    write(tmp_path, "ARC-Challenge-Test.jsonl", ARC, 4)
    write(tmp_path, "ARC-Challenge-Train.jsonl", ARC, 30)
    write(tmp_path, "hellaswag_val.jsonl", HELLASWAG, 14)
    write(tmp_path, "gsm8k_test.jsonl", GSM8K, 9)
    write(tmp_path, "math500.jsonl", MATH, 3)
    write(tmp_path, "logiqa_zh.jsonl", LOGIQA, 3)
    return tmp_path


LOCAL = ["gsm8k", "hendrycks_math500", "hellaswag", "arc_challenge", "agieval_logiqa_zh"]


def test_authors_files_become_lm_evals_tasks(folder, tokenizer):
    tasks = suite.load_tasks(LOCAL, "cpu")
    counts = {task.config.task: len(list(task.eval_docs)) for task in tasks}
    # Without training files the first 5 and 10 questions are the examples.
    assert counts == {"gsm8k": 4, "hendrycks_math500": 3, "hellaswag": 4, "arc_challenge": 4,
                      "agieval_logiqa_zh": 3}  # fmt: skip
    shots = {task.config.task: task.config.num_fewshot for task in tasks}
    assert shots == {name: benchmarks.paper_tasks()[name].shots for name in LOCAL}
    lm = SmallInitLM(tiny_model(), tokenizer)
    found = evaluate.run_tasks(lm, tasks)
    assert set(found["results"]) == set(LOCAL)
    arc = found["samples"]["arc_challenge"][0]
    prompt = arc["arguments"][0][0]
    assert prompt.count("Question: What falls?\nAnswer:") == 26
    assert prompt.count("rain") == 25
    hellaswag = found["samples"]["hellaswag"][0]["arguments"][1]
    assert hellaswag[0].endswith("Cooking: A man cuts an onion. He")
    assert hellaswag[1] == " cries."
    assert lm.truncated > 0


def test_right_answers_score(folder, tokenizer, monkeypatch):
    """lm-eval's extraction sees the number and the box that a good model would write."""
    lm = SmallInitLM(tiny_model(), tokenizer)
    texts = {"gsm8k": " 2+3=5\n#### 5", "hendrycks_math500": " $2$"}
    for name, text in texts.items():
        monkeypatch.setattr(lm, "generate_until", lambda asked, text=text: [text] * len(asked))
        results = evaluate.run_tasks(lm, suite.load_tasks([name], "cpu"))["results"][name]
        scores = [v for k, v in results.items() if k.startswith("exact_match,")]
        assert scores
        assert set(scores) == {1.0}


@pytest.mark.skipif(
    benchmarks.VARIABLE not in os.environ,
    reason=f"set {benchmarks.VARIABLE} to a folder with the real files",
)
def test_real_files(monkeypatch, tokenizer):
    monkeypatch.chdir(ROOT)
    folder = Path(os.environ[benchmarks.VARIABLE])
    here = [n for n, b in benchmarks.paper_tasks().items()
            if b.files and any(folder.glob(next(iter(b.files.values()))))]  # fmt: skip
    assert here
    tasks = suite.load_tasks(here, "cpu")
    found = evaluate.run_tasks(SmallInitLM(tiny_model(), tokenizer), tasks, limit=4)
    assert set(found["results"]) == set(here)


def test_missing_file_is_one_sentence(folder):
    (folder / "math500.jsonl").unlink()
    with pytest.raises(UserError, match=r"has no file math500\*.jsonl for hendrycks_math500"):
        suite.load_tasks(["hendrycks_math500"], "cpu")


def test_wrong_schema_is_one_sentence(folder):
    write(folder, "math500.jsonl", {"question": "?"}, 2)
    with pytest.raises(UserError, match="not in the schema of hendrycks_math500"):
        suite.load_tasks(["hendrycks_math500"], "cpu")


def test_nothing_unpinned_is_taken_from_the_hub(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv(benchmarks.VARIABLE, raising=False)
    pages = {"piqa": r"datasets/baber/piqa\.$", "gsm8k": "openai/gsm8k, or name the folder"}
    for name, page in pages.items():
        with pytest.raises(
            UserError, match=f"set its revision in configs/tasks/paper.yaml.*{page}"
        ):
            suite.load_tasks([name], "cpu")


@pytest.mark.parametrize("name", ["piqa", "ceval-valid"])
def test_a_revision_reaches_the_hub(monkeypatch, name):
    """Of a task, and of the tasks of a group; to be without a network is one sentence, too."""
    asked = []

    def load(**arguments):
        asked.append((arguments["path"], arguments.get("revision")))
        raise ConnectionError("no network")

    entry = benchmarks.paper_tasks(ROOT / "configs/tasks/paper.yaml")[name]
    entry.revision = "0123abc"
    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(UserError, match=f"The data of {name} are not on this.*HF_HUB_OFFLINE=0"):
        benchmarks.load_benchmark(entry)
    assert set(asked) == {(entry.hub, "0123abc")}


def test_another_version_is_refused(folder):
    entry = benchmarks.paper_tasks()["gsm8k"]
    entry.version = 2.0
    with pytest.raises(UserError, match=r"version 3.0 of gsm8k, and paper.yaml names 2.0"):
        benchmarks.load_benchmark(entry)


def test_every_entry_is_a_task_of_lm_eval():
    home = Path(lm_eval.tasks.__file__).parent
    for name, entry in benchmarks.paper_tasks(ROOT / "configs/tasks/paper.yaml").items():
        assert name in benchmarks._manager(entry.folder).all_tasks, name
        assert entry.family in own_tasks.FAMILIES
        texts = [path.read_text() for path in (home / entry.folder).rglob("*yaml")]
        assert any(f"dataset_path: {entry.hub}\n" in text for text in texts), name
