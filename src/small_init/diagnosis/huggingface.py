"""Hugging Face models with γ-drawn weights: for the diagnosis, and as checkpoints to start from.

`transformers` is an optional extra; everything here works offline.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from small_init.diagnosis.architectures import (
    KEYS,
    Architecture,
    config_file,
    family_of,
    from_hugging_face,
    read_config,
)
from small_init.diagnosis.measurement import PARTS, Model
from small_init.errors import UserError
from small_init.rule.gamma import Pattern, Weight, gamma_init_

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

DTYPES = ("float32", "bfloat16", "float16")
_SHARD = "5GB"  # the size of a weights file above which there are several; as the hub's own
# What belongs to a tokenizer or to generation; copied as it is.
_COMPANIONS = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja",
    "chat_template.json", "generation_config.json",
)  # fmt: skip


def available() -> bool:
    """Whether `transformers` can be imported."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        return False
    return True


def _demand() -> None:
    if not available():
        raise UserError(
            "This needs the package transformers, an optional extra: pip install 'small-init[hf]'."
        )


def load_config(path: Path) -> PreTrainedConfig:
    """The configuration as `transformers` understands it.

    Raises:
        UserError: a model type that `transformers` does not know, or values it refuses.
    """
    _demand()
    from transformers import AutoConfig

    values, where = read_config(path), config_file(path)
    family_of(values, str(where))
    kind = values.pop("model_type")
    try:
        return AutoConfig.for_model(kind, **values)
    except Exception as error:  # whatever its validators raise
        reason = " ".join(str(error).split())
        raise UserError(f"{where}: transformers refuses it: {reason[:300]}") from None


def build(config: PreTrainedConfig) -> PreTrainedModel:
    """The float32 model with nothing in its weights yet; buffers and ties are in place."""
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    with no_init_weights():
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="sdpa"
        )
    model.tie_weights()
    return model


def reduced_model(
    path: Path, arch: Architecture, gamma: float, groups: Mapping[str, float], seed: int
) -> Model:
    """The model of a config.json with the blocks, the vocabulary and ε of `arch`, γ-drawn."""
    config = load_config(path)
    config.num_hidden_layers, config.vocab_size = arch.n_layers, arch.vocab_size
    setattr(config, KEYS[arch.family].norm_eps, arch.norm_eps)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: arch.n_layers]
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(config, name, None)  # ids that a smaller vocabulary does not have
    module = build(config)
    weights = gamma_init_(module, gamma, seed=seed, groups=_patterns(groups))
    kept = {weight.name: weight.group.value for weight in weights}
    return Model(module, f"transformers' {type(module).__name__}", kept, PARTS[arch.family])


def _patterns(groups: Mapping[str, float] | None) -> dict[Pattern, float]:
    return dict((groups or {}).items())


# --- a checkpoint to start from ------------------------------------------------------------------


def init_checkpoint(
    config: Path,
    out: Path,
    gamma: float = 1.0,
    groups: Mapping[str, float] | None = None,
    norm_eps: float | None = None,
    seed: int = 0,
    dtype: str | None = None,
    dry_run: bool = False,
) -> list[Weight]:
    """Write a γ-initialised checkpoint that `from_pretrained` loads; returns what was drawn.

    `out` gets model.safetensors (several files above 5 GB), the config.json as it is but for what
    was asked, and the tokenizer's files from beside it. It appears whole or not at all. Weights
    are drawn in float32 and rounded once.

    Args:
        config: a config.json, or a folder with one.
        norm_eps: written to config.json under the family's own key.
        dtype: of the weights, and written to config.json; that file's, or else float32.
        dry_run: draw and write nothing.

    Raises:
        UserError: a configuration that is not understood, a γ that is none, a group that the model
            lacks, a folder that exists and is not empty, a full disk.
    """
    family = from_hugging_face(config).family  # a missing key would silently get a default
    changes: dict[str, Any] = {}
    if norm_eps is not None:
        if not 0 < norm_eps < float("inf"):
            raise UserError(f"norm_eps is {norm_eps:g}; it must be above 0 and finite.")
        changes[KEYS[family].norm_eps] = norm_eps
    if dtype is not None:
        changes["torch_dtype" if "torch_dtype" in read_config(config) else "dtype"] = dtype
    loaded = load_config(config)
    if dry_run:
        with torch.device("meta"):
            model = build(loaded)
        return gamma_init_(model, gamma, groups=_patterns(groups), dry_run=True)
    _demand_free(out)
    wanted = dtype or str(loaded.dtype or "float32").removeprefix("torch.")
    if wanted not in DTYPES:
        raise UserError(
            f"{config_file(config)}: the dtype '{wanted}' is not one of {', '.join(DTYPES)}; "
            "name one."
        )
    model = build(loaded)
    weights = gamma_init_(model, gamma, seed=seed, groups=_patterns(groups))
    model.to(getattr(torch, wanted))
    _write(model, config, changes, out)
    return weights


def _demand_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not an empty folder; name another, or remove it.")


def _write(model: PreTrainedModel, config: Path, changes: dict[str, Any], out: Path) -> None:
    """Everything into a folder beside `out`, which then takes its name."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    source = config_file(config)
    temporary = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        model.save_pretrained(temporary, max_shard_size=_SHARD)
        (temporary / "generation_config.json").unlink(missing_ok=True)
        text = source.read_text(encoding="utf-8")
        if changes:
            values = json.loads(text) | changes
            text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
        (temporary / "config.json").write_text(text, encoding="utf-8")
        for name in _COMPANIONS:
            if (source.parent / name).is_file():
                shutil.copyfile(source.parent / name, temporary / name)
        temporary.chmod(0o755)  # made for its maker's eyes alone, as are the weights
        for path in temporary.iterdir():
            path.chmod(0o644)
        _demand_free(out)
        temporary.replace(out)
    except OSError as error:
        raise UserError(
            f"Cannot write {out}: {error.strerror or error}; nothing is there."
        ) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
