"""Stages `targets` and `tokens`: fixed validation tokens, and what each model says of them.

The results are small and in git, so that an analysis needs neither weights nor corpus. What a unit
is, and why, stands in `measure.targets`.
Shapes: N targets, U units, V vocabulary, W windows.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer

from small_init.config import ModelConfig
from small_init.data.corpus.tokenizer import END_OF_TEXT, load_tokenizer
from small_init.data.packed import PackedTokens
from small_init.errors import UserError
from small_init.files import fingerprint, write_bytes
from small_init.measure.targets import Frequency, Kind, Targets, npz
from small_init.model.transformer import Transformer
from small_init.runs.paths import packed_folder, targets_file, tokens_file, weights_file
from small_init.runs.plan import Plan
from small_init.runs.record import load_run

OBJECT = "figure-5"  # whose arms are looked at token by token
TARGETS = 131_072  # most targets a run, at two bytes each in git
COMMON, RARE = 0.5, 0.9  # shares of the training text, counted from the most frequent token on


# --- the set -------------------------------------------------------------------------------------


def write_targets(plan: Plan) -> None:
    """Write the set that the arms of the token figure share."""
    sizes = {
        (arm.model.context, set_size(arm.model.context, arm.train.final_tokens))
        for arm in (plan.arms[key] for key in plan.objects.get(OBJECT, []))
    }
    if len(sizes) != 1:
        raise UserError(
            f"The arms of {OBJECT} have {len(sizes)} different contexts or validation sizes and "
            "must share one set of tokens; correct them in configs/experiments/."
        )
    (context, amount) = sizes.pop()
    tokens = PackedTokens(packed_folder(plan.profile))
    vocabulary = token_bytes(load_tokenizer(Path("data") / plan.profile / "tokenizer.json"))
    targets = choose(tokens, vocabulary, context, amount)
    values = {f.name: getattr(targets, f.name) for f in fields(Targets)}
    write_bytes(targets_file(plan.profile), npz(values))


def set_size(context: int, final_tokens: int) -> int:
    """Targets of the set: at most as many as the final validation reads."""
    return min(TARGETS, final_tokens) // context * context


def set_identity(tokens: PackedTokens, context: int, amount: int) -> str:
    return fingerprint([tokens.sha256, context, amount])


def choose(tokens: PackedTokens, vocabulary: list[bytes], context: int, amount: int) -> Targets:
    """Describe `amount` validation tokens in windows of `context`.

    `vocabulary` holds the bytes of each token. A unit that a window's edge cuts is left out.
    """
    windows = tokens.validation_windows(context, amount)
    start_W = np.array([start for _, start in windows])
    place_N = (start_W[:, None] + np.arange(context)).ravel()
    stream = np.asarray(tokens.validation)
    goes_on_V = np.array([piece[:1] != b"" and piece[0] & 0xC0 == 0x80 for piece in vocabulary])
    goes_on = goes_on_V[stream]
    unit = np.cumsum(~goes_on) - 1  # of every token of the validation split
    size = np.bincount(unit)
    whole = np.bincount(unit[place_N], minlength=len(size)) == size
    whole[unit[start_W[goes_on[start_W]]]] = False  # cut between two windows that are both chosen
    inside_N = whole[unit[place_N]]
    chosen_U, numbers = np.unique(unit[place_N][inside_N], return_inverse=True)
    unit_N = np.full(len(place_N), -1, dtype=np.int32)
    unit_N[inside_N] = numbers

    begin = np.flatnonzero(~goes_on)
    bounds = [*begin.tolist(), len(stream)]
    # One shard speaks for all: documents are shuffled over them.
    band_V = frequency_bands(np.bincount(tokens.shards[0], minlength=tokens.vocab_size))

    def text(number: int) -> str:
        pieces = (vocabulary[token] for token in stream[bounds[number] : bounds[number + 1]])
        return b"".join(pieces).decode("utf-8", errors="replace")

    kinds, bands = list(Kind), list(Frequency)
    kind_U = [
        kinds.index(kind_of(text(u), text(u - 1) if u else "", int(size[u]))) for u in chosen_U
    ]
    single_U = size[chosen_U] == 1
    frequency_U = np.where(single_U, band_V[stream[begin[chosen_U]]], bands.index(Frequency.pieces))
    ends = stream == tokens.eot
    document_N = (np.cumsum(ends) - ends)[place_N]
    return Targets(
        identity=set_identity(tokens, context, amount),
        context=context,
        token_N=stream[place_N],
        document_N=document_N.astype(np.min_scalar_type(document_N.max())),
        source_N=np.repeat([source for source, _ in windows], context).astype(np.uint8),
        unit_N=unit_N,
        kind_U=np.array(kind_U, dtype=np.uint8),
        frequency_U=frequency_U.astype(np.uint8),
        sources=np.array([segment.source for segment in tokens.segments]),
        languages=np.array([segment.language for segment in tokens.segments]),
    )


def kind_of(text: str, before: str, tokens: int) -> Kind:
    """The kind of a unit of `tokens` tokens that stands for `text` and follows `before`."""
    if not text:
        return Kind.end_of_text
    if any(map(_is_cjk, text)):
        return Kind.cjk_whole if tokens == 1 else Kind.cjk_pieces
    if text.isspace():
        return Kind.space
    if any(map(str.isalpha, text)):
        inside = text[0].isalpha() and before[-1:].isalpha() and not _is_cjk(before[-1])
        return Kind.continuation if inside else Kind.word
    return Kind.digit if any(map(str.isnumeric, text)) else Kind.punctuation


def _is_cjk(character: str) -> bool:
    """The unified block, extension A, the compatibility block, planes 2 and 3 of Unicode."""
    code = ord(character)
    ranges = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
    return any(low <= code <= high for low, high in ranges)


def frequency_bands(count_V: NDArray[Any]) -> NDArray[np.int64]:
    """Index into list(Frequency) of each token, by the share of the text before it."""
    order = np.argsort(-count_V, kind="stable")
    before = np.cumsum(count_V[order]) - count_V[order]
    band_V = np.empty(len(count_V), dtype=np.int64)
    band_V[order] = np.digitize(before / count_V.sum(), [COMMON, RARE])
    return band_V


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes each token of a byte-level vocabulary stands for, by id; none for end of text.

    The alphabet is GPT-2's: a printable byte of Latin-1 stands for itself, the others follow in
    order from U+0100 on.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of |= {chr(256 + n): byte for n, byte in enumerate(others)}
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return [b"" if text == END_OF_TEXT else bytes(map(byte_of.get, text)) for text, _ in tokens]  # type: ignore[arg-type]


# --- the models ----------------------------------------------------------------------------------


def load_model(config: ModelConfig, path: Path) -> Transformer:
    """A trained model from its saved weights, in float32 on the CPU."""
    remedy = (
        f"fetch it with `dvc pull {path.parent}`, or train it again with "
        f"`small-init pretrain --arm {path.parent.name}`."
    )
    if not path.is_file():
        raise UserError(f"{path} does not exist; {remedy}")
    model = Transformer(config)
    try:
        # A tied readout is saved once, as the embedding.
        model.load_state_dict(load_file(path), strict=not config.tied)
    except (RuntimeError, SafetensorError):
        raise UserError(
            f"{path} is broken, or of another model than its record; {remedy}"
        ) from None
    return model.eval()


@torch.no_grad()
def log_probabilities(
    model: Transformer, tokens: PackedTokens, context: int, amount: int
) -> NDArray[np.float16]:
    """Log-probability of each of `amount` validation targets in the order of the windows, (N,).

    float16 rounds by up to 2^-11 of the value, 0.002 at 4 nats: far below what a seed changes, and
    without a direction.
    """
    losses = [
        model(inputs, targets, per_token=True).flatten()
        for inputs, targets, _ in tokens.validation_batches(context, amount)
    ]
    return -torch.cat(losses).numpy().astype(np.float16)


def write_log_probabilities(plan: Plan, key: str) -> None:
    """Write results/<profile>/tokens/<arm>/seed-<n>.npz for all seeds of an arm.

    Raises UserError for an unknown arm, missing weights, and a record of another corpus.
    """
    if key not in plan.arms:
        raise UserError(f"Arm '{key}' is not in params.json; `small-init plan` writes it.")
    tokens = PackedTokens(packed_folder(plan.profile))
    for seed in plan.arms[key].seeds:
        run = load_run(plan.profile, key, seed)
        if run.metrics.data.meta_sha256 != tokens.sha256:
            raise UserError(
                f"{run.folder} was trained on another corpus than {tokens.folder} holds; train it "
                f"again with `small-init pretrain --arm {key}`."
            )
        arm = run.config
        context = arm.model.context
        amount = set_size(context, arm.train.final_tokens)
        model = load_model(arm.model, weights_file(key, seed))
        content = npz(
            {
                "identity": set_identity(tokens, context, amount),
                "log_probability_N": log_probabilities(model, tokens, context, amount),
            }
        )
        write_bytes(tokens_file(plan.profile, key, seed), content)
    kept = {tokens_file(plan.profile, key, seed) for seed in plan.arms[key].seeds}
    for path in tokens_file(plan.profile, key, 0).parent.glob("seed-*.npz"):
        if path not in kept:  # of a seed that the plan no longer has
            path.unlink()
