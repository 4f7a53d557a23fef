"""Made-up members of the wheels, in the formats the readers expect."""

import bz2
import csv
import io
import random
import sqlite3
import zipfile

HANZI = [chr(code) for code in range(0x4E00, 0x4E00 + 600)]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def chinese(rng: random.Random, length: int) -> str:
    """Random characters: no two texts share shingles by accident."""
    return "".join(rng.choices(HANZI, k=length)) + "。"


def english(rng: random.Random, words: int) -> str:
    """Random words, as above."""
    return " ".join("".join(rng.choices(LETTERS, k=rng.randint(2, 7))) for _ in range(words)) + "."


def laws(chapters: list[tuple[str, str, str, str]]) -> bytes:
    """A database of (law, chapter, number, text)."""
    database = sqlite3.connect(":memory:")
    database.execute(
        "CREATE TABLE articles (id INTEGER PRIMARY KEY, law_id, law_name, chapter, section, "
        "article_no, article_text)"
    )
    for law, chapter, number, text in chapters:
        database.execute(
            "INSERT INTO articles (law_id, law_name, chapter, article_no, article_text) "
            "VALUES (?, ?, ?, ?, ?)",
            (law, law, chapter, number, text),
        )
    database.commit()
    return database.serialize()


def idioms(rows: list[tuple[str, str, str, str]]) -> bytes:
    """A table of (word, explanation, derivation, example)."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["word", "pinyin", "explanation", "derivation", "example"])
    writer.writerows([word, "pīn", *rest] for word, *rest in rows)
    return text.getvalue().encode()


def zipped(name: str, text: str) -> bytes:
    """An archive inside a wheel."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(name, text)
    return data.getvalue()


def articles_dump(pages: list[tuple[str, str]]) -> bytes:
    """A Wikipedia export of (title, wikitext), compressed."""
    body = "".join(
        f"<page><title>{title}</title><ns>0</ns><revision><text>{text}</text></revision></page>"
        for title, text in pages
    )
    return bz2.compress(f'<mediawiki xmlns="urn:x">{body}</mediawiki>'.encode())
