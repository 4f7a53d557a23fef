"""What defines a run: plain dataclasses, one line of documentation per field.

A configuration file or a `params.json` entry holds differences from these defaults. It is read
once through OmegaConf, which refuses misspelt keys and wrong types, and is plain Python afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from small_init.rule.groups import DRAWN_GROUPS


class Norm(Enum):
    """Normalisation before each sublayer, before the readout, and (QK-norm) on queries and keys."""

    rmsnorm = "rmsnorm"  # x / sqrt(mean(x²) + ε)
    layernorm = "layernorm"  # (x − mean(x)) / sqrt(var(x) + ε)


class Gate(Enum):
    """Query-dependent gate on the attention output, before the output projection (2505.06708)."""

    none = "none"
    headwise = "headwise"  # one sigmoid per head
    elementwise = "elementwise"  # one sigmoid per channel


class Scheme(Enum):
    """How the weights are drawn; the standard deviations are in `model.init.weight_std`."""

    gamma = "gamma"  # d_in^(-γ)
    fixed = "fixed"  # 0.02
    gpt2 = "gpt2"  # 0.02, and 0.02/√(2·n_layers) on output projections
    zero_out = "zero_out"  # as `gamma`, output projections at 0


class Optimizer(Enum):
    """What updates the matrices of the blocks; everything else is AdamW's."""

    adamw = "adamw"  # 1711.05101
    muon = "muon"  # torch.optim.Muon, its update as long as AdamW's (2502.16982)


class Schedule(Enum):
    """The learning rate after the warm-up, from its peak to `min_lr_ratio` of it."""

    cosine = "cosine"
    wsd = "wsd"  # at the peak, then linearly down over the last fifth of the run (2404.06395)


class Precision(Enum):
    """Lightning's precision names, written so that they can be YAML words."""

    fp32 = "32-true"
    bf16 = "bf16-mixed"


class Corpus(Enum):
    """The tokens a run reads: a folder of data/<profile>/."""

    packed = "packed"  # the text
    backcopy = "backcopy"  # the Bigram-Backcopy task (2410.13835); see `data.backcopy`
    composite = "composite"  # the composite-function task (2405.05409); see `data.composite`


class Probes(Enum):
    """What a run measures of itself besides its losses; no choice changes how it trains."""

    none = "none"  # nothing but the loss curve
    weights = "weights"  # spectra of W and W − W₀
    all = "all"  # also of W without what decay leaves of W₀, the forward pass, two weights in full


class Accelerator(Enum):
    """Lightning's names of what a run computes on."""

    cpu = "cpu"
    cuda = "cuda"


class Shard(Enum):
    """How several devices hold one model; the table is in `train.sharding`."""

    full = "full"  # weights divided over all devices
    hybrid = "hybrid"  # divided over the devices of a node, repeated on every node
    none = "none"  # repeated on every device


@dataclass
class ModelConfig:
    d_model: int = 64  # hidden size
    n_layers: int = 4  # blocks, each attention + feed-forward
    n_heads: int = 4  # attention heads; d_model / n_heads must be even (rotary pairs)
    d_ff: int = 176  # inner size of the SwiGLU feed-forward; in a mixture, of each expert
    n_experts: int = 0  # feed-forward layers a token is routed among; 0: one, for all tokens
    experts_per_token: int = 2  # experts that each token goes through
    balance_weight: float = 0.01  # weight of the load-balancing loss (2101.03961), per layer
    z_weight: float = 0.001  # weight of the router's z loss (2202.08906), per layer
    vocab_size: int = 2048  # entries of the tokenizer
    context: int = 128  # tokens of a training window
    norm: Norm = Norm.rmsnorm
    norm_eps: float = 1e-12  # ε of every normalisation
    gate: Gate = Gate.elementwise
    qk_norm: bool = False  # normalise queries and keys per head
    tied: bool = False  # readout shares the token embedding
    rope_theta: float = 10_000.0  # base of the rotary frequencies


@dataclass
class InitConfig:
    """How the first weights are drawn; a γ of its own for each of `rule.groups.DRAWN_GROUPS`."""

    scheme: Scheme = Scheme.gamma
    gamma: float = 1.0  # γ of every weight group not named below
    embedding: float | None = None  # γ of the token embedding
    attention: float | None = None  # γ of query, key, value and output projections
    mlp: float | None = None  # γ of the feed-forward weights, experts included
    router: float | None = None  # γ of the routers of a mixture of experts
    gate: float | None = None  # γ of the attention gate
    readout: float | None = None  # γ of the readout
    depth_scaled: bool = False  # divide the std of output projections by √(2·n_layers)


@dataclass
class OptimizerConfig:
    name: Optimizer = Optimizer.adamw
    schedule: Schedule = Schedule.cosine
    lr: float = 3e-3  # peak learning rate
    width_rates: bool = False  # the rate of a matrix but the embedding is lr · 32/d_in (2203.03466)
    warmup_steps: int = 100  # steps of linear warm-up
    min_lr_ratio: float = 0.1  # final over peak learning rate
    beta1: float = 0.9  # AdamW's
    beta2: float = 0.95  # AdamW's
    eps: float = 1e-8  # AdamW's own ε
    weight_decay: float = 0.1  # on matrices only
    clip: float | None = 1.0  # largest global gradient norm; null: no clipping


@dataclass
class TrainConfig:
    corpus: Corpus = Corpus.packed  # the tokens trained and validated on
    tokens: int = 2_048_000  # tokens trained on
    batch_tokens: int = 2_048  # tokens of an optimizer step, over all devices
    precision: Precision = Precision.fp32
    curve_points: int = 18  # validations during training, on logarithmically spaced steps
    curve_tokens: int = 32_768  # validation tokens of each
    final_tokens: int = 524_288  # validation tokens at the end, stratified by source
    probes: Probes = Probes.weights  # what is measured at every curve point


@dataclass
class ParallelConfig:
    """How a run is laid out on machines: of a profile, not of an arm, whose numbers it leaves."""

    accelerator: Accelerator = Accelerator.cpu
    devices: int = 1  # per node, when planned; torchrun decides how many there are
    nodes: int = 1  # as `devices`
    shard: Shard = Shard.full
    checkpoint_activations: bool = False  # keep block inputs alone, compute the rest again
    compile: bool = False  # compile each block
    device_tflops: float | None = None  # peak of a device at the run's precision, for the MFU
    device_memory: float | None = None  # GB of a device; `small-init plan` warns by it


@dataclass
class ArmConfig:
    """One configuration without its seed."""

    variant: str = "adjusted"  # label of the (ε, gate) setting; its values stand in `model`
    seeds: list[int] = field(default_factory=lambda: [0])
    model: ModelConfig = field(default_factory=ModelConfig)
    init: InitConfig = field(default_factory=InitConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    @property
    def steps(self) -> int:
        return self.train.tokens // self.train.batch_tokens

    def identity(self) -> dict[str, Any]:
        """What the numbers of a run depend on, as plain values: all but labels and seeds."""
        return {
            part: plain(getattr(self, part)) for part in ("model", "init", "optimizer", "train")
        }


PILOT_SEEDS = range(10)  # never used for a verdict


def plain(value: Any) -> Any:
    """A configuration as dicts, lists and scalars, enums by name: what JSON and YAML can hold."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.name
    return value


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested configuration as `model.d_model: 64`, for the HParams page."""
    out: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        out |= flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return out


def differences(value: Any, default: Any) -> dict[str, Any]:
    """The fields of `value` that differ from `default`, nested, as plain values."""
    out: dict[str, Any] = {}
    for f in fields(value):
        mine, other = getattr(value, f.name), getattr(default, f.name)
        if is_dataclass(mine):
            if inner := differences(mine, other):
                out[f.name] = inner
        elif mine != other:
            out[f.name] = plain(mine)
    return out


def group_gammas(init: InitConfig) -> dict[str, float]:
    """γ of the weight groups that have one of their own, by the group's name."""
    own = {group.value: getattr(init, group.value) for group in DRAWN_GROUPS}
    return {name: gamma for name, gamma in own.items() if gamma is not None}
