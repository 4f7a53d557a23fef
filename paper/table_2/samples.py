"""What the models of Table 2 write to a few reasoning questions, for a reader to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paper.shared.runs import unique_in_order
from paper.shared.style import caption_text, profile_of
from paper.table_2.numbers import NAME
from small_init.files import write_text
from small_init.runs.paths import results_folder
from small_init.runs.record import Run

SAMPLES = f"{NAME}-samples.md"


def save_samples(tasks: Mapping[tuple[str, int], Mapping[str, Any]], runs: Sequence[Run]) -> None:
    """Write results/<profile>/tables/table-2-samples.md: of every arm its first seed.

    `tasks` is (arm, seed) → task → entry of the task record. The other families' questions hold
    text that is not ours to pass on, so the records have no samples of them.
    """
    first: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        first.setdefault(run.arm, run)
    shown = [first[arm] for arm in unique_in_order(run.arm for run in runs)]
    written = {run.arm: tasks[run.arm, run.seed] for run in shown}
    entries = next(iter(written.values()))
    pages = []
    for name in (name for name, entry in entries.items() if entry.get("samples")):
        pages.append(f"## {name.replace('_', ' ')}\n")
        for number, sample in enumerate(entries[name]["samples"]):
            asked = "\n".join(f"> {line}" for line in sample["context"].splitlines())
            answers = [("right answer", sample["right"])]
            answers += [
                (arm, entry[name]["samples"][number]["written"]) for arm, entry in written.items()
            ]
            lines = "\n".join(f"- {who}: {_code(text)}" for who, text in answers)
            pages.append(f"{asked}\n\n{lines}\n")
    caption = (
        "A few reasoning questions, the right answer, and what each arm's first seed writes after "
        "the question, taking the most probable token each time."
    )
    head = caption_text("Samples of Table 2", caption, shown)
    folder = results_folder(profile_of(shown)) / "tables"
    write_text(folder / SAMPLES, head + "\n" + "\n".join(pages))


def _code(text: str) -> str:
    """As code, on one line: what a small model writes may be Markdown by accident."""
    line = " ".join(text.strip().splitlines())
    return f"`` {line} ``" if line else "(nothing)"
