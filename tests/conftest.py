"""What tests share that train; torch and numpy read the variables once, when imported."""

import os

from small_init.cores import ARITHMETIC, LINEAR_ALGEBRA
from tests import ROOT

os.environ |= ARITHMETIC | LINEAR_ALGEBRA
# Processes that tests start import the code of this checkout, and `tests` and `paper`.
os.environ["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{ROOT}"

import pytest

from tests import tiny


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
