"""What all embedded tasks share: an item, and wrong answers that betray nothing.

The wrong answers of an item are the right answers of other items of the same kind and length, so
that a model that ignores the question is right as often as a coin: at chance.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

CHOICES = 4
_TRIED = 50  # mates looked at for an item; many have its answer or each other's


@dataclass(frozen=True)
class Item:
    """One question.

    Attributes:
        context: what the model reads, up to where the answer begins.
        right: the answer as the model would have to write it.
        wrong: the other choices; empty until they are drawn.
        group: items of one group are not independent (a document, a template).
        level: difficulty, 1 the easiest; 0 where there are no grades.
    """

    key: str
    context: str
    right: str
    wrong: tuple[str, ...] = ()
    group: str = ""
    level: int = 0

    def row(self, rng: random.Random) -> dict[str, Any]:
        """The line of the task's file, the choices in random order."""
        choices = [self.right, *self.wrong]
        rng.shuffle(choices)
        row = {
            "id": self.key,
            "context": self.context,
            "choices": choices,
            "answer": choices.index(self.right),
            "target": self.right,
            "group": self.group or self.key,
        }
        return row | ({"level": self.level} if self.level else {})


def with_wrong_answers(
    items: Iterable[tuple[Hashable, Item]], rng: random.Random
) -> Iterator[Item]:
    """Items with three wrong answers from their bucket, of other groups; others are left out."""
    items = list(items)
    buckets = defaultdict(list)
    for bucket, item in items:
        buckets[bucket].append(item)
    for bucket, item in items:
        mates = buckets[bucket]
        wrong: list[str] = []
        for mate in rng.sample(mates, min(len(mates), _TRIED)):
            other = not item.group or mate.group != item.group
            if other and mate.right != item.right and mate.right not in wrong:
                wrong.append(mate.right)
            if len(wrong) == CHOICES - 1:
                yield replace(item, wrong=tuple(wrong))
                break


def balanced(items: Iterable[Item], count: int, by: str = "right") -> list[Item]:
    """At most `count` items, as many as possible of each value of a field, in their order."""
    groups = defaultdict(list)
    for item in items:
        groups[getattr(item, by)].append(item)
    most = -(-count // max(len(groups), 1))
    size = min([most, *map(len, groups.values())])
    chosen = {item.key for group in groups.values() for item in group[:size]}
    return [item for group in groups.values() for item in group if item.key in chosen][:count]
