"""Answers computed anew from the words of a question, whoever wrote the question.

The generators' own answers are not trusted: reasoning-gym's syllogisms are wrong in one case of
eight, its dates run over the end of the year, and its word problems now and then round without
saying so. A question that cannot be read here, or whose answer differs, enters no text and
becomes no task item.
"""

from collections.abc import Callable

from small_init.data.corpus.problems import Problem
from small_init.data.corpus.solver_dates import calendar, interval
from small_init.data.corpus.solver_en import SOLVERS as ENGLISH
from small_init.data.corpus.solver_zh import SOLVERS as CHINESE

SOLVERS: dict[str, dict[str, Callable[[Problem], str | None]]] = {
    "en": ENGLISH | {"calendar_arithmetic": calendar, "time_intervals": interval},
    "zh": CHINESE,
}


def solve(problem: Problem) -> str | None:
    """The right answer, written as the generator writes it; None if the question is not read."""
    solver = SOLVERS[problem.language].get(problem.family)
    return solver(problem) if solver else None
