"""Stage `pack`: documents → tokens on disk, mixed by weight, no document used twice.

First the whole corpus is encoded, piece by piece, by all cores (`corpus.encode`). Then it is known
which documents fill each group's share, their order over all groups is drawn, and the shards are
gathered from the pieces, again by all cores (`corpus.shards`). Nothing depends on the number of
processes (SMALL_INIT_JOBS, else one a core). A killed run goes on from its whole pieces and shards.

Memory: about 80 bytes per document here (the index and one group's order), and 100 MB in each
process. Disk, beside the corpus: its tokens twice while shards are written, once for the pieces
and once for the shards (2 bytes each below a vocabulary of 65,536): 150 GB for the 36 billion of
the `paper` profile if its corpus holds no more than these. The pieces go when the shards are whole.
"""

import shutil
import time
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from small_init.cores import jobs_of
from small_init.data.corpus.build import MANIFEST, read_manifest
from small_init.data.corpus.config import CorpusConfig, check
from small_init.data.corpus.documents import sha256_of
from small_init.data.corpus.encode import Documents, Pieces, encode_corpus
from small_init.data.corpus.processes import byte_bar, processes
from small_init.data.corpus.shards import gather, write_shard
from small_init.data.corpus.sources_page import write_page
from small_init.data.corpus.stage_work import durable, keyed, only_one
from small_init.data.corpus.tokenizer import EOT_ID, load_tokenizer, token_lengths
from small_init.errors import UserError
from small_init.files import json_text, replace_folder, write_text

META = "meta.json"


@dataclass
class Bucket:
    """Documents that share one budget: the prose, or the dictionary part, of one group."""

    group: str
    dictionary: bool
    sources: list[int] = field(default_factory=list)  # positions in the manifest


@dataclass
class Selection:
    """The documents that fill a split, group by group: their rows in the index, their tokens."""

    document: NDArray[np.int64]
    length: NDArray[np.int64]


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
        UserError: a group has less text than its share, the vocabulary does not fit `dtype`, the
            disk is full, or a process was killed.
    """
    check(config)
    encoder = load_tokenizer(tokenizer)
    dtype = token_dtype(config.dtype, encoder.get_vocab_size())
    records = read_manifest(corpus)
    sizes = np.array(token_lengths(encoder), dtype=np.uint16)
    files = [corpus / f"{record['source']}.jsonl" for record in records]
    jobs = jobs_of(None)
    with only_one(out), byte_bar() as bar, processes(jobs) as pool:
        text = [(corpus / MANIFEST).read_text("utf-8"), sha256_of(tokenizer), dtype.name]
        work = keyed(out.parent, f".{out.name}", *text)
        began = time.monotonic()
        index, pieces, size = encode_corpus(files, tokenizer, dtype, work / "pieces", pool, bar)
        seconds = time.monotonic() - began
        done = keyed(work, "packed", asdict(config))
        packing = _Packing(config, records, index, pieces, done)
        train = packing.train(pool, bar)
        val = packing.val(sizes)
        sizes.tofile(done / "token_bytes.bin")
        meta = {
            "schema": 1,
            "profile": config.profile,
            "vocab_size": encoder.get_vocab_size(),
            "eot": EOT_ID,
            "dtype": dtype.name,
            "tokenizer_sha256": sha256_of(tokenizer),
            "token_bytes": {
                "file": "token_bytes.bin",
                "sha256": sha256_of(done / "token_bytes.bin"),
            },
            "train": train,
            "val": val,
        }
        write_text(done / META, json_text(meta))
        replace_folder(done, out)
        write_page(sources_page, config, records, meta)
        shutil.rmtree(work)
    print(
        f"{out}: {size / 1e6:,.0f} MB encoded in {seconds:,.1f} s by {jobs} processes, "
        f"{size / 1e6 / seconds:.1f} MB/s; {pieces.ends[-1]:,} tokens, of which "
        f"{train['tokens'] + val['tokens']:,} are used."
    )


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
    """One run of the stage; what `train` and `val` share."""

    def __init__(
        self,
        config: CorpusConfig,
        records: list[dict[str, Any]],
        index: Documents,
        pieces: Pieces,
        folder: Path,
    ) -> None:
        self.config = config
        self.records = records
        self.index = index
        self.pieces = pieces
        self.folder = folder
        self.buckets = _buckets(config, records)

    def train(self, pool: ProcessPoolExecutor, bar: Progress) -> dict[str, Any]:
        """Shards of shuffled documents; returns their entry in the meta file."""
        chosen = self._fill("train", self.config.train_tokens)
        order = self.folder.with_name("order.npy")
        with durable(order) as file:
            np.save(file, self._order(chosen, self._rng("order").permutation(len(chosen.length))))
        total = int(chosen.length.sum())
        task = bar.add_task("shards", total=total * self.pieces.dtype.itemsize)
        running = []
        for number, begin in enumerate(range(0, total, self.config.shard_tokens)):
            path = self.folder / f"train-{number:05d}.bin"
            stop = min(begin + self.config.shard_tokens, total)
            running.append(pool.submit(write_shard, path, order, self.pieces, begin, stop))
        for done in as_completed(running):
            bar.advance(task, done.result()["tokens"] * self.pieces.dtype.itemsize)
        tokens = np.bincount(self.index.source[chosen.document], chosen.length).astype(int)
        return {
            "tokens": total,
            "shards": [shard.result() for shard in running],
            "sources": {self.records[at]["source"]: int(tokens[at]) for at in tokens.nonzero()[0]},
        }

    def val(self, sizes: NDArray[np.uint16]) -> dict[str, Any]:
        """One contiguous segment per source; returns their entry in the meta file."""
        chosen = self._fill("val", self.config.val_tokens)
        source = self.index.source[chosen.document]
        tokens = gather(
            self._order(chosen, np.argsort(source, kind="stable")),
            self.pieces,
            0,
            int(chosen.length.sum()),
        )
        segments, start = [], 0
        for at in np.unique(source):
            record, inside = self.records[at], source == at
            end = start + int(chosen.length[inside].sum())
            segments.append(
                {
                    "source": record["source"],
                    "language": record["language"],
                    "domain": record["domain"],
                    "start": start,
                    "end": end,
                    "documents": int(inside.sum()),
                    "bytes": int(sizes[tokens[start:end]].sum()),
                }
            )
            start = end
        path = self.folder / "val.bin"
        with durable(path) as file:
            file.write(tokens.data)
        return {
            "file": path.name,
            "tokens": start,
            "sha256": sha256_of(path),
            "segments": segments,
        }

    def _order(self, chosen: Selection, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """The chosen documents in another order, as `corpus.shards` reads it."""
        return np.stack([self.index.start[chosen.document[order]], np.cumsum(chosen.length[order])])

    def _fill(self, split: str, tokens: int) -> Selection:
        """Fill every group's share of `tokens`; dictionary entries first, prose the rest."""
        parts: list[Selection] = []
        for group, target in _shares(self.config.mixture, tokens).items():
            limit = int(target * self.config.dictionary_share)
            filled = 0
            for bucket in (bucket for bucket in self.buckets if bucket.group == group):
                want = limit if bucket.dictionary else target - filled
                parts.append(self._fill_bucket(split, bucket, want))
                filled += int(parts[-1].length.sum())
            if filled < target:
                raise UserError(
                    f"Group '{group}' has {filled:,} {split} tokens and {target:,} are needed: "
                    f"lower {split}_tokens or the group's weight in mixture, or add text to it."
                )
        return Selection(
            np.concatenate([part.document for part in parts]),
            np.concatenate([part.length for part in parts]),
        )

    def _fill_bucket(self, split: str, bucket: Bucket, want: int) -> Selection:
        """A bucket's documents in an order drawn from the seed, up to `want` tokens."""
        inside = np.isin(self.index.source, bucket.sources) & (self.index.val == (split == "val"))
        name = f"{split} {bucket.group}{' dictionary' if bucket.dictionary else ''}"
        document = self._rng(name).permutation(np.flatnonzero(inside))
        length = self.index.length[document].astype(np.int64)
        ends = np.cumsum(length)
        count = int(np.searchsorted(ends - length, want))
        document, length = document[:count], length[:count]
        if count:
            length[-1] -= max(0, ends[count - 1] - want)
        return Selection(document, length)

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
