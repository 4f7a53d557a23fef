"""Math and reasoning problems written by the project, and how questions are divided.

Every question belongs to `train`, `val` or `test` by a hash of what it asks, whatever the seed.
The corpus holds train and val questions only; tasks that measure reasoning draw test questions
from the same `problems` iterator, so no new seed can bring a test question into training.

One problem is one document. About half of the problems show worked steps (by a hash, so a
question always has the same form); the others give the answer at once, as a task asks for it.
Problems are exempt from near-duplicate removal (templates are near-duplicates of each other by
design); a question occurs once.
"""

import random
import re
import unicodedata
from collections.abc import Iterator
from itertools import islice

from small_init.data.corpus.documents import Document, stable_hash
from small_init.data.corpus.problems import Draw, Problem

SPLITS = (("train", 0.85), ("val", 0.05), ("test", 0.10))
# A family whose last so many draws were all known questions has no more to give.
_EXHAUSTED = 500


_EXPRESSION = re.compile(r"\d+(?: ?[-+*/×÷] ?\d+)+")


def normalise(question: str) -> str:
    """What a question asks: its arithmetic expression if it is about one, else its words.

    The same sum asked in other words, or in the other language, is the same question.
    """
    folded = unicodedata.normalize("NFKC", question).casefold()
    expressions = _EXPRESSION.findall(folded)
    if len(expressions) == 1:
        bare = expressions[0].replace(" ", "").replace("×", "*").replace("÷", "/")
        # Words that carry numbers of their own make it a word problem.
        if len(re.findall(r"\d+", folded)) == len(re.findall(r"\d+", bare)):
            return bare
    return " ".join(folded.split())


def question_split(question: str) -> str:
    """`train`, `val` or `test` (85, 5, 10 %), by a stable hash of the normalised question."""
    share = stable_hash(f"question\n{normalise(question)}") / 2**64
    for split, size in SPLITS:
        if share < size:
            return split
        share -= size
    return SPLITS[-1][0]


def problems(language: str, seed: int) -> Iterator[Problem]:
    """All problems of a language in a fixed order, every question once, all three splits.

    The iterator is practically endless; families of few questions drop out when they are used up.
    """
    families = _families(language)
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
        yield problem


def generate(language: str, count: int, seed: int) -> Iterator[tuple[Document, str]]:
    """`count` documents of train and val questions, each with its split."""
    kept = (
        (problem, split)
        for problem in problems(language, seed)
        if (split := question_split(problem.question)) != "test"
    )
    for number, (problem, split) in enumerate(islice(kept, count)):
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
