"""`small-init evaluate`: an arm's records, or any tasks for any checkpoint, printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from small_init.errors import UserError
from small_init.evaluate import checkpoint as checkpoints
from small_init.evaluate.run import evaluate_arm, lm_of, run_tasks, summary
from small_init.evaluate.suite import embedded, load_tasks
from small_init.records import load_plan


def evaluate_command(
    arm: str | None,
    seed: int | None,
    checkpoint: Path | None,
    tasks: Sequence[str] | None,
    limit: int | None,
) -> None:
    """Without tasks an arm's records are written; everything else prints lm-eval's numbers."""
    if checkpoint is not None:
        found = [checkpoints.of_file(checkpoint)]
    else:
        assert arm is not None
        plan = load_plan()
        if arm not in plan.arms:
            raise UserError(f"params.yaml has no arm {arm}; its keys stand there under `arms`.")
        if tasks is None and limit is None:
            for path in evaluate_arm(plan, arm, seed):
                print(path)
            return
        seeds = plan.arms[arm].seeds if seed is None else [seed]
        found = [checkpoints.of_run(plan.profile, arm, number) for number in seeds]
    for one in found:
        lm = lm_of(one)
        print(f"{one.weights}, trained context {lm.max_length}")
        print(
            summary(
                run_tasks(lm, load_tasks(tasks or [*embedded(one.profile)], one.profile), limit)
            )
        )
        if lm.truncated:
            print(f"{lm.truncated} texts were too long and lost their beginning.")
