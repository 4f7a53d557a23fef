"""Answers computed anew from the words of a question, whoever wrote the question.

The generators' own answers are not trusted: reasoning-gym's syllogisms are wrong in one case of
eight and its word problems now and then round without saying so. A question that cannot be read
here, or whose answer differs, becomes no task item.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import product

from small_init.data.corpus.problems import Problem

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
_NUMBER = re.compile(r"\d+")
_EQUATION = re.compile(r"(?<![\w.])([\d.,()+*/ -]*\d[\d.,()+*/ -]*)=\s*[^\d\s-]?(-?\d[\d.,]*)(%?)")


def solve(problem: Problem) -> str | None:
    """The right answer, written as the generator writes it; None if the question is not read."""
    solver = _SOLVERS.get(problem.family)
    return solver(problem) if solver else None


def _numbers(problem: Problem) -> list[int]:
    return [int(n) for n in _NUMBER.findall(problem.question)]


def _value(expression: str) -> Fraction | None:
    """The exact value of +, -, *, / and brackets over decimal numbers."""
    bare = expression.replace(",", "").replace(" ", "")
    if not re.fullmatch(r"[\d.()+*/-]+", bare):
        return None
    exact = re.sub(r"\d+(?:\.\d+)?|\.\d+", lambda n: f"Fraction('{n.group()}')", bare)
    try:
        # Only digits, brackets and the four signs are left, so nothing else can be evaluated.
        value = eval(exact, {"__builtins__": {}}, {"Fraction": Fraction})
    except (SyntaxError, ZeroDivisionError, TypeError):
        return None
    return value if isinstance(value, Fraction) else None


def _expression(problem: Problem) -> str | None:
    found = re.search(r"-?\d+(?: *[-+*×] *\d+)+", problem.question)
    value = _value(found.group().replace("×", "*")) if found else None
    return None if value is None else str(value)


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

    This checks the arithmetic of a template, not that the template reads its story rightly.
    """
    lines = [line for line in _EQUATION.findall(problem.steps) if line[1].strip(".,")]
    result = None
    for left, right, _ in lines:
        value, printed = _value(left.strip()), _value(right.strip(".,"))
        if value is None or printed is None or value != printed:
            return None
        result = printed
    if result is None or result.denominator != 1 or result < 0:
        return None
    return str(result)


def _backward(problem: Problem) -> str | None:
    word = problem.question.rpartition(": ")[2]
    return word[::-1] if word.isalpha() else None


def _letters(problem: Problem) -> str | None:
    found = re.search(r'letter "(.)" appear in the text: "(.*)"', problem.question)
    return str(found[2].lower().count(found[1].lower())) if found else None


# --- syllogisms ----------------------------------------------------------------------------------

# Each is (quantifier, subject, predicate); the order of the patterns matters.
_STATEMENTS = (
    ("some not", re.compile(r"some (\w+) are not (\w+)", re.I)),
    ("some", re.compile(r"some (\w+) are (\w+)|有的(\w\w\w?)是(\w+)", re.I)),
    ("all", re.compile(r"all (\w+) are (\w+)|所有的(\w\w\w?)都是(\w+)", re.I)),
    ("no", re.compile(r"no (\w+) are (\w+)|没有(\w\w\w?)是(\w+)", re.I)),
)
Statement = tuple[str, str, str]


def _statement(text: str) -> Statement | None:
    for quantifier, pattern in _STATEMENTS:
        if found := pattern.fullmatch(text.strip()):
            subject, predicate = (group for group in found.groups() if group)
            return quantifier, subject.lower(), predicate.lower()
    return None


def _models() -> list[list[tuple[bool, ...]]]:
    """Which of the eight regions of three sets are inhabited; no set is empty, as Aristotle had it.

    What lies outside all three sets decides nothing.
    """
    regions = list(product((False, True), repeat=3))[1:]
    found = []
    for bits in product((False, True), repeat=len(regions)):
        inhabited = [region for region, bit in zip(regions, bits, strict=True) if bit]
        if all(any(region[kind] for region in inhabited) for kind in range(3)):
            found.append(inhabited)
    return found


MODELS = _models()


def _holds(quantifier: str, a: int, b: int, inhabited: list[tuple[bool, ...]]) -> bool:
    match quantifier:
        case "all":
            return all(region[b] for region in inhabited if region[a])
        case "no":
            return not any(region[a] and region[b] for region in inhabited)
        case "some":
            return any(region[a] and region[b] for region in inhabited)
        case _:
            return any(region[a] and not region[b] for region in inhabited)


def follows(premises: list[Statement], conclusion: Statement) -> bool:
    """Whether the conclusion holds in every model in which both premises do."""
    kinds = sorted({kind for _, *pair in (*premises, conclusion) for kind in pair})
    at = {kind: number for number, kind in enumerate(kinds)}

    def true_in(statement: Statement, model: list[tuple[bool, ...]]) -> bool:
        return _holds(statement[0], at[statement[1]], at[statement[2]], model)

    return all(
        true_in(conclusion, model)
        for model in MODELS
        if all(true_in(premise, model) for premise in premises)
    )


def _syllogism(problem: Problem) -> str | None:
    if problem.language == "en":
        found = re.match(r"(.*?)\. (.*?)\. Does it follow that (.*?)\?", problem.question)
        words = ("Yes", "No")
    else:
        found = re.match(r"已知(.*?)，(.*?)。能否推出(.*?)？", problem.question)
        words = ("能", "不能")
    statements = [_statement(text) for text in found.groups()] if found else []
    if len(statements) != 3 or any(statement is None for statement in statements):
        return None
    first, second, conclusion = (s for s in statements if s is not None)
    return words[0] if follows([first, second], conclusion) else words[1]


# --- Chinese word problems -----------------------------------------------------------------------


def _unit(
    template: str, formula: Callable[..., int], count: int
) -> Callable[[Problem], str | None]:
    """A solver from the numbers of a question in their order."""

    def solver(problem: Problem) -> str | None:
        numbers = _numbers(problem)
        return template.format(formula(*numbers)) if len(numbers) == count else None

    return solver


def _shopping(problem: Problem) -> str | None:
    count1, price1, count2, price2, *paid = _numbers(problem)
    total = count1 * price1 + count2 * price2
    return f"{paid[0] - total if paid else total} 元"


def _journeys(problem: Problem) -> str | None:
    if "相向而行" in problem.question:
        speed, other, distance = _numbers(problem)
        return f"{distance // (speed + other)} 小时" if distance % (speed + other) == 0 else None
    speed, hours = _numbers(problem)
    return f"{speed * hours} 千米" if "一共行了多少千米" in problem.question else None


def _cages(problem: Problem) -> str | None:
    heads, legs = _numbers(problem)
    rabbits = (legs - 2 * heads) // 2
    return f"{rabbits if '兔有几只' in problem.question else heads - rabbits} 只"


def _discounts(problem: Problem) -> str | None:
    found = re.search(r"打([五六七八九])折", problem.question)
    price, count = _numbers(problem)
    tenths = "零一二三四五六七八九".index(found[1]) if found else 0
    return f"{price * tenths * count // 10} 元" if price * tenths % 10 == 0 and found else None


def _orders(problem: Problem) -> str | None:
    """The end of a chain of comparisons, by counting who is above whom."""
    facts, _, ask = problem.question.partition("。谁")
    above: dict[str, str] = {}
    for left, right, word in re.findall(r"(\w+?)比(\w+?)([高矮重轻大小])(?:，|$)", facts):
        more = word in "高重大"
        above[right if more else left] = left if more else right
    people = set(above) | set(above.values())
    top, bottom = people - set(above), people - set(above.values())
    chosen = top if ask[-2] in "高重大" else bottom
    return chosen.pop() if len(chosen) == 1 and len(above) == len(people) - 1 else None


def _quoted(problem: Problem) -> list[str]:
    return re.findall(r"“(.*?)”", problem.question)


_SOLVERS: dict[str, Callable[[Problem], str | None]] = {
    "chain_sum": _expression,
    "products": _expression,
    "sums": _expression,
    "gsm_symbolic": _worked,
    "leg_counting": _legs,
    "spell_backward": _backward,
    "letter_counting": _letters,
    "syllogism": _syllogism,
    "syllogisms": _syllogism,
    "shopping": _shopping,
    "journeys": _journeys,
    "ages": _unit("{} 岁", lambda age, gap, years: 2 * (age + years) + gap, 3),
    "cages": _cages,
    "discounts": _discounts,
    "orders": _orders,
    "reversals": lambda problem: _quoted(problem)[0][::-1],
    "counting": lambda problem: str(_quoted(problem)[0].count(_quoted(problem)[1])),
}
