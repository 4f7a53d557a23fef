"""The Bigram-Backcopy task as packed tokens: a place where small models grow attention sinks.

After a trigger token comes the token before the trigger, else the next token is drawn from a
bigram table (2410.13835). A head that copies is wanted on triggers and in the way everywhere else,
where it has to park: on end-of-text, which begins every window, on the trigger tokens, or on the
query itself. The tokens are generated here, whatever text the project has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from small_init.config_files import load_yaml, merged
from small_init.data.corpus.tokenizer import EOT_ID
from small_init.data.synthetic import write_sequences
from small_init.errors import UserError

CONFIGS = Path("configs/backcopy")
_CHUNK = 4096  # sequences drawn at once; the tokens depend on it


@dataclass
class BackcopyConfig:
    """The task: `configs/backcopy/<profile>.yaml`."""

    vocab_size: int = 65  # end-of-text (id 0) and the task's tokens, the most frequent first
    triggers: int = 2  # ids 1 … triggers: the most frequent tokens, as in 2410.13835
    length: int = 64  # tokens of a sequence; model.context of every arm that reads them
    train_sequences: int = 65_536
    val_sequences: int = 8_192
    zipf: float = 0.3  # token i is as frequent as 1 / i^zipf
    concentration: float = 8.0  # of the bigram rows; the lower, the more each token decides
    seed: int = 0


def load_backcopy_config(profile: str) -> BackcopyConfig:
    """Read `configs/backcopy/<profile>.yaml`; a value no task could use is a UserError."""
    path = CONFIGS / f"{profile}.yaml"
    config = merged(BackcopyConfig(), load_yaml(path), where=str(path))
    for name in ("length", "train_sequences", "val_sequences", "zipf", "concentration"):
        if not 0 < getattr(config, name) < float("inf"):
            raise UserError(f"{path}: {name} is {getattr(config, name)}; set it above 0.")
    if not 0 < config.triggers < config.vocab_size - 1:
        raise UserError(
            f"{path}: triggers is {config.triggers}; set it to 1 or more, and below the "
            f"{config.vocab_size - 1} tokens of the task."
        )
    return config


@dataclass(frozen=True)
class Task:
    """What the sequences are drawn from.

    `first_V` is the distribution of a sequence's first token, no trigger; `next_VV[i]` that of the
    token after i. Rows of triggers and of end-of-text are 0: no token is drawn from them.
    """

    triggers: int
    first_V: NDArray[np.float64]
    next_VV: NDArray[np.float64]

    @classmethod
    def draw(cls, config: BackcopyConfig) -> Task:
        random = np.random.default_rng([config.seed, 0])
        frequency = 1 / np.arange(1, config.vocab_size) ** config.zipf
        frequency /= frequency.sum()
        size, special = config.vocab_size, config.triggers + 1
        rows = np.zeros((size, size))
        rows[special:, 1:] = random.dirichlet(config.concentration * frequency, size - special)
        first = np.concatenate([np.zeros(special), frequency[special - 1 :]])
        return cls(config.triggers, first / first.sum(), rows)

    def is_trigger(self, tokens: NDArray[Any]) -> NDArray[np.bool_]:
        return (tokens > EOT_ID) & (tokens <= self.triggers)

    def sample(self, sequences: int, length: int, random: np.random.Generator) -> NDArray[np.int64]:
        """(sequences, length) token ids; two triggers never follow each other."""
        tokens = np.empty((sequences, length), dtype=np.int64)
        tokens[:, 0] = _drawn(np.broadcast_to(self.first_V, (sequences, len(self.first_V))), random)
        for place in range(1, length):
            before = tokens[:, place - 1]
            drawn = _drawn(self.next_VV[before], random)
            copied = tokens[:, max(place - 2, 0)]
            tokens[:, place] = np.where(self.is_trigger(before), copied, drawn)
        return tokens

    def optimum(self, tokens: NDArray[np.int64]) -> dict[str, float]:
        """Losses that need no model, in nats per token, on sequences (N, T).

        "loss" is that of the task's own rule, which no model can beat but by luck; "bigram_loss"
        that of the best prediction from the present token alone (fitted to these very sequences),
        where a model that does not copy ends; "trigger_share" the share of targets after a trigger.
        """
        before, after = tokens[:, :-1], tokens[:, 1:]
        copied = self.is_trigger(before)
        first = -np.log(self.first_V[tokens[:, 0]])
        rule = -np.log(self.next_VV[before, after], where=~copied, out=np.zeros(before.shape))
        counts = np.zeros_like(self.next_VV)
        np.add.at(counts, (before[copied], after[copied]), 1.0)
        chance = counts / np.maximum(counts.sum(1, keepdims=True), 1.0)
        guess = -np.log(chance[before[copied], after[copied]])
        total = rule.sum() + first.sum()
        return {
            "loss": float(total / tokens.size),
            "bigram_loss": float((total + guess.sum()) / tokens.size),
            "trigger_share": float(copied.sum() / tokens.size),
        }


def _drawn(weights_NV: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """One index per row, drawn by its weights; any index where they are all 0."""
    cumulative = weights_NV.cumsum(1)
    return (cumulative < random.random((len(weights_NV), 1)) * cumulative[:, -1:]).sum(1)


def write_backcopy(config: BackcopyConfig, out: Path) -> None:
    """Write `out` in the format of `corpus.pack` (`synthetic.write_sequences`).

    `meta.json` also holds the task's "optimum" on the validation tokens (`Task.optimum`).
    """
    task, length = Task.draw(config), config.length
    random = np.random.default_rng([config.seed, 1])
    train = (
        task.sample(min(_CHUNK, config.train_sequences - start), length, random)
        for start in range(0, config.train_sequences, _CHUNK)
    )
    val = task.sample(config.val_sequences, length, np.random.default_rng([config.seed, 2]))
    described = {"triggers": config.triggers, "length": length, "optimum": task.optimum(val)}
    write_sequences(out, config.vocab_size, train, {"backcopy": val}, described)
