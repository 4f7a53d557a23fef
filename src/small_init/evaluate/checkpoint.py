"""A run's final weights with the configuration and the tokenizer they belong to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer

from small_init import records
from small_init.corpus.tokenizer import load_tokenizer
from small_init.errors import UserError
from small_init.model import Transformer
from small_init.records import Run


@dataclass(frozen=True)
class Checkpoint:
    """Weights of one run; `run` is the record that says how they were made."""

    weights: Path
    run: Run

    @property
    def profile(self) -> str:
        return self.run.metrics["profile"]

    def model(self, device: torch.device | str = "cpu") -> Transformer:
        """The model in float32, ready to evaluate.

        Raises:
            UserError: no such file, or not the weights of this configuration.
        """
        if not self.weights.is_file():
            raise UserError(
                f"There are no weights at {self.weights}; make them with "
                f"`dvc repro` or `small-init pretrain --arm {self.run.arm}`."
            )
        model = Transformer(self.run.config.model)
        try:
            state = {name: value.float() for name, value in load_file(self.weights).items()}
            # A tied readout is the embedding, and is saved once.
            missing, foreign = model.load_state_dict(state, strict=False)
            if foreign or set(missing) - ({"readout.weight"} if model.config.tied else set()):
                raise RuntimeError
        except (RuntimeError, SafetensorError):
            raise UserError(
                f"{self.weights} does not hold the weights of arm {self.run.arm}; train the arm "
                "again, or name the folder after the arm that the weights belong to."
            ) from None
        return model.to(device).eval()

    def tokenizer(self) -> Tokenizer:
        """The tokenizer the run was trained with.

        Raises:
            UserError: it is not there, or the one that is there is another.
        """
        home = Path("data") / self.profile
        path, meta = home / "tokenizer.json", home / "packed" / "meta.json"
        tokenizer = load_tokenizer(path)
        trained_on = self.run.metrics["data"]["meta_sha256"]
        known = meta.is_file() and records.sha256(meta) == trained_on
        if not known or json.loads(meta.read_text())["tokenizer_sha256"] != records.sha256(path):
            raise UserError(
                f"The run {self.run.arm}, seed {self.run.seed}, was trained on another corpus or "
                f"with another tokenizer than the one in {home}; rebuild that with `dvc repro "
                "pack`, or train the arm again."
            )
        return tokenizer


def of_run(profile: str, arm: str, seed: int) -> Checkpoint:
    """The weights under models/ of a run under results/."""
    return Checkpoint(records.weights_file(arm, seed), records.load_run(profile, arm, seed))


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
    return Checkpoint(path, records.load_run(arm.split("-")[0], arm, int(number)))
