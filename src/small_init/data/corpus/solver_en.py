"""Solvers of the English families, except those about dates."""

import math
import re
from collections.abc import Callable
from fractions import Fraction

from small_init.data.corpus.arithmetic import CURRENCIES, equations, numbers, value
from small_init.data.corpus.problems import Problem
from small_init.data.corpus.syllogisms import syllogism

# Legs of the animals that reasoning-gym counts; its plurals are the singular and an s.
_LEGS = {
    0: "snake:sea slug:jellyfish:flatworm:leech",
    2: "chicken:bird:human:duck",
    4: "dog:cat:cow:horse:lion:elephant:giraffe:tiger:deer:sheep",
    5: "starfish",
    6: "insect:ant:butterfly:beetle:bee:wasp:grasshopper:cricket:cockroach:praying mantis:firefly",
    8: "spider:scorpion",
    10: "crab:lobster:shrimp",
    14: "woodlouse",
}
LEGS = {animal: legs for legs, animals in _LEGS.items() for animal in animals.split(":")}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def expression(problem: Problem) -> str | None:
    """The value of the only sum or product in a question of either language."""
    found = re.search(r"-?\d+(?: *[-+*×] *\d+)+", problem.question)
    result = value(found.group().replace("×", "*")) if found else None
    return None if result is None else str(result)


def lowest_terms(problem: Problem) -> str | None:
    """A fraction simplified; it stays a fraction where the denominator is one."""
    found = re.search(r"(\d+)/(\d+)", problem.question)
    if not found or int(found[2]) == 0:
        return None
    fraction = Fraction(int(found[1]), int(found[2]))
    return f"{fraction.numerator}/{fraction.denominator}"


def _legs(problem: Problem) -> str | None:
    counted = problem.question.partition("you have ")[2].rstrip("?")
    total = 0
    for part in counted.split(", "):
        count, _, animal = part.partition(" ")
        legs = LEGS.get(animal, LEGS.get(animal.removesuffix("s")))
        if legs is None or not count.isdigit():
            return None
        total += int(count) * legs
    return str(total)


def _worked(problem: Problem) -> str | None:
    """The result of the last printed step, if every step is exact and the answer a whole number.

    This checks the arithmetic of a story, not that its template reads the story rightly. A story in
    two currencies, or with a fraction written out (0.6666666666666666), is not read.
    """
    text = f"{problem.question} {problem.steps}"
    currencies = {found.replace("dollars", "$").replace("dollar", "$")
                  for found in CURRENCIES.findall(text)}  # fmt: skip
    if len(currencies) > 1 or re.search(r"\.\d{4}", text):
        return None
    result = None
    for left, right in equations(problem.steps):
        result = value(right.rstrip("%"))
        if result is None or result < 0 or value(left) != value(right):
            return None
    return str(result) if result is not None and result.denominator == 1 else None


def _backward(problem: Problem) -> str | None:
    word = problem.question.rpartition(": ")[2]
    return word[::-1] if word.isalpha() else None


def _letters(problem: Problem) -> str | None:
    found = re.search(r'letter "(.)" appear in the text: "(.*)"', problem.question)
    return str(found[2].lower().count(found[1].lower())) if found else None


def _bits(problem: Problem) -> str | None:
    number = numbers(problem.question)[-1]
    count = 0
    while number:
        number, bit = divmod(number, 2)
        count += bit
    return str(count)


def _equation(problem: Problem) -> str | None:
    """The root of an equation that is linear in its only letter, by its values at 0 and 1."""
    found = re.search(r": (.*\b([a-z])\b.*) = (-?\d+)$", problem.question)
    if not found:
        return None
    left, letter, right = found.groups()
    at_0, at_1 = (value(re.sub(rf"\b{letter}\b", number, left)) for number in "01")
    if at_0 is None or at_1 is None or at_0 == at_1:
        return None
    return str((int(right) - at_0) / (at_1 - at_0))


def _base(problem: Problem) -> str | None:
    plain = problem.question.replace("binary", "base-2").replace("hexadecimal", "base-16")
    found = re.search(r"base-(\d+) number (\w+) to base-(\d+)", plain)
    if not found:
        return None
    rest, base, written = int(found[2], int(found[1])), int(found[3]), ""
    while rest:
        rest, digit = divmod(rest, base)
        written = DIGITS[digit] + written
    return written or None


SOLVERS: dict[str, Callable[[Problem], str | None]] = {
    "chain_sum": expression,
    "products": expression,
    "gsm_symbolic": _worked,
    "leg_counting": _legs,
    "gcd": lambda problem: str(math.gcd(*numbers(problem.question))),
    "lcm": lambda problem: str(math.lcm(*numbers(problem.question))),
    "count_bits": _bits,
    "spell_backward": _backward,
    "letter_counting": _letters,
    "syllogism": syllogism,
    "simple_equations": _equation,
    "fraction_simplification": lowest_terms,
    "base_conversion": _base,
}
