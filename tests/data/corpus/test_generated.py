import operator
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import islice

import pytest

from small_init.data.corpus.generated import Tally, generate, problems
from small_init.data.corpus.problems import normalise, question_split

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
    assert normalise("求 3 × 12 的积。") == normalise("Solve 12 * 3") == "3*12"
    assert (
        normalise("Calculate 12 - 3 + 5 - 1.")
        == normalise("5 + 12 - 1 - 3 等于多少？")
        == "5+12-1-3"
    )
    assert normalise("Calculate 12 - 3.") != normalise("Calculate 3 - 12.")
    assert normalise("Ann has 4 - 1 apples and 3 pears.") != "4-1"
    assert normalise("How  MANY\nlegs?") == normalise("how many legs?")


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_held_out_sum_stands_with_its_answer_in_the_text(language: str) -> None:
    """Sums and products of two whole numbers, read by a pattern of the test's own."""
    calculation = re.compile(
        r"(?<![\d.])(?<![-+*/×÷])(?<![-+*/×÷] )(\d+) ?([-+*×]|x) ?[$€£]?(\d+)"
        r"[^-+*/×÷=，,.]{0,40}= ?[$€£]?(\d+)"
    )
    checked = 0
    for document, _ in generate(language, 6000, 0):
        for left, sign, right, result in calculation.findall(document.text):
            a, b, operator_ = int(left), int(right), "*" if sign in "×x" else sign
            if OPERATIONS[operator_](a, b) == int(result):
                assert question_split(f"Calculate {a} {operator_} {b}.") != "test", document.text
                assert operator_ == "-" or question_split(f"{b} {operator_} {a}") != "test"
                checked += 1
    assert checked > 1500


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_solver_does_not_confirm_is_rejected_and_counted(language: str) -> None:
    tallies: dict[str, Tally] = {}
    documents = [document for document, _ in generate(language, 3000, 0, tallies)]
    families = Counter(document.key.split("-")[1] for document in documents)
    assert families == {name: tally.documents for name, tally in tallies.items() if tally.documents}
    shown = sum(document.text.count("\n") == 2 for document in documents)
    assert shown == sum(tally.with_steps for tally in tallies.values())
    rejected = {
        n: t.contradicted + t.unread for n, t in tallies.items() if t.contradicted + t.unread
    }
    if language == "zh":
        assert not rejected
    else:
        assert tallies["syllogism"].contradicted / tallies["syllogism"].drawn > 0.05
        assert set(rejected) <= {"syllogism", "gsm_symbolic", "calendar_arithmetic",
                                 "base_conversion", "time_intervals"}  # fmt: skip


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


def total(question: str) -> str:
    """Of a sum, from left to right."""
    expression = re.search(r"\d+( [+-] \d+)+", question)
    assert expression
    return str(sum(int(term) for term in re.findall(r"[+-]?\d+", expression[0].replace(" ", ""))))


def product(question: str) -> str:
    """By adding."""
    left, right = numbers(question)
    return str(sum(left for _ in range(right)))


def common_divisor(question: str) -> str:
    """By trying all."""
    a, b = numbers(question)
    return str(max(d for d in range(1, min(a, b) + 1) if a % d == b % d == 0))


def common_multiple(question: str) -> str:
    """By trying all multiples of the larger number."""
    a, b = sorted(numbers(question))
    return str(next(m for m in range(b, a * b + 1, b) if m % a == 0))


def lowest_terms(question: str) -> str:
    top, bottom = (int(part) for part in re.findall(r"(\d+)/(\d+)", question)[0])
    found = Fraction(top, bottom)
    return f"{found.numerator}/{found.denominator}"


def ones(question: str) -> str:
    (number,) = numbers(question.split("number")[1])
    count = 0
    while number:
        number, bit = divmod(number, 2)
        count += bit
    return str(count)


def other_base(question: str) -> str:
    """By repeated division."""
    plain = question.replace("binary", "base-2").replace("hexadecimal", "base-16")
    found = re.search(r"base-(\d+) number (\w+) to base-(\d+)", plain)
    assert found
    value, base, digits = int(found[2], int(found[1])), int(found[3]), ""
    while value:
        value, digit = divmod(value, base)
        digits = "0123456789abcdef"[digit] + digits
    return digits


# Family → the answer by a way that is not the generator's, from the words of the question alone.
ANSWERS: dict[str, dict[str, Callable[[str], str]]] = {
    "en": {
        "chain_sum": total,
        "products": product,
        "gcd": common_divisor,
        "lcm": common_multiple,
        "fraction_simplification": lowest_terms,
        "count_bits": ones,
        "base_conversion": other_base,
    },
    "zh": {
        "sums": total,
        "products": product,
        "divisors": lambda q: common_divisor(q) if "最大公约数" in q else common_multiple(q),
        "fractions": lowest_terms,
    },
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_answers_hold_by_another_way(language: str) -> None:
    checked: Counter[str] = Counter()
    for problem in islice(problems(language, 3), 2500):
        if answer := ANSWERS[language].get(problem.family):
            assert answer(problem.question) == problem.answer, problem.text
            checked[problem.family] += 1
    assert set(checked) == set(ANSWERS[language])
    assert min(checked.values()) > 30


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "×": operator.mul,
    "mod": operator.mod, "除以": operator.mod,
}  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_worked_steps_are_right(language: str) -> None:
    """Every `a + b = c` in them, and the answer stands last."""
    families = {"chain_sum", "sums", "products", "gcd", "lcm", "divisors"}
    line = re.compile(r"(?:^|[,，] ?)(-?\d+) (\+|-|\*|×|mod|除以) (\d+) [=余] (-?\d+)")
    checked: Counter[str] = Counter()
    for problem in islice(problems(language, 4), 2500):
        if problem.family in families:
            for left, sign, right, result in line.findall(problem.steps):
                assert OPERATIONS[sign](int(left), int(right)) == int(result), problem.text
                checked[sign] += 1
            assert str(numbers(problem.steps)[-1]) == problem.answer
    assert set(checked) == {"en": {"+", "-", "*", "mod"}, "zh": {"+", "-", "×", "除以"}}[language]
    assert min(checked.values()) > 100


def test_chinese_word_problems_hold_by_another_way() -> None:
    checked: Counter[str] = Counter()
    for problem in islice(problems("zh", 5), 3000):
        given = numbers(problem.question)
        answer = numbers(problem.answer)
        if problem.family == "cages":
            heads, legs = given
            rabbits = answer[0] if "兔有几只" in problem.question else heads - answer[0]
            assert 4 * rabbits + 2 * (heads - rabbits) == legs
        elif problem.family == "remainders":
            assert divmod(given[0], given[1]) == tuple(answer)
        elif problem.family == "equations":
            factor, shift, right = given
            sign = 1 if "+" in problem.question else -1
            assert factor * answer[0] + sign * shift == right
        elif problem.family == "reversals":
            assert problem.answer[::-1] in problem.question
        elif problem.family == "shopping" and "一共用了" in problem.question:
            count1, price1, count2, price2 = given
            assert answer == [count1 * price1 + count2 * price2]
        else:
            continue
        checked[problem.family] += 1
    assert len(checked) == 5


def test_about_half_of_the_texts_show_their_steps() -> None:
    made = [problem for problem in islice(problems("zh", 0), 1000) if problem.steps]
    shown = sum("解答：" in problem.text for problem in made)
    withheld = sum(problem.wants_steps and problem.answers_held_out for problem in made)
    assert 0.4 < (shown + withheld) / len(made) < 0.6
    assert withheld > 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_another_process_writes_the_same_problems(language: str) -> None:
    code = (
        "import hashlib; from small_init.data.corpus.generated import generate;"
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
