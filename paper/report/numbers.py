"""The numbers of the report's own sections: method, limits, cost, and the index of objects."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from paper.shared.style import compact, label_of, seed_ranges
from small_init.config_files import load_yaml
from small_init.runs.objects import object_names
from small_init.runs.paths import CONFIGS, PERFORMANCE_FILE
from small_init.runs.plan import Plan
from small_init.runs.rates import RateTable
from small_init.runs.record import Run
from small_init.runs.table import deciding, run_table

WATTS_PER_CORE = 15.0  # assumed for the energy estimate; a server core under load draws 5 to 20


def method(plan: Plan, runs: list[Run]) -> dict[str, Any]:
    """The numbers of the method section, from the ladder's configurations and the corpus."""
    ladder = [plan.arms[key] for key in plan.objects["table-1"]]
    first = ladder[0]
    sizes = sorted({run.metrics.parameters.total for run in runs
                    if run.arm in plan.objects["table-1"]})  # fmt: skip
    optimizer, train = first.optimizer, first.train
    return {
        "arms": len(plan.arms),
        "runs": len(runs),
        "confirmatory": sum(not run.pilot for run in runs),
        "widths": sorted({arm.model.d_model for arm in ladder}),
        "layers": first.model.n_layers,
        "heads": first.model.n_heads,
        "context": first.model.context,
        "vocabulary": first.model.vocab_size,
        "parameters": [compact(size) for size in sizes],
        "tokens": compact(train.tokens),
        "steps": first.steps,
        "batch": train.batch_tokens,
        "warmup": optimizer.warmup_steps,
        "weight_decay": optimizer.weight_decay,
        "clip": optimizer.clip,
        "betas": [optimizer.beta1, optimizer.beta2],
        "final_tokens": compact(train.final_tokens),
        "rates": calibrated(plan.profile),
        "deciding": len(deciding(runs)),
    }


def calibrated(profile: str) -> list[list[str]]:
    """Rows of the calibration: condition, γ, peak learning rate, its standard error in percent, and
    the nats that so uncertain a rate is expected to cost."""
    path = CONFIGS / "calibration" / f"{profile}.yaml"
    if not path.is_file():
        return []
    return [
        [
            rate.label,
            f"{rate.gamma:g}",
            f"{rate.lr:.2g}" + (" (edge)" if rate.edge else ""),
            "–" if rate.error is None else f"{rate.error:.0%}",
            "–" if rate.miss is None else f"{rate.miss:.3f}",
        ]
        for rate in RateTable.load(path).rates
    ]


def limits_of(plan: Plan, runs: Iterable[Run]) -> dict[str, Any]:
    """How far the ladder reaches: sizes, tokens per parameter, and the seeds of its arms."""
    ladder = run_table(run for run in deciding(runs) if run.arm in plan.objects["table-1"])
    sizes = ladder["parameters_non_embedding"]
    per_parameter = ladder["tokens"] / ladder["parameters"]
    return {
        "span": f"{sizes.max() / sizes.min():.1f}",
        "tokens_per_parameter": f"{per_parameter.min():.0f} to {per_parameter.max():.0f}",
        "seeds": seed_ranges(ladder["seed"].tolist()),
    }


# --- cost ----------------------------------------------------------------------------------------


def core_hours(runs: Iterable[Run]) -> float:
    """What the recorded runs took, from their perf.json."""
    hours = 0.0
    for run in runs:
        perf = json.loads((run.folder / PERFORMANCE_FILE).read_text())
        hours += perf["seconds"] * perf["threads"] / 3600
    return hours


def cost(runs: list[Run]) -> dict[str, str]:
    hours = core_hours(runs)
    flops = sum(run.metrics.flops for run in runs)
    return {
        "core_hours": f"{hours:.1f}",
        "watts": f"{WATTS_PER_CORE:g}",
        "kwh": f"{hours * WATTS_PER_CORE / 1000:.2f}",
        "flops": f"{flops:.2g}",
    }


# --- index ---------------------------------------------------------------------------------------


def index_entry(plan: Plan, runs: Iterable[Run], name: str) -> dict[str, Any]:
    """How an object is made again: its stage, the stages of its arms, its files, and the cost."""
    arms = plan.objects.get(name, [])
    mine = [run for run in runs if run.arm in arms]
    experiments = sorted(
        path.name
        for path in (CONFIGS / "experiments").glob("*.yaml")
        if name in load_yaml(path).get("objects", [])
    )
    return {
        "object": label_of(name),
        "stage": name,
        "arms": len(arms),
        "runs": len(mine),
        "core_hours": f"{core_hours(mine):.1f}",
        "stages": sorted({plan.stages[key] for key in arms}),
        "experiments": experiments,
        "script": f"paper/{name.replace('-', '_')}.py",
    }


def stage_entries(plan: Plan, runs: Iterable[Run]) -> list[dict[str, Any]]:
    """The arms by home stage, each with its seeds, mean final loss and the objects that read it."""
    by_arm: dict[str, list[Run]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, []).append(run)
    readers = {
        key: [name for name in object_names() if key in plan.objects.get(name, [])]
        for key in by_arm
    }
    by_stage: dict[str, list[list[str]]] = {}
    for key, mine in by_arm.items():
        loss = sum(run.val_loss for run in mine) / len(mine)
        line = [
            key.removeprefix(f"{plan.profile}-"),
            seed_ranges([run.seed for run in mine]),
            f"{loss:.3f}",
            " ".join(name[0].upper() + name.split("-")[1].upper() for name in readers[key]),
        ]
        by_stage.setdefault(plan.stages[key], []).append(line)
    return [{"stage": stage, "arms": lines} for stage, lines in by_stage.items()]
