"""One run on several devices and nodes: FSDP2 around a model that knows nothing of it.

torchrun starts the processes, one a device; each joins the group, holds a shard of every weight,
gradient and optimizer state, and trains on its share of each batch. Numbers are those of one
process up to the order of sums: first weights are the same numbers (`model.init` draws each process
its own part), a batch is the same for any number of devices, and what is reported is averaged over
them. A plain process is a group of its own, and nothing here then changes what it does.

    shard     weights are divided over              and repeated
    full      all devices                           nowhere
    hybrid    the devices of a node                 on every node; less traffic between nodes
    none      nothing                               on every device
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from small_init.config import (
    Accelerator,
    ArmConfig,
    ParallelConfig,
    Precision,
    Shard,
)
from small_init.errors import UserError
from small_init.model.moe import MixtureOfExperts
from small_init.model.transformer import Transformer, rotary_tables


class Ranks:
    """The processes that train one run together; this one is `rank` of `world`."""

    def __init__(self, parallel: ParallelConfig) -> None:
        self.parallel = parallel
        self.together = dist.is_torchelastic_launched()
        if not self.together and parallel.devices * parallel.nodes > 1:
            raise UserError(
                f"This profile asks for {parallel.nodes} x {parallel.devices} devices; start it "
                "with launch/torchrun.sh or launch/slurm.sh."
            )
        on_gpu = parallel.accelerator is Accelerator.cuda
        if on_gpu and not torch.cuda.is_available():
            raise UserError(
                "This profile asks for a GPU and torch finds none; check the driver, and that "
                "torch is a CUDA build (TORCH_INDEX= in the Makefile)."
            )
        local = int(os.environ["LOCAL_RANK"]) if self.together else 0
        self.device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
        self.rank, self.world, self.nodes = 0, 1, 1
        if self.together:
            self._join()

    def _join(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if not dist.is_initialized():
            on_gpu = self.device.type == "cuda"
            dist.init_process_group(
                "nccl" if on_gpu else "gloo", device_id=self.device if on_gpu else None
            )
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.nodes = int(os.environ["GROUP_WORLD_SIZE"])
        # Decisions are shared through the CPU, so that they do not wait for the device's queue.
        self.control = dist.new_group(backend="gloo")

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def mesh(self) -> DeviceMesh:
        """How weights are laid out: over all devices, or (repeated, divided)."""
        if self.parallel.shard is Shard.full:
            return init_device_mesh(self.device.type, (self.world,), mesh_dim_names=("shard",))
        hybrid = self.parallel.shard is Shard.hybrid
        copies = self.nodes if hybrid else self.world
        shape = (copies, self.world // copies)
        return init_device_mesh(self.device.type, shape, mesh_dim_names=("copy", "shard"))

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a tensor over the processes, without gradient."""
        if not self.together:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.world

    def largest(self, mine: int) -> int:
        """The largest of the processes' numbers; all of them have to ask."""
        if not self.together:
            return mine
        answer = torch.tensor(mine)
        dist.all_reduce(answer, dist.ReduceOp.MAX, group=self.control)
        return int(answer)

    def any(self, mine: bool) -> bool:
        """Whether the answer of any process is yes; all of them have to ask."""
        return bool(self.largest(int(mine)))

    def wait(self) -> None:
        """Until every process is here."""
        self.any(False)

    def trainer_arguments(self) -> dict[str, Any]:
        """What Lightning's Trainer is told of devices and strategy."""
        accelerator = self.parallel.accelerator.value
        if not self.together:
            return {"accelerator": accelerator, "devices": 1}
        return {
            "accelerator": accelerator,
            "devices": self.world // self.nodes,
            "num_nodes": self.nodes,
            "plugins": [TorchElasticEnvironment()],
            "strategy": ModelParallelStrategy(
                data_parallel_size=self.world, tensor_parallel_size=1
            ),
        }

    def build(self, arm: ArmConfig) -> Transformer:
        """The model of a run without its weights, whose memory nobody has written to yet.

        No process ever holds more than its own part; of a plain process that is the whole.
        """
        with torch.device("meta"):
            model = Transformer(arm.model)
        self._change_blocks(model)
        if self.together:
            self._divide(model, arm.train.precision)
        device = self.device if self.together else torch.device("cpu")  # Lightning moves it later
        model.to_empty(device=device)
        if arm.model.tied:  # memory of its own was just given to each of the two
            model.readout.weight = model.embedding.weight
        model.tables = rotary_tables(arm.model, arm.model.context).to(device)
        return model

    def _change_blocks(self, model: Transformer) -> None:
        """Checkpointing and compilation of `forward` alone: no weight's name changes, and FSDP's
        hooks, which run around `forward`, stay outside of both."""
        for block in model.blocks:
            forward = block.forward
            if self.parallel.checkpoint_activations:
                forward = partial(checkpoint, forward, use_reentrant=False)
            if self.parallel.compile:
                forward = torch.compile(forward)
            if forward != block.forward:
                block.forward = forward

    def _divide(self, model: Transformer, precision: Precision) -> None:
        policy = MixedPrecisionPolicy(cast_forward_inputs=False)
        if precision is Precision.bf16:
            # Weights travel in bfloat16; gradients are added up in float32.
            policy = MixedPrecisionPolicy(
                param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
            )
        mesh = self.mesh()
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        for module in model.modules():
            if isinstance(module, MixtureOfExperts):
                module.over_ranks = self.mean
