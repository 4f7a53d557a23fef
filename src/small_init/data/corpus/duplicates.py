"""Exact and near-duplicate detection over all real documents, whatever their split."""

import re

from rensa import RMinHash, RMinHashDeduplicator

from small_init.data.corpus.documents import stable_hash

PERMUTATIONS = 128
# 32 bands of 4 rows find a pair of similarity 0.8 with probability 1 − (1 − 0.8⁴)³² > 0.9999;
# the candidates are then held against the threshold itself.
BANDS = 32
SHINGLE = 3
SEED = 42
# A unit is a word, or a single Chinese character: one rule for both languages and for code.
_UNIT = re.compile(r"[㐀-䶿一-鿿]|[^\W㐀-䶿一-鿿]+")


def shingles(text: str) -> set[str]:
    """Runs of three units (words or Chinese characters), case and punctuation ignored."""
    units = _UNIT.findall(text.lower())
    if len(units) <= SHINGLE:
        return {" ".join(units) or text}
    return {" ".join(units[at : at + SHINGLE]) for at in range(len(units) - SHINGLE + 1)}


class Duplicates:
    """Remembers what was seen; the first of a set of duplicates is the one that stays.

    Because every document is held against all earlier ones and not only against those of its own
    split, no pair above the threshold can end up on both sides of the split.
    """

    def __init__(self, threshold: float) -> None:
        self._exact: set[int] = set()
        self._near = RMinHashDeduplicator(threshold, PERMUTATIONS, True, BANDS, SEED)

    def is_exact(self, text: str) -> bool:
        """True if the same text was seen before, white space aside."""
        key = stable_hash(" ".join(text.split()))
        if key in self._exact:
            return True
        self._exact.add(key)
        return False

    def is_near(self, key: str, text: str) -> bool:
        """True if a text above the threshold was seen before; `key` must be new each time."""
        sketch = RMinHash(num_perm=PERMUTATIONS, seed=SEED)
        # Sorted: set order differs between processes, and nothing here may depend on it.
        sketch.update(sorted(shingles(text)))
        return not self._near.add(key, sketch)
