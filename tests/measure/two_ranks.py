"""A short run with every probe on 1 or 2 gloo ranks, weights sharded; called by test_activations.

python two_ranks.py <ranks> <out.json>
"""

import json
import os
import sys
from pathlib import Path

os.environ |= {"ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1"}

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

from small_init.config import Probes
from small_init.data.packed import PackedData, PackedTokens
from small_init.measure.activations import FirstTokenAttention
from small_init.measure.recorder import Recorder
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import Pretraining
from tests import tiny


class Sharded(Pretraining):
    def configure_model(self) -> None:
        if self.model is None:
            super().configure_model()
            mesh = self.device_mesh["data_parallel"]
            for block in self.model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(self.model, mesh=mesh)


def measured(ranks: int) -> dict[str, list]:
    """All probe rows of 6 steps on the tokens in ./packed, and a metric of windows split over the
    ranks."""
    arm = tiny.tiny_arm()
    arm.train.probes, arm.train.tokens, arm.train.curve_points = Probes.all, 64 * 6, 3
    tokens = PackedTokens(Path("packed"))
    recorder = Recorder(RunSpec("test", "pretrain", "two-ranks", arm, 0), tokens, lambda *_: None)
    sharded = ModelParallelStrategy(data_parallel_size=ranks, tensor_parallel_size=1)
    trainer = L.Trainer(
        accelerator="cpu", devices=ranks, strategy=sharded if ranks > 1 else "auto",
        max_steps=arm.steps, max_epochs=-1, callbacks=[recorder],
        logger=TensorBoardLogger("events"), use_distributed_sampler=False,
        limit_val_batches=0, num_sanity_val_steps=0, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    kind = Sharded if ranks > 1 else Pretraining
    trainer.fit(kind(arm, 0), PackedData(tokens, 0, arm.model.context, arm.train.batch_tokens))
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(4, 2, 8, 4, generator=generator) for _ in range(2))
    metric = FirstTokenAttention(1, 2)
    metric.update(0, q[trainer.global_rank :: ranks], k[trainer.global_rank :: ranks])
    split = metric.compute()["share"].flatten().tolist()
    return {"spectra": recorder.spectra, "activations": recorder.activations, "split": split}


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = measured(2)
    if torch.distributed.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(rows))
