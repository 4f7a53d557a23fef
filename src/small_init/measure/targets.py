"""Which validation tokens are looked at one by one, and what kind of text each belongs to.

The set is the same for all runs of a profile: whole windows, spread over the sources as the final
validation is. `results/<profile>/tokens/targets.npz` describes it, so that figures need no corpus.

A byte-level vocabulary spells a rare character in pieces, and a piece is no fair token: the second
byte of a character is easy to guess after its first. So the unit is the shortest run of tokens that
holds whole characters, and its log-probability is the sum over its tokens. Nearly all units of
English and code are single tokens; in Chinese many characters have two or three.
Shapes: N targets, U units.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from small_init.errors import UserError
from small_init.runs.paths import targets_file, tokens_file


class Kind(Enum):
    """What a unit is made of; each belongs to the first that fits."""

    end_of_text = "end of text"
    cjk_whole = "CJK, whole"  # one token that holds one Chinese character or more
    cjk_pieces = "CJK, in pieces"  # Chinese text of several tokens
    space = "white space"
    continuation = "inside a word"  # letters that go on where the unit before ended in one
    word = "word beginning"  # any other letters, mostly a whole word with its leading blank
    digit = "digit"
    punctuation = "punctuation"  # and all other signs


class Frequency(Enum):
    """How often a unit of one token occurs in the training text."""

    frequent = "frequent"  # the most frequent tokens, which make half of the text
    middle = "less frequent"
    rare = "rare"  # the least frequent tokens, which make a tenth of it
    pieces = "in pieces"  # several tokens, whose own counts do not tell; the last member


@dataclass(frozen=True)
class Targets:
    """The targets in the order of the windows, and their units."""

    identity: str  # of corpus, context and number: log-probabilities must carry the same
    context: int  # tokens of a window
    token_N: NDArray[Any]  # id in the vocabulary
    document_N: NDArray[Any]  # number of the document in the validation split
    source_N: NDArray[Any]  # index into `sources`
    unit_N: NDArray[Any]  # unit of the target, −1 where a window's edge cuts a character
    kind_U: NDArray[Any]  # index into list(Kind)
    frequency_U: NDArray[Any]  # index into list(Frequency)
    sources: NDArray[Any]  # names
    languages: NDArray[Any]  # of the sources

    @property
    def first_U(self) -> NDArray[Any]:
        """The first target of each unit."""
        whole = np.flatnonzero(self.unit_N >= 0)
        return whole[np.unique(self.unit_N[whole], return_index=True)[1]]

    def by_unit(self, values_N: NDArray[Any]) -> NDArray[Any]:
        """Sums over the targets of each unit, (U,)."""
        whole = self.unit_N >= 0
        return np.bincount(self.unit_N[whole], weights=values_N[whole].astype(np.float64))


# --- the file ------------------------------------------------------------------------------------


def npz(arrays: dict[str, Any]) -> bytes:
    """The bytes of an .npz, not compressed: the same whichever zlib there is, and git packs it."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def load_npz(path: Path, remedy: str) -> dict[str, Any]:
    """The arrays of an .npz; `remedy` is the command that makes it anew."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; make it with `{remedy}`.") from None
    except (ValueError, OSError, BadZipFile) as error:
        raise UserError(f"{path} cannot be read ({error}); make it again, `{remedy}`.") from None


def load_targets(profile: str) -> Targets:
    values = load_npz(targets_file(profile), "dvc repro targets")
    values |= {"identity": str(values["identity"]), "context": int(values["context"])}
    return Targets(**values)


def load_log_probabilities(profile: str, arm: str, seed: int, targets: Targets) -> NDArray[Any]:
    """Log-probability of every target under one run, (N,), float16; a foreign set is an error."""
    path = tokens_file(profile, arm, seed)
    values = load_npz(path, f"dvc repro tokens@{arm}")
    if str(values["identity"]) != targets.identity:
        raise UserError(
            f"{path} was made on other tokens than {targets_file(profile)} describes; make "
            f"it again with `dvc repro targets tokens@{arm}`."
        )
    return values["log_probability_N"]
