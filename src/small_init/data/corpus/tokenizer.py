"""Stage `tokenizer`: byte-level BPE learned from the training split, mixed as the model sees it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from small_init.data.corpus.build import read_manifest
from small_init.data.corpus.config import CorpusConfig, check
from small_init.data.corpus.documents import atomic, stable_hash
from small_init.errors import UserError

END_OF_TEXT = "<|endoftext|>"
EOT_ID = 0
# The split Qwen uses: contractions, words with one leading blank, single digits, punctuation,
# line breaks. Chinese runs are letters to it, so merges may join characters but not cross into
# digits or punctuation.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(config: CorpusConfig, corpus: Path, out: Path) -> None:
    """Learn `config.vocab_size` tokens from `config.tokenizer_bytes` of training text.

    Args:
        config: the profile; `mixture` says how the bytes are shared out over the groups.
        corpus: what `build_corpus` wrote.
        out: `tokenizer.json`; the end-of-text token has id 0, all 256 bytes are in it.

    Raises:
        UserError: the text is too little for that many tokens.
    """
    check(config)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=[END_OF_TEXT],
        # Bytes the sample lacks are needed all the same: then any text can be encoded.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(config, corpus), trainer)
    if tokenizer.get_vocab_size() != config.vocab_size:
        raise UserError(
            f"The training text gives only {tokenizer.get_vocab_size()} tokens: lower vocab_size "
            f"below {config.vocab_size} or raise tokenizer_bytes."
        )
    with atomic(out) as file:
        file.write(tokenizer.to_str(pretty=True) + "\n")


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a `tokenizer.json` written by `train_tokenizer`.

    Raises:
        UserError: there is none yet.
    """
    if not path.is_file():
        raise UserError(f"There is no tokenizer at {path}: run `small-init tokenizer` first.")
    tokenizer = Tokenizer.from_file(str(path))
    # A text that spells the end-of-text token must not end a document.
    tokenizer.encode_special_tokens = True
    return tokenizer


def token_lengths(tokenizer: Tokenizer) -> list[int]:
    """Bytes each token stands for, by id: one per symbol of the byte alphabet, none for EOT."""
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return [0 if token == END_OF_TEXT else len(token) for token, _ in tokens]


def _sample(config: CorpusConfig, corpus: Path) -> Iterator[str]:
    """Training documents up to each group's share of the bytes, evenly over its sources."""
    records = read_manifest(corpus)
    for group, weight in config.mixture.items():
        members = [record for record in records if record["group"] == group]
        for dictionary in (False, True):
            chosen = [r for r in members if (r["domain"] == "dictionary") is dictionary]
            budget = config.tokenizer_bytes * weight
            if any(record["domain"] == "dictionary" for record in members):
                share = config.dictionary_share
                budget *= share if dictionary else 1 - share
            available = sum(record["bytes"]["train"] for record in chosen)
            if available:
                # One share of every document's source, picked by hash: no file is read twice and
                # no source is left out because it comes late.
                keep = min(1.0, budget / available)
                for record in chosen:
                    yield from _train_texts(corpus / f"{record['source']}.jsonl", keep)


def _train_texts(path: Path, share: float) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            document: dict[str, Any] = json.loads(line)
            picked = stable_hash(f"tokenizer\n{document['id']}") / 2**64 < share
            if document["split"] == "train" and picked:
                yield document["text"]
