"""Do a list of jobs on several workers, append each result at once, resume where it stopped.

A job is any picklable object with a ``cost`` and a ``run()`` that returns rows. What is already in
the results file is not done again: who makes the jobs leaves it out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from joblib import Parallel, delayed

Row = dict[str, Any]


class Job(Protocol):
    """A piece of work that knows nothing of the others."""

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


def long_first(jobs: Sequence[Job]) -> list[Job]:
    """Jobs by their cost."""
    return sorted(jobs, key=lambda job: -job.cost)


def _run(job: Job) -> tuple[float, list[Row]]:
    return job.cost, job.run()


class Expected(NamedTuple):
    """What is known of a job before it runs: jobs of one kind take time in proportion to size."""

    kind: Hashable
    size: float
    cost: float


class TimeLeft:
    """Seconds that are left, by what finished jobs took, with some workers at a time.

    >>> clock = TimeLeft({i: Expected("svm", 1.0, 9.0) for i in range(4)})
    >>> clock.done(0, 2.0)
    >>> clock.left()
    6.0
    """

    def __init__(self, jobs: Mapping[Any, Expected], workers: int = 1) -> None:
        self._open, self._workers = dict(jobs), workers
        self._done: list[tuple[Expected, float]] = []

    def done(self, key: Any, seconds: float) -> None:
        """Take note of a finished job."""
        self._done.append((self._open.pop(key), seconds))

    def left(self) -> float:
        """Kinds that were not seen yet are as far off their rough cost as the others."""
        costs = sum(job.cost for job, _ in self._done)
        scale = sum(seconds for _, seconds in self._done) / costs if costs else 1.0
        rates: dict[Hashable, list[float]] = {}
        for job, seconds in self._done:
            rate = rates.setdefault(job.kind, [0.0, 0.0])
            rate[0] += seconds
            rate[1] += job.size
        total = 0.0
        for job in self._open.values():
            seconds, size = rates.get(job.kind, (scale * job.cost, job.size))
            total += seconds / size * job.size
        return total / max(1, min(self._workers, len(self._open)))


class Bar:
    """What to call after each job; silent without a bar of Rich's."""

    def __init__(self, cost: float, bar: Any = None, task: Any = None, lines: bool = False) -> None:
        self._bar, self._task, self._lines = bar, task, lines
        self._cost, self._spent, self._done, self._start = cost, 0.0, 0, time.monotonic()

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Go on by a job's cost."""
        self._done += 1
        self._spent += cost
        elapsed = time.monotonic() - self._start
        if self._bar is not None:
            left = elapsed * (self._cost - self._spent) / self._spent if self._spent else 0.0
            self._bar.update(self._task, advance=cost, done=self._done, end=elapsed + left)

    def describe(self, words: str, left: float | None = None) -> None:
        """Say what is being done from here on, and how long all of it will take."""
        if self._bar is not None:
            end = {} if left is None else {"end": time.monotonic() - self._start + left}
            self._bar.update(self._task, description=words, **end)

    def line(self, words: str) -> None:
        """Say in a line of its own what a bar would show, where there is none."""
        if self._lines:
            print(words, file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Seconds as a reader wants them.

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
        from rich.text import Text
    except ImportError:
        yield Bar(cost, lines=progress)
        return
    console = Console(stderr=True)
    if not (progress and n_jobs and (console.is_terminal or console.is_jupyter)):
        yield Bar(cost, lines=progress)
        return

    class Left(rich.ProgressColumn):
        def render(self, task: Any) -> Text:
            end = task.fields["end"]
            return Text("" if end is None else f"{clock(end - (task.elapsed or 0.0))} left")

    with rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TextColumn("{task.fields[done]}/{task.fields[jobs]}"),
        rich.TimeElapsedColumn(),
        Left(),
        console=console,
    ) as bar:
        yield Bar(cost, bar, bar.add_task(words, total=cost, done=0, jobs=n_jobs, end=None))
