"""A generated problem, what its question asks, and on which side of the split that stands.

Generators, solver and downstream tasks share this module: a question is held out from the training
text by the same function that makes it a task's question.
"""

import random
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from small_init.data.corpus.arithmetic import bare_arithmetic
from small_init.data.corpus.documents import stable_hash

SPLITS = (("train", 0.85), ("val", 0.05), ("test", 0.10))
LABELS = {"en": ("Question: ", "Solution: ", "Answer: "), "zh": ("问题：", "解答：", "答案：")}
_EXPRESSION = re.compile(r"\d+(?: ?[-+*/×÷] ?\d+)+")


@dataclass(frozen=True)
class Problem:
    """One question with its answer; `steps` is the worked way there, empty where there is none."""

    question: str
    answer: str
    language: str
    family: str
    steps: str = ""

    @property
    def wants_steps(self) -> bool:
        """About half of the problems, by a hash, so that a question always has the same form."""
        return bool(self.steps) and stable_hash(f"steps\n{self.question}") % 2 == 1

    @property
    def answers_held_out(self) -> bool:
        """True if the steps would answer, on their way, what a task may ask."""
        return any(split_of_expression(found) == "test" for found in expressions(self.steps))

    @property
    def text(self) -> str:
        """The problem as the corpus shows it: without its steps if they answer a held-out sum."""
        ask, work, reply = LABELS[self.language]
        lines = [f"{ask}{self.question}"]
        if self.wants_steps and not self.answers_held_out:
            lines.append(f"{work}{self.steps}")
        return "\n".join([*lines, f"{reply}{self.answer}"])


Draw = Callable[[random.Random], Problem]


def expressions(text: str) -> set[str]:
    """The arithmetic expressions in a text, whole runs of numbers and signs, in canonical form."""
    return {_canonical(found) for found in _EXPRESSION.findall(bare_arithmetic(text))}


def _canonical(expression: str) -> str:
    """Without blanks, in one notation, the terms of a sum or the factors of a product in order.

    a + b and b + a, or a - b + c and c + a - b, are the same question.
    """
    bare = expression.replace(" ", "").replace("×", "*").replace("÷", "/")
    if re.fullmatch(r"[\d*]+", bare):
        return "*".join(sorted(bare.split("*"), key=int))
    if re.fullmatch(r"[\d+-]+", bare):
        terms = sorted(re.findall(r"[+-]\d+", f"+{bare}"), key=lambda term: int(term[1:]))
        added = [term for term in terms if term[0] == "+"]
        return "".join(added + [term for term in terms if term[0] == "-"]).removeprefix("+")
    return bare


def normalise(question: str) -> str:
    """What a question asks: its arithmetic expression if it is about one, else its words.

    The same sum asked in other words, in another order or in the other language, is the same
    question.
    """
    folded = unicodedata.normalize("NFKC", question).casefold()
    found = _EXPRESSION.findall(folded)
    # Words that carry numbers of their own make it a word problem.
    if len(found) == 1 and re.findall(r"\d+", folded) == re.findall(r"\d+", found[0]):
        return _canonical(found[0])
    return " ".join(folded.split())


def question_split(question: str) -> str:
    """`train`, `val` or `test` (85, 5, 10 %), by a stable hash of the normalised question."""
    return split_of_expression(normalise(question))


def split_of_expression(normalised: str) -> str:
    """The split of a question that is already in its normal form."""
    share = stable_hash(f"question\n{normalised}") / 2**64
    for split, size in SPLITS:
        if share < size:
            return split
        share -= size
    return SPLITS[-1][0]
