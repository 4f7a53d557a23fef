"""A stage of tests/data/corpus/test_resume.py:
stage_worker.py <stage> <root> <where to die> <when>.

It kills itself with -9 at the n-th time it comes to a place, or ends with 0.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import Progress

from small_init.data.corpus import build, encode, pack, source_file
from small_init.data.corpus.config import CorpusConfig, HubSource

PLACES = {
    "written": (source_file.SourceFile, "write"),  # a document, perhaps not yet on the disk
    "saved": (os, "fsync"),  # the lines of a source, then its place in the stream, in turns
    "moved": (build, "replace_folder"),  # the corpus to its place
    "planned": (Progress, "add_task"),  # first the pieces, then the shards
    "advanced": (Progress, "advance"),  # a piece encoded, or a shard gathered
    "published": (pack, "replace_folder"),  # the tokens to theirs
}


def config(root: Path) -> CorpusConfig:
    """Two local folders in place of hub sets, all of whose tokens are used."""
    sets = [
        HubSource(name, str(root / name), language=language, group="all")
        for name, language in (("web-zh", "zh"), ("web-en", "en"))
    ]
    return CorpusConfig(
        profile="test",
        hub=sets,
        val_fraction=0.1,
        mixture={"all": 1.0},
        train_tokens=1,
        val_tokens=1,
        shard_tokens=50_000,
        vocab_size=400,
        tokenizer_bytes=200_000,
    )


def run(stage: str, root: Path, home: Path) -> None:
    """Run a stage from the sets in `root`, with outs in `home`."""
    build.SAVE_EVERY, encode.PIECE_BYTES = 200, 25_000
    settings = config(root)
    if stage == "corpus":
        build.build_corpus(settings, home / "corpus", home / "downloads")
        return
    settings.train_tokens, settings.val_tokens = map(int, (root / "tokens").read_text().split())
    pack.pack(settings, root / "corpus", root / "tokenizer.json", home / "packed", home / "page.md")


def deadly(function: Callable[..., Any], times: int) -> Callable[..., Any]:
    """The function, which kills its process after the n-th call."""
    left = times

    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        nonlocal left
        value = function(*arguments, **keywords)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    return wrapped


if __name__ == "__main__":
    stage, root, home, place, times = sys.argv[1:]
    if place in PLACES:
        owner, name = PLACES[place]
        setattr(owner, name, deadly(getattr(owner, name), int(times)))
    run(stage, Path(root), Path(home))
