"""Packed tokens to batches: a batch is a pure function of (data seed, step, rank).

Nothing is remembered between batches, so that a resumed run, or one on another number of devices,
sees the same tokens in the same order. Every window of T targets is preceded by the end-of-text
token in its input: [EOT, t_1 … t_(T−1)] predicts [t_1 … t_T], and each token of the stream is a
target exactly once an epoch.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from small_init.config import Corpus
from small_init.errors import UserError
from small_init.files import sha256

_HASHED_BYTES = 1 << 30  # larger bins are checked by size alone: hashing them would take minutes
_COUNTED_TOKENS = 1 << 24  # training tokens whose frequencies are counted
_HASHED_WINDOWS = 1 << 20  # places of windows that are hashed at a time
_VALIDATION_WINDOWS = 64  # windows of a validation batch


def permuted(index: np.ndarray, size: int, key: int) -> np.ndarray:
    """`index` (int64, in [0, size)) under a pseudo-random permutation of [0, size) chosen by `key`.

    A four-round Feistel network with cycle walking: no table, so that 10^9 windows cost nothing.
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half) - 1)
    rounds = np.random.Generator(np.random.Philox(key=key)).integers(1, 2**63, 4, dtype=np.uint64)

    def network(value: np.ndarray) -> np.ndarray:
        left, right = value >> np.uint64(half), value & mask
        for constant in rounds:
            mixed = (right + constant) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
        return (left << np.uint64(half)) | right

    value = network(index.astype(np.uint64))
    while (outside := value >= size).any():
        value[outside] = network(value[outside])
    return value.astype(np.int64)


@dataclass(frozen=True)
class Segment:
    """The validation tokens of one source."""

    source: str
    language: str
    domain: str
    start: int
    end: int


class PackedTokens:
    """A folder as `corpus.pack` writes it, memory-mapped; a file not as written is a UserError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stage = "pack" if folder.name == Corpus.packed.value else folder.name
        path = folder / "meta.json"
        if not path.is_file():
            raise UserError(f"{path} does not exist; make it with `dvc repro {self.stage}`.")
        try:
            self.meta: dict[str, Any] = json.loads(path.read_text())
            self.sha256 = sha256(path)
            self.vocab_size: int = self.meta["vocab_size"]
            self.eot: int = self.meta["eot"]
            # Where windows end in answers: how many tokens those are, the only targets. Else 0.
            self.answers: int = self.meta.get("answers", 0)
            dtype = np.dtype(self.meta["dtype"])
            self.shards = [self._map(shard, dtype) for shard in self.meta["train"]["shards"]]
            self.validation = self._map(self.meta["val"], dtype)
            lengths = {"file": self.meta["token_bytes"]["file"], "tokens": self.vocab_size}
            self.token_bytes = self._map(lengths | self.meta["token_bytes"], np.dtype("uint16"))
            names = Segment.__dataclass_fields__
            self.segments = [
                Segment(**{name: segment[name] for name in names})
                for segment in self.meta["val"]["segments"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is broken ({error!r}); make it again with `dvc repro {self.stage}`."
            ) from None

    def _map(self, entry: dict[str, Any], dtype: np.dtype) -> np.ndarray:
        path = self.folder / entry["file"]
        size = entry["tokens"] * dtype.itemsize
        whole = path.is_file() and path.stat().st_size == size
        if not whole or (size <= _HASHED_BYTES and sha256(path) != entry["sha256"]):
            raise UserError(
                f"{path} is missing or not as meta.json describes it; make it again with "
                f"`dvc repro -f {self.stage}`."
            )
        return np.memmap(path, dtype=dtype, mode="r") if size else np.empty(0, dtype)

    def windows(self, context: int) -> int:
        """Training windows of `context` tokens; what is left at a shard's end is not used."""
        return sum(len(shard) // context for shard in self.shards)

    def window(self, index: int, context: int) -> np.ndarray:
        """The tokens of one training window, (context,)."""
        for shard in self.shards:
            inside = len(shard) // context
            if index < inside:
                return shard[index * context : (index + 1) * context]
            index -= inside
        raise IndexError(index)

    def token_counts(self) -> np.ndarray:
        """How often each token occurs in the training data, (V,); in a sample of every k-th token
        where there are more than 16 million."""
        every = -(-sum(map(len, self.shards)) // _COUNTED_TOKENS)
        counts = [np.bincount(shard[::every], minlength=self.vocab_size) for shard in self.shards]
        return np.sum(counts, axis=0)

    def pair(self, targets: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs (B, T) and targets (B, T) of windows, int64; where windows end in answers the
        targets are these alone."""
        inputs = np.empty(targets.shape, dtype=np.int64)
        inputs[:, 0], inputs[:, 1:] = self.eot, targets[:, :-1]
        targets = targets[:, -self.answers :] if self.answers else targets
        return torch.from_numpy(inputs), torch.from_numpy(targets.astype(np.int64))

    def validation_windows(self, context: int, tokens: int) -> list[tuple[int, int]]:
        """(segment, first token) of `tokens // context` windows, spread evenly over each source.

        Sources are represented in proportion to their validation tokens, which follow the mixture.
        """
        available = [(s.end - s.start) // context for s in self.segments]
        wanted = tokens // context
        if not 0 < wanted <= sum(available):
            raise UserError(
                f"{self.folder}: {tokens} validation tokens in windows of {context} are asked for, "
                f"{sum(available) * context} are there; lower model.context, train.curve_tokens or "
                "train.final_tokens."
            )
        # Largest remainders, so that the counts add up to what was asked for.
        exact = np.array(available) * (wanted / sum(available))
        counts = np.floor(exact).astype(int)
        counts[np.argsort(counts - exact, kind="stable")[: wanted - counts.sum()]] += 1
        return [
            (number, segment.start + (i * have // count) * context)
            for number, (segment, have, count) in enumerate(
                zip(self.segments, available, counts, strict=True)
            )
            for i in range(count)
        ]

    def validation_batches(
        self, context: int, tokens: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Inputs (B, T), targets (B, T), and the segment of each window (B,)."""
        chosen = self.validation_windows(context, tokens)
        for first in range(0, len(chosen), _VALIDATION_WINDOWS):
            part = chosen[first : first + _VALIDATION_WINDOWS]
            targets = np.stack([self.validation[start : start + context] for _, start in part])
            yield *self.pair(targets), torch.tensor([segment for segment, _ in part])


class TrainingBatches(Dataset):
    """Item `step` is this rank's share of the global batch of that step: inputs, targets (B, T)."""

    def __init__(
        self, tokens: PackedTokens, seed: int, context: int, windows: int, rank: int, world: int
    ) -> None:
        available = tokens.windows(context)
        if available < windows:
            raise UserError(
                f"{tokens.folder} holds {available} training windows of {context} tokens, fewer "
                f"than the {windows} of one batch; lower model.context or train.batch_tokens."
            )
        if windows % world:
            raise UserError(
                f"A batch of {windows} windows does not divide over {world} devices; change "
                "train.batch_tokens or the number of devices."
            )
        self.tokens, self.seed, self.context = tokens, seed, context
        self.windows, self.rank, self.world, self.available = windows, rank, world, available

    def __getitem__(self, step: int) -> tuple[Tensor, Tensor]:
        share = self.windows // self.world
        places = self.places(step * self.windows + self.rank * share, share)
        targets = np.stack([self.tokens.window(int(index), self.context) for index in places])
        return self.tokens.pair(targets)

    def places(self, first: int, count: int) -> np.ndarray:
        """The training windows that are number `first` to `first + count − 1` of the run, int64."""
        epoch, place = np.divmod(np.arange(first, first + count), self.available)
        for turn in np.unique(epoch):
            # Each epoch is a new order, without replacement within it.
            now = epoch == turn
            place[now] = permuted(place[now], self.available, key=(self.seed << 32) + int(turn))
        return place

    def order_sha256(self, steps: int) -> str:
        """SHA-256 of the run's windows in their order, as little-endian int64."""
        digest, end = hashlib.sha256(), steps * self.windows
        for first in range(0, end, _HASHED_WINDOWS):
            places = self.places(first, min(_HASHED_WINDOWS, end - first))
            digest.update(places.astype("<i8").tobytes())
        return digest.hexdigest()


class _StepsFrom(Sampler[int]):
    """first, first + 1, … without end: Lightning counts batches from the run's beginning, so a
    loader that knew its length would make a resumed run start a second epoch too early."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __iter__(self) -> Iterator[int]:
        return itertools.count(self.first)


class PackedData(L.LightningDataModule):
    """Training batches from where the run stands; the position is part of every checkpoint."""

    def __init__(self, tokens: PackedTokens, seed: int, context: int, batch_tokens: int) -> None:
        super().__init__()
        self.tokens, self.seed, self.context = tokens, seed, context
        self.batch_windows = batch_tokens // context
        self.first_step = 0

    def state_dict(self) -> dict[str, int]:
        assert self.trainer is not None
        return {"step": self.trainer.global_step}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.first_step = state_dict["step"]

    def batches(self, rank: int, world: int) -> TrainingBatches:
        return TrainingBatches(
            self.tokens, self.seed, self.context, self.batch_windows, rank, world
        )

    def train_dataloader(self) -> DataLoader:
        assert self.trainer is not None
        batches = self.batches(self.trainer.global_rank, self.trainer.world_size)
        return DataLoader(batches, batch_size=None, sampler=_StepsFrom(self.first_step))
