"""Which package may know of which: a room imports from the rooms below it alone.

`FLOORS` is the order, lowest first. Where it departs from the order one might expect:
- `rule` stands below `config`: it is what a stranger installs, and knows of nothing here but the
  errors; the configuration takes the names of the weight groups from it.
- `model` stands below `diagnosis`, which builds and measures our own model where there is no
  `transformers`, and takes the stds of the weights from `model.init`.
- `runs` stands below `measure` and `train`: what a run is told, and where its record lies, are
  known to those who plan and read runs without training any.
- `claims` stands above `measure`, whose log-probabilities token by token it judges by.

The package itself (`small_init`, its `__main__`) and `cli` may import everything; `paper` reads
what runs left behind, and may import no room that trains.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests import ROOT

PACKAGE = ROOT / "src/small_init"
FLOORS = (
    "errors", "files", "rule", "config", "config_limits", "config_files", "cores", "model",
    "diagnosis", "data", "runs", "measure", "train", "launch", "stats", "claims", "downstream",
    "cli",
)  # fmt: skip
NOT_FOR_PAPER = {"data", "train", "launch", "downstream", "cli"}
MOST_LINES = 300
# Modules of one name in several packages, and why it is one meaning.
SHARED_NAMES = {
    "config": "the configuration of a run, and in data/corpus that of a corpus",
    "documents": "documents of the text, and in stats what is averaged over documents",
    "items": "questions of the downstream tasks, and in stats what is averaged over questions",
}
# What is still to be put in order: each entry goes when it no longer holds.
OWED_UPWARD: set[tuple[str, str]] = set()
OWED_CIRCLES: set[frozenset[str]] = set()
OWED_LONG: set[str] = set()


def sources() -> Iterator[Path]:
    return (p for top in (PACKAGE, ROOT / "paper") for p in sorted(top.rglob("*.py")))


def module_of(path: Path) -> str:
    """`rule.gamma`, `paper.table_1`; an `__init__` is its package, the topmost is ''."""
    inside = path.is_relative_to(PACKAGE)
    parts = path.relative_to(PACKAGE if inside else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_of(path): path for path in sources()}


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imported(path: Path) -> set[str]:
    """The project's modules that a file imports, those inside its functions included."""
    tree, found = ast.parse(path.read_text("utf-8")), set()
    for_types = {inner for node in ast.walk(tree) if is_for_types(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: name the package, `from small_init… import`"
            source = node.module or ""
            names = [f"{source}.{alias.name}" for alias in node.names]
            names = [name if own(name) in modules() else source for name in names]
        else:
            continue
        found |= {own(name) for name in names if name.split(".")[0] in ("small_init", "paper")}
    return found


def own(name: str) -> str:
    return name.removeprefix("small_init").removeprefix(".")


@cache
def imports() -> dict[str, set[str]]:
    return {name: imported(path) for name, path in modules().items()}


def room(module: str) -> str:
    return module.split(".")[0]


def test_every_room_has_a_floor():
    rooms = {room(name) for name in modules()} - {"", "__main__", "paper"}
    assert rooms == set(FLOORS), "add the new room to FLOORS, above all that it imports"


def test_no_import_goes_upward():
    upward = {
        (name, other)
        for name, found in imports().items()
        for other in found
        if room(name) in FLOORS
        and (other == "" or room(other) == "paper"
             or FLOORS.index(room(other)) > FLOORS.index(room(name)))
    }  # fmt: skip
    assert upward == OWED_UPWARD, "an import goes upward: move what is shared to the lower room"


def test_the_rule_knows_of_nothing_but_errors():
    known = set().union(*(found for name, found in imports().items() if room(name) == "rule"))
    assert {room(name) for name in known} == {"errors", "rule"}
    foreign = set()
    for path in (PACKAGE / "rule").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                foreign |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                foreign.add((node.module or "").split(".")[0])
    assert foreign - set(sys.stdlib_module_names) == {"small_init", "torch", "numpy"}


def test_paper_reads_what_runs_left_behind():
    wrong = {
        (name, other)
        for name, found in imports().items()
        for other in found
        if room(name) == "paper" and room(other) in NOT_FOR_PAPER
    }
    assert not wrong


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Sets of more than one node each of which reaches all others."""

    def reach(start: str) -> set[str]:
        seen, waiting = set(), [start]
        while waiting:
            for other in graph.get(waiting.pop(), set()) - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reached = {name: reach(name) for name in graph}
    return {
        frozenset(o for o in found if name in reached.get(o, set()))
        for name, found in reached.items()
        if name in found
    }


def test_no_files_import_each_other_in_a_circle():
    assert circles({n: found - {n} for n, found in imports().items()}) == OWED_CIRCLES


def test_no_packages_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = defaultdict(set)
    for name, found in imports().items():
        if room(name) in FLOORS:
            wanted = {other for other in found if (name, other) not in OWED_UPWARD}
            graph[room(name)] |= {room(other) for other in wanted} - {room(name)}
    assert circles(graph) == set()


def packages() -> list[Path]:
    return sorted({path.parent for path in sources()})


def test_every_package_says_what_it_is_and_what_it_imports():
    for folder in packages():
        file = folder / "__init__.py"
        assert file.is_file(), f"{folder} is no package; give it an __init__.py"
        if not folder.is_relative_to(PACKAGE) or folder.parent != PACKAGE:
            continue
        text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
        told = re.search(r"^Imports: (.+)\.$", text, re.MULTILINE)
        assert told, f"{file}: say what the package is, and end with a line `Imports: a, b.`"
        if told[1] == "everything":
            continue
        may = set(told[1].split(", ")) - {"nothing of the project"}
        mine = [name for name in modules() if room(name) == folder.name]
        does = {
            room(other) for name in mine for other in imports()[name]
            if (name, other) not in OWED_UPWARD
        } - {folder.name}  # fmt: skip
        assert may == does, f"{file}: it imports {', '.join(sorted(does))}"


def test_no_file_is_two():
    lines = {str(p.relative_to(ROOT)): len(p.read_text("utf-8").splitlines()) for p in sources()}
    long = {name for name, count in lines.items() if count > MOST_LINES}
    assert long == OWED_LONG, "a file that answers two questions wants to be two files"


def test_a_module_name_has_one_meaning():
    places: dict[str, list[str]] = defaultdict(list)
    for name in modules():
        if name and room(name) != "paper":  # whose modules are named within a paper object
            places[name.split(".")[-1]].append(name)
    assert {name for name, found in places.items() if len(found) > 1} == set(SHARED_NAMES)


def test_no_module_hides_one_of_the_standard_library():
    own_modules = {name for name in modules() if name and room(name) != "paper"} - {"__main__"}
    names = {part for name in own_modules for part in name.split(".")}
    assert not names & set(sys.stdlib_module_names)
