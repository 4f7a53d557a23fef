"""Math and reasoning problems written by the project: drawn, answered anew, divided.

Every question belongs to `train`, `val` or `test` by a hash of what it asks, whatever the seed.
The corpus holds train and val questions only; tasks that measure reasoning draw test questions
from the same generators, so no new seed can bring a test question into training. Nor do worked
steps answer one on their way (`problems.Problem.text`).

The project's own solver answers every question before it enters the text; what it contradicts, or
cannot read, is rejected and counted.

One problem is one document. Problems are exempt from near-duplicate removal (templates are
near-duplicates of each other by design); a question occurs once.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from small_init.data.corpus.documents import Document, stable_hash
from small_init.data.corpus.problems import Draw, Problem, normalise, question_split
from small_init.data.corpus.solver import solve

# A family whose last so many draws were all known questions has no more to give.
_EXHAUSTED = 500


@dataclass
class Tally:
    """What became of the different questions drawn from a family, test questions included."""

    drawn: int = 0
    contradicted: int = 0  # the solver's answer is another
    unread: int = 0  # the solver does not read the question or its steps
    documents: int = 0  # written, training and validation
    with_steps: int = 0  # of the documents
    steps_withheld: int = 0  # documents without the steps that would answer a held-out question


def problems(
    language: str, seed: int, tallies: dict[str, Tally] | None = None
) -> Iterator[Problem]:
    """All right problems of a language in a fixed order, every question once, all three splits.

    The iterator is practically endless; families of few questions drop out when they are used up.

    Args:
        language: `en` or `zh`.
        seed: of the order; a question's split and form do not depend on it.
        tallies: counts per family, brought up to date with every problem.
    """
    families = _families(language)
    tallies = {} if tallies is None else tallies
    rng = random.Random(f"{language} {seed}")
    names, weights = list(families), [weight for weight, _ in families.values()]
    asked: set[int] = set()
    stale = dict.fromkeys(names, 0)
    while names:
        name = rng.choices(names, weights)[0]
        problem = families[name][1](rng)
        key = stable_hash(f"{name}\n{normalise(problem.question)}")
        if key in asked:
            stale[name] += 1
            if stale[name] >= _EXHAUSTED:
                at = names.index(name)
                del names[at], weights[at]
            continue
        stale[name] = 0
        asked.add(key)
        if _is_right(problem, tallies.setdefault(name, Tally())):
            yield problem


def _is_right(problem: Problem, tally: Tally) -> bool:
    tally.drawn += 1
    answer = solve(problem)
    tally.unread += answer is None
    tally.contradicted += answer is not None and answer != problem.answer
    return answer == problem.answer


def generate(
    language: str, count: int, seed: int, tallies: dict[str, Tally] | None = None
) -> Iterator[tuple[Document, str]]:
    """`count` documents of train and val questions, each with its split.

    Args:
        tallies: as in `problems`; complete when the iterator is.
    """
    tallies = {} if tallies is None else tallies
    kept = (
        (problem, split)
        for problem in problems(language, seed, tallies)
        if (split := question_split(problem.question)) != "test"
    )
    for number, (problem, split) in enumerate(islice(kept, count)):
        tally = tallies[problem.family]
        tally.documents += 1
        tally.steps_withheld += problem.wants_steps and problem.answers_held_out
        tally.with_steps += problem.wants_steps and not problem.answers_held_out
        key = f"{number:07d}-{problem.family}"
        fields = {"question": problem.question, "answer": problem.answer}
        yield (
            Document(problem.text, f"math-{language}", language, "math", key, fields=fields),
            split,
        )


def _families(language: str) -> dict[str, tuple[int, Draw]]:
    """Name → (weight, draw). Imported here: reasoning-gym takes a second to load."""
    if language == "en":
        from small_init.data.corpus.generated_en import FAMILIES
    else:
        from small_init.data.corpus.generated_zh import FAMILIES
    return FAMILIES
