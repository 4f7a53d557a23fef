"""A rank of tests/rule/test_gamma_sharded.py: torchrun gamma_worker.py <result.json>.

Builds each case sharded, on the meta device where that is how it is done, applies the rule, and
rank 0 writes a hash of every full weight.
"""

import hashlib
import json
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn.parallel import DistributedDataParallel

from small_init import gamma_init_
from small_init.config import InitConfig, ModelConfig
from small_init.errors import UserError
from small_init.model.init import initialise_
from small_init.model.transformer import Transformer

# 7 rows of a matrix over 2 or 3 ranks: uneven shards, and an empty one for the 1-row head.
CONFIG = ModelConfig(d_model=28, n_layers=2, n_heads=2, d_ff=31, vocab_size=37, context=8)
TIED = ModelConfig(**{**vars(CONFIG), "tied": True})


def digests(model: nn.Module, names: list[str]) -> dict[str, str]:
    full = {}
    for name, parameter in zip(names, model.parameters(), strict=True):
        value = parameter.detach()
        value = value.full_tensor() if isinstance(value, DTensor) else value
        full[name] = hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
    return full


def apply(model: nn.Module) -> dict[str, str]:
    done = gamma_init_(model, 0.9, seed=3)
    return digests(model, [w.name for w in done])


def on_meta(config: ModelConfig) -> Transformer:
    with torch.device("meta"):
        return Transformer(config)


def mixtral() -> nn.Module:
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(
        MixtralConfig(
            vocab_size=37, hidden_size=28, intermediate_size=30, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=1, num_local_experts=2,
        )
    )  # fmt: skip


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 12, bias=False), nn.Linear(12, 6), nn.Linear(6, 1))


def fsdp(model: nn.Module, **options) -> nn.Module:
    for block in getattr(model, "blocks", []):
        fully_shard(block, **options)
    return fully_shard(model, **options)


def cases(world: int) -> dict[str, dict[str, str]]:
    mesh = init_device_mesh("cpu", (world,))
    found = {"fsdp": apply(fsdp(on_meta(CONFIG), mesh=mesh).to_empty(device="cpu"))}
    found["fsdp_after_init"] = apply(fsdp(Transformer(CONFIG), mesh=mesh))
    found["tied"] = apply(fsdp(Transformer(TIED), mesh=mesh))
    columns = fsdp(small(), mesh=mesh, shard_placement_fn=lambda p: Shard(p.ndim - 1))
    found["columns"] = apply(columns)
    replicated = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replicate", "shard"))
    found["hybrid"] = apply(fsdp(on_meta(CONFIG), mesh=replicated).to_empty(device="cpu"))
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    found["tensor_parallel"] = apply(parallelize_module(small(), mesh, plan))
    found["ddp"] = apply(DistributedDataParallel(Transformer(CONFIG)))
    try:
        with torch.device("meta"):
            model = mixtral()
        found["mixtral"] = apply(fsdp(model, mesh=mesh).to_empty(device="cpu"))
    except ImportError:
        pass
    own = fsdp(on_meta(CONFIG), mesh=mesh).to_empty(device="cpu")
    initialise_(own, InitConfig(gamma=0.9), CONFIG, 3)
    found["own"] = digests(own, [n for n, _ in own.named_parameters()])
    return found


def refusals(world: int) -> dict[str, str]:
    mesh = init_device_mesh("cpu", (world,))
    said = {}
    for placement in (Partial(), _StridedShard(0, split_factor=2)):
        model = nn.Linear(4, 4, bias=False)
        local = DTensor.from_local(torch.ones(4, 4), mesh, [placement], run_check=False)
        model.weight = nn.Parameter(local)
        try:
            gamma_init_(model)
        except UserError as error:
            said[type(placement).__name__] = str(error)
    return said


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())  # nothing may rest on the global generator
    result = {"cases": cases(dist.get_world_size()), "refusals": refusals(dist.get_world_size())}
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(result))
    dist.destroy_process_group()
