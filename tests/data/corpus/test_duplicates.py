import random

import pytest

from small_init.data.corpus.duplicates import Duplicates, shingles


def similarity(left: str, right: str) -> float:
    a, b = shingles(left), shingles(right)
    return len(a & b) / len(a | b)


def test_exact_ignores_white_space() -> None:
    seen = Duplicates(0.8)
    assert [seen.is_exact(text) for text in ("a b", "a  b\n", "a c")] == [False, True, False]


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_threshold_lies_at_four_fifths(language: str) -> None:
    rng = random.Random(1)
    joint = "" if language == "zh" else " "
    units = [chr(0x4E00 + n) if language == "zh" else f"w{n}" for n in range(3000)]
    new = "新" if language == "zh" else "new"
    # One unit changed breaks three shingles of 298, which leaves (298 − k)/(298 + k) for k.
    changes = {"near": (4, 0.92), "far": (21, 0.65)}
    found = dict.fromkeys(changes, 0)
    for _ in range(100):
        seen = Duplicates(0.8)
        words = rng.choices(units, k=300)
        first = joint.join(words)
        assert not seen.is_near("first", first)
        for name, (count, expected) in changes.items():
            changed = list(words)
            for at in rng.sample(range(4, 296, 4), count):
                changed[at] = new
            other = joint.join(changed)
            assert similarity(first, other) == pytest.approx(expected, abs=0.01)
            found[name] += seen.is_near(name, other)
    assert found == {"near": 100, "far": 0}


def test_punctuation_and_case_do_not_hide_a_duplicate() -> None:
    seen = Duplicates(0.8)
    assert not seen.is_near("a", "The cat sat on the mat and looked at the dog.")
    assert seen.is_near("b", "the cat sat on the mat, and looked at the DOG!")


def test_texts_without_words_are_no_duplicates_of_each_other() -> None:
    seen = Duplicates(0.8)
    assert not seen.is_near("a", "+++")
    assert not seen.is_near("b", "---")
