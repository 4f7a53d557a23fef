"""What is measured while a run trains, and the writing of its record."""

from __future__ import annotations

import math
import platform
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch

from small_init import records
from small_init.data import PackedTokens
from small_init.errors import UserError
from small_init.evaluation import validate
from small_init.probes import weight_spectra
from small_init.records import RunSpec
from small_init.schedule import curve_steps, learning_rate_factor

_LOG_EVERY = 10  # steps between TensorBoard points and looks for a loss that is not finite


class Recorder(L.Callback):
    """Validation, spectra and TensorBoard; its rows are part of the checkpoint."""

    def __init__(
        self, spec: RunSpec, tokens: PackedTokens, progress: Callable[[int, float], None]
    ) -> None:
        self.spec, self.tokens, self.progress = spec, tokens, progress
        self.points = set(curve_steps(spec.arm.steps, spec.arm.train.curve_points))
        self.curve: list[dict[str, Any]] = []
        self.spectra: list[dict[str, Any]] = []
        self.seconds = 0.0  # training time of earlier, interrupted attempts
        self.started = time.monotonic()
        self.last_log = (0, self.started)
        self.final: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        seconds = self.seconds + time.monotonic() - self.started
        return {"curve": self.curve, "spectra": self.spectra, "seconds": seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.curve, self.spectra = state_dict["curve"], state_dict["spectra"]
        self.seconds = state_dict["seconds"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.started = time.monotonic()
        self.last_log = (trainer.global_step, self.started)
        if not self.curve:
            self.record(trainer, pl_module, 0)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        step = trainer.global_step
        if step % _LOG_EVERY == 0 or step in self.points:
            self.log_point(trainer, step, float(outputs["loss"]), pl_module)
        if step in self.points:
            self.record(trainer, pl_module, step)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        # Here and not after `fit`, which moves the model off its device.
        if trainer.global_step == self.spec.arm.steps:
            self.validate_finally(pl_module)

    def validate_finally(self, module: Any) -> None:
        arm = self.spec.arm
        self.final = validate(module.model, self.tokens, arm.model.context, arm.train.final_tokens)

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
        trainer.logger.log_metrics(scalars, step)  # type: ignore[union-attr]

    def record(self, trainer: L.Trainer, module: Any, step: int) -> None:
        """One row of the curve and of the spectra, at `step` updates."""
        arm, recent = self.spec.arm, dict[str, float | None]()
        for name in ("recent_loss", "recent_norm", "recent_clipped"):
            metric = module.metric(name)
            recent[name] = float(metric.compute()) if step else None
            metric.reset()
        validation = validate(module.model, self.tokens, arm.model.context, arm.train.curve_tokens)
        lr = arm.optimizer.lr * learning_rate_factor(max(step - 1, 0), arm.steps, arm.optimizer)
        self.curve.append(
            {
                "step": step, "tokens": step * arm.train.batch_tokens, "lr": lr if step else 0.0,
                "train_loss": recent["recent_loss"], "val_loss": validation["loss"],
                "grad_norm": recent["recent_norm"], "clipped_share": recent["recent_clipped"],
            }
        )  # fmt: skip
        rows = weight_spectra(module.model, arm.init, arm.model, self.spec.seed)
        self.spectra += [{"step": step} | row for row in rows]
        scalars = {"val/loss": validation["loss"]}
        for group in sorted({group_label(row["weight"]) for row in rows}):
            mine = [row for row in rows if group_label(row["weight"]) == group]
            for name in ("norm", "stable_rank"):
                scalars[f"{name}/{group}"] = sum(row[name] for row in mine) / len(mine)
        trainer.logger.log_metrics(scalars, step)  # type: ignore[union-attr]


def group_label(weight: str) -> str:
    """`blocks.3.mlp.up.weight` → `mlp.up`: the weights whose layers are averaged in TensorBoard."""
    parts = weight.removesuffix(".weight").split(".")
    return ".".join(parts[2:]) if parts[0] == "blocks" else parts[0]


def write_record(
    scratch: Path, metrics: dict, recorder: Recorder, init: dict, performance: dict
) -> None:
    """All files under a temporary name, then one rename: a folder `record` is a whole record."""
    draft = scratch / "record.tmp"
    shutil.rmtree(draft, ignore_errors=True)
    records.write_text(draft / "metrics.json", records.json_text(rounded(metrics)))
    records.write_text(draft / "curve.csv", records.csv_text(recorder.curve))
    records.write_text(draft / "spectra.csv", records.csv_text(recorder.spectra))
    records.write_text(draft / "init.json", records.json_text(rounded(init)))
    records.write_text(draft / records.PERFORMANCE_FILE, records.json_text(performance))
    draft.rename(scratch / "record")


def rounded(value: Any) -> Any:
    """Floats with 9 significant digits, all the way down: more than float32 arithmetic can say."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def performance(seconds: float, spec: RunSpec) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kB, but bytes on macOS
    return {
        "seconds": round(seconds, 1), "tokens_per_second": round(spec.arm.train.tokens / seconds),
        "peak_memory_bytes": peak * (1 if sys.platform == "darwin" else 1024),
        "device": platform.processor() or platform.machine(), "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "code": records.code_fingerprint(), "python": platform.python_version(),
        "torch": torch.__version__, "lightning": L.__version__,
    }  # fmt: skip


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested configuration as `model.d_model: 64`, for the HParams page."""
    out: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        out |= flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return out
