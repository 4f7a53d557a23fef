import random

import pytest

from small_init.corpus.duplicates import Duplicates, shingles


def similarity(left: str, right: str) -> float:
    a, b = shingles(left), shingles(right)
    return len(a & b) / len(a | b)


def test_exact_ignores_white_space() -> None:
    seen = Duplicates(0.8)
    assert [seen.is_exact(text) for text in ("a b", "a  b\n", "a c")] == [False, True, False]


@pytest.mark.parametrize("language", ["zh", "en"])
def test_near_duplicates_are_found_and_others_are_not(language: str) -> None:
    rng = random.Random(1)
    joint = "" if language == "zh" else " "
    units = [chr(0x4E00 + n) if language == "zh" else f"w{n}" for n in range(3000)]
    found = {"near": 0, "far": 0}
    for number in range(100):
        seen = Duplicates(0.8)
        words = rng.choices(units, k=300)
        # One unit changed breaks three shingles: 3 changes ≈ 0.94, 60 changes ≈ 0.3.
        near, far = list(words), list(words)
        for at in rng.sample(range(300), 3):
            near[at] = "新" if language == "zh" else "new"
        for at in rng.sample(range(300), 60):
            far[at] = "新" if language == "zh" else "new"
        assert similarity(joint.join(words), joint.join(near)) > 0.9
        assert similarity(joint.join(words), joint.join(far)) < 0.6
        assert not seen.is_near("first", joint.join(words))
        found["near"] += seen.is_near(f"near {number}", joint.join(near))
        found["far"] += seen.is_near(f"far {number}", joint.join(far))
    assert found == {"near": 100, "far": 0}


def test_punctuation_and_case_do_not_hide_a_duplicate() -> None:
    seen = Duplicates(0.8)
    assert not seen.is_near("a", "The cat sat on the mat and looked at the dog.")
    assert seen.is_near("b", "the cat sat on the mat, and looked at the DOG!")


def test_texts_without_words_are_no_duplicates_of_each_other() -> None:
    seen = Duplicates(0.8)
    assert not seen.is_near("a", "+++")
    assert not seen.is_near("b", "---")
