"""What `small-init plan` prints: a line per model and length, totals, and what does not fit."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Table

from small_init.config import Accelerator, ArmConfig, Corpus, ParallelConfig, Precision
from small_init.data.corpus.config import CorpusConfig
from small_init.runs.cost import RunCost, run_cost, utilisation
from small_init.runs.pace import Pace, run_hours
from small_init.runs.plan import Plan

# Share of a device's memory that a run may fill: the driver's own, what libraries take, and holes
# between blocks of the allocator need the rest.
FILLED = 0.9


@dataclass(frozen=True)
class Line:
    """One arm, or the arms of one model and length."""

    label: str
    arms: int
    runs: int
    largest: RunCost  # of the arm that needs most memory
    run_hours: float | None  # of one run of the costliest arm
    device_hours: float | None  # of all runs
    disk_bytes: int  # weights and records of all runs


def model_name(profile: str, key: str) -> str:
    """The name in configs/models/ that an arm's key begins with, after the profile."""
    found = re.match(rf"{re.escape(profile)}-(.+?)-g\d{{3}}-", key)
    return found[1] if found else key


def lines(
    plan: Plan, mfu: float | None, every_arm: bool = False, pace: Pace | None = None
) -> list[Line]:
    groups: dict[tuple[str, int], list[str]] = defaultdict(list)
    for key, arm in plan.arms.items():
        name = key if every_arm else model_name(plan.profile, key)
        groups[name, arm.train.tokens].append(key)
    found = []
    for (name, _), keys in groups.items():
        arms = [plan.arms[key] for key in keys]
        costs = [(run_cost(arm, plan.parallel, mfu), len(arm.seeds)) for arm in arms]
        hours = [run_hours(arm, plan.parallel, mfu, pace) for arm in arms]
        found.append(
            Line(
                label=name,
                arms=len(arms),
                runs=sum(runs for _, runs in costs),
                largest=max((cost for cost, _ in costs), key=lambda cost: cost.memory.total),
                run_hours=None if None in hours else max(filter(None, hours), default=0.0),
                device_hours=_hours(
                    (each, len(arm.seeds)) for each, arm in zip(hours, arms, strict=True)
                ),
                disk_bytes=sum((c.weights_bytes + c.record_bytes) * runs for c, runs in costs),
            )
        )
    sizes: dict[str, int] = defaultdict(int)
    for line in found:
        sizes[line.label] = max(sizes[line.label], line.largest.parameters.total)
    return sorted(found, key=lambda line: (sizes[line.label], line.label, line.largest.tokens))


def _hours(terms: Iterable[tuple[float | None, int]]) -> float | None:
    """The sum, None where a term is not known."""
    found = list(terms)
    if any(hours is None for hours, _ in found):
        return None
    return sum((hours or 0.0) * runs for hours, runs in found)


def table(found: list[Line], parallel: ParallelConfig) -> Table:
    device = "GPU" if parallel.accelerator is Accelerator.cuda else "device"
    shown = Table(box=None, pad_edge=False, padding=(0, 1))
    shown.add_column("model", overflow="fold")
    for name in (
        "tokens", "arms", "runs", "parameters", "active", "FLOPs", "scores", f"memory\n/{device}",
        f"{device}-h\n/run", f"{device}-h\nin all", "disk",
    ):  # fmt: skip
        shown.add_column(name, justify="right", no_wrap=True)
    for line in found:
        cost = line.largest
        flops = f"{cost.flops:.1e}".replace("e+", "e")
        shown.add_row(
            line.label, count_text(cost.tokens), str(line.arms), str(line.runs),
            count_text(cost.parameters.total), count_text(cost.parameters.active),
            flops, f"+{cost.score_flops / cost.flops:.0%}", bytes_text(cost.memory.total),
            hours_text(line.run_hours), hours_text(line.device_hours),
            bytes_text(line.disk_bytes),
        )  # fmt: skip
    return shown


def totals(
    found: list[Line],
    plan: Plan,
    corpus: CorpusConfig,
    mfu: float | None,
    pace: Pace | None = None,
) -> str:
    devices = plan.parallel.devices * plan.parallel.nodes
    spent = _hours((line.device_hours, 1) for line in found)
    if spent is None:
        time = "No hours: the profile states no device_tflops, and has no records to go by."
    elif plan.parallel.device_tflops is None:
        runs = pace.runs if pace else 0
        time = f"Training: {hours_text(spent)} core-hours, by the {runs} records there are."
    else:
        together = f", {hours_text(spent / devices)} hours on {devices}" if devices > 1 else ""
        share = utilisation(plan.parallel, mfu)
        time = (
            f"Training: {hours_text(spent)} GPU-hours at {share:.0%} of their peak{together}; "
            "small models reach less, and validation and probes come on top."
        )
    kept = sum(line.disk_bytes for line in found)
    training = max((line.largest.checkpoint_bytes for line in found), default=0)
    packed = (corpus.train_tokens + corpus.val_tokens) * (2 if corpus.vocab_size <= 1 << 16 else 4)
    return (
        f"{time} Disk: {bytes_text(kept)} of weights and records, up to {bytes_text(training)} of "
        f"checkpoints for each run that is training, {bytes_text(packed)} of packed tokens."
    )


def warnings(plan: Plan, corpus: CorpusConfig) -> list[str]:
    """What does not fit, once per model, with the number of its arms."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for key, arm in plan.arms.items():
        for sentence in _faults(arm, plan.parallel, corpus):
            found[model_name(plan.profile, key), sentence] += 1
    return [
        f"{name} ({arms} arm{'s' if arms > 1 else ''}): {sentence}"
        for (name, sentence), arms in found.items()
    ]


def _faults(arm: ArmConfig, parallel: ParallelConfig, corpus: CorpusConfig) -> list[str]:
    model, world = arm.model, parallel.devices * parallel.nodes
    faults = []
    windows = arm.train.batch_tokens // model.context
    if windows % world:
        faults.append(f"a batch of {windows} windows does not divide over {world} devices.")
    if parallel.device_memory is not None:
        needed, there = run_cost(arm, parallel).memory.total, parallel.device_memory
        if needed > FILLED * there * 1e9:
            way = "more devices" if parallel.checkpoint_activations else "checkpoint_activations"
            faults.append(
                f"{bytes_text(needed)} a device, more than {FILLED:.0%} of its {there:g} GB; try "
                f"{way} or a smaller train.batch_tokens."
            )
    if arm.train.corpus is not Corpus.packed:
        return faults  # a synthetic task: small, and made as large as it is needed
    if arm.train.tokens > corpus.train_tokens:
        times = arm.train.tokens / corpus.train_tokens
        tokens = count_text(arm.train.tokens)
        faults.append(f"{tokens} tokens read the corpus {times:.1f} times over.")
    if parallel.accelerator is Accelerator.cuda and arm.train.precision is Precision.bf16:
        shapes = {
            "d_model": model.d_model, "d_model / n_heads": model.d_model // model.n_heads,
            "d_ff": model.d_ff, "vocab_size": model.vocab_size,
        }  # fmt: skip
        odd = [f"{name} {value}" for name, value in shapes.items() if value % 8]
        if odd:  # rows of 16 bytes, which tensor cores and attention kernels ask for
            faults.append(f"{', '.join(odd)}: no multiple of 8, so bfloat16 products are slow.")
    return faults


def count_text(number: float) -> str:
    """A count: 1,234,567 as 1.23M."""
    return _scaled(number, ("", "k", "M", "B", "T"))


def bytes_text(number: float) -> str:
    """Bytes, in powers of 1000: 1,234,567 as 1.23 MB."""
    return _scaled(number, (" B", " kB", " MB", " GB", " TB"))


def _scaled(number: float, units: tuple[str, ...]) -> str:
    power = min(int(math.log10(number)) // 3, len(units) - 1) if number >= 1 else 0
    value = number / 1000**power
    return f"{value:,.0f}{units[power]}" if value >= 100 else f"{value:.3g}{units[power]}"


def hours_text(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}" if number >= 99.5 else f"{number:.2g}"
