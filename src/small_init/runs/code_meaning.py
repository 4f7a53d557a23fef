"""What code means: digests that comments, docstrings, formatting, moves and renamed files leave.

A digest is taken over syntax trees, and only over the definitions (functions, classes, constants)
that can be reached from an entry point by name. So a function that moves to another file, a new
neighbour that nobody calls, or a corrected docstring change nothing; a changed default, number or
line of a reached function does. What is reached is found without running anything:

- a name stands for the definition of that name in its module, or for what the module imported
  under it from this project; an attribute of an imported module for the definition there;
- a class is one piece: whoever names it reaches all its methods, and its bases;
- statements that run when a module is imported belong to every reached module;
- imports from other projects, and renamed ones of this one, count as what the name stands for.

Imports under TYPE_CHECKING are never run and not followed.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

OWN = (
    "small_init",
    "paper",
)  # packages whose modules are followed; all others are fixed by the lock
PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Name:
    """A definition, as `module` and `name`; without a name whatever importing the module runs."""

    module: str
    name: str | None = None


@dataclass
class Module:
    """One parsed file."""

    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    effects: list[ast.stmt] = field(default_factory=list)  # statements that run on import
    own: dict[str, Name] = field(default_factory=dict)  # local name → what of this project it is
    foreign: dict[str, str] = field(default_factory=dict)  # local name → what of another it is
    # Of each statement, once it was asked for: the digest of what it means, and what it names.
    read: dict[ast.stmt, tuple[str, list[Name | str]]] = field(default_factory=dict)


def source_folder(package: str) -> Path:
    """Where a package's files lie; `paper` in the current directory, else beside src/."""
    if package == "small_init":
        return PACKAGE
    here = Path(package)
    return here if (here / "__init__.py").is_file() else PACKAGE.parents[1] / package


def module_file(module: str) -> Path | None:
    """The file of a module of this project, or None."""
    top, *rest = module.split(".")
    base = source_folder(top).joinpath(*rest)
    for path in (base.with_name(base.name + ".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@dataclass
class Reached:
    """What an entry reaches: module → digests of its reached pieces."""

    pieces: dict[str, set[str]] = field(default_factory=dict)

    def by_module(self) -> dict[str, str]:
        return {name: _hash(sorted(found)) for name, found in sorted(self.pieces.items())}

    def digest(self) -> str:
        """16 hex digits over all pieces, whatever file each stands in."""
        return _hash(sorted(set().union(*self.pieces.values())))


def reach(entries: Iterable[Name], but: Collection[str] = ()) -> Reached:
    """Everything that can be reached from the entries, which must exist (ValueError), without the
    modules `but` and what only they reach."""
    reached, waiting, seen = Reached(), list(entries), set[Name]()
    while waiting:
        name = waiting.pop()
        if name in seen or name.module in but:
            continue
        seen.add(name)
        module = parsed(name.module)
        if module is None:
            raise ValueError(f"{name.module} is no module of this project")
        if name.name is None:
            nodes = module.effects
        else:
            waiting.append(Name(name.module))
            if name.name in module.own:  # imported there, and passed on
                waiting.append(module.own[name.name])
                continue
            if name.name in module.foreign:
                text = f"{name.name}={module.foreign[name.name]}"
                reached.pieces.setdefault(name.module, set()).add(text)
                continue
            if name.name not in module.definitions:
                raise ValueError(f"{name.module} defines no {name.name}")
            nodes = module.definitions[name.name]
        pieces = reached.pieces.setdefault(name.module, set())
        for node in nodes:
            if node not in module.read:
                module.read[node] = _hash([meaning(node)]), [*_used(node, module)]
            digest, names = module.read[node]
            pieces.add(digest)
            for used in names:
                if isinstance(used, Name):
                    waiting.append(Name(name.module, used.name) if not used.module else used)
                else:
                    pieces.add(used)
    return reached


def _used(node: ast.stmt, module: Module) -> Iterator[Name | str]:
    """What a statement names; of its own module with an empty `module`, of others as text."""
    attributes, inners = set(), [*ast.walk(node)]
    for inner in inners:
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
            target = module.own.get(inner.value.id)
            if target and target.name is None:
                attributes.add(inner.value)
                yield Name(target.module, inner.attr)
    for inner in inners:
        if not isinstance(inner, ast.Name) or inner in attributes:
            continue
        if inner.id in module.own:
            target = module.own[inner.id]
            other = None if target.name else parsed(target.module)
            if other:  # the module itself is handed on: all of it may be used
                yield from (Name(target.module, name) for name in other.definitions)
            yield target
            if target.name not in (None, inner.id):
                yield f"{inner.id}={target.name}"
        elif inner.id in module.foreign:
            yield f"{inner.id}={module.foreign[inner.id]}"
        if inner.id in module.definitions:
            yield Name("", inner.id)


def parsed(name: str) -> Module | None:
    path = module_file(name)
    return _parsed(path.resolve(), name) if path else None


@cache
def _parsed(path: Path, name: str) -> Module:
    return parse(path.read_text("utf-8"), name, path.name == "__init__.py")


def parse(source: str, name: str, is_package: bool = False) -> Module:
    """Sort a module's statements; `name` is its dotted name."""
    tree, module = ast.parse(source), Module()
    skipped = {
        inner for node in ast.walk(tree) if _for_types_only(node) for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in skipped:
            _bind(node, module, name, is_package)
    for number, node in enumerate(tree.body):
        if node in skipped or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if number == 0 and _is_text(node):
            continue
        targets = _targets(node)
        for target in targets:
            module.definitions.setdefault(target, []).append(node)
        if not targets:
            module.effects.append(node)
    return module


def _for_types_only(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    assigned: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        assigned = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        assigned = [node.target]
    names = [inner.id for target in assigned for inner in _leaves(target) if inner]
    return names if assigned and None not in [*map(_name, assigned)] else []


def _leaves(target: ast.expr) -> Iterator[ast.Name]:
    if isinstance(target, ast.Name):
        yield target
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _leaves(element)


def _name(target: ast.expr) -> str | None:
    """None for what is no plain name, such as `table["key"] = …`, which runs on import."""
    return "" if isinstance(target, ast.Name | ast.Tuple | ast.List) else None


def _bind(node: ast.Import | ast.ImportFrom, module: Module, name: str, is_package: bool) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            local, target = alias.asname or alias.name.split(".")[0], alias.name
            if target.split(".")[0] in OWN:
                module.own[local] = Name(target if alias.asname else local)
            else:
                module.foreign[local] = target if alias.asname else local
        return
    source = node.module or ""
    if node.level:
        parts = name.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        source = ".".join([*parts, *([source] if source else [])])
    for alias in node.names:
        local = alias.asname or alias.name
        if source.split(".")[0] not in OWN:
            module.foreign[local] = f"{source}.{alias.name}"
        elif module_file(f"{source}.{alias.name}"):
            module.own[local] = Name(f"{source}.{alias.name}")
        else:
            module.own[local] = Name(source, alias.name)


def meaning(node: ast.AST) -> str:
    """A syntax tree as text, without positions, docstrings and this project's own imports.

    Written out by hand, since `ast.dump` differs between versions of Python.
    """
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__}:{node.value!r}"
    parts = []
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "kind", "type_comment", "type_ignores", "type_params"):
            continue
        if isinstance(value, list):
            if name == "body" and value and _is_text(value[0]):
                value = value[1:]
            inner = [meaning(item) if isinstance(item, ast.AST) else repr(item) for item in value]
            text = ",".join(item for item in inner if item)
            if text:
                parts.append(f"{name}=[{text}]")
        elif isinstance(value, ast.AST):
            parts.append(f"{name}={meaning(value)}")
        elif value is not None:
            parts.append(f"{name}={value!r}")
    if isinstance(node, ast.Import | ast.ImportFrom):
        return _import_meaning(node)
    return f"{type(node).__name__}({' '.join(parts)})"


def _import_meaning(node: ast.Import | ast.ImportFrom) -> str:
    """What an import inside a function says: its source only where it is another project, since
    what of this one is used is followed by name."""
    source = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
    names = [(alias.name, alias.asname) for alias in node.names]
    own = (source or names[0][0]).split(".")[0] in OWN or (
        isinstance(node, ast.ImportFrom) and node.level > 0
    )
    if own:
        return ""
    return f"import {source} {names}"


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
