"""Threads that run independent pieces of work, in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any


class Workers:
    """``threads`` of them, all cores if omitted; started when first needed and then kept."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads)

    def map(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """``function`` of each job, results in the order of the jobs."""
        if self.threads == 1 or len(jobs) == 1:
            return [function(j) for j in jobs]
        return [*self._pool.map(function, jobs)]
