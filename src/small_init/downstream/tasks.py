"""Stage `tasks`: the embedded tasks as JSONL, one file a task, and a manifest.

    data/<profile>/tasks/<task>.jsonl    {"id", "context", "choices", "answer", "target", "group"}
    data/<profile>/tasks/manifest.json   items, chance and SHA-256 of every task

They are built from texts that are not all free to be passed on, so they are not in git. The same
corpus gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

from small_init.config import ModelConfig
from small_init.data.corpus.documents import atomic
from small_init.data.corpus.tokenizer import load_tokenizer
from small_init.data.packed import PackedTokens
from small_init.downstream import continuation, knowledge, reasoning
from small_init.downstream.items import Item
from small_init.downstream.training_text import TrainingText, packed_texts
from small_init.errors import UserError

MANIFEST = "manifest.json"
LEAST_ITEMS = 500
LIMITS = Path("configs/tasks/items.yaml")  # profiles with other limits, or with real benchmarks
# Tokens of a context and an answer, with the end-of-text token before them: what the smallest
# models were trained with. The same items serve every profile's models.
MOST_TOKENS = ModelConfig().context


def build_tasks(
    home: Path, least: int = LEAST_ITEMS, most: int | None = None, benchmarks: bool = False
) -> None:
    """Write `home/tasks` from `home/{corpus,packed,tokenizer.json}`; replaced as a whole.

    Of each task the first `most` items are kept. With `least` 0 a task without any is left out:
    what a corpus for tests needs. A profile that asks the real `benchmarks` has no items: its
    manifest is empty, and the corpus, which no memory may hold, is not read.

    Raises:
        UserError: a task has fewer than `least` items.
    """
    _write_tasks(home, {} if benchmarks else _items(home, least, most))


def _items(home: Path, least: int, most: int | None) -> dict[str, list[Item]]:
    training = TrainingText.read(home / "corpus")
    tokenizer = load_tokenizer(home / "tokenizer.json")
    packed = packed_texts(PackedTokens(home / "packed"), tokenizer)

    def fits(text: str) -> bool:
        return len(tokenizer.encode(text).ids) < MOST_TOKENS

    tasks = {name: reasoning.reasoning(name, training, fits) for name in reasoning.FAMILIES}
    known = [document for document in training.documents if document["text"] in packed]
    for name in knowledge.NAMES:
        found = knowledge.knowledge(name, known)
        tasks[name] = [item for item in found if fits(item.context + item.right)]
    for language in continuation.CUTS:
        tasks |= continuation.continuations(language, training, fits)
    if not least:
        tasks = {name: items for name, items in tasks.items() if items}
    tasks = {name: items[:most] for name, items in tasks.items()}
    for name, items in tasks.items():
        if len(items) < least:
            raise UserError(
                f"The corpus in {home} gives {len(items)} items for the task {name}, and "
                f"{least} are needed; use a profile with more text."
            )
    return tasks


def _write_tasks(home: Path, tasks: dict[str, list[Item]]) -> None:
    partial = home / ".tasks.partial"
    shutil.rmtree(partial, ignore_errors=True)
    entries = {name: _write(partial / f"{name}.jsonl", items) for name, items in tasks.items()}
    with atomic(partial / MANIFEST) as file:
        json.dump({"schema": 1, "tasks": entries}, file, ensure_ascii=False, indent=1)
        file.write("\n")
    shutil.rmtree(home / "tasks", ignore_errors=True)
    partial.rename(home / "tasks")


def _write(path: Path, items: list[Item]) -> dict[str, Any]:
    rng = random.Random(path.stem)
    rows = [item.row(rng) for item in items]
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with atomic(path) as file:
        file.write(content)
    return {
        "items": len(rows),
        "chance": sum(1 / len(row["choices"]) for row in rows) / len(rows),
        "groups": len({row["group"] for row in rows}),
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
    }
