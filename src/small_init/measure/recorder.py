"""What is measured while a run trains, and the writing of its record."""

from __future__ import annotations

import math
import platform
import resource
import shutil
import sys
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from small_init.config import ArmConfig, Probes
from small_init.data.packed import PackedTokens
from small_init.errors import UserError
from small_init.files import csv_text, json_text, rounded, write_bytes, write_text
from small_init.measure.activations import forward_rows
from small_init.measure.scalars import activation_scalars, heat_map, spectra_scalars
from small_init.measure.spectra import (
    activation_row,
    embedding_saturation,
    matrices,
    snapshot,
    snapshot_weights,
    token_classes,
    weight_spectra,
    weight_type_norms,
)
from small_init.measure.validation import validate
from small_init.model.moe import routing
from small_init.runs.code_identity import run_digest
from small_init.runs.machine import cpu_vendor
from small_init.runs.paths import PERFORMANCE_FILE
from small_init.runs.record import Metrics
from small_init.runs.schedule import curve_steps, decay_left, learning_rate_factor, snapshot_steps
from small_init.runs.spec import RunSpec

PROBE_WINDOWS = 16  # validation windows that forward passes are probed on
_LOG_EVERY = 10  # steps between TensorBoard points and looks for a loss that is not finite


class Recorder(L.Callback):
    """Validation, probes and TensorBoard; its rows are part of the checkpoint."""

    def __init__(
        self, spec: RunSpec, tokens: PackedTokens, progress: Callable[[int, float], None]
    ) -> None:
        self.spec, self.tokens, self.progress = spec, tokens, progress
        points = (spec.arm.steps, spec.arm.train.curve_points)
        self.points, self.snapshot_steps = set(curve_steps(*points)), snapshot_steps(*points)
        self.curve: list[dict[str, Any]] = []
        self.spectra: list[dict[str, Any]] = []
        self.activations: list[dict[str, Any]] = []
        self.snapshots: dict[str, Tensor] = {}
        self.before: dict[str, Tensor] | None = None  # the matrices one step before a point
        self.seconds = 0.0  # training time of earlier, interrupted attempts
        self.started = time.monotonic()
        self.last_log = (0, self.started)
        self.final: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        seconds = self.seconds + time.monotonic() - self.started
        return {
            "curve": self.curve, "spectra": self.spectra, "activations": self.activations,
            "snapshots": self.snapshots, "seconds": seconds,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.curve, self.spectra = state_dict["curve"], state_dict["spectra"]
        self.activations, self.snapshots = state_dict["activations"], state_dict["snapshots"]
        self.seconds = state_dict["seconds"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.started = time.monotonic()
        self.last_log = (trainer.global_step, self.started)
        if not self.curve:
            self.record(trainer, pl_module, 0)

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
        if self.probes is Probes.all and trainer.global_step + 1 in self.points:
            # Each rank its own shard; they are gathered weight by weight when they are compared.
            self.before = {n: p.detach().clone() for n, p in matrices(pl_module.model)}

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        step = trainer.global_step
        if step % _LOG_EVERY == 0 or step in self.points:
            self.log_point(trainer, step, float(pl_module.last_loss), pl_module)
        if step in self.points:
            self.record(trainer, pl_module, step)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        # Here and not after `fit`, which moves the model off its device.
        if trainer.global_step == self.spec.arm.steps:
            self.validate_finally(pl_module)

    def validate_finally(self, module: Any) -> None:
        arm = self.spec.arm
        with module.arithmetic():
            self.final = validate(
                module.model, self.tokens, arm.model.context, arm.train.final_tokens
            )

    def log_point(self, trainer: L.Trainer, step: int, loss: float, module: Any) -> None:
        if not (math.isfinite(loss) and math.isfinite(module.last_norm)):
            raise UserError(
                f"Loss or gradient of {self.spec.arm_key}, seed {self.spec.seed}, is not finite "
                f"at step {step} (learning rate {self.spec.arm.optimizer.lr:g}); no record was "
                "written. Lower optimizer.lr or lengthen optimizer.warmup_steps."
            )
        now = time.monotonic()
        since, then = self.last_log
        self.last_log = (step, now)
        self.progress(step, loss)
        speed = (step - since) * self.spec.arm.train.batch_tokens / max(now - then, 1e-9)
        optimizer = self.spec.arm.optimizer
        factor = learning_rate_factor(step - 1, self.spec.arm.steps, optimizer)
        scalars = {
            "train/loss": loss,
            "train/tokens_per_second": speed,
            "train/lr": optimizer.lr * factor,
            "train/grad_norm": module.last_norm,
            "train/clipped_share": float(module.metric("clipped").compute()),
        }
        if utilisation := model_flops_utilisation(speed, module, self.spec):
            scalars["train/mfu"] = utilisation
        trainer.logger.log_metrics(scalars, step)  # type: ignore[union-attr]

    def record(self, trainer: L.Trainer, module: Any, step: int) -> None:
        """One row of the curve, and the probes, at `step` updates."""
        arm, recent = self.spec.arm, dict[str, float | None]()
        for name in ("recent_loss", "recent_norm", "recent_clipped"):
            metric = module.metric(name)
            recent[name] = float(metric.compute()) if step else None
            metric.reset()
        with module.arithmetic():
            validation = validate(
                module.model, self.tokens, arm.model.context, arm.train.curve_tokens
            )
        lr = arm.optimizer.lr * learning_rate_factor(max(step - 1, 0), arm.steps, arm.optimizer)
        self.curve.append(
            {
                "step": step, "tokens": step * arm.train.batch_tokens, "lr": lr if step else 0.0,
                "train_loss": recent["recent_loss"], "val_loss": validation["loss"],
                "grad_norm": recent["recent_norm"], "clipped_share": recent["recent_clipped"],
            }
        )  # fmt: skip
        scalars = {"val/loss": validation["loss"]}
        if self.probes is not Probes.none:
            left = decay_left(step, arm.steps, arm.optimizer) if self.probes is Probes.all else None
            rows = weight_spectra(module.model, arm.init, arm.model, self.spec.seed, left)
            self.spectra += [{"step": step} | row for row in rows]
            scalars |= spectra_scalars(rows)
        if self.probes is Probes.all:
            with module.arithmetic():
                rows = self.activation_rows(module.model, step)
            self.activations += [{"step": step} | row for row in rows]
            scalars |= activation_scalars(rows)
        trainer.logger.log_metrics(scalars, step)  # type: ignore[union-attr]
        if self.probes is Probes.all and step in self.snapshot_steps:
            self.keep_snapshots(trainer, module.model, step)

    @property
    def probes(self) -> Probes:
        return self.spec.arm.train.probes

    def activation_rows(self, model: Any, step: int) -> list[dict[str, Any]]:
        arm = self.spec.arm
        ends = step in (0, arm.steps)
        windows = probe_windows(self.tokens, arm)
        rows = forward_rows(model, windows, all_contexts=ends) + routing(model, windows)
        rows += weight_type_norms(model, self.before)
        self.before = None
        if step == 0:
            rows += [
                activation_row(
                    "embedding_tokens_share", float(self.counts[ids].sum() / self.counts.sum()),
                    part=str(number),
                )
                for number, ids in enumerate(token_classes(self.counts))
            ]  # fmt: skip
        return rows + embedding_saturation(model, arm.model, token_classes(self.counts))

    @cached_property
    def counts(self) -> np.ndarray:
        return self.tokens.token_counts()

    def keep_snapshots(self, trainer: L.Trainer, model: Any, step: int) -> None:
        parameters, board = dict(matrices(model)), trainer.logger.experiment  # type: ignore
        for name in snapshot_weights(self.spec.arm.model):
            kept = snapshot(parameters[name])
            self.snapshots[f"step-{step}/{name}"] = kept
            board.add_image(f"row_cosines/{name}", heat_map(kept), step, dataformats="HW")


def probe_windows(tokens: PackedTokens, arm: ArmConfig) -> Tensor:
    """The validation windows that forward passes are probed on, (B, T)."""
    context = arm.model.context
    windows = min(PROBE_WINDOWS, arm.train.curve_tokens // context)
    ids_BT, _, _ = next(tokens.validation_batches(context, windows * context))
    return ids_BT


def write_record(
    scratch: Path, metrics: Metrics, recorder: Recorder, init: dict, performance: dict
) -> None:
    """All files under a temporary name, then one rename: a folder `record` is a whole record."""
    draft = scratch / "record.tmp"
    shutil.rmtree(draft, ignore_errors=True)
    write_text(draft / "metrics.json", json_text(rounded(metrics.plain())))
    write_text(draft / "curve.csv", csv_text(recorder.curve))
    if recorder.probes is not Probes.none:
        write_text(draft / "spectra.csv", csv_text(recorder.spectra))
    if recorder.probes is Probes.all:
        write_text(draft / "activations.csv", csv_text(recorder.activations))
        write_bytes(draft / "snapshots.safetensors", save(recorder.snapshots))
    write_text(draft / "init.json", json_text(rounded(init)))
    write_text(draft / PERFORMANCE_FILE, json_text(performance))
    draft.rename(scratch / "record")


def model_flops_utilisation(tokens_per_second: float, module: Any, spec: RunSpec) -> float | None:
    """Share of the devices' peak that the model's own operations take (2204.02311; 6 a parameter
    and token, none for attention scores); None where the profile does not state a peak."""
    if spec.parallel.device_tflops is None:
        return None
    peak = 1e12 * spec.parallel.device_tflops * module.ranks.world
    return tokens_per_second * module.flops_per_token / peak


def performance(seconds: float, spec: RunSpec, module: Any) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kB, but bytes on macOS
    speed = spec.arm.train.tokens / seconds
    utilisation = model_flops_utilisation(speed, module, spec)
    return {
        "seconds": round(seconds, 1), "tokens_per_second": round(speed),
        **({"mfu": round(utilisation, 4)} if utilisation else {}),
        "peak_memory_bytes": peak * (1 if sys.platform == "darwin" else 1024),
        "device": platform.processor() or platform.machine(), "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(), "cpu_vendor": cpu_vendor(),
        "code": run_digest(), "python": platform.python_version(),
        "torch": torch.__version__, "lightning": L.__version__,
    }  # fmt: skip
