"""Cores and GPUs: how many runs at a time, which slot each holds, and how each computes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from small_init.config import Accelerator, ParallelConfig
from small_init.errors import UserError

_SLOTS = Path("scratch/slots")
# What torch reads when it is imported. Not defaults that a user may change: another instruction set
# or thread count adds up in another order, and a record would not come back bit for bit.
ARITHMETIC = {"ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1"}
# The same for what numpy and scipy compute from records: with AVX-512 a fit differs in its last
# digit, and a coordinate in a PDF with it. Read when numpy is imported.
LINEAR_ALGEBRA = {"OPENBLAS_CORETYPE": "Haswell"}


def gpus_of(parallel: ParallelConfig) -> list[str]:
    """The GPUs of a profile's runs, as CUDA_VISIBLE_DEVICES names them; none for the CPU.

    Raises UserError where a profile asks for GPUs and there are none.
    """
    if parallel.accelerator is Accelerator.cpu:
        return []
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        raise UserError(
            "This profile asks for a GPU and torch finds none; check the driver, and that torch is "
            "a CUDA build (TORCH_INDEX= in the Makefile)."
        )
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return (named.split(",") if named else [str(number) for number in range(count)])[:count]


def jobs_of(asked: int | None, gpus: int = 0) -> int:
    """Runs at a time: what was asked for, else SMALL_INIT_JOBS, else one a GPU, or one a core of
    this process where runs need no GPU."""
    text = os.environ.get("SMALL_INIT_JOBS", "") if asked is None else str(asked)
    if not text:
        if gpus:
            return gpus
        cores = getattr(os, "sched_getaffinity", None)
        return len(cores(0)) if cores else os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise UserError(
            f"The number of runs at a time (JOBS=, --jobs) is '{text}'; give 1 or more."
        )
    return int(text)


@contextmanager
def slot(jobs: int) -> Iterator[int]:
    """Hold one of `jobs` slots, and say which; waits until one is free."""
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


def prepare() -> None:
    """What every process that trains begins with, before it imports torch."""
    os.environ |= ARITHMETIC
    import logging
    import warnings

    import torch

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
