"""Our model, its peers at the same shape, and one training step of each.

    name     model                                  loss
    ours     small_init's Transformer               its own, a block of rows at a time
    logits   the same                               of whole logits, by F.cross_entropy
    llama    transformers' LlamaForCausalLM, SDPA   of whole logits, by F.cross_entropy
    litgpt   litgpt's GPT                           of whole logits, in chunks, as its pretraining

All are pre-norm with RMSNorm, rotary positions and SwiGLU, untied, without biases; weights are
float32. A step is forward, backward, clipping and fused AdamW on one fixed batch.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from small_init.config import ArmConfig, Gate, InitConfig, ModelConfig, ParallelConfig
from small_init.model.init import initialise_
from small_init.model.transformer import Transformer

INSTALL = {
    "llama": ("transformers", "pip install 'small-init[hf]'"),
    "litgpt": ("litgpt", "pip install --no-deps -r benchmarks/requirements.txt"),
}
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Setting:
    """What is measured: a shape, a batch of `windows` × shape.context tokens, and a device."""

    shape: ModelConfig = field(default_factory=lambda: ModelConfig(gate=Gate.none))
    windows: int = 16
    device: str = "cpu"
    bf16: bool = False  # autocast to bfloat16
    compiled: bool = False  # ours block by block, as in a run; the peers as a whole

    @property
    def tokens(self) -> int:
        return self.windows * self.shape.context

    def __str__(self) -> str:
        shape = self.shape
        kind = "bfloat16 autocast" if self.bf16 else "float32"
        return (
            f"d {shape.d_model}, {shape.n_layers} layers, V {shape.vocab_size}, T {shape.context}, "
            f"{self.windows} windows, {kind}{', compiled' if self.compiled else ''}"
        )


def installed() -> list[str]:
    """The peers that can be compared with; one that is missing is named, with the way to get it."""
    found = []
    for name, (package, command) in INSTALL.items():
        if importlib.util.find_spec(package):
            found.append(name)
        else:
            print(f"{package} is not installed, so it is not compared with: {command}.")
    return found


class Step:
    """One optimizer step, when it is called; returns the loss before it."""

    def __init__(self, name: str, setting: Setting) -> None:
        model, self.loss = _BUILDERS[name](setting)
        self.setting, self.model = setting, model.to(setting.device)
        self.forward = self.model
        if setting.compiled and name in INSTALL:
            self.forward = torch.compile(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        generator = torch.Generator().manual_seed(0)
        size = (setting.windows, setting.shape.context + 1)
        ids = torch.randint(0, setting.shape.vocab_size, size, generator=generator)
        ids = ids.to(setting.device)
        self.inputs, self.targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def __call__(self) -> Tensor:
        kind = torch.device(self.setting.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=self.setting.bf16):
            loss = self.loss(self.forward, self.inputs, self.targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def _ours(setting: Setting) -> tuple[nn.Module, Loss]:
    return _transformer(setting), lambda model, x, y: model(x, y)


def _logits(setting: Setting) -> tuple[nn.Module, Loss]:
    return _transformer(setting), lambda model, x, y: whole_loss(model(x), y)


def _transformer(setting: Setting) -> Transformer:
    if setting.compiled:
        from small_init.train.sharding import Ranks

        model = Ranks(ParallelConfig(compile=True)).build(ArmConfig(model=setting.shape))
        initialise_(model, InitConfig(), setting.shape, seed=0)
        return model
    model = Transformer(setting.shape)
    initialise_(model, InitConfig(), setting.shape, seed=0)
    return model


def whole_loss(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


def _llama(setting: Setting) -> tuple[nn.Module, Loss]:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = setting.shape
    config = LlamaConfig(
        vocab_size=shape.vocab_size, hidden_size=shape.d_model, num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads, num_key_value_heads=shape.n_heads,
        intermediate_size=shape.d_ff, max_position_embeddings=shape.context, use_cache=False,
        tie_word_embeddings=False, attn_implementation="sdpa",
    )  # fmt: skip
    # Targets are shifted already, so they do not go in as its labels.
    return LlamaForCausalLM(config), lambda model, x, y: whole_loss(model(input_ids=x).logits, y)


def _litgpt(setting: Setting) -> tuple[nn.Module, Loss]:
    from litgpt.config import Config
    from litgpt.model import GPT
    from litgpt.utils import chunked_cross_entropy

    shape = setting.shape
    config = Config(
        name="bench", block_size=shape.context, n_layer=shape.n_layers, n_embd=shape.d_model,
        n_head=shape.n_heads, intermediate_size=shape.d_ff, vocab_size=shape.vocab_size,
        padded_vocab_size=shape.vocab_size, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP",
        rotary_percentage=1.0, parallel_residual=False, bias=False,
    )  # fmt: skip
    return GPT(config), lambda model, x, y: chunked_cross_entropy(model(x), y)


_BUILDERS: dict[str, Callable[[Setting], tuple[nn.Module, Loss]]] = {
    "ours": _ours, "logits": _logits, "llama": _llama, "litgpt": _litgpt,
}  # fmt: skip


def tiny(setting: Setting) -> Setting:
    """The same in small: to load what is loaded once, and to try scripts out."""
    shape = replace(
        setting.shape, d_model=16, n_layers=1, n_heads=2, d_ff=32, vocab_size=64, context=16
    )
    return replace(setting, shape=shape, windows=2)
