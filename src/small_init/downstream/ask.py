"""`small-init evaluate`: an arm's records, or any tasks for any checkpoint, printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from small_init.downstream import checkpoint as checkpoints
from small_init.downstream.evaluate import evaluate_arm, lm_of, run_tasks, summary
from small_init.downstream.sharded_model import ranks
from small_init.downstream.suite import asked as asked_by
from small_init.downstream.suite import load_tasks
from small_init.errors import UserError
from small_init.runs.plan import load_plan


def ask(
    arm: str | None,
    seed: int | None,
    checkpoint: Path | None,
    tasks: Sequence[str] | None,
    limit: int | None,
) -> None:
    """Without tasks an arm's records are written; everything else prints lm-eval's numbers.

    Records are made from the weights under models/ alone; to be asked, published ones will do.
    Under torchrun every process asks, and the first one writes.
    """
    if checkpoint is not None:
        found = [checkpoints.or_published(checkpoints.of_file(checkpoint))]
    else:
        assert arm is not None
        plan = load_plan()
        if arm not in plan.arms:
            raise UserError(f"params.json has no arm {arm}; its keys stand there under `arms`.")
        if tasks is None and limit is None:
            for path in evaluate_arm(plan, arm, seed):
                _say(str(path))
            return
        seeds = plan.arms[arm].seeds if seed is None else [seed]
        asked = [
            checkpoints.or_published(checkpoints.of_run(plan.profile, arm, number))
            for number in seeds
        ]
        found = [one for one in asked if one.weights.is_file()] or asked[:1]
    for one in found:
        lm = lm_of(one)
        copy = " (the published copy in half precision)" if one.published else ""
        _say(f"{one.weights}{copy}, trained context {lm.max_length}")
        wanted = load_tasks(tasks or [*asked_by(one.profile)], one.profile)
        _say(summary(run_tasks(lm, wanted, limit)))
        if lm.truncated:
            _say(f"{lm.truncated} texts were too long and lost their beginning.")


def _say(text: str) -> None:
    if ranks().first:
        print(text)
