"""Checkpoints to go on from: written beside the last one, then renamed over it.

A kill at any moment, also in the middle of a write, leaves a whole checkpoint or none; SIGTERM
writes a last one. Their folder is named after configuration, data and code, so that a changed run
never goes on from an old state. One process writes a file; several write a folder together, each
its own part, and any number of them can go on from it.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch.distributed.checkpoint import CheckpointException

from small_init.errors import UserError
from small_init.files import recover_folder, replace_folder
from small_init.train.sharding import Ranks

_GO_ON, _SAVE, _STOP = range(3)


class ResumeCheckpoint(L.Callback):
    """Save `last.ckpt` in `folder` every `seconds`, and once when SIGTERM has come."""

    def __init__(self, folder: Path, seconds: float, ranks: Ranks) -> None:
        self.path = folder / "last.ckpt"
        self.seconds, self.ranks = seconds, ranks
        self.saved_at = time.monotonic()
        self.told_to_stop = False
        # torch reports a full disk as a RuntimeError of its zip writer, and the failure of any
        # process as a CheckpointException; among several a RuntimeError is a lost connection.
        self.errors = (OSError, CheckpointException if ranks.together else RuntimeError)

    def found(self) -> Path | None:
        """The checkpoint to go on from. Raises UserError for one that was saved in the other way:
        by a plain process, or by processes that torchrun started."""
        if self.ranks.first:
            recover_folder(self.path)
        self.ranks.wait()
        if not self.ranks.any(self.path.exists()):
            return None
        if self.path.is_dir() != self.ranks.together:
            way = "by processes of torchrun" if self.path.is_dir() else "without torchrun"
            raise UserError(
                f"{self.path} was saved {way}; go on in the same way (one process of torchrun will "
                "do), or delete it to begin again."
            )
        return self.path

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.saved_at = time.monotonic()
        if self.ranks.together:
            # Lightning's own handler starts a collective wherever the signal finds each process.
            # It puts back the one before its own when the run ends.
            signal.signal(signal.SIGTERM, self._note)

    def _note(self, *_: Any) -> None:
        self.told_to_stop = True

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        due = time.monotonic() - self.saved_at >= self.seconds
        stop = self.told_to_stop or trainer.received_sigterm
        decision = self.ranks.largest(_STOP if stop else _SAVE if due else _GO_ON)
        if decision != _GO_ON:
            self.save(trainer)
        if decision == _STOP and self.ranks.together:
            raise SIGTERMException

    def save(self, trainer: L.Trainer) -> None:
        temporary = self.path.with_suffix(".tmp")
        if self.ranks.first:
            shutil.rmtree(temporary, ignore_errors=True)
        self.ranks.wait()
        try:
            trainer.save_checkpoint(temporary)  # returns when every process has written its part
            if self.ranks.first:
                self._put_in_place(temporary)
        except self.errors as error:
            if self.ranks.first:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.unlink(missing_ok=True)
            raise UserError(
                f"Cannot write the checkpoint {self.path} ({str(error).splitlines()[0]}); the last "
                "whole one is kept. Free some space, then run the same command again."
            ) from None
        self.saved_at = time.monotonic()

    def _put_in_place(self, temporary: Path) -> None:
        files = list(temporary.iterdir()) if temporary.is_dir() else [temporary]
        for path in files:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        if temporary.is_dir():
            replace_folder(temporary, self.path)
        else:
            temporary.replace(self.path)

    def remove(self) -> None:
        """When the run's record is written."""
        if self.path.is_dir():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)
