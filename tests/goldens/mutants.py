"""Make golden runs with the code changed, each in a process forked after torch is imported.

python -m tests.goldens.mutants; standard input is a JSON list of
    [golden run, module, old text, new text]    or [golden run] for the code as it is
and standard output is the JSON list of what is pinned of each, {"error": …} of one that ended in an
error. Nothing is written to the source tree.
"""

import gc
import importlib
import json
import os
import sys
import tempfile
import traceback
import warnings
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any


class Changed(SourceFileLoader):
    """Loads a module with one part of its text replaced."""

    old: str
    new: str

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_data(self.path).decode()
        return compile(text.replace(self.old, self.new), self.path, "exec", dont_inherit=True)


class ChangedModule:
    """Finds `module`, and no other."""

    def __init__(self, module: str, old: str, new: str) -> None:
        self.module, self.old, self.new = module, old, new

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        loader = Changed(name, spec.origin)
        loader.old, loader.new = self.old, self.new
        spec.loader = loader
        return spec


def import_libraries() -> None:
    """Import all that the runs import, and forget our own modules, which are about to change."""
    importlib.import_module("tests.goldens.runs")
    for name in ("torch._dynamo", "torch.utils.tensorboard"):  # which a run imports on its way
        importlib.import_module(name)
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("small_init", "tests"):
            del sys.modules[name]
    gc.freeze()  # or every child's first collection would copy the memory it shares


def make(golden: str, *change: str) -> dict[str, Any]:
    if change:
        sys.meta_path.insert(0, ChangedModule(*change))
    with tempfile.TemporaryDirectory() as folder:
        return importlib.import_module("tests.goldens.runs").make(golden, Path(folder))


def start(task: list[str]) -> tuple[int, int]:
    """Make a golden run in a child process: its number, and where it writes what it made."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = make(*task)
        except BaseException:  # whatever a changed run does, it ends here
            answer = {"error": traceback.format_exc()}
        with os.fdopen(writer, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(writer)
    return child, reader


def finish(child: int, reader: int) -> dict[str, Any]:
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"error": f"the process ended with status {status}"}


if __name__ == "__main__":
    tasks = json.load(sys.stdin)
    warnings.filterwarnings("ignore")
    import_libraries()
    # Each worker of pytest-xdist has a core, and the others theirs.
    cores = 1 if "PYTEST_XDIST_WORKER" in os.environ else len(os.sched_getaffinity(0))
    made = []
    for first in range(0, len(tasks), cores):
        started = [start(task) for task in tasks[first : first + cores]]
        made += [finish(*child) for child in started]
    json.dump(made, sys.stdout)
