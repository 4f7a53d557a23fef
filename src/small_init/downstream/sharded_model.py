"""A checkpoint too large for one device: its weights are divided over the processes of torchrun.

Every process asks the same questions in the same order, so that all of them gather the same block
at the same time; rank 0 writes. Embedding, last norm and readout are whole on every device, a block
only while it computes. A plain process is a group of its own, and nothing here then does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from small_init.config import Accelerator, ArmConfig, ParallelConfig
from small_init.config_files import merged
from small_init.model.transformer import Transformer
from small_init.train.sharding import Ranks


@cache
def ranks() -> Ranks:
    """The processes that evaluate together: one, unless torchrun started more."""
    accelerator = Accelerator.cuda if torch.cuda.is_available() else Accelerator.cpu
    return Ranks(ParallelConfig(accelerator=accelerator))


@torch.no_grad()
def load_model(arm: ArmConfig, weight: Callable[[str], Tensor]) -> Transformer:
    """The model of an arm in float32, ready to evaluate; `weight` gives each weight whole, by name.

    Raises:
        RuntimeError: a weight of another shape.
    """
    here = ranks()
    model = here.build(merged(arm, {"train": {"precision": "fp32"}}, where="")).to(here.device)
    if here.together:
        register_fsdp_forward_method(model, "hidden")
    for name, parameter in model.named_parameters():
        value = weight(name).to(here.device, torch.float32)
        if value.shape != parameter.shape:
            raise RuntimeError(f"{name} is {tuple(value.shape)}, not {tuple(parameter.shape)}")
        if isinstance(parameter, DTensor):
            mesh, placements = parameter.device_mesh, parameter.placements
            value = distribute_tensor(value, mesh, placements, src_data_rank=None)
        parameter.copy_(value)
    model.eval()
    if here.together:
        # FSDP takes what runs first for the root, whose own weights then stay whole.
        model.hidden(torch.zeros(1, 1, dtype=torch.long, device=here.device))
    return model


@contextmanager
def whole(block: nn.Module) -> Iterator[None]:
    """Inside, the block's weights are whole, as they are in its `forward`."""
    if isinstance(block, FSDPModule):
        block.unshard()
    yield
    if isinstance(block, FSDPModule):
        block.reshard()


def agreed(value: Tensor) -> Tensor:
    """Rank 0's tensor: what decides whether there is another pass must be the same everywhere."""
    if ranks().together:
        dist.broadcast(value, 0)
    return value
