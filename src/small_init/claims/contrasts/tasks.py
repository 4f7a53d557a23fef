"""Reasoning against knowledge at equal loss, from the task records: claim C7."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from small_init.claims.criteria import Claim, Rules
from small_init.claims.gains import SMALL, USUAL
from small_init.claims.verdicts import Condition, Evidence
from small_init.errors import UserError
from small_init.runs.paths import tasks_file
from small_init.runs.record import Run
from small_init.stats.intervals import mean_interval

REASONING, KNOWLEDGE = "reasoning", "knowledge"


def adjusted(runs: Iterable[Run]) -> list[Run]:
    """The adjusted variant at the largest width: what the claim is about."""
    mine = [run for run in runs if run.config.variant == "adjusted"]
    widest = max((run.config.model.d_model for run in mine), default=0)
    return [run for run in mine if run.config.model.d_model == widest]


def full_length(runs: Iterable[Run]) -> int:
    """Tokens of the longest of the runs."""
    return max((run.metrics.tokens for run in runs), default=0)


def equal_loss_arm(runs: Sequence[Run], claim: Claim) -> str | None:
    """The arm that is γ = 1 for claim C7, fixed on pilot seeds: the shorter one nearest in loss.

    Its distance is that of its mean final loss to the one of γ = 0.5 at full length, over the
    pilot seeds that both have. None if the nearest is further than the claim's `same_loss` nats.
    """
    pilots = [run for run in adjusted(runs) if run.pilot]
    longest = full_length(pilots)
    usual = _by_seed(run for run in pilots if _is(run, USUAL) and run.metrics.tokens == longest)
    shorter: dict[str, dict[int, Run]] = {}
    for run in pilots:
        if _is(run, SMALL) and run.metrics.tokens < longest and run.seed in usual:
            shorter.setdefault(run.arm, {})[run.seed] = run
    distances = {
        arm: abs(float(np.mean([usual[s].val_loss - run.val_loss for s, run in by_seed.items()])))
        for arm, by_seed in shorter.items()
    }
    nearest = min(sorted(distances), key=lambda arm: distances[arm], default=None)
    if nearest is None or distances[nearest] > claim.thresholds["same_loss"]:
        return None
    return nearest


def at_equal_loss(runs: Sequence[Run], claim: Claim) -> list[Run]:
    """The runs without the shorter ones of other losses, where the claim asks for an equal one."""
    if "same_loss" not in claim.thresholds:
        return list(runs)
    longest, kept = full_length(runs), equal_loss_arm(runs, claim)
    return [run for run in runs if run.metrics.tokens == longest or run.arm == kept]


def reasoning_gain(runs: Sequence[Run], claim: Claim, rules: Rules) -> Evidence:
    """C7: does γ = 1 gain more on reasoning than on knowledge, at equal loss?

    Of the adjusted variant at the largest width, γ = 0.5 at full length and the shorter γ = 1 that
    `at_equal_loss` has left, over the seeds that both have: the mean gain in accuracy, as a share
    of the way from chance to 1, over the reasoning tasks minus that over the knowledge tasks.
    Replicated if it is above 0, against it if below. Not testable where the pilots gave no such
    shorter run, or where neither γ is above chance on the reasoning tasks.
    """
    mine = adjusted(runs)
    longest = full_length(mine)
    usual = _by_seed(run for run in mine if _is(run, USUAL) and run.metrics.tokens == longest)
    small = _by_seed(run for run in mine if _is(run, SMALL) and run.metrics.tokens < longest)
    if usual and not small:
        near = f"within {claim.thresholds['same_loss']:g} nats of γ = {USUAL:g}"
        reason = f"the pilots gave no shorter run of γ = {SMALL:g} {near}"
        return Evidence(len(usual), not_testable=reason)
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
        gamma: mean_interval(
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


def _by_seed(runs: Iterable[Run]) -> dict[int, Run]:
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
    path = tasks_file(run.profile, run.arm, run.seed)
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
