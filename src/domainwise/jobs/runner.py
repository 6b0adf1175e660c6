"""Do a list of jobs on several workers, append each result at once, resume where it stopped.

A job is any picklable object with a ``cost`` and a ``run()`` that returns rows. What is already in
the results file is not done again: who makes the jobs leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

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
