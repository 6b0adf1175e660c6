"""Do a list of jobs on several workers, append each result at once, resume where it stopped.

A job is any picklable object with a ``cost`` and a ``run()`` that returns rows. What is already in
the results file is not done again: who makes the jobs leaves it out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from domainwise.gram.dense import available_memory

Row = dict[str, Any]


class Job(Protocol):
    """A piece of work that is independent of the others."""

    @property
    def cost(self) -> float:
        """Rough seconds, for the time left."""

    def run(self) -> list[Row]:
        """Do it."""


class Sink(Protocol):
    """Where rows go: a results file, or memory."""

    def append(self, rows: list[Row]) -> None:
        """Take the rows of a finished job."""


#: Told the cost and the rows of every finished job.
Progress = Callable[[float, list[Row]], None]


def run_jobs(
    jobs: Sequence[Job], store: Sink, *, n_jobs: int = 1, progress: Progress | None = None
) -> None:
    """Run jobs in parallel, in this order; rows reach the store as each job finishes.

    An interruption (Ctrl-C) leaves the rows of all finished jobs there. Only this process writes to
    the store. ``progress(cost, rows)`` is called after each job.
    """
    if not jobs:
        return
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    for cost, rows in parallel(delayed(_run)(job) for job in jobs):
        store.append(rows)
        if progress is not None:
            progress(cost, rows)


def worker_count(n_jobs: int | None, memory: int) -> int:
    """Number of workers for ``n_jobs``, of which each needs so many bytes.

    -1 and the like are for as many as cores, and as free memory allows.
    """
    count = effective_n_jobs(1 if n_jobs is None else n_jobs)
    local = "dask" not in type(get_active_backend()[0]).__module__
    free = available_memory()
    if n_jobs is None or n_jobs > 0 or free is None or not local:
        return int(count)
    return max(1, min(count, free // memory))


def long_first(jobs: Sequence[Job]) -> list[Job]:
    """Jobs by their cost."""
    return sorted(jobs, key=lambda job: -job.cost)


def _run(job: Job) -> tuple[float, list[Row]]:
    return job.cost, job.run()


class Bar:
    """What to call after each job; silent without a bar of Rich's."""

    def __init__(self, cost: float, bar: Any = None, task: Any = None, lines: bool = False) -> None:
        self._bar, self._task, self._lines = bar, task, lines
        self._cost, self._spent, self._done, self._start = cost, 0.0, 0, time.monotonic()

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Advance by the cost of a job."""
        self._done += 1
        self._spent += cost
        if self._bar is not None:
            self._bar.update(self._task, advance=cost, done=self._done)

    def describe(self, words: str) -> None:
        """Show what is being done."""
        if self._bar is not None:
            self._bar.update(self._task, description=words)

    def line(self, words: str) -> None:
        """Print a line, with the time left, where there is no bar."""
        if self._lines:
            elapsed = time.monotonic() - self._start
            left = elapsed * (self._cost / self._spent - 1) if self._spent else 0.0
            print(f"{words}, {clock(left)} left)", file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Seconds in words.

    >>> clock(12.3), clock(754)
    ('12 s', '12:34 min')
    """
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02d} min" if minutes < 100 else f"{minutes / 60:.1f} h"


@contextmanager
def progress_bar(progress: bool | Progress, cost: float, n_jobs: int, words: str) -> Iterator[Any]:
    """Yield what to call after each job: the caller's function, or a :class:`Bar`."""
    if not isinstance(progress, bool):
        yield progress
        return
    try:
        from rich import progress as rich
        from rich.console import Console
    except ImportError:
        yield Bar(cost, lines=progress)
        return
    console = Console(stderr=True)
    if not (progress and n_jobs and (console.is_terminal or console.is_jupyter)):
        yield Bar(cost, lines=progress)
        return
    with rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TextColumn("{task.fields[done]}/{task.fields[jobs]}"),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        console=console,
        speed_estimate_period=24 * 3600,  # a job may take minutes
    ) as bar:
        yield Bar(cost, bar, bar.add_task(words, total=cost, done=0, jobs=n_jobs))
