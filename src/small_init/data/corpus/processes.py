"""Worker processes that end with their parent, and a progress bar that tells bytes a second."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process

from rich.progress import Progress, TransferSpeedColumn

from small_init.data.corpus.documents import progress_bar
from small_init.errors import UserError


@contextmanager
def processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of `jobs` processes, each working in one thread.

    Raises:
        UserError: one of them was killed.
    """
    # Forked from a server, not from here, where the progress bar has a thread of its own.
    context = get_context("forkserver")
    context.set_forkserver_preload(["small_init.data.corpus.encode"])
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin)
    try:
        yield pool
    except BrokenProcessPool:
        raise UserError(
            f"One of {jobs} processes was killed, perhaps for want of memory: run the same command "
            "again, which goes on from what is done, with fewer of them (SMALL_INIT_JOBS=)."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A pool's processes would wait for work for ever if their parent was killed."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def byte_bar() -> Progress:
    """A progress bar whose unit is bytes."""
    bar = progress_bar()
    bar.columns = (*bar.columns, TransferSpeedColumn())
    return bar
