"""Run jobs on several workers, and store the rows of each job as soon as it finishes.

A job is any picklable object with a ``cost`` and a method ``run()`` that returns rows. To resume
a run, omit the jobs whose rows are already in the results file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from domainwise.base.namespace import available_memory

Row = dict[str, Any]


class Job(Protocol):
    """Work that does not depend on other jobs."""

    @property
    def cost(self) -> float:
        """Approximate time in an arbitrary unit, from which the remaining time is estimated."""

    def run(self) -> list[Row]:
        """Run the job and return its rows."""


#: Called with the cost and the rows of every finished job.
Progress = Callable[[float, list[Row]], None]


def run_jobs(
    jobs: Sequence[Job], store: Any, *, n_jobs: int = 1, progress: Progress | None = None
) -> None:
    """Start jobs in the given order, in parallel, and call ``store.append(rows)`` after each job.

    After an interruption (Ctrl-C), the store contains the rows of all finished jobs. Only this
    process writes to the store. ``progress(cost, rows)`` is called after each job.
    """
    if not jobs:
        return
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    for cost, rows in parallel(delayed(_run)(job) for job in jobs):
        store.append(rows)
        if progress is not None:
            progress(cost, rows)


def _run(job: Job) -> tuple[float, list[Row]]:
    return job.cost, job.run()


def worker_count(n_jobs: int | None, worker_bytes: int) -> int:
    """Return the number of workers for ``n_jobs`` if each needs ``worker_bytes`` bytes of memory.

    As in joblib, -1 means all cores. If ``n_jobs`` is negative, free memory also limits the number.
    """
    n_workers = effective_n_jobs(1 if n_jobs is None else n_jobs)
    free_bytes = available_memory()
    if n_jobs is None or n_jobs > 0 or free_bytes is None or on_cluster():
        return int(n_workers)
    return max(1, min(n_workers, free_bytes // worker_bytes))


def on_cluster() -> bool:
    """Return whether joblib's active backend runs jobs on Dask workers."""
    backend, _ = get_active_backend()
    return any(base.__module__ == "joblib._dask" for base in type(backend).__mro__)


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> format_duration(12.3), format_duration(754)
    ('12 s', '12:34 min')
    """
    whole_seconds = max(0, round(seconds))
    if whole_seconds < 100:
        return f"{whole_seconds} s"
    minutes, remaining_seconds = divmod(whole_seconds, 60)
    return f"{minutes}:{remaining_seconds:02d} min" if minutes < 100 else f"{minutes / 60:.1f} h"
