"""Whether a statement about three kinds follows from two others, by looking at every model."""

import re
from itertools import product

from small_init.data.corpus.problems import Problem

# Each is (quantifier, subject, predicate); the order of the patterns matters.
_STATEMENTS = (
    ("some not", re.compile(r"some (\w+) are not (\w+)", re.I)),
    ("some", re.compile(r"some (\w+) are (\w+)|有的(\w\w\w?)是(\w+)", re.I)),
    ("all", re.compile(r"all (\w+) are (\w+)|所有的(\w\w\w?)都是(\w+)", re.I)),
    ("no", re.compile(r"no (\w+) are (\w+)|没有(\w\w\w?)是(\w+)", re.I)),
)
Statement = tuple[str, str, str]
Model = list[tuple[bool, ...]]


def syllogism(problem: Problem) -> str | None:
    """Yes or no, in the words of the problem's language."""
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


def follows(premises: list[Statement], conclusion: Statement) -> bool:
    """Whether the conclusion holds in every model in which both premises do."""
    kinds = sorted({kind for _, *pair in (*premises, conclusion) for kind in pair})
    at = {kind: number for number, kind in enumerate(kinds)}

    def true_in(statement: Statement, model: Model) -> bool:
        return _holds(statement[0], at[statement[1]], at[statement[2]], model)

    return all(
        true_in(conclusion, model)
        for model in MODELS
        if all(true_in(premise, model) for premise in premises)
    )


def _statement(text: str) -> Statement | None:
    for quantifier, pattern in _STATEMENTS:
        if found := pattern.fullmatch(text.strip()):
            subject, predicate = (group for group in found.groups() if group)
            return quantifier, subject.lower(), predicate.lower()
    return None


def _models() -> list[Model]:
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


def _holds(quantifier: str, a: int, b: int, inhabited: Model) -> bool:
    match quantifier:
        case "all":
            return all(region[b] for region in inhabited if region[a])
        case "no":
            return not any(region[a] and region[b] for region in inhabited)
        case "some":
            return any(region[a] and region[b] for region in inhabited)
        case _:
            return any(region[a] and not region[b] for region in inhabited)
