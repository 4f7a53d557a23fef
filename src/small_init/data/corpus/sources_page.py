"""The sources page: what the model reads, where it comes from and under which licence."""

from pathlib import Path
from typing import Any

from small_init.data.corpus.build import LEFT_OUT
from small_init.data.corpus.config import CorpusConfig
from small_init.data.corpus.documents import atomic

COLUMNS = (
    "source",
    "package",
    "language",
    "domain",
    "licence",
    "documents train / val",
    "bytes",
    "tokens train / val",
    "share",
    "sha256 of the file",
)
# Of texts under a licence that asks for it: whose they are, where they stand, what was changed.
ATTRIBUTION = (
    "Texts under CC-BY-SA are by the contributors of the English Wikipedia "
    "(<https://en.wikipedia.org>: wiki-leads, wiki-articles, days), of the Wikibooks Cookbook "
    "(<https://en.wikibooks.org/wiki/Cookbook>: recipes), and those of cedict by the contributors "
    "of CC-CEDICT (<https://cc-cedict.org>, published by MDBG), under the version of the licence "
    "that their row names (<https://creativecommons.org/licenses/by-sa/3.0/>, "
    "<https://creativecommons.org/licenses/by-sa/4.0/>). Mark-up was removed, long texts were cut, "
    "duplicates and entries that only point to others left out. A document's id in the corpus "
    "names its page."
)
PROBLEM_COLUMNS = (
    "family",
    "questions drawn",
    "contradicted",
    "not read",
    "documents",
    "with steps",
    "steps withheld",
)


def write_page(
    path: Path, config: CorpusConfig, records: list[dict[str, Any]], meta: dict[str, Any]
) -> None:
    """Write the Markdown table of sources, one row each, from the manifest and the meta file."""
    train: dict[str, int] = meta["train"]["sources"]
    val = {part["source"]: part["end"] - part["start"] for part in meta["val"]["segments"]}
    total = meta["train"]["tokens"]
    rows = []
    for record in records:
        name = record["source"]
        documents, size = record["documents"], sum(record["bytes"].values())
        rows.append(
            f"| {name} | {record['package']}=={record['version']} | {record['language']} "
            f"| {record['domain']} | {record['licence']} "
            f"| {documents['train']:,} / {documents['val']:,} | {size:,} "
            f"| {train.get(name, 0):,} / {val.get(name, 0):,} "
            f"| {train.get(name, 0) / total:.1%} | `{record['file_sha256'] or 'generated'}` |"
        )
    left_out = "; ".join(LEFT_OUT)
    problems = [row for record in records for row in _problem_rows(record)]
    with atomic(path) as file:
        file.write(
            f"""# Sources of the text

Written by the `pack` stage for profile `{config.profile}`; do not edit. Documents and bytes are
what is left after cleaning, cutting and duplicate removal; tokens are what was packed, at a
vocabulary of {meta["vocab_size"]:,}; the share is of the {total:,} training tokens. No document
is used twice.

{_table(COLUMNS, rows)}

Dictionary entries are held to {config.dictionary_share:.0%} of the Chinese tokens: they are short
and nearly free of context. Left out: {left_out}.

{ATTRIBUTION}

## Generated problems

Every answer was computed anew from the question by the project's own solver. A question is rejected
if the solver has another answer (*contradicted*) or does not read it or its steps (*not read*);
both are shares of the different questions drawn, test questions included. Documents are training
and validation. Steps are *withheld* where they would answer, on their way, a question that is held
out for the tasks: such a problem is shown with its answer alone.

{_table(PROBLEM_COLUMNS, problems)}
"""
        )


def _table(columns: tuple[str, ...], rows: list[str]) -> str:
    return "\n".join([f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows])


def _problem_rows(record: dict[str, Any]) -> list[str]:
    """A row per family, and one of their sums."""
    families: dict[str, dict[str, int]] = record["families"]
    if not families:
        return []
    names = next(iter(families.values()))
    sums = {name: sum(tally[name] for tally in families.values()) for name in names}
    return [
        f"| {name} | {tally['drawn']:,} | {tally['contradicted'] / tally['drawn']:.1%} "
        f"| {tally['unread'] / tally['drawn']:.1%} | {tally['documents']:,} "
        f"| {tally['with_steps']:,} | {tally['steps_withheld']:,} |"
        for name, tally in [*sorted(families.items()), (f"**{record['source']}**", sums)]
    ]
