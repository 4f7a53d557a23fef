"""Runs side by side: one process and one slot each, and their progress on the screen.

The slots are lock files shared by everything that trains in this project, so that several arms,
several seeds and several commands together never use more cores (or GPUs) than there are. A slot
is freed by the operating system when its process ends, however it ends.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from small_init import records
from small_init.errors import UserError
from small_init.records import RunSpec

_SLOTS = Path("scratch/slots")
_GRACE_SECONDS = 60.0  # how long an interrupted run may take to save its state


def default_jobs() -> int:
    """Runs at a time: SMALL_INIT_JOBS, else one for each core this process may use."""
    asked = os.environ.get("SMALL_INIT_JOBS", "")
    if not asked:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if not asked.isdigit() or int(asked) < 1:
        raise UserError(f"SMALL_INIT_JOBS (JOBS=) is '{asked}'; give a whole number of at least 1.")
    return int(asked)


@contextmanager
def slot(jobs: int) -> Any:
    """Hold one of `jobs` slots; waits until one is free. Yields its number."""
    _SLOTS.mkdir(parents=True, exist_ok=True)
    while True:
        for number in range(jobs):
            lock = FileLock(_SLOTS / f"{number}.lock")
            try:
                lock.acquire(blocking=False)
            except Timeout:
                continue
            try:
                yield number
                return
            finally:
                lock.release()
        time.sleep(0.2)


def _work(spec: RunSpec, jobs: int, report: Connection) -> None:
    """A child process: wait for a slot, train, tell the parent how it went."""
    # Ctrl-C reaches the whole process group; the parent passes it on as one SIGTERM each.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import logging
    import warnings

    import torch
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    from small_init.pretrain import train

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    try:
        home = Path("scratch/runs") / spec.arm_key
        home.mkdir(parents=True, exist_ok=True)
        # A run whose parent was killed may still be training: the second waits, then finds it done.
        with FileLock(home / f"seed-{spec.seed}.lock"), slot(jobs):
            folder = train(spec, lambda step, loss: report.send(("progress", step, loss)))
        report.send(("done", str(folder)))
    except UserError as error:
        report.send(("error", str(error)))
        sys.exit(1)
    except SIGTERMException:
        sys.exit(143)
    except Exception as error:
        # Torch, safetensors and TensorBoard each wrap a full disk in an exception of their own.
        if os.strerror(errno.ENOSPC) in str(error):
            reason = "found the disk full; free some space and run the same command again."
        else:
            reason = f"failed:\n{traceback.format_exc()}"
        report.send(("error", f"{spec.arm_key}, seed {spec.seed} {reason}"))
        sys.exit(1)


def train_runs(specs: Iterable[RunSpec], jobs: int, title: str) -> dict[tuple[str, int], Path]:
    """Train every run, at most `jobs` at a time; returns the scratch folder of each.

    Finished runs are found again, interrupted ones go on. If one fails the others are still
    finished, then a UserError names the failures. SIGINT and SIGTERM save every run's state first.
    """
    # Set before the fork server starts, whose children inherit what torch reads once at import.
    os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["small_init.pretrain"])
    waiting = list(specs)
    total = sum(spec.arm.steps for spec in waiting)
    running: dict[Connection, tuple[RunSpec, BaseProcess, TaskID]] = {}
    folders: dict[tuple[str, int], Path] = {}
    failures: list[str] = []
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
                while waiting and len(running) < jobs:
                    spec = waiting.pop(0)
                    receive, send = context.Pipe(duplex=False)
                    process: BaseProcess = context.Process(target=_work, args=(spec, jobs, send))
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
                        if process.exitcode not in (0, 1):
                            failures.append(_killed(spec, process.exitcode))
                        continue
                    if kind == "progress":
                        bars.advance(overall, content[0] - bars.tasks[bar].completed)
                        bars.update(bar, completed=content[0], loss=f"{content[1]:.3f}")
                    elif kind == "done":
                        folders[spec.arm_key, spec.seed] = Path(content[0])
                    else:
                        failures.append(content[0])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        _stop([process for _, process, _ in running.values()])
    if interrupted:
        raise UserError(
            f"Stopped by {signal.Signals(interrupted).name}; every run's state is saved. "
            "Run the same command to go on."
        )
    if failures:
        raise UserError("\n".join(failures))
    return folders


def _killed(spec: RunSpec, code: int | None) -> str:
    return (
        f"{spec.arm_key}, seed {spec.seed} was killed (exit code {code}); its last checkpoint and "
        "all finished runs are kept. Run the same command to go on."
    )


def _stop(processes: list[BaseProcess]) -> None:
    """SIGTERM, time to save, and only then SIGKILL."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def publish(spec: RunSpec, scratch: Path) -> None:
    """Copy a finished run's record into results/ and its weights into models/, each whole."""
    home = records.record_folder(spec.profile, spec.arm_key, spec.seed)
    records.recover_folder(home)
    weights = records.weights_file(spec.arm_key, spec.seed)
    draft, draft_weights = home.with_name(f".{home.name}.new"), weights.with_suffix(".tmp")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(scratch / "record", draft)
        weights.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(scratch / "weights.safetensors", draft_weights)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        draft_weights.unlink(missing_ok=True)
        raise UserError(
            f"Cannot write the record {home}: {error.strerror}; the published one is unchanged."
        ) from None
    draft_weights.replace(weights)
    records.replace_folder(draft, home)
