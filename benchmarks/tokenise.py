"""From a local .jsonl to packed tokens: speed, memory, and what a kill -9 leaves.

    python benchmarks/tokenise.py [--megabytes 1000] [--out benchmarks/tokenise.json]

The text is `data/cpu/corpus` over and over, in shuffled order, a running number before each
document. `small-init corpus` and `small-init pack` run twice, as a user would start them: once
undisturbed, while the memory and the processor time of all their processes are sampled, and once
killed in the middle and started again. Both must give the same bytes, in which every document
stands exactly once. Needs the `cpu` corpus and tokenizer, and ten times the text's size of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

PROFILE = "bench"
DIGITS = 8  # of a document's number; each is a token of its own
BASE_BYTES = 20_000_000  # of text that is repeated
VAL_FRACTION = 0.02
MOST_MEMORY = 2e9  # bytes, summed over the processes of a stage
LEAST_CORES = 0.85  # share of the cores that encoding keeps busy; only on an idle machine
CLI = "from small_init.cli import main; main()"


@dataclass
class Stage:
    """What was measured of one command; memory is the largest sum of resident sizes over its
    processes, what they share counted in each."""

    seconds: float
    processor_seconds: float
    peak_memory_megabytes: int
    says: str


def make(corpus: Path, tokenizer: Path, file: Path, size: int) -> dict[str, int]:
    """Write `size` bytes of numbered documents; returns documents and tokens of each split."""
    from small_init.data.corpus.documents import Document, split_of
    from small_init.data.corpus.tokenizer import load_tokenizer

    rng = random.Random(0)
    texts = [
        json.loads(line)["text"] for path in sorted(corpus.glob("*.jsonl")) for line in path.open()
    ]
    rng.shuffle(texts)
    ends = np.cumsum([len(text.encode()) for text in texts])
    texts = texts[: int(np.searchsorted(ends, BASE_BYTES)) + 1]
    encoder = load_tokenizer(tokenizer)
    # Any other number gives as many tokens; end-of-text comes on top.
    lengths = [len(e) + 1 for e in encoder.encode_batch_fast([_numbered(0, t) for t in texts])]
    order = list(range(len(texts)))
    made = {"documents": 0, "train": 0, "val": 0}
    with file.open("w", encoding="utf-8") as out:
        while out.tell() < size:
            rng.shuffle(order)
            for at in order:
                text = _numbered(made["documents"], texts[at])
                split = split_of(Document(text, "", "", "", ""), VAL_FRACTION)
                out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                made["documents"] += 1
                made[split] += lengths[at]
                if made["documents"] % 1000 == 0 and out.tell() >= size:
                    break
    return made


def _numbered(number: int, text: str) -> str:
    return f"{number:0{DIGITS}d}\n{text}"


def prepare(root: Path, text: Path, tokenizer: Path, made: dict[str, int]) -> None:
    """A project folder whose only profile reads the text and uses all of its tokens."""
    profile = {
        "profile": PROFILE,
        "hub": [{"name": "local", "path": str(text.parent), "language": "en", "group": "all"}],
        "val_fraction": VAL_FRACTION,
        "max_characters": 9000,
        "mixture": {"all": 1.0},
        "train_tokens": made["train"],
        "val_tokens": made["val"],
        "shard_tokens": 20_000_000,
        "vocab_size": 2048,
    }
    (root / "configs/corpus").mkdir(parents=True)
    (root / f"configs/corpus/{PROFILE}.yaml").write_text(json.dumps(profile))
    (root / "data" / PROFILE).mkdir(parents=True)
    shutil.copy(tokenizer, root / "data" / PROFILE / "tokenizer.json")


def run(root: Path, stage: str, kill_when: Callable[[Path], bool] | None = None) -> Stage | None:
    """Run a stage of the project in `root`; None if it was killed, which it must be if asked."""
    home = root / "data" / PROFILE
    command = [sys.executable, "-c", CLI, stage, "--profile", PROFILE]
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
    tree: dict[int, psutil.Process] = {process.pid: psutil.Process(process.pid)}
    spent: dict[int, float] = {}
    peak = 0
    while process.poll() is None:
        if kill_when and kill_when(home):
            process.kill()
            process.wait()
            _, alive = psutil.wait_procs(tree.values(), timeout=60)
            if alive:
                raise SystemExit(f"{stage}: {len(alive)} processes outlived their parent.")
            return None
        memory = 0
        tree.update({child.pid: child for child in _children(tree[process.pid])})
        for member in list(tree.values()):
            try:
                memory += member.memory_info().rss
                spent[member.pid] = sum(member.cpu_times()[:2])
            except psutil.Error:
                del tree[member.pid]
        peak = max(peak, memory)
        time.sleep(0.05)
    seconds = time.perf_counter() - began
    assert process.stdout is not None
    if process.returncode or kill_when:
        raise SystemExit(f"{stage}: ended with {process.returncode}, killed too late or failed.")
    return Stage(seconds, sum(spent.values()), round(peak / 1e6), process.stdout.read().strip())


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def same_bytes(first: Path, second: Path) -> bool:
    """Whether two folders hold the same files."""
    from small_init.files import sha256

    hashes = [{path.name: sha256(path) for path in folder.iterdir()} for folder in (first, second)]
    return hashes[0] == hashes[1]


def documents_once(packed: Path, tokenizer: Path, documents: int) -> bool:
    """Whether the numbers that documents begin with are 0 … documents − 1, each once."""
    from small_init.data.corpus.tokenizer import load_tokenizer

    encoder = load_tokenizer(tokenizer)
    value = np.full(encoder.get_vocab_size(), 10**DIGITS, dtype=np.int64)
    for digit in range(10):
        value[encoder.token_to_id(str(digit))] = digit
    files = [*sorted(packed.glob("train-*")), packed / "val.bin"]
    tokens = np.concatenate([np.fromfile(path, np.uint16) for path in files])
    begins = np.concatenate([[0], np.flatnonzero(tokens == 0)[:-1] + 1])
    numbers = sum(
        value[tokens[begins + place]] * 10 ** (DIGITS - 1 - place) for place in range(DIGITS)
    )
    return bool(np.array_equal(np.sort(numbers), np.arange(documents)))


def measure(size: int, corpus: Path, tokenizer: Path, scratch: Path) -> dict[str, Any]:
    from small_init.data.corpus.encode import PIECE_BYTES

    load = os.getloadavg()[0]
    text = scratch / "text/text.jsonl"
    text.parent.mkdir()
    made = make(corpus, tokenizer, text, size)
    size = text.stat().st_size
    roots = [scratch / "undisturbed", scratch / "killed"]
    for root in roots:
        prepare(root, text, tokenizer, made)
    stages = {stage: run(roots[0], stage) for stage in ("corpus", "pack")}

    def written(home: Path) -> bool:
        return any(file.stat().st_size > size / 2 for file in home.glob(".corpus-*/corpus/*.jsonl"))

    def encoded(home: Path) -> bool:
        whole = len(list(home.glob(".packed-*/pieces/*.npy")))
        return whole > size / PIECE_BYTES / 2

    for stage, half in (("corpus", written), ("pack", encoded)):
        run(roots[1], stage, half)
        run(roots[1], stage)
    homes = [root / "data" / PROFILE for root in roots]
    cores = len(os.sched_getaffinity(0))
    found: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "cores": cores,
        "load_before": round(load, 1),
        "megabytes": round(size / 1e6),
        "documents": made["documents"],
        "tokens": made["train"] + made["val"],
    }
    for name, stage in stages.items():
        assert stage is not None
        found[name] = {
            "seconds": round(stage.seconds, 1),
            "megabytes_per_second": round(size / 1e6 / stage.seconds, 2),
            "cores_used": round(stage.processor_seconds / stage.seconds, 2),
            "megabytes_per_processor_second": round(size / 1e6 / stage.processor_seconds, 2),
            "peak_memory_megabytes": stage.peak_memory_megabytes,
            "says": stage.says.partition(": ")[2],
        }
    for name in ("corpus", "packed"):
        found[f"{name}_same_bytes_after_kill"] = same_bytes(*(home / name for home in homes))
    once = documents_once(homes[1] / "packed", tokenizer, made["documents"])
    found["every_document_once_after_kill"] = once
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--corpus", type=Path, default=Path("data/cpu/corpus"))
    parser.add_argument("--tokenizer", type=Path, default=Path("data/cpu/tokenizer.json"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        size = arguments.megabytes * 1_000_000
        found = measure(size, arguments.corpus, arguments.tokenizer.resolve(), Path(scratch))
    text = json.dumps(found, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    pack = found["pack"]
    checks = {
        f"at most {MOST_MEMORY / 1e9:g} GB of memory in all processes": (
            pack["peak_memory_megabytes"] <= MOST_MEMORY / 1e6
        ),
        f"at least {LEAST_CORES:.0%} of the cores at work (idle machine)": (
            pack["cores_used"] >= LEAST_CORES * found["cores"]
        ),
        "no document lost or doubled after kill -9": found["every_document_once_after_kill"],
        "the same bytes after kill -9": (
            found["corpus_same_bytes_after_kill"] and found["packed_same_bytes_after_kill"]
        ),
    }
    for name, holds in checks.items():
        print(f"{'holds' if holds else 'MISSED':6}  {name}")
    sys.exit(not all(checks.values()))


if __name__ == "__main__":
    main()
