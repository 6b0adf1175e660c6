"""Folds on the workers of a Dask client: joblib's backend for Dask, used with restraint.

That backend hands every loop of joblib to the workers, also those inside a task, and whatever their
``n_jobs``: a column transformer would send its columns around. Here only loops that ask for more
than one process are shared out, and a task does its own loops itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from joblib import parallel_config
from joblib._dask import DaskDistributedBackend


class FoldsBackend(DaskDistributedBackend):  # type: ignore[misc, unused-ignore]
    """A backend for :func:`joblib.parallel_config`, which reports the number of tasks done."""

    default_n_jobs = 1

    def __init__(self, client: Any, report: Callable[[int], None] | None = None) -> None:
        super().__init__(client=client)
        self._report, self._n_done = report, 0

    def effective_n_jobs(self, n_jobs: int) -> int:
        """Return the number of threads of all workers, if more than one process is asked for."""
        return 1 if n_jobs == 1 else super().effective_n_jobs(n_jobs)

    def submit(self, func: Any, callback: Any = None) -> Any:
        """Send a batch of calls to a worker."""
        func.items = [(Alone(call), args, named) for call, args, named in func.items]
        return super().submit(func, callback)

    def retrieve_result_callback(self, out: Any) -> Any:
        """Take the results of a batch."""
        self._n_done += 1
        if self._report is not None:
            self._report(self._n_done)
        return super().retrieve_result_callback(out)


@dataclass(frozen=True)
class Alone:
    """A function whose loops stay in the process that calls it."""

    function: Callable[..., Any]

    @property
    def __name__(self) -> str:
        """What the dashboard calls its tasks."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function, its own parallel parts in order."""
        with parallel_config(backend="sequential"):
            return self.function(*args, **named)
