"""The paper's objects: every table and figure is a script of paper/, found by its name.

`paper/figure_4.py`, or the folder `paper/figure_4/` with a `__main__.py`, is the object `figure-4`;
there is no other list. Beside the index of its records an object may read other files, and may
have more than one page; its script says so in two constants that are read without running it:

    READS = ("paper/claims.yaml", "results/{profile}/tokens")
    PAGES = ("figure-6", "figure-6b")      # the default is the object's own name
    EXTRA = ("tables/table-2-samples.md",) # further files of results/<profile>/
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from small_init.errors import UserError
from small_init.runs.code_meaning import source_folder


@dataclass(frozen=True)
class PaperObject:
    """One table or figure."""

    name: str  # figure-4
    module: str  # paper.figure_4, what `python -m` runs
    reads: tuple[str, ...]  # files and folders beside its index, with {profile}
    pages: tuple[str, ...]  # what it draws: names of tables and figures
    extra: tuple[str, ...]  # further files, below results/<profile>/

    @property
    def entry(self) -> str:
        """The module with the script's own statements."""
        return (
            f"{self.module}.__main__" if script_of(self.module).stem == "__main__" else self.module
        )

    def files(self) -> Iterator[str]:
        """Everything it writes, below results/<profile>/."""
        for page in self.pages:
            kinds = (
                ("csv", "md", "pdf", "png") if page.startswith("figure") else ("csv", "md", "tex")
            )
            yield from (f"{page.partition('-')[0]}s/{page}.{kind}" for kind in kinds)
        yield from self.extra


def script_of(module: str) -> Path:
    """The file that `python -m <module>` runs."""
    package, name = module.split(".")
    path = source_folder(package) / name
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def constant(path: Path, name: str) -> tuple[str, ...]:
    """A tuple of texts that a script assigns at its top, () where it does not."""
    for node in ast.parse(path.read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert isinstance(node, ast.Assign)
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                value = None
            if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
                raise UserError(f"{path}: write {name} as a plain tuple of texts.")
            return value
    return ()


def paper_objects() -> tuple[PaperObject, ...]:
    """Every object, tables before figures, numbered ones before those of the supplement."""
    return _objects_in(source_folder("paper").resolve())


@cache
def _objects_in(folder: Path) -> tuple[PaperObject, ...]:
    found = []
    for path in folder.glob("*"):
        match = re.fullmatch(r"(table|figure)_(s?\d+)(\.py)?", path.name)
        if not match or not (path.suffix == ".py" or (path / "__main__.py").is_file()):
            continue
        module, name = f"paper.{path.stem}", f"{match[1]}-{match[2]}"
        script = script_of(module)
        pages = constant(script, "PAGES") or (name,)
        found.append(
            PaperObject(name, module, constant(script, "READS"), pages, constant(script, "EXTRA"))
        )
    return tuple(sorted(found, key=_place))


def _place(item: PaperObject) -> tuple[bool, bool, int]:
    kind, number = item.name.split("-")
    return kind != "table", number.startswith("s"), int(number.removeprefix("s"))


def object_names() -> tuple[str, ...]:
    return tuple(item.name for item in paper_objects())
