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
    "(<https://en.wikipedia.org>: wiki-leads, wiki-articles, days) and of the Wikibooks Cookbook "
    "(<https://en.wikibooks.org/wiki/Cookbook>: recipes), under the version of the licence that "
    "their row names (<https://creativecommons.org/licenses/by-sa/3.0/>, "
    "<https://creativecommons.org/licenses/by-sa/4.0/>). Mark-up was removed, long texts were cut, "
    "duplicates left out. A document's id in the corpus names its page."
)
PACKAGE_LICENCES = (
    '"Package" marks the licence of a package whose texts come from elsewhere: their authors are '
    "not named, and whether the texts may be passed on is open. This repository holds none of "
    "them; they are read from the packages named."
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
    with atomic(path) as file:
        file.write(
            f"""# Sources of the text

Written by the `pack` stage for profile `{config.profile}`; do not edit. Documents and bytes are
what is left after cleaning, cutting and duplicate removal; tokens are what was packed, at a
vocabulary of {meta["vocab_size"]:,}; the share is of the {total:,} training tokens. No document
is used twice.

"""
        )
        file.write("\n".join([f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|", *rows]))
        file.write(
            f"""

Dictionary entries are held to {config.dictionary_share:.0%} of the Chinese tokens: they are short
and nearly free of context. Left out: {left_out}.

{ATTRIBUTION}

{PACKAGE_LICENCES}

Known faults of the generated problems, and what tasks must not take from them, stand in
[`README.md`](README.md).
"""
        )
