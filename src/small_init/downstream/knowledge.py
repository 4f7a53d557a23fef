"""Knowledge items: facts that stand in the training tokens, asked in words that do not."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from small_init.data.corpus.documents import stable_hash
from small_init.downstream.items import CHOICES, Item, balanced, with_wrong_answers

ITEMS = 720
_SIMILAR = 60  # answers are mixed among so many of the nearest length
_MEANING = range(6, 31)  # characters of a meaning in English
_ARTICLE = range(25, 61)  # characters of an article
_OF_A_LAW = 4  # items at most
_DESCRIPTION = range(25, 71)  # characters of what a thing is
_NO_TOPIC = "Uncategorized"
_LEAD = 160  # characters of a lead that are shown

Document = dict[str, Any]


def knowledge(name: str, documents: Iterable[Document]) -> list[Item]:
    """The items of one task from the documents that are in the training tokens."""
    rng = random.Random(f"tasks {name}")
    ranked = sorted(documents, key=lambda document: stable_hash(f"{name}\n{document['id']}"))
    return _TASKS[name](ranked, rng)[:ITEMS]


def _mixed(items: Iterable[Item], rng: random.Random) -> list[Item]:
    """Wrong answers from items of nearly the same length of answer; no answer is asked twice."""
    unique = list({item.right: item for item in items}.values())
    by_length = sorted(unique, key=lambda item: (len(item.right), item.key))
    buckets = [(at // _SIMILAR, item) for at, item in enumerate(by_length)]
    order = {item.key: at for at, item in enumerate(unique)}
    return sorted(with_wrong_answers(buckets, rng), key=lambda item: order[item.key])


def _words(documents: list[Document], rng: random.Random) -> list[Item]:
    """Chinese words to their first English meaning, asked in words that the dictionary has not."""

    def found() -> Iterator[Item]:
        for document in documents:
            if document["source"] != "cedict":
                continue
            word, meaning = document["fields"]["word"], document["fields"]["meaning"]
            if len(meaning) in _MEANING and re.fullmatch(r"[a-z ,'-]+", meaning):
                yield Item(document["id"], f"“{word}”用英语说是", f"“{meaning}”。")

    return _mixed(found(), rng)


def _articles(documents: list[Document], rng: random.Random) -> list[Item]:
    """From an article of a law to the law's name, of which the article says nothing."""
    items: list[Item] = []
    taken: dict[str, int] = {}
    for document in documents:
        if document["source"] != "laws":
            continue
        law = document["id"].split("/")[1].removeprefix("中华人民共和国")
        if not re.fullmatch(r"[㐀-鿿]{3,16}", law):
            continue
        pairs = {law[at : at + 2] for at in range(len(law) - 2)}
        for article in re.findall(r"^第\S+条 (.+)$", document["text"], re.MULTILINE):
            known = any(pair in article for pair in pairs)
            if len(article) in _ARTICLE and not known and taken.get(law, 0) < _OF_A_LAW:
                taken[law] = taken.get(law, 0) + 1
                key = f"{document['id']}/{taken[law]}"
                items.append(Item(key, f"“{article}”这一条出自《", f"{law}》", group=law))
    return list(with_wrong_answers(((0, item) for item in items), rng))


def _topics(documents: list[Document], rng: random.Random) -> list[Item]:
    """From a lead to its topic; every topic is equally often right."""
    leads = [
        d for d in documents
        if d["source"] == "wiki-leads" and d["fields"].get("topic", _NO_TOPIC) != _NO_TOPIC
    ]  # fmt: skip
    topics = sorted({d["fields"]["topic"] for d in leads})
    items = []
    for document in leads:
        topic, text = document["fields"]["topic"], document["text"]
        start = text[:_LEAD].rpartition(" ")[0] if len(text) > _LEAD else text
        if topic.lower() in start.lower():
            continue
        wrong = rng.sample([other for other in topics if other != topic], CHOICES - 1)
        context = f"{start} …\nThis text belongs to the topic:"
        items.append(Item(document["id"], context, f" {topic}", tuple(f" {w}" for w in wrong)))
    return balanced(items, ITEMS)


def _titles(documents: list[Document], rng: random.Random) -> list[Item]:
    """From a title to what the first sentence of its lead says it is."""

    def found() -> Iterator[Item]:
        for document in documents:
            if document["source"] != "wiki-leads":
                continue
            title = document["fields"]["title"]
            pattern = rf"(?:The |An? )?{re.escape(title)}[^.]*? (?:is|was|are|were) (.+?)[.,;(]"
            if not (match := re.match(pattern, document["text"])):
                continue
            what = match[1].strip()
            words = {word.lower() for word in re.findall(r"\w{4,}", title)}
            if len(what) in _DESCRIPTION and not any(word in what.lower() for word in words):
                yield Item(document["id"], f"In one phrase, {title}:", f" {what}.")

    return _mixed(found(), rng)


_TASKS: dict[str, Callable[[list[Document], random.Random], list[Item]]] = {
    "words_zh": _words,
    "articles_zh": _articles,
    "topics_en": _topics,
    "titles_en": _titles,
}
NAMES = tuple(_TASKS)
