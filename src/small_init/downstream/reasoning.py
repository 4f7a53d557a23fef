"""Reasoning items: the test part of the generated problems, every answer computed anew."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

from small_init.data.corpus import generated_en, generated_zh
from small_init.data.corpus.problems import LABELS, Problem, normalise, question_split
from small_init.data.corpus.solver import solve
from small_init.downstream.items import CHOICES, Item, balanced, with_wrong_answers
from small_init.downstream.training_text import TrainingText, signature

ITEMS = 720  # of a task, where there are as many; the least that counts is 500
# Questions drawn for an item at most: a family of few questions would never end.
_DRAWS = 60_000
LEVELS = 3

FAMILIES = {
    "arithmetic_en": ("chain_sum", "products"),
    "arithmetic_zh": ("sums", "products"),
    "word_problems_en": ("gsm_symbolic", "leg_counting"),
    "word_problems_zh": ("shopping", "journeys", "ages", "cages", "discounts"),
    "syllogisms_en": ("syllogism",),
    "syllogisms_zh": ("syllogisms",),
    "orders_zh": ("orders",),
    "symbols_en": ("spell_backward", "letter_counting"),
    "symbols_zh": ("reversals", "counting"),
}


def reasoning(name: str, training: TrainingText, fits: Callable[[str], bool]) -> list[Item]:
    """The items of one task; what the training text asks, or nearly asks, is left out.

    `fits` says whether a prompt with its answer is short enough.
    """
    language = name.rpartition("_")[2]
    share = ITEMS // len(FAMILIES[name])
    rng = random.Random(f"tasks {name}")
    items: list[Item] = []
    for family in FAMILIES[name]:
        fresh = (
            problem
            for problem in questions(language, family, training, rng)
            if fits(f"{prompt(problem)} {problem.answer}")
        )
        items += _ITEMS[_form(family)](family, fresh, share, rng)
    return items


def questions(
    language: str, family: str, training: TrainingText, rng: random.Random
) -> Iterator[Problem]:
    """Test questions that are read and answered alike by generator and solver, each once."""
    generators = {"en": generated_en, "zh": generated_zh}[language].FAMILIES
    draw = generators[family][1]
    asked: set[tuple[str, ...]] = set()
    for _ in range(_DRAWS):
        problem = draw(rng)
        question = problem.question
        if question_split(question) != "test" or training.asks(family, question):
            continue
        key = signature(family, question)
        if key in asked or solve(problem) != problem.answer:
            continue
        asked.add(key)
        yield problem


def prompt(problem: Problem) -> str:
    """The question as the corpus asks it, up to the answer; an English answer brings its blank."""
    ask, _, reply = LABELS[problem.language]
    return f"{ask}{problem.question}\n{reply}".rstrip(" ")


def _item(problem: Problem, level: int = 0, wrong: tuple[str, ...] = ()) -> Item:
    blank = " " if problem.language == "en" else ""
    key = f"{problem.family}/{normalise(problem.question)}"
    return Item(
        key, prompt(problem), blank + problem.answer, tuple(blank + w for w in wrong), level=level
    )


def _form(family: str) -> str:
    special = {
        "syllogism": "two_way", "syllogisms": "two_way", "orders": "people",
        "spell_backward": "order", "reversals": "order",
        "letter_counting": "count", "counting": "count",
        "chain_sum": "graded", "sums": "graded", "products": "graded",
    }  # fmt: skip
    return special.get(family, "number")


def _take(fresh: Iterator[Problem], count: int) -> list[Problem]:
    return [problem for problem, _ in zip(fresh, range(count), strict=False)]


def _unit(answer: str) -> str:
    """What stands around the number."""
    return re.sub(r"-?\d+", "0", answer)


def _number(family: str, fresh: Iterator[Problem], count: int, rng: random.Random) -> list[Item]:
    found = [(_unit(p.answer), _item(p)) for p in _take(fresh, 2 * count)]
    return list(with_wrong_answers(found, rng))[:count]


def _graded(family: str, fresh: Iterator[Problem], count: int, rng: random.Random) -> list[Item]:
    """Equal numbers of three levels, by the digits of the operands: up to 4, up to 7, more."""
    share = -(-count // LEVELS)
    by_level: dict[int, list[tuple[str, Item]]] = {1: [], 2: [], 3: []}
    for problem in fresh:
        digits = len(re.findall(r"\d", problem.question))
        level = 1 if digits <= 4 else 2 if digits <= 7 else 3
        if family == "products":  # at most six digits
            level = 1 if digits <= 3 else 2 if digits <= 4 else 3
        if len(by_level[level]) < 2 * share:
            by_level[level].append((_unit(problem.answer), _item(problem, level)))
        if all(len(found) == 2 * share for found in by_level.values()):
            break
    items = []
    for found in by_level.values():
        items += list(with_wrong_answers(found, rng))[:share]
    return items[:count]


def _two_way(family: str, fresh: Iterator[Problem], count: int, rng: random.Random) -> list[Item]:
    words = {"syllogism": ("Yes", "No"), "syllogisms": ("能", "不能")}[family]
    wrong = {words[0]: words[1], words[1]: words[0]}
    items = [_item(p, wrong=(wrong[p.answer],)) for p in _take(fresh, 4 * count)]
    return balanced(items, count)


def _people(family: str, fresh: Iterator[Problem], count: int, rng: random.Random) -> list[Item]:
    """Four people, all of them choices."""
    items = []
    for problem in fresh:
        pairs = re.findall(r"(\w+?)比(\w+?)[高矮重轻大小](?:，|。)", problem.question)
        people = sorted({person for pair in pairs for person in pair})
        if len(people) == CHOICES:
            wrong = tuple(person for person in people if person != problem.answer)
            items.append(_item(problem, wrong=wrong))
        if len(items) == count:
            break
    return items


def _order(family: str, fresh: Iterator[Problem], count: int, rng: random.Random) -> list[Item]:
    """Other texts of the same length in reverse order: the copying is asked; whether the order is
    right too, the written answers show."""
    found = [(len(p.answer), _item(p)) for p in _take(fresh, 2 * count)]
    return list(with_wrong_answers(found, rng))[:count]


def _count(family: str, fresh: Iterator[Problem], count: int, rng: random.Random) -> list[Item]:
    """Small numbers, each as often the answer as the others, against the others."""
    numbers = {"letter_counting": "123", "counting": "1234"}[family]  # 4 is rare in English
    items = []
    for problem in _take(fresh, 8 * count):
        if problem.answer in set(numbers):
            wrong = tuple(n for n in numbers if n != problem.answer)
            items.append(_item(problem, wrong=wrong))
    return balanced(items, count)


_ITEMS = {
    "number": _number, "graded": _graded, "two_way": _two_way, "people": _people,
    "order": _order, "count": _count,
}  # fmt: skip
