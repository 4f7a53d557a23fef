"""One generated problem, as the corpus shows it and as a task asks it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from small_init.data.corpus.documents import stable_hash

LABELS = {"en": ("Question: ", "Solution: ", "Answer: "), "zh": ("问题：", "解答：", "答案：")}


@dataclass(frozen=True)
class Problem:
    """One question with its answer; `steps` is the worked way there, empty where there is none."""

    question: str
    answer: str
    language: str
    family: str
    steps: str = ""

    @property
    def text(self) -> str:
        """The problem as the corpus shows it."""
        ask, work, reply = LABELS[self.language]
        lines = [f"{ask}{self.question}"]
        if self.steps and stable_hash(f"steps\n{self.question}") % 2:
            lines.append(f"{work}{self.steps}")
        return "\n".join([*lines, f"{reply}{self.answer}"])


Draw = Callable[[random.Random], Problem]
