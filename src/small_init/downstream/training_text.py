"""What the models were trained on: reasoning and language items are kept out of it, facts in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from small_init.data.corpus.build import read_manifest
from small_init.data.corpus.problems import expressions, normalise
from small_init.data.packed import PackedTokens

RUN_LENGTH = 13  # units (words or Chinese characters) that two texts share only by copying
_UNIT = re.compile(r"[㐀-䶿一-鿿]|[^\W㐀-䶿一-鿿]+")
_QUOTED = re.compile(r"[“\"](.*?)[”\"]|backward: (\w+)")
# The same sums under the names of both generators.
_KIND = {"chain_sum": "sums", "syllogism": "syllogisms"}


def signature(family: str, question: str) -> tuple[str, ...]:
    """What makes two questions near-duplicates: the same family about the same quoted text or word,
    or else with the same numbers, whatever their order and the names around them."""
    kind = _KIND.get(family, family)
    if quoted := [first or second for first, second in _QUOTED.findall(question)]:
        return (kind, max(quoted, key=len))
    if numbers := re.findall(r"\d+", question):
        return (kind, *sorted(numbers))
    return (kind, normalise(question))


@dataclass
class TrainingText:
    """The corpus' training and validation documents, and the questions of its problems."""

    documents: list[dict[str, Any]] = field(default_factory=list)  # training, problems included
    held_out: list[dict[str, Any]] = field(default_factory=list)  # validation, problems left out
    questions: set[str] = field(default_factory=set)
    signatures: set[tuple[str, ...]] = field(default_factory=set)
    calculations: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, corpus: Path) -> TrainingText:
        """Everything from the files of stage `corpus`."""
        text = cls()
        for record in read_manifest(corpus):
            with (corpus / f"{record['source']}.jsonl").open(encoding="utf-8") as file:
                for line in file:
                    text.add(json.loads(line) | {"source": record["source"]})
        return text

    def add(self, document: dict[str, Any]) -> None:
        math = document["domain"] == "math"
        if document["split"] != "train":
            if not math:
                self.held_out.append(document)
            return
        self.documents.append(document)
        if math:
            question = document["fields"]["question"]
            self.questions.add(normalise(question))
            self.signatures.add(signature(document["id"].rpartition("-")[2], question))
            self.calculations |= expressions(document["text"])

    def asks(self, family: str, question: str) -> bool:
        """True if the question, a near-duplicate, or its only calculation is trained on."""
        asked = normalise(question)
        if asked in self.questions or signature(family, question) in self.signatures:
            return True
        return asked in self.calculations

    def copied(self, texts: Sequence[str], length: int = RUN_LENGTH) -> list[bool]:
        """Per text, whether a run of `length` of its units stands in a training document."""
        return copied(texts, (document["text"] for document in self.documents), length)


def copied(texts: Sequence[str], training: Iterable[str], length: int) -> list[bool]:
    """Per text, whether some `length` consecutive units of it stand in a training text.

    Runs are compared as 64-bit hashes; a unit that no text has stands for none of them.
    """
    code: dict[str, int] = {}
    units = [_units(text) for text in texts]
    for unit in (unit for row in units for unit in row):
        code.setdefault(unit, len(code) + 1)
    hashes = [_run_hashes(np.array([code[u] for u in row], np.uint64), length) for row in units]
    wanted = np.unique(np.concatenate([np.empty(0, np.uint64), *hashes]))
    seen = np.zeros(len(wanted), bool)
    for batch in _batches(training):
        values = np.fromiter((code.get(unit, 0) for unit in batch), np.uint64, len(batch))
        found = _run_hashes(values, length)
        at = np.searchsorted(wanted, found).clip(max=max(len(wanted) - 1, 0))
        if len(wanted):
            seen[at[wanted[at] == found]] = True
    return [bool(seen[np.searchsorted(wanted, row)].any()) for row in hashes]


def _units(text: str) -> list[str]:
    return _UNIT.findall(text.lower())


def _batches(texts: Iterable[str], size: int = 1_000_000) -> Iterator[list[str]]:
    """Units of many texts at once, texts kept apart by a unit that no text has."""
    batch: list[str] = []
    for text in texts:
        batch += _units(text)
        batch.append("")
        if len(batch) >= size:
            yield batch
            batch = []
    yield batch


def _run_hashes(values: np.ndarray, length: int) -> np.ndarray:
    """A polynomial hash of every `length` consecutive values, modulo 2^64."""
    count = len(values) - length + 1
    if count <= 0:
        return np.empty(0, np.uint64)
    total = np.zeros(count, np.uint64)
    for offset in range(length):
        total = total * np.uint64(0x9E3779B97F4A7C15) + values[offset : offset + count]
    return total


def packed_texts(packed: PackedTokens, tokenizer: Tokenizer) -> set[str]:
    """The documents that the mixture took into the training tokens, as texts."""
    texts: set[str] = set()
    for shard in packed.shards:
        ends = np.flatnonzero(np.asarray(shard) == packed.eot)
        starts = np.concatenate([[0], ends[:-1] + 1])
        ids = [shard[a:b].tolist() for a, b in zip(starts, ends, strict=True)]
        texts.update(tokenizer.decode_batch(ids))
    return texts
