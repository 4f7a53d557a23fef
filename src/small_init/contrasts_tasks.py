"""The contrast of claim C7: reasoning against knowledge at equal loss, from the task records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from small_init import records, statistics
from small_init.cells import SMALL, USUAL
from small_init.claims import Claim, Rules
from small_init.errors import UserError
from small_init.records import Run
from small_init.verdicts import Condition, Evidence

REASONING, KNOWLEDGE = "reasoning", "knowledge"


def reasoning_gain(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C7. γ = 1 is the shorter complete run among the runs of Table 2."""
    mine = [run for run in runs if run.config.variant == "adjusted"]
    longest = max((run.metrics["tokens"] for run in mine), default=0)
    usual = _by_seed(run for run in mine if _is(run, USUAL) and run.metrics["tokens"] == longest)
    small = _by_seed(run for run in mine if _is(run, SMALL) and run.metrics["tokens"] < longest)
    if usual and not small:
        return Evidence(0, not_testable="no shorter γ = 1 run of equal loss is planned")
    seeds = sorted(usual.keys() & small.keys())
    if not seeds:
        return Evidence(0)
    tasks = {
        g: {s: task_record(arm[s])["tasks"] for s in seeds}
        for g, arm in ((USUAL, usual), (SMALL, small))
    }
    values = {
        seed: _gain(tasks[USUAL][seed], tasks[SMALL][seed], REASONING)
        - _gain(tasks[USUAL][seed], tasks[SMALL][seed], KNOWLEDGE)
        for seed in seeds
    }
    quantity = "gain on reasoning minus gain on knowledge, share of the way from chance to 1"
    above = {
        gamma: statistics.mean_interval(
            [_above_chance(found, REASONING) for found in by_seed.values()], rules.confidence
        )
        for gamma, by_seed in tasks.items()
    }
    at_floor = all(interval.low is not None and interval.low < 0 for interval in above.values())
    losses = [usual[seed].val_loss - small[seed].val_loss for seed in seeds]
    return Evidence(
        len(seeds),
        required=[Condition(quantity, values, "above", 0.0, rules.confidence)],
        against=[Condition(quantity, values, "below", 0.0, rules.confidence)],
        not_testable="neither γ beats chance on the reasoning tasks" if at_floor else None,
        beside={"loss of γ = 0.5 minus that of the shorter γ = 1": f"{np.mean(losses):+.3f} nats"}
        | {
            f"reasoning accuracy above chance, γ = {gamma:g}": f"{interval.estimate:+.3f}"
            for gamma, interval in above.items()
        },
    )


def _is(run: Run, gamma: float) -> bool:
    return run.config.init.gamma == gamma


def _by_seed(runs: Any) -> dict[int, Run]:
    found: dict[int, Run] = {}
    for run in runs:
        if run.seed in found:
            raise UserError(
                f"Two arms stand for γ = {run.config.init.gamma:g} of claim C7: "
                f"{found[run.seed].arm} and {run.arm}; name one of them for table-2."
            )
        found[run.seed] = run
    return found


def task_record(run: Run) -> dict[str, Any]:
    """What `small-init evaluate --arm` wrote for the run; one missing or foreign is an error."""
    path = records.task_record(run.metrics["profile"], run.arm, run.seed)
    if not path.is_file():
        raise UserError(
            f"There is no {path}; make it with `small-init evaluate --arm {run.arm}`, or restore "
            "it with `git checkout`."
        )
    record = json.loads(path.read_text())
    if (record["arm"], record["seed"]) != (run.arm, run.seed):
        raise UserError(f"{path} belongs to {record['arm']}, seed {record['seed']}; restore it.")
    return record


def _members(tasks: Mapping[str, Any], family: str) -> list[str]:
    return [name for name, task in tasks.items() if task["family"] == family]


def _gain(usual: Mapping[str, Any], small: Mapping[str, Any], family: str) -> float:
    """Mean over the family's tasks of the gain, as a share of the way from chance to 1."""
    return float(
        np.mean(
            [
                (small[name]["accuracy"] - usual[name]["accuracy"]) / (1 - usual[name]["chance"])
                for name in _members(usual, family)
            ]
        )
    )


def _above_chance(tasks: Mapping[str, Any], family: str) -> float:
    return float(
        np.mean([tasks[n]["accuracy"] - tasks[n]["chance"] for n in _members(tasks, family)])
    )
