from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from small_init.data.corpus.documents import Document, atomic, cut, split_of, tidy


def document(text: str, parent: str = "") -> Document:
    return Document(text, "s", "en", "prose", "k", parent)


def test_the_split_follows_the_parent_not_the_text() -> None:
    splits = {split_of(document(f"text {n}", "parent"), 0.5) for n in range(50)}
    assert len(splits) == 1


def test_the_split_keeps_its_share() -> None:
    val = sum(split_of(document(f"text {n}"), 0.1) == "val" for n in range(5000))
    assert 420 < val < 580


def test_a_larger_share_only_adds_validation_documents() -> None:
    small = {n for n in range(500) if split_of(document(f"{n}"), 0.1) == "val"}
    assert small < {n for n in range(500) if split_of(document(f"{n}"), 0.3) == "val"}


@given(st.text(alphabet="ab 文\n", max_size=300), st.integers(4, 60))
def test_cutting_loses_no_character(text: str, most: int) -> None:
    pieces = list(cut(text, most))
    assert all(0 < len(piece) <= most for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_cuts_prefer_paragraphs_to_lines() -> None:
    assert list(cut("aaaaaa\n\nbb\nccc", 12)) == ["aaaaaa", "bb\nccc"]


def test_tidy() -> None:
    assert tidy("\ufeffa \r\n\r\n\r\n\r\nb\x07\n") == "a\n\nb"


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), atomic(path) as file:
        file.write("new \ud800")
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["f.txt"]
