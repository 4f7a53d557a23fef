"""The standard deviation of each kind of weight of an architecture."""

from __future__ import annotations

from dataclasses import dataclass

from small_init.config import InitConfig
from small_init.diagnosis.architectures import Architecture
from small_init.model.init import weight_std
from small_init.rule.groups import Group


@dataclass(frozen=True)
class Stds:
    """Standard deviation of each weight that a block, or the model's ends, are made of."""

    embedding: float
    position: float  # learned positions; 0 where there are none
    query: float  # also key and value
    output: float
    gate: float
    router: float
    up: float  # also the feed-forward gate
    down: float
    readout: float


def stds_of(arch: Architecture, init: InitConfig) -> Stds:
    """What `init` gives each weight of `arch`."""

    def std(group: Group, fan_in: int, is_output: bool = False) -> float:
        return weight_std(group, fan_in, is_output, init, arch.n_layers)

    embedding = std(Group.embedding, arch.d_model)
    return Stds(
        embedding=embedding,
        position=embedding if arch.rope_theta is None else 0.0,
        query=std(Group.attention, arch.d_model),
        output=std(Group.attention, arch.attention_width, is_output=True),
        gate=std(Group.gate, arch.d_model),
        router=std(Group.router, arch.d_model),
        up=std(Group.mlp, arch.d_model),
        down=std(Group.mlp, arch.d_ff, is_output=True),
        readout=embedding if arch.tied else std(Group.readout, arch.d_model),
    )
