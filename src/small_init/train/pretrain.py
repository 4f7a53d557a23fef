"""One run: a configuration and a seed to a record and weights, through Lightning."""

from __future__ import annotations

import hashlib
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.exceptions import SIGTERMException
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics import MeanMetric, SumMetric

from small_init.config import ArmConfig, ParallelConfig, Precision, flat
from small_init.data.packed import PackedData, PackedTokens
from small_init.errors import UserError
from small_init.files import write_bytes
from small_init.measure.activations import residual_flow
from small_init.measure.recorder import Recorder, performance, probe_windows, write_record
from small_init.model.init import full, initialise_, weight_record
from small_init.model.transformer import Transformer, active_size, parameter_counts
from small_init.rule.draws import canonical
from small_init.runs.code_identity import run_digest
from small_init.runs.record import (
    SCHEMA,
    Data,
    Final,
    Metrics,
    Parameters,
    Prequential,
    plain_config,
)
from small_init.runs.schedule import learning_rate_factor
from small_init.runs.spec import RunSpec
from small_init.train.optimizer import optimizer_of
from small_init.train.resume import ResumeCheckpoint
from small_init.train.sharding import Ranks

run_digest()  # now, while the files are the ones that were imported


def flops_per_token(model: nn.Module) -> int:
    """6 × the parameters a token is multiplied with: all matrices but the looked-up embedding, and
    of a mixture the experts it is sent to."""
    sizes = [
        active_size(name, p, model.config)  # type: ignore[arg-type]
        for name, p in model.named_parameters()
        if p.ndim > 1
    ]
    counted = sum(sizes)
    return 6 * (counted - model.embedding.weight.numel() * (not model.config.tied))  # type: ignore


class Pretraining(L.LightningModule):
    """Next-token prediction with the optimizer and schedule of the arm."""

    def __init__(self, arm: ArmConfig, seed: int, ranks: Ranks | None = None) -> None:
        super().__init__()
        self.arm, self.seed = arm, seed
        self.ranks = ranks or Ranks(ParallelConfig())
        self.model: Transformer | None = None
        self.last_loss: Tensor | float = 0.0  # of the whole batch
        self.last_norm: Tensor | float = 0.0  # of the gradient, before clipping
        # In the checkpoint, so that a resumed run ends with the same sums; float64, since the
        # code length adds up a whole run. What goes in is over all devices already.
        options: dict[str, Any] = {"nan_strategy": "disable", "sync_on_compute": False}
        self.metrics = nn.ModuleDict(
            {
                "recent_loss": MeanMetric(**options),
                "recent_norm": MeanMetric(**options),
                "recent_clipped": MeanMetric(**options),
                "clipped": MeanMetric(**options),
                "code_length": SumMetric(**options),
            }
        )
        for name in self.metrics:
            self.metric(name).set_dtype(torch.float64)
            self.metric(name).persistent(True)

    def metric(self, name: str) -> Any:
        return self.metrics[name]

    def arithmetic(self) -> torch.autocast:
        """The precision of training, for passes that Lightning does not run."""
        low = self.arm.train.precision is Precision.bf16
        return torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=low)

    def configure_model(self) -> None:
        # Called again for every stage of the trainer, and before a checkpoint is loaded: an
        # initialisation in any later hook would overwrite a resumed state.
        if self.model is None:
            self.model = self.ranks.build(self.arm)
            initialise_(self.model, self.arm.init, self.arm.model, self.seed)
            self.flops_per_token = flops_per_token(self.model)

    def configure_optimizers(self) -> Any:
        assert self.model is not None
        config = self.arm.optimizer
        optimizer = optimizer_of(self.model, config)
        factor = lambda step: learning_rate_factor(step, self.arm.steps, config)
        schedule = {"scheduler": LambdaLR(optimizer, factor), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        assert self.model is not None
        loss = self.model(*batch)
        self.last_loss = self.ranks.mean(loss.detach())
        self.metric("recent_loss").update(self.last_loss)
        self.metric("code_length").update(self.last_loss * self.arm.train.batch_tokens)
        return loss

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        limit = self.arm.optimizer.clip
        norm = torch.nn.utils.clip_grad_norm_(
            self.parameters(), math.inf if limit is None else limit, error_if_nonfinite=False
        )
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        clipped = torch.zeros_like(norm) if limit is None else (norm > limit).to(norm.dtype)
        self.last_norm = norm.detach()
        self.metric("recent_norm").update(norm)
        self.metric("recent_clipped").update(clipped)
        self.metric("clipped").update(clipped)


def train(
    spec: RunSpec,
    progress: Callable[[int, float], None] = lambda step, loss: None,
    checkpoint_seconds: float = 20.0,
) -> Path:
    """Train one run, or go on with it; returns the scratch folder with `record/` and weights.

    A run that is already finished there returns at once. Raises UserError for wrong input and for
    a loss that is not finite, SIGTERMException after SIGTERM with the state saved.
    """
    tokens = PackedTokens(spec.data_folder)
    arm = spec.arm
    if tokens.vocab_size != arm.model.vocab_size:
        raise UserError(
            f"Arm {spec.arm_key} has model.vocab_size {arm.model.vocab_size}, but the tokens in "
            f"{tokens.folder} were made with {tokens.vocab_size}; set the profile's vocab_size."
        )
    if arm.model.context != tokens.meta.get("length", arm.model.context):
        raise UserError(
            f"Arm {spec.arm_key} has model.context {arm.model.context}, but the sequences in "
            f"{tokens.folder} have {tokens.meta['length']} tokens; a window must be a sequence."
        )
    scratch = spec.scratch(tokens.sha256)
    ranks = Ranks(spec.parallel)
    if ranks.any((scratch / "record").is_dir()):
        return scratch
    if ranks.first:
        make_room(scratch, spec)
    module = Pretraining(arm, spec.seed, ranks)
    recorder = Recorder(spec, tokens, progress)
    resume = ResumeCheckpoint(scratch, checkpoint_seconds, ranks)
    data = PackedData(tokens, spec.seed, arm.model.context, arm.train.batch_tokens)
    start = resume.found()
    if start is None and ranks.first:
        # Else the curve of an abandoned attempt would be drawn under this one.
        shutil.rmtree(spec.event_folder, ignore_errors=True)
    logger = TensorBoardLogger(
        spec.event_folder.parent, name="", version=spec.event_folder.name, default_hp_metric=False
    )
    trainer = L.Trainer(
        **ranks.trainer_arguments(),
        precision=arm.train.precision.value, max_steps=arm.steps, max_epochs=-1,
        callbacks=[recorder, resume], logger=logger, use_distributed_sampler=False,
        limit_val_batches=0, num_sanity_val_steps=0, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=scratch,
    )  # fmt: skip
    module.configure_model()
    assert module.model is not None
    init_record: dict[str, Any] = {"weights": weight_record(module.model, arm.init, arm.model)}
    with module.arithmetic():
        windows = probe_windows(tokens, arm)
        init_record["residual_flow"] = residual_flow(module.model, windows)
    trainer.fit(module, data, ckpt_path=start, weights_only=True)
    if trainer.global_step < arm.steps:
        raise SIGTERMException
    if recorder.final is None:  # killed after its last step: nothing was left to train
        recorder.validate_finally(module)
    seconds = recorder.seconds + time.monotonic() - recorder.started
    assert recorder.final is not None
    code_length = float(module.metric("code_length").compute())
    weights = {}
    for name, parameter in module.model.named_parameters():
        whole = full(parameter)
        if ranks.first:
            weights[canonical(name)] = whole.cpu().contiguous()
    saved = save(weights)
    metrics = Metrics(
        schema=SCHEMA, profile=spec.profile, stage=spec.stage, arm=spec.arm_key, seed=spec.seed,
        config=arm, data=Data(tokens.sha256, data.batches(0, 1).order_sha256(arm.steps)),
        parameters=Parameters(**parameter_counts(module.model)),
        steps=arm.steps, tokens=arm.train.tokens,
        flops=flops_per_token(module.model) * arm.train.tokens, final=Final(**recorder.final),
        prequential=Prequential(code_length / arm.train.tokens),
        clipped_share=float(module.metric("clipped").compute()),
        weights_sha256=hashlib.sha256(saved).hexdigest(),
    )  # fmt: skip
    if ranks.first:
        write_bytes(scratch / "weights.safetensors", saved)
        write_record(scratch, metrics, recorder, init_record, performance(seconds, spec, module))
        result = {"val/final": metrics.final.loss}
        logger.log_hyperparams(flat(plain_config(arm)) | {"seed": spec.seed}, result)
        logger.finalize("success")
        resume.remove()
    ranks.wait()
    return scratch


def make_room(scratch: Path, spec: RunSpec) -> None:
    """Make the run's folder, and remove those of its earlier configurations, data or code."""
    try:
        scratch.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot create {scratch}: {error.strerror}.") from None
    for old in scratch.parent.glob(f"seed-{spec.seed}-*"):
        if old != scratch:
            shutil.rmtree(old, ignore_errors=True)
