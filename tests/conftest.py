"""What tests share that train; torch and numpy read the variables once, when imported."""

import os
from pathlib import Path

from small_init.cores import ARITHMETIC, LINEAR_ALGEBRA
from tests import ROOT

os.environ |= ARITHMETIC | LINEAR_ALGEBRA
# Processes that tests start import the code of this checkout, and `tests` and `paper`.
os.environ["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{ROOT}"

import pytest

from tests import tiny

# What takes more than two seconds, as the beginnings of names of tests: marked `slow`, and left out
# by `make test-fast`. These files come first, in this order, so that no worker ends long after the
# others.
SLOW = (
    "goldens/",
    "launch/",
    "train/",
    "runs/test_stages.py",
    "rule/test_gamma_sharded.py",
    "downstream/",
    "runs/test_record.py",
    "runs/test_experiments.py",
    "measure/",
    "paper/test_report_build.py",
    "data/corpus/",
    "diagnosis/test_huggingface.py",
    "rule/test_gamma.py::test_every_parameter_of_a_hugging_face_model",
)


def _place(item: pytest.Item) -> int:
    """Where the first name in `SLOW` that a test's name begins with stands; behind all: in none."""
    name = item.nodeid.removeprefix("tests/")
    return next((n for n, start in enumerate(SLOW) if name.startswith(start)), len(SLOW))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first: dict[Path, int] = {}
    for item in items:
        place = _place(item)
        first[item.path] = min(place, first.get(item.path, place))
        if place < len(SLOW):
            item.add_marker("slow")
    items.sort(key=lambda item: first[item.path])


@pytest.fixture
def packed_project(tmp_path, monkeypatch):
    """An empty project root with a packed corpus for the profile `test`; the current directory."""
    monkeypatch.chdir(tmp_path)
    tiny.write_packed(tmp_path / "data/test/packed")
    return tmp_path


@pytest.fixture
def project(packed_project):
    """Folders of tests that need another project have their own."""
    return packed_project


@pytest.fixture
def tiny_arm():
    return tiny.tiny_arm()
