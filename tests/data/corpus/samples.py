"""Made-up members of the wheels, in the formats the readers expect."""

import bz2
import gzip
import random
import sqlite3

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


def cedict(entries: list[tuple[str, str, str]]) -> bytes:
    """A compressed dictionary of (simplified word, pinyin, meanings), traditional as simplified."""
    lines = ["# CC-CEDICT", *(f"{word} {word} [{sound}] /{text}/" for word, sound, text in entries)]
    return gzip.compress("\n".join(lines).encode())


def articles_dump(pages: list[tuple[str, str]]) -> bytes:
    """A Wikipedia export of (title, wikitext), compressed."""
    body = "".join(
        f"<page><title>{title}</title><ns>0</ns><revision><text>{text}</text></revision></page>"
        for title, text in pages
    )
    return bz2.compress(f'<mediawiki xmlns="urn:x">{body}</mediawiki>'.encode())
