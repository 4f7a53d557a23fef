"""What a decoder-only transformer is, as far as its first step cares: ours or Hugging Face's.

`config.json` files of Hugging Face are read as plain JSON; `transformers` is not needed for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from small_init.config import Gate, ModelConfig, Norm
from small_init.errors import UserError


class Family(Enum):
    """The model types we can describe; the value is `model_type` in config.json."""

    own = "small_init"
    llama = "llama"
    qwen2 = "qwen2"
    qwen3 = "qwen3"
    mistral = "mistral"
    mixtral = "mixtral"
    gpt2 = "gpt2"
    gpt_neox = "gpt_neox"


class Activation(Enum):
    """The feed-forward layer's non-linearity."""

    silu = "silu"
    gelu = "gelu"  # x·Φ(x)
    gelu_tanh = "gelu_tanh"  # its tanh approximation
    relu = "relu"


@dataclass(frozen=True)
class Architecture:
    """The shape of a model and everything else that decides its first forward pass."""

    family: Family
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int  # key and value heads: below n_heads with grouped-query attention
    head_dim: int
    d_ff: int  # of one expert, where there are experts
    vocab_size: int
    context: int
    norm: Norm
    norm_eps: float
    activation: Activation
    glu: bool  # activation(gate)·up, as in SwiGLU, or activation(up) alone
    gate: Gate = Gate.none  # on the attention output
    qk_norm: bool = False
    tied: bool = False
    parallel: bool = False  # attention and feed-forward read the same stream (GPT-NeoX)
    rope_theta: float | None = 10_000.0  # None: learned positions
    rotary_share: float = 1.0  # of the head's channels
    n_experts: int = 1
    top_k: int = 1

    @property
    def attention_width(self) -> int:
        """Fan-in of the output projection."""
        return self.n_heads * self.head_dim

    def block_parameters(self) -> int:
        """Numbers in the matrices of one block."""
        kv = self.n_kv_heads * self.head_dim
        gates = {Gate.none: 0, Gate.headwise: self.n_heads, Gate.elementwise: self.attention_width}
        attention = self.d_model * (2 * self.attention_width + 2 * kv + gates[self.gate])
        expert = (3 if self.glu else 2) * self.d_model * self.d_ff
        router = self.d_model * self.n_experts if self.n_experts > 1 else 0
        return attention + self.n_experts * expert + router

    def own_config(self) -> ModelConfig | None:
        """The same model as a `ModelConfig`, or None where our Transformer is another one."""
        ours = (
            self.n_kv_heads == self.n_heads
            and self.attention_width == self.d_model
            and self.activation is Activation.silu
            and self.glu
            and not self.parallel
            and self.rope_theta is not None
            and self.rotary_share == 1
            and self.n_experts == 1
        )
        if not ours or self.rope_theta is None:
            return None
        return ModelConfig(
            d_model=self.d_model, n_layers=self.n_layers, n_heads=self.n_heads, d_ff=self.d_ff,
            vocab_size=self.vocab_size, context=self.context, norm=self.norm,
            norm_eps=self.norm_eps, gate=self.gate, qk_norm=self.qk_norm, tied=self.tied,
            rope_theta=self.rope_theta,
        )  # fmt: skip


def from_model_config(config: ModelConfig) -> Architecture:
    """Our own model."""
    return Architecture(
        family=Family.own, d_model=config.d_model, n_layers=config.n_layers,
        n_heads=config.n_heads, n_kv_heads=config.n_heads,
        head_dim=config.d_model // config.n_heads, d_ff=config.d_ff, vocab_size=config.vocab_size,
        context=config.context, norm=config.norm, norm_eps=config.norm_eps,
        activation=Activation.silu, glu=True, gate=config.gate, qk_norm=config.qk_norm,
        tied=config.tied, rope_theta=config.rope_theta,
    )  # fmt: skip


# --- Hugging Face --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Keys:
    """How a family calls the numbers in its config.json, and its defaults for what may be left out.

    The defaults are those of `transformers` 5.
    """

    d_model: str = "hidden_size"
    n_layers: str = "num_hidden_layers"
    n_heads: str = "num_attention_heads"
    d_ff: str = "intermediate_size"
    context: str = "max_position_embeddings"
    norm_eps: str = "rms_norm_eps"
    activation: str = "hidden_act"
    default_activation: str = "silu"
    default_eps: float = 1e-6
    default_tied: bool = False


_NEOX_KEYS = _Keys(norm_eps="layer_norm_eps", default_activation="gelu", default_eps=1e-5)
_GPT2_KEYS = _Keys(
    d_model="n_embd", n_layers="n_layer", n_heads="n_head", d_ff="n_inner", context="n_positions",
    norm_eps="layer_norm_epsilon", activation="activation_function", default_activation="gelu_new",
    default_eps=1e-5, default_tied=True,
)  # fmt: skip
KEYS: dict[Family, _Keys] = {
    Family.llama: _Keys(),
    Family.qwen2: _Keys(),
    Family.qwen3: _Keys(),
    Family.mistral: _Keys(),
    Family.mixtral: _Keys(default_eps=1e-5),
    Family.gpt2: _GPT2_KEYS,
    Family.gpt_neox: _NEOX_KEYS,
}
_ACTIVATIONS = {
    "silu": Activation.silu, "swish": Activation.silu, "gelu": Activation.gelu,
    "gelu_new": Activation.gelu_tanh, "gelu_fast": Activation.gelu_tanh,
    "gelu_pytorch_tanh": Activation.gelu_tanh, "relu": Activation.relu,
}  # fmt: skip


def config_file(path: Path) -> Path:
    """The config.json that `path` names: itself, or the one in that folder."""
    return path / "config.json" if path.is_dir() else path


def read_config(path: Path) -> dict[str, Any]:
    """A Hugging Face config.json as it is.

    Raises:
        UserError: no such file, or it is not a JSON object.
    """
    path = config_file(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; name a config.json or its folder.") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        values = None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a JSON object; name a Hugging Face config.json.")
    return values


def family_of(values: dict[str, Any], where: str) -> Family:
    """The family that config.json names in `model_type`."""
    known = ", ".join(family.value for family in KEYS)
    name = values.get("model_type")
    if name is None:
        raise UserError(f"{where} has no 'model_type'; it must be one of {known}.")
    family = next((family for family in KEYS if family.value == name), None)
    if family is None:
        raise UserError(
            f"{where}: the model type '{name}' is not known here; known are {known}. "
            "`small_init.rule.gamma.gamma_init_` takes any module."
        )
    return family


def from_hugging_face(path: Path) -> Architecture:
    """The architecture that a Hugging Face config.json (or its folder) describes.

    Raises:
        UserError: a model type, an activation or a value that is not understood; a missing key.
    """
    values, where = read_config(path), str(config_file(path))
    family = family_of(values, where)
    keys = KEYS[family]

    def number(key: str, default: int | None = None) -> int:
        value = values.get(key)
        value = default if value is None else value
        if value is None:
            raise UserError(f"{where} has no '{key}', which a {family.value} model needs; add it.")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"{where}: '{key}' is {value!r}; it must be a whole number above 0.")
        return value

    def real(key: str, default: float, source: dict[str, Any] = values) -> float:
        value = source.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise UserError(f"{where}: '{key}' is {value!r}; it must be a number above 0.")
        return float(value)

    d_model, n_heads = number(keys.d_model), number(keys.n_heads)
    n_kv_heads = number("num_key_value_heads", n_heads)
    if n_heads % n_kv_heads:
        raise UserError(
            f"{where}: {n_heads} attention heads cannot share {n_kv_heads} key and value heads; "
            "'num_key_value_heads' must divide them."
        )
    fixed_head = 128 if family is Family.qwen3 else None
    if values.get("head_dim") is None and fixed_head is None and d_model % n_heads:
        raise UserError(
            f"{where}: '{keys.d_model}' {d_model} is not a multiple of '{keys.n_heads}' {n_heads}; "
            "correct one of them, or give 'head_dim'."
        )
    head_dim = number("head_dim", fixed_head or d_model // n_heads)
    if head_dim % 2 and family is not Family.gpt2:
        raise UserError(f"{where}: heads of {head_dim} channels cannot be rotated in pairs.")
    name = values.get(keys.activation) or keys.default_activation
    if name not in _ACTIVATIONS:
        raise UserError(
            f"{where}: the activation '{name}' is not known here; known are "
            f"{', '.join(_ACTIVATIONS)}."
        )
    gpt2, neox = family is Family.gpt2, family is Family.gpt_neox
    rope = values.get("rope_parameters") or {}
    theta = rope.get("rope_theta") or values.get("rope_theta") or values.get("rotary_emb_base")
    share = rope.get("partial_rotary_factor") or values.get("rotary_pct") or 0.25
    n_experts = number("num_local_experts", 8) if family is Family.mixtral else 1
    top_k = number("num_experts_per_tok", 2) if family is Family.mixtral else 1
    if top_k > n_experts:
        raise UserError(
            f"{where}: 'num_experts_per_tok' {top_k} is above 'num_local_experts' {n_experts}."
        )
    return Architecture(
        family=family, d_model=d_model, n_layers=number(keys.n_layers), n_heads=n_heads,
        n_kv_heads=n_kv_heads, head_dim=head_dim,
        d_ff=number(keys.d_ff, 4 * d_model if gpt2 else None), vocab_size=number("vocab_size"),
        context=number(keys.context), norm=Norm.layernorm if gpt2 or neox else Norm.rmsnorm,
        norm_eps=real(keys.norm_eps, keys.default_eps), activation=_ACTIVATIONS[name],
        glu=not (gpt2 or neox), qk_norm=family is Family.qwen3,
        tied=bool(values.get("tie_word_embeddings", keys.default_tied)),
        parallel=neox and bool(values.get("use_parallel_residual", True)),
        rope_theta=None if gpt2 else real("rope_theta", 10_000.0, {"rope_theta": theta}),
        rotary_share=real("rotary_pct", 0.25, {"rotary_pct": share}) if neox else 1.0,
        n_experts=n_experts, top_k=top_k,
    )  # fmt: skip
