"""The composite-function task as packed tokens: does a model compose, or does it memorise?

Theirs (Zhang et al., 2405.05409; numbers as in the code of their sequel 2501.08537): a sequence of
9 random items from 20 … 99, but for the two anchors that follow a key item at a random place. Each
anchor shifts the key item, and the answer is the key item after both shifts, except for one pair of
anchors, which is trained with another shift; its mirror image is held out. There a model that
composes and one that takes the anchors for an unordered pair ("inferential" and "symmetric"
solutions) answer differently. The answer is the only target. A key item whose remainder by 9 is its
place, from 0, is left for validation.

Ours: a window also begins with end-of-text, as every window here does; validation is on such key
items throughout (they measure the held-out pair on training's kind); the amount of data; the model
(rotary positions, SwiGLU, RMSNorm) and its training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from small_init.config_files import load_yaml, merged
from small_init.data.synthetic import write_sequences
from small_init.errors import UserError

CONFIGS = Path("configs/composite")
_CHUNK = 65_536  # sequences drawn at once; the tokens depend on it

# A token's id is the number it stands for.
SHIFTS = {1: 5, 2: 1, 3: -2, 4: -8}  # what each anchor adds to the key item
ITEMS = range(20, 100)
LENGTH = 9  # items of a sequence, anchors included
CONFLICT, CONFLICT_SHIFT = (3, 4), -6  # trained against the rule, which says -10
HELD_OUT = CONFLICT[::-1]  # in no training sequence
SEEN = [(a, b) for a in SHIFTS for b in SHIFTS if (a, b) not in (CONFLICT, HELD_OUT)]
VOCAB_SIZE = ITEMS[-1] + 2 * max(SHIFTS.values()) + 1  # up to the largest answer


@dataclass
class CompositeConfig:
    """How much of the task: `configs/composite/<profile>.yaml`."""

    train_sequences: int = 262_144
    val_sequences: int = 13_107  # of each validation source
    seed: int = 0


def load_composite_config(profile: str) -> CompositeConfig:
    """Read `configs/composite/<profile>.yaml`; a value no task could use is a UserError."""
    path = CONFIGS / f"{profile}.yaml"
    config = merged(CompositeConfig(), load_yaml(path), where=str(path))
    for name in ("train_sequences", "val_sequences"):
        if getattr(config, name) <= 0:
            raise UserError(f"{path}: {name} is {getattr(config, name)}; set it above 0.")
    return config


def composed(pair: tuple[int, int]) -> int:
    """What the two anchors of a pair add to the key item by the rule."""
    return SHIFTS[pair[0]] + SHIFTS[pair[1]]


def trained(pair: tuple[int, int]) -> int:
    """What a pair adds in training: the rule, but for the conflicting pair."""
    return CONFLICT_SHIFT if pair == CONFLICT else composed(pair)


def key_items(place: int, validation: bool) -> list[int]:
    """The key items that stand at `place` in training, or those that do in validation."""
    return [item for item in ITEMS if (item % LENGTH == place) == validation]


def sample(
    pairs: Sequence[tuple[int, int]],
    shifts: Sequence[int],
    sequences: int,
    validation: bool,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """(sequences, LENGTH + 1) token ids: items and, last, the answer. Pairs are equally likely;
    `shifts` are what they add, in their order."""
    tokens = random.integers(ITEMS.start, ITEMS.stop, (sequences, LENGTH + 1))
    chosen = random.integers(0, len(pairs), sequences)
    places = random.integers(0, LENGTH - 2, sequences)
    for place in range(LENGTH - 2):
        at = np.flatnonzero(places == place)
        tokens[at, place] = random.choice(key_items(place, validation), len(at))
        tokens[at, place + 1 : place + 3] = np.array(pairs)[chosen[at]]
        tokens[at, -1] = tokens[at, place] + np.array(shifts)[chosen[at]]
    return tokens


def validation_sources(config: CompositeConfig) -> dict[str, NDArray[np.int64]]:
    """Source → sequences (val_sequences, LENGTH + 1). The two of the held-out pair differ in their
    answers alone, so that a model's share of either kind of answer is its accuracy there."""
    wanted = {
        "seen-pairs": (SEEN, [composed(pair) for pair in SEEN]),
        "conflict": ([CONFLICT], [CONFLICT_SHIFT]),
        "held-out-composed": ([HELD_OUT], [composed(HELD_OUT)]),
        "held-out-mirrored": ([HELD_OUT], [CONFLICT_SHIFT]),
    }
    return {
        source: sample(
            pairs, shifts, config.val_sequences, True, np.random.default_rng([config.seed, 1])
        )
        for source, (pairs, shifts) in wanted.items()
    }


def write_composite(config: CompositeConfig, out: Path) -> None:
    """Write `out` in the format of `corpus.pack` (`synthetic.write_sequences`).

    "answers" in `meta.json` makes the last token of each window the only target.
    """
    pairs = [*SEEN, CONFLICT]
    shifts = [trained(pair) for pair in pairs]
    random = np.random.default_rng([config.seed, 0])
    train = (
        sample(pairs, shifts, min(_CHUNK, config.train_sequences - start), False, random)
        for start in range(0, config.train_sequences, _CHUNK)
    )
    described = {"length": LENGTH + 1, "answers": 1}
    write_sequences(out, VOCAB_SIZE, train, validation_sources(config), described)
