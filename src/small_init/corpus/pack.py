"""Stage `pack`: documents → tokens on disk, mixed by weight, no document used twice.

Memory holds an index of the corpus (a few bytes per document) and one batch; tokens go to a
scratch file first, because the order of documents over all groups can only be drawn once it is
known which documents fill each group's share.
"""

import json
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress
from tokenizers import Tokenizer

from small_init.corpus.build import read_manifest
from small_init.corpus.config import CorpusConfig, check
from small_init.corpus.documents import progress_bar, sha256_of
from small_init.corpus.page import write_page
from small_init.corpus.shards import Shards, index_split
from small_init.corpus.tokenizer import EOT_ID, load_tokenizer, token_lengths
from small_init.errors import UserError

BATCH = 256  # documents encoded at once; the tokens do not depend on it
META = "meta.json"


@dataclass
class Bucket:
    """Documents that share one budget: the prose, or the dictionary part, of one group."""

    group: str
    dictionary: bool
    sources: list[int] = field(default_factory=list)  # positions in the manifest


@dataclass
class Selection:
    """The documents that fill a split, in scratch order: source and token count of each."""

    source: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)


def pack(
    config: CorpusConfig, corpus: Path, tokenizer: Path, out: Path, sources_page: Path
) -> None:
    """Write `train-*.bin`, `val.bin`, `token_bytes.bin` and `meta.json`, and the sources page.

    Every group contributes exactly its weight times `train_tokens` (and `val_tokens`), dictionary
    entries at most `dictionary_share` of it. A document is followed by the end-of-text token; the
    last one of a share is cut to fit.

    Args:
        config: the profile.
        corpus: what `build_corpus` wrote.
        tokenizer: what `train_tokenizer` wrote.
        out: folder to write; replaced as a whole.
        sources_page: Markdown table of the sources, their licences, sizes and shares.

    Raises:
        UserError: a group has less text than its share, or the vocabulary does not fit `dtype`.
    """
    check(config)
    encoder = load_tokenizer(tokenizer)
    dtype = token_dtype(config.dtype, encoder.get_vocab_size())
    records = read_manifest(corpus)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)

    with progress_bar() as bar:
        packing = _Packing(config, corpus, encoder, dtype, records, partial, bar)
        train = packing.train()
        val = packing.val()
    lengths = np.array(token_lengths(encoder), dtype=np.uint16)
    lengths.tofile(partial / "token_bytes.bin")
    meta = {
        "schema": 1,
        "profile": config.profile,
        "vocab_size": encoder.get_vocab_size(),
        "eot": EOT_ID,
        "dtype": dtype.name,
        "tokenizer_sha256": sha256_of(tokenizer),
        "token_bytes": {
            "file": "token_bytes.bin",
            "sha256": sha256_of(partial / "token_bytes.bin"),
        },
        "train": train,
        "val": val,
    }
    (partial / META).write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n", "utf-8")
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)
    write_page(sources_page, config, records, meta)


def token_dtype(configured: str, vocab_size: int) -> np.dtype[Any]:
    """The type of a stored token; `auto` takes the smallest that holds the vocabulary."""
    if configured == "auto":
        configured = "uint16" if vocab_size <= 2**16 else "uint32"
    dtype = np.dtype(configured)
    if vocab_size - 1 > np.iinfo(dtype).max:
        raise UserError(
            f"A vocabulary of {vocab_size} tokens does not fit dtype {configured}: set dtype to "
            "auto or uint32."
        )
    return dtype


class _Packing:
    """One run of the stage; the pieces of it that `train` and `val` share."""

    def __init__(
        self,
        config: CorpusConfig,
        corpus: Path,
        encoder: Tokenizer,
        dtype: np.dtype[Any],
        records: list[dict[str, Any]],
        folder: Path,
        bar: Progress,
    ) -> None:
        self.config = config
        self.encoder = encoder
        self.dtype = dtype
        self.records = records
        self.folder = folder
        self.bar = bar
        self.files = [corpus / f"{record['source']}.jsonl" for record in records]
        self.buckets = _buckets(config, records)
        self.index = {split: index_split(self.files, split) for split in ("train", "val")}

    def train(self) -> dict[str, Any]:
        """Shards of shuffled documents; returns their entry in the meta file."""
        scratch = self.folder / "scratch.bin"
        with scratch.open("wb") as file:
            selection = self._fill("train", self.config.train_tokens, file)
        tokens = np.memmap(scratch, dtype=self.dtype, mode="r")
        ends = np.cumsum(selection.length)
        order = self._rng("order").permutation(len(ends))
        writer = Shards(self.folder, self.config.shard_tokens)
        for document in self.bar.track(order, description="train"):
            end = ends[document]
            writer.write(tokens[end - selection.length[document] : end])
        shards = writer.close()
        del tokens
        scratch.unlink()
        sources: dict[str, int] = {}
        for source, length in zip(selection.source, selection.length, strict=True):
            name = self.records[source]["source"]
            sources[name] = sources.get(name, 0) + length
        return {"tokens": int(ends[-1]), "shards": shards, "sources": sources}

    def val(self) -> dict[str, Any]:
        """One contiguous segment per source; returns their entry in the meta file."""
        scratch, path = self.folder / "scratch.bin", self.folder / "val.bin"
        with scratch.open("wb") as file:
            selection = self._fill("val", self.config.val_tokens, file)
        tokens = np.fromfile(scratch, dtype=self.dtype)
        scratch.unlink()
        ends = np.cumsum(selection.length)
        sizes = np.array(token_lengths(self.encoder))
        segments, start = [], 0
        with path.open("wb") as file:
            for source in sorted(set(selection.source)):
                record = self.records[source]
                members = [at for at, owner in enumerate(selection.source) if owner == source]
                parts = [tokens[ends[at] - selection.length[at] : ends[at]] for at in members]
                segment = np.concatenate(parts)
                segment.tofile(file)
                segments.append(
                    {
                        "source": record["source"],
                        "language": record["language"],
                        "domain": record["domain"],
                        "start": start,
                        "end": start + len(segment),
                        "documents": len(members),
                        "bytes": int(sizes[segment].sum()),
                    }
                )
                start += len(segment)
        return {
            "file": path.name,
            "tokens": start,
            "sha256": sha256_of(path),
            "segments": segments,
        }

    def _fill(self, split: str, tokens: int, scratch: IO[bytes]) -> Selection:
        """Fill every group's share of `tokens`; dictionary entries first, prose the rest."""
        selection = Selection()
        for group, target in _shares(self.config.mixture, tokens).items():
            limit = int(target * self.config.dictionary_share)
            filled = 0
            for bucket in (bucket for bucket in self.buckets if bucket.group == group):
                want = limit if bucket.dictionary else target - filled
                filled += self._fill_bucket(split, bucket, want, scratch, selection)
            if filled < target:
                raise UserError(
                    f"Group '{group}' has {filled:,} {split} tokens and {target:,} are needed: "
                    f"lower {split}_tokens or the group's weight in mixture, or add text to it."
                )
        return selection

    def _fill_bucket(
        self, split: str, bucket: Bucket, want: int, scratch: IO[bytes], selection: Selection
    ) -> int:
        """Append a bucket's documents in seeded order until `want` tokens; returns how many."""
        name = f"{split} {bucket.group}{' dictionary' if bucket.dictionary else ''}"
        task = self.bar.add_task(name, total=want)
        filled = 0
        for source, tokens in self._encoded(split, bucket, name):
            if filled >= want:
                break
            if filled + len(tokens) > want:
                tokens = tokens[: want - filled]
                tokens[-1] = EOT_ID
            scratch.write(tokens.astype(self.dtype).tobytes())
            selection.source.append(source)
            selection.length.append(len(tokens))
            filled += len(tokens)
            self.bar.update(task, completed=filled)
        return filled

    def _encoded(
        self, split: str, bucket: Bucket, name: str
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """A bucket's documents as tokens, each ended by EOT, in an order drawn from the seed."""
        index = self.index[split]
        members = np.flatnonzero(np.isin(index.source, bucket.sources))
        members = self._rng(name).permutation(members)
        handles = {source: self.files[source].open("rb") for source in bucket.sources}
        try:
            for at in range(0, len(members), BATCH):
                batch = members[at : at + BATCH]
                texts = []
                for document in batch:
                    handle = handles[index.source[document]]
                    handle.seek(index.offset[document])
                    texts.append(json.loads(handle.readline())["text"])
                for document, encoding in zip(
                    batch, self.encoder.encode_batch_fast(texts), strict=True
                ):
                    yield int(index.source[document]), np.array([*encoding.ids, EOT_ID])
        finally:
            for handle in handles.values():
                handle.close()

    def _rng(self, purpose: str) -> np.random.Generator:
        """A generator per purpose: one group's order does not depend on the others'."""
        return np.random.default_rng([self.config.seed, zlib.crc32(purpose.encode())])


def _buckets(config: CorpusConfig, records: list[dict[str, Any]]) -> list[Bucket]:
    """Two buckets per group, dictionary entries first: the prose fills what they leave."""
    buckets = [Bucket(group, part) for group in config.mixture for part in (True, False)]
    for bucket in buckets:
        bucket.sources = [
            at
            for at, record in enumerate(records)
            if record["group"] == bucket.group
            and (record["domain"] == "dictionary") is bucket.dictionary
        ]
    return buckets


def _shares(mixture: dict[str, float], tokens: int) -> dict[str, int]:
    """Whole tokens per group that sum to `tokens`: what rounding leaves goes to the largest."""
    shares = {group: int(weight * tokens) for group, weight in mixture.items()}
    largest = max(mixture, key=lambda group: mixture[group])
    shares[largest] += tokens - sum(shares.values())
    return shares
