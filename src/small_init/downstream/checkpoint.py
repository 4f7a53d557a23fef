"""A run's final weights with the configuration and the tokenizer they belong to.

    models/<arm>/seed-<n>.safetensors                       float32, as training left them
    results/<profile>/weights/<arm>/seed-<n>.safetensors    the published copy: float16, with the
    results/<profile>/weights/<arm>/tokenizer.json          tokenizer that its header names

The published copies are in git, so that a clone without text and weights can answer new tasks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from tokenizers import Tokenizer

from small_init.data.corpus.tokenizer import load_tokenizer
from small_init.downstream.sharded_model import load_model
from small_init.errors import UserError
from small_init.files import sha256, write_bytes, write_text
from small_init.model.transformer import Transformer
from small_init.runs.cost import count_parameters
from small_init.runs.paths import published_weights, weights_file
from small_init.runs.plan import Plan
from small_init.runs.record import Run, load_run

_MOST_PARAMETERS = 20_000_000  # of a model whose copy is published: git is no place for more
_TOKENIZER = "tokenizer_sha256"  # the published copy's header; one key, whose order cannot vary


@dataclass(frozen=True)
class Checkpoint:
    """Weights of one run; `run` is the record that says how they were made."""

    weights: Path
    run: Run

    @property
    def profile(self) -> str:
        return self.run.profile

    @cached_property
    def published(self) -> str | None:
        """Of a published copy the SHA-256 of its tokenizer, else None."""
        try:
            with safe_open(self.weights, "pt") as file:
                return (file.metadata() or {}).get(_TOKENIZER)
        except FileNotFoundError:
            raise UserError(
                f"There are no weights at {self.weights}; train the arm again with "
                f"`small-init pretrain --arm {self.run.arm}`."
            ) from None
        except SafetensorError:
            raise self._other_weights() from None

    def _other_weights(self) -> UserError:
        return UserError(
            f"{self.weights} does not hold the weights that the record of arm {self.run.arm}, seed "
            f"{self.run.seed}, names; train the arm again, or name the file after the run that the "
            "weights belong to."
        )

    def model(self) -> Transformer:
        """The model in float32, ready to evaluate; divided over the processes of torchrun.

        Raises:
            UserError: no such file, or not the weights that the record names.
        """
        if not self.published and sha256(self.weights) != self.run.metrics.weights_sha256:
            raise self._other_weights()
        try:
            with safe_open(self.weights, "pt") as file:
                model = load_model(self.run.config, file.get_tensor)
                if {name for name, _ in model.named_parameters()} != set(file.keys()):
                    raise RuntimeError
        except (RuntimeError, SafetensorError):
            raise self._other_weights() from None
        return model

    def tokenizer(self) -> Tokenizer:
        """The tokenizer the run was trained with.

        Raises:
            UserError: it is not there, or the one that is there is another.
        """
        known = self.published
        if known:
            path = self.weights.with_name("tokenizer.json")
            way_out = f"restore it with `git checkout {path.parent}`."
        else:
            home = Path("data") / self.profile
            path, meta = home / "tokenizer.json", home / "packed" / "meta.json"
            same = meta.is_file() and sha256(meta) == self.run.metrics.data.meta_sha256
            known = json.loads(meta.read_text())["tokenizer_sha256"] if same else None
            way_out = "rebuild that with `dvc repro pack`, or train the arm again."
        tokenizer = load_tokenizer(path)
        if sha256(path) != known:
            raise UserError(
                f"The run {self.run.arm}, seed {self.run.seed}, was trained on another corpus or "
                f"with another tokenizer than the one in {path.parent}; {way_out}"
            )
        return tokenizer


def of_run(profile: str, arm: str, seed: int) -> Checkpoint:
    """The weights under models/ of a run under results/."""
    return Checkpoint(weights_file(arm, seed), load_run(profile, arm, seed))


def of_file(path: Path) -> Checkpoint:
    """The weights in `…/<arm>/seed-<n>.safetensors`, whose record is looked up under results/.

    Raises:
        UserError: the path does not name an arm and a seed, or they have no record.
    """
    arm, number = path.parent.name, path.stem.removeprefix("seed-")
    if path.suffix != ".safetensors" or not number.isdigit():
        raise UserError(
            f"{path} does not say which run it is; a checkpoint is named "
            "models/<arm>/seed-<n>.safetensors."
        )
    return Checkpoint(path, load_run(arm.split("-")[0], arm, int(number)))


def or_published(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint, or where its weights are not here the published copy, if there is one."""
    run = checkpoint.run
    copy = published_weights(checkpoint.profile, run.arm, run.seed)
    if checkpoint.weights.is_file() or not copy.is_file():
        return checkpoint
    return Checkpoint(copy, run)


def publish(plan: Plan, arm: str) -> Path:
    """Write the published copy of an arm's first seed; the same weights give the same bytes.

    Of a model too large for git a line that says so stands in its place.

    Raises:
        UserError: no weights, or the tokenizer that is here is not theirs.
    """
    found = of_run(plan.profile, arm, plan.arms[arm].seeds[0])
    copy = published_weights(plan.profile, arm, found.run.seed)
    if (size := count_parameters(plan.arms[arm].model).total) > _MOST_PARAMETERS:
        note = copy.with_name("README.md")
        write_text(note, f"{size:,} weights are too many for git; see {found.weights}.\n")
        return note
    found.tokenizer()
    tokenizer = Path("data") / plan.profile / "tokenizer.json"
    halves = {name: value.half() for name, value in found.model().named_parameters()}
    write_bytes(copy.with_name("tokenizer.json"), tokenizer.read_bytes())
    write_bytes(copy, save(halves, {_TOKENIZER: sha256(tokenizer)}))
    return copy
