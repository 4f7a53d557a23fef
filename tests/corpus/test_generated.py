import re
import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest

from small_init.corpus.generated import (
    generate,
    normalise,
    problems,
    question_split,
)

LANGUAGES = ["en", "zh"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_test_question_is_in_the_corpus_whatever_the_seed(language: str) -> None:
    asked = {
        split: {
            normalise(problem.question)
            for seed in (0, 1)
            for problem in islice(problems(language, seed), 1500)
            if question_split(problem.question) == split
        }
        for split in ("train", "val", "test")
    }
    corpus = {
        split: {normalise(document.fields["question"]) for document, s in made if s == split}
        for made in [list(generate(language, 2000, 7))]
        for split in ("train", "val")
    }
    assert not corpus["train"] & corpus["val"]
    assert not (corpus["train"] | corpus["val"]) & asked["test"]
    assert not corpus["train"] & asked["val"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_occur_once_and_splits_keep_their_shares(language: str) -> None:
    made = list(islice(problems(language, 0), 4000))
    assert len({problem.question for problem in made}) == len(made)
    counts = Counter(question_split(problem.question) for problem in made)
    assert 0.82 < counts["train"] / 4000 < 0.88
    assert 0.08 < counts["test"] / 4000 < 0.12


def test_the_same_sum_is_the_same_question_in_any_words() -> None:
    assert normalise("Calculate 4 - 1 - 7.") == normalise("计算：4 - 1 - 7。") == "4-1-7"
    assert normalise("求 3 × 12 的积。") == normalise("Solve 3 * 12") == "3*12"
    assert normalise("Ann has 4 - 1 apples and 3 pears.") != "4-1"
    assert normalise("How  MANY\nlegs?") == normalise("how many legs?")


@pytest.mark.parametrize("language", LANGUAGES)
def test_sums_are_right(language: str) -> None:
    family = {"en": "chain_sum", "zh": "sums"}[language]
    found = [p for p in islice(problems(language, 3), 1500) if p.family == family]
    assert len(found) > 50
    for problem in found:
        expression = normalise(problem.question)
        assert re.fullmatch(r"[\d+-]+", expression)
        total = sum(int(term) for term in re.findall(r"[+-]?\d+", expression))
        assert str(total) == problem.answer
        assert problem.steps.rstrip("。.").endswith(f"= {total}")


def test_chinese_answers_hold_by_another_way() -> None:
    checked: Counter[str] = Counter()
    for problem in islice(problems("zh", 5), 3000):
        numbers = [int(number) for number in re.findall(r"-?\d+", problem.question)]
        answer = [int(number) for number in re.findall(r"-?\d+", problem.answer)]
        if problem.family == "cages":
            heads, legs = numbers
            rabbits = answer[0] if "兔有几只" in problem.question else heads - answer[0]
            assert 4 * rabbits + 2 * (heads - rabbits) == legs
        elif problem.family == "remainders":
            assert numbers[0] == numbers[1] * answer[0] + answer[1]
        elif problem.family == "equations":
            factor, shift, right = numbers
            sign = 1 if "+" in problem.question else -1
            assert factor * answer[0] + sign * shift == right
        elif problem.family == "reversals":
            assert problem.answer[::-1] in problem.question
        elif problem.family == "shopping" and "一共用了" in problem.question:
            count1, price1, count2, price2 = numbers
            assert answer == [count1 * price1 + count2 * price2]
        else:
            continue
        checked[problem.family] += 1
    assert len(checked) == 5


def test_about_half_of_the_texts_show_their_steps() -> None:
    made = [problem for problem in islice(problems("zh", 0), 1000) if problem.steps]
    shown = sum("解答：" in problem.text for problem in made)
    assert 0.4 < shown / len(made) < 0.6


@pytest.mark.parametrize("language", LANGUAGES)
def test_another_process_writes_the_same_problems(language: str) -> None:
    code = (
        "import hashlib; from small_init.corpus.generated import generate;"
        f"made = [d.text + s for d, s in generate('{language}', 300, 0)];"
        "print(hashlib.sha256('|'.join(made).encode()).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
