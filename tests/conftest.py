"""What tests that train share; torch reads these variables once, when it is imported."""

import os

from tests import ROOT

os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Processes that tests start find `tests` and `paper`, and this checkout's code.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])

import pytest

from tests import tiny


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project root with a packed corpus for the profile `test`; the current directory."""
    monkeypatch.chdir(tmp_path)
    tiny.write_packed(tmp_path / "data/test/packed")
    return tmp_path


@pytest.fixture
def tiny_arm():
    return tiny.tiny_arm()
