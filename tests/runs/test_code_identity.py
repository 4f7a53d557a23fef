"""Which code a run is said to be made by."""

import ast
from pathlib import Path

import pytest

from small_init.cores import ARITHMETIC
from small_init.runs import code_identity, code_meaning
from small_init.runs.code_identity import LEFT_OUT, RUN_ENTRIES, run_code
from small_init.runs.code_meaning import module_file, parse, reach


def test_what_decides_a_record_is_among_the_run_modules():
    modules = run_code()["modules"]
    for name in (
        "small_init.files", "small_init.cores", "small_init.config", "small_init.rule.draws",
        "small_init.model.transformer", "small_init.train.pretrain", "small_init.runs.record",
    ):  # fmt: skip
        assert name in modules
    assert not set(LEFT_OUT) & set(modules)
    for name in ("csv_text", "rounded"):
        digest = reach([code_meaning.Name("small_init.files", name)]).pieces["small_init.files"]
        assert digest <= reach(RUN_ENTRIES).pieces["small_init.files"], name


def test_a_run_is_pinned_to_one_instruction_set_and_one_thread():
    """A change here changes the digest, and no golden run can see it in a started process."""
    assert ARITHMETIC == {"ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("name", sorted(run_code()["modules"]))
def test_comments_and_docstrings_change_nothing(name, monkeypatch):
    path = module_file(name)
    before = reach(RUN_ENTRIES, but=LEFT_OUT).digest()
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    commented = text.replace(ast.get_docstring(tree, clean=False), "Another text.", 1) + "\n# end\n"
    real = code_meaning._parsed

    def parsed(at: Path, module: str) -> code_meaning.Module:
        return parse(commented, module) if module == name else real(at, module)

    monkeypatch.setattr(code_meaning, "_parsed", parsed)
    assert reach(RUN_ENTRIES, but=LEFT_OUT).digest() == before


def test_another_torch_is_another_code(monkeypatch):
    before = run_code()["digest"]
    run_code.cache_clear()
    monkeypatch.setattr(code_identity, "installed", lambda: {"numpy": "2", "torch": "9"})
    try:
        assert run_code()["digest"] != before
    finally:
        run_code.cache_clear()


def test_the_build_of_torch_is_no_part_of_it(monkeypatch):
    monkeypatch.setattr(code_identity, "version", lambda name: "2.13.0+cu130")
    assert code_identity.installed() == {"numpy": "2.13.0", "torch": "2.13.0"}
