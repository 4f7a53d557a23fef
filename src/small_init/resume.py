"""Checkpoints to go on from: written beside the last one, then renamed over it.

A kill at any moment, also in the middle of a write, leaves a whole checkpoint or none; SIGTERM
writes a last one. Their folder is named after configuration, data and code, so that a changed run
never goes on from an old state.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import lightning as L

from small_init.errors import UserError


class ResumeCheckpoint(L.Callback):
    """Save `last.ckpt` in `folder` every `seconds`, and once when SIGTERM has come."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.path = folder / "last.ckpt"
        self.seconds = seconds
        self.saved_at = time.monotonic()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.saved_at = time.monotonic()

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        due = time.monotonic() - self.saved_at >= self.seconds
        if due or trainer.received_sigterm:
            self.save(trainer)

    def save(self, trainer: L.Trainer) -> None:
        temporary = self.path.with_suffix(".tmp")
        try:
            trainer.save_checkpoint(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except (OSError, RuntimeError) as error:
            # torch reports a full disk as a RuntimeError of its zip writer.
            if trainer.is_global_zero:
                temporary.unlink(missing_ok=True)
            raise UserError(
                f"Cannot write the checkpoint {self.path} ({str(error).splitlines()[0]}); the last "
                "whole one is kept. Free some space, then run the same command again."
            ) from None
        self.saved_at = time.monotonic()
