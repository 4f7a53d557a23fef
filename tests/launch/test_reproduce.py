"""`make reproduce` at a scale where some objects have no arms."""

from dataclasses import replace

import pytest

from small_init.launch.reproduce import drawable
from small_init.runs.plan import load_plan
from tests import ROOT


def test_objects_without_arms_are_left_out(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    plan = load_plan()
    some_arm = [next(iter(plan.arms))]
    plan = replace(plan, objects={name: arms or some_arm for name, arms in plan.objects.items()})
    assert drawable(plan) == []  # everything
    some = replace(plan, objects=plan.objects | {"figure-3": [], "figure-s2": []})
    stages = drawable(some)
    assert {"runs", "figure-2", "report", "claims", "pack"} <= set(stages)
    assert not {"figure-3", "figure-s2"} & set(stages)
    assert any(name.startswith("calibrate@") for name in stages)
    assert "figure-3, figure-s2" in capsys.readouterr().out
