"""Independent pieces of work in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any


def _ignore_interrupts() -> None:
    """Workers leave Ctrl-C to the parent, which stops them."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _single_threaded(work: Callable[[Any], Any], job: Any) -> Any:
    """One process per core: threads of a linear algebra library within one only get in the way."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return work(job)


def run_jobs(
    work: Callable[[Any], Any], jobs: Sequence[Any], workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[Any], bool]:
    """What ``work`` returns for each job, as they finish, and whether Ctrl-C stopped the rest.

    ``work`` is a function of a module; jobs and results are pickled. ``workers`` is the number of
    processes, all cores if omitted.
    """
    done: list[Any] = []
    interrupted = False
    context = get_context("fork" if os.name == "posix" and os.uname().sysname == "Linux"
                          else "spawn")
    pool = ProcessPoolExecutor(
        workers or os.cpu_count() or 1, mp_context=context, initializer=_ignore_interrupts
    )
    try:
        futures = [pool.submit(_single_threaded, work, j) for j in jobs]
        for f in as_completed(futures):
            done.append(f.result())
            if progress is not None:
                progress(len(done), len(jobs))
    except KeyboardInterrupt:
        interrupted = True
        for process in list((pool._processes or {}).values()):
            process.terminate()
    finally:
        # waits for the pool's own thread too: left behind, it and the exit of Python race for a
        # pipe that one of them has closed
        pool.shutdown(wait=True, cancel_futures=True)
    return done, interrupted
