"""Language items: how a held-out text goes on, against three other texts of the same source.

The same items are asked with a short and with a long context. The difference says what a model
takes from further back than the last line.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from small_init.data.corpus.documents import stable_hash
from small_init.downstream.items import Item, with_wrong_answers
from small_init.downstream.training_text import TrainingText

ITEMS = 720


@dataclass(frozen=True)
class Cut:
    """Characters of the parts of a passage. Together they fill most of a context of 128 tokens.

    A passage goes on with `first`, so that no word and no number is torn.
    """

    sources: tuple[str, ...]
    most: int  # items of one document
    first: str  # regular expression
    short: int
    long: int
    continuation: int


CUTS = {
    "en": Cut(("wiki-leads", "wiki-articles", "recipes"), 8, " ", 60, 150, 90),
    "zh": Cut(("laws", "sanguo"), 40, "[㐀-鿿]", 20, 50, 28),
}
NAMES = tuple(f"{extent}_{language}" for language in CUTS for extent in ("local", "long"))


def continuations(
    language: str, training: TrainingText, fits: Callable[[str], bool]
) -> dict[str, list[Item]]:
    """`local_<language>` and `long_<language>`: the same items in the same order."""
    cut = CUTS[language]
    rng = random.Random(f"tasks continuations {language}")
    passages = _passages(cut, training, fits)
    texts = [before[-cut.short :] + after for _, _, before, after in passages]
    kept: list[tuple[Hashable, Item]] = [
        (source, Item(f"{source}/{group}/{number}", before, after, group=group))
        for number, ((source, group, before, after), copy) in enumerate(
            zip(passages, training.copied(texts), strict=True)
        )
        if not copy
    ]
    items = list(with_wrong_answers(kept, rng))
    items = sorted(items, key=lambda item: stable_hash(item.key))[:ITEMS]
    return {
        f"local_{language}": [
            Item(i.key, i.context[-cut.short :].lstrip(), i.right, i.wrong, i.group) for i in items
        ],
        f"long_{language}": items,
    }


def _passages(
    cut: Cut, training: TrainingText, fits: Callable[[str], bool]
) -> list[tuple[str, str, str, str]]:
    """(source, document, context, continuation), not overlapping, at most so many a document."""
    found = []
    taken: dict[str, int] = {}
    first = re.compile(cut.first)
    for document in training.held_out:
        source = document["source"]
        if source not in cut.sources:
            continue
        group = _whole(document)
        text, at = document["text"], cut.long
        while (start := first.search(text, at)) and taken.get(group, 0) < cut.most:
            before, after = text[start.start() - cut.long : start.start()], text[start.start() :]
            after = after[: cut.continuation]
            if len(after) == cut.continuation and "\n" not in after and fits(before + after):
                found.append((source, group, before, after))
                taken[group] = taken.get(group, 0) + 1
            at = start.start() + cut.continuation + cut.long
    return found


def _whole(document: dict[str, Any]) -> str:
    """The law or the article that a document is a part of."""
    name = document["id"].partition("/")[2]
    return name.split("/")[0] if document["source"] == "laws" else name.split("#")[0]
