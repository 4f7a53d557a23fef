"""Runs side by side: one process and one slot each, and their progress on the screen.

The slots are lock files shared by everything that trains in this project, so that several arms,
several seeds and several commands together never use more cores than there are. A slot is freed
by the operating system when its process ends, however it ends. On GPUs a slot is one of them.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from small_init.cores import ARITHMETIC, gpus_of, jobs_of, prepare, slot
from small_init.errors import UserError
from small_init.launch.publish import lock_of
from small_init.runs.spec import RunSpec

SAVED = 143  # exit code of a run that SIGTERM stopped with its state saved


_GRACE_SECONDS = 60.0  # how long an interrupted run may take to save its state


def _work(spec: RunSpec, jobs: int, gpus: list[str], report: Connection) -> None:
    """A child process: wait for a slot, train, tell the parent how it went."""
    # Ctrl-C reaches the whole process group; the parent passes it on as one SIGTERM each.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare()
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    from small_init.train.pretrain import train

    def tell(*message: Any) -> None:
        with suppress(OSError):  # the parent was killed: train on, a later command finds the run
            report.send(message)

    try:
        with lock_of(spec), slot(jobs) as number:
            if gpus:  # CUDA reads this when the run first touches a GPU, which is later
                os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
            folder = train(spec, lambda step, loss: tell("progress", step, loss))
        tell("done", str(folder))
    except UserError as error:
        tell("error", str(error))
        sys.exit(1)
    except SIGTERMException:
        sys.exit(SAVED)
    except Exception as error:
        tell("error", f"{spec.arm_key}, seed {spec.seed} {_reason(error)}")
        sys.exit(1)


def _reason(error: Exception) -> str:
    """What happened, for faults that torch and others wrap in exceptions of their own."""
    text = str(error)
    if os.strerror(errno.ENOSPC) in text:
        return "found the disk full; free some space and run the same command again."
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate" in text:
        return "found no memory left; run fewer at a time with JOBS=, or a smaller model."
    return f"failed:\n{traceback.format_exc()}"


def train_runs(
    specs: Iterable[RunSpec], jobs: int | None, title: str
) -> dict[tuple[str, int], Path]:
    """Train every run, at most `jobs` at a time (`jobs_of`); returns the scratch folder of each.

    Finished runs are found again, interrupted ones go on. If one fails the others are still
    finished, then a UserError names the failures. SIGINT and SIGTERM save every run's state first.
    On GPUs, the run in slot k computes on the (k mod their number)-th.
    """
    os.environ |= ARITHMETIC  # before the fork server starts, whose children inherit it
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["small_init.train.pretrain"])
    folders: dict[tuple[str, int], Path] = {}
    waiting = []
    for spec in specs:
        if folder := spec.finished():
            folders[spec.arm_key, spec.seed] = folder
        else:
            waiting.append(spec)
    gpus = gpus_of(waiting[0].parallel) if waiting else []
    slots = jobs_of(jobs, len(gpus))
    total = sum(spec.arm.steps for spec in waiting)
    running: dict[Connection, tuple[RunSpec, BaseProcess, TaskID]] = {}
    failures: dict[tuple[str, int], str] = {}
    interrupted = 0

    def interrupt(number: int, _: Any) -> None:
        nonlocal interrupted
        interrupted = number

    previous = {s: signal.signal(s, interrupt) for s in (signal.SIGINT, signal.SIGTERM)}
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.fields[loss]}"), TimeRemainingColumn(),
    )  # fmt: skip
    try:
        with Progress(
            *columns, console=Console(stderr=True), disable=not sys.stderr.isatty()
        ) as bars:
            overall = bars.add_task(f"[bold]{title}", total=total, loss="")
            while (waiting or running) and not interrupted:
                while waiting and len(running) < slots:
                    spec = waiting.pop(0)
                    receive, send = context.Pipe(duplex=False)
                    process: BaseProcess = context.Process(
                        target=_work, args=(spec, slots, gpus, send)
                    )
                    process.start()
                    send.close()
                    bar = bars.add_task(
                        f"{spec.arm_key} seed {spec.seed}", total=spec.arm.steps, loss=""
                    )
                    running[receive] = (spec, process, bar)
                for ready in wait(list(running), timeout=0.5):
                    receive = cast(Connection, ready)
                    spec, process, bar = running[receive]
                    try:
                        kind, *content = receive.recv()
                    except EOFError:
                        process.join()
                        del running[receive]
                        bars.update(bar, visible=False)
                        run = (spec.arm_key, spec.seed)
                        if run not in folders and run not in failures:
                            failures[run] = _killed(spec, process.exitcode)
                        continue
                    if kind == "progress":
                        bars.advance(overall, content[0] - bars.tasks[bar].completed)
                        bars.update(bar, completed=content[0], loss=f"{content[1]:.3f}")
                    elif kind == "done":
                        folders[spec.arm_key, spec.seed] = Path(content[0])
                    else:
                        failures[spec.arm_key, spec.seed] = content[0]
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        unsaved = _stop([(spec, process) for spec, process, _ in running.values()])
    if interrupted:
        state = f"the state of {', '.join(unsaved)} could not be saved; the" if unsaved else "every"
        rest = "last checkpoints are kept" if unsaved else "run's state is saved"
        raise UserError(
            f"Stopped by {signal.Signals(interrupted).name}; {state} {rest}. "
            "Run the same command to go on."
        )
    if failures:
        raise UserError("\n".join(failures.values()))
    return folders


def _killed(spec: RunSpec, code: int | None) -> str:
    memory = " (perhaps for want of memory: then run fewer at a time with JOBS=)"
    return (
        f"{spec.arm_key}, seed {spec.seed} was killed with exit code {code}"
        f"{memory if code == -signal.SIGKILL else ''}; its last checkpoint and all finished runs "
        "are kept. Run the same command to go on."
    )


def _stop(running: list[tuple[RunSpec, BaseProcess]]) -> list[str]:
    """SIGTERM, time to save, and only then SIGKILL; returns the runs that did not save."""
    for _, process in running:
        process.terminate()
    deadline = time.monotonic() + _GRACE_SECONDS
    for _, process in running:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    failed = (1, -signal.SIGKILL)  # a save that raised, or one that outlasted its time
    return [f"{s.arm_key} seed {s.seed}" for s, p in running if p.exitcode in failed]
