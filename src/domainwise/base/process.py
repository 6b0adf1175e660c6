"""Parallel jobs, and settings of the process, which overlapping threads change and restore.

No other module changes such settings. OpenMP's number of threads belongs to the calling thread.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from threading import RLock, get_ident
from typing import Any, Protocol, cast

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

from domainwise.base.arrays import available_memory, namespace


class ProcessSetting:
    """A setting that several blocks of code change at the same time.

    A block that ends restores the setting that it found. If later blocks are still running, the
    next one of them restores it instead, so that the last block leaves the original setting.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], Any]) -> None:
        self._read, self._write = read, write
        self._lock = RLock()
        self._previous: dict[object, Any] = {}  # what each running block found, in their order

    @contextmanager
    def changed(self, change: Callable[[bool], Any]) -> Iterator[None]:
        """Call ``change(is_first)`` before the block; ``is_first``: whether no other is running."""
        block = object()
        with self._lock:
            previous = self._read()
            change(not self._previous)
            self._previous[block] = previous
        try:
            yield
        finally:
            with self._lock:
                blocks = [*self._previous, None]
                next_block = blocks[blocks.index(block) + 1]
                previous = self._previous.pop(block)
                if next_block is None:
                    if self._read() != previous:
                        self._write(previous)
                else:
                    self._previous[next_block] = previous


@lru_cache(1)
def _libraries(n_modules: int) -> dict[str, ThreadpoolController]:
    """Return the loaded libraries by API; they are searched again after modules were imported."""
    controller = ThreadpoolController()
    return {api: controller.select(user_api=api) for api in ("blas", "openmp")}


def _blas_threads() -> list[tuple[Any, int]]:
    libraries = _libraries(len(sys.modules))["blas"].lib_controllers
    return [(library, library.num_threads) for library in libraries]


def _set_blas_threads(counts: list[tuple[Any, int]]) -> None:
    for library, n in counts:
        library.set_num_threads(n)


class _Recorder(list[warnings.WarningMessage]):
    """Replaces ``warnings.showwarning``; an outer recorder gets the warnings of other threads."""

    def __init__(self) -> None:
        super().__init__()
        self.thread, self.outer = get_ident(), warnings.showwarning

    def __call__(self, *arguments: Any) -> None:
        if isinstance(self.outer, _Recorder) and get_ident() != self.thread:
            self.outer(*arguments)
        else:
            self.append(warnings.WarningMessage(*arguments))


def _warning_settings() -> tuple[list[Any], Any]:
    return list(warnings.filters), warnings.showwarning


def _set_warnings(settings: tuple[list[Any], Any]) -> None:
    warnings.resetwarnings()  # also makes Python forget which warnings were ignored
    cast("list[Any]", warnings.filters)[:], warnings.showwarning = settings


_BLAS = ProcessSetting(_blas_threads, _set_blas_threads)
_FIELD_SIZE = ProcessSetting(csv.field_size_limit, csv.field_size_limit)
_MATMUL = ProcessSetting(
    lambda: sys.modules["torch"].get_float32_matmul_precision(),
    lambda setting: sys.modules["torch"].set_float32_matmul_precision(setting),
)
_WARNINGS = ProcessSetting(_warning_settings, _set_warnings)
_DRAWING = RLock()


@contextmanager
def filtered_warnings(record: bool = False) -> Iterator[list[warnings.WarningMessage]]:
    """Restore filters after the block, as ``warnings.catch_warnings`` does in a single thread."""
    recorder = _Recorder()

    def change(_: bool) -> None:
        if record:
            warnings.showwarning = cast("Any", recorder)

    with _WARNINGS.changed(change):
        yield recorder


def n_threads() -> int:
    """Return the number of threads that BLAS may use."""
    return max((n for _, n in _blas_threads()), default=1)


@contextmanager
def single_blas_thread(active: bool = True) -> Iterator[None]:
    """Limit BLAS to one thread if ``active``, for example while a thread pool evaluates tiles."""
    with (
        _BLAS.changed(lambda _: _set_blas_threads([(lib, 1) for lib, _ in _blas_threads()]))
        if active
        else nullcontext()
    ):
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread, so that results do not depend on their numbers."""
    with single_blas_thread(), _libraries(len(sys.modules))["openmp"].limit(limits=1):
        yield


@contextmanager
def matmul_precision(X: Any, *, allow_tf32: bool = False) -> Iterator[None]:
    """Multiply float32 tensors in full precision, or in TF32, regardless of torch's settings.

    Products of NumPy arrays are not affected. TF32 is not used while another block is running.
    """
    torch = namespace(X)
    if torch is np:
        yield
        return

    def change(is_first: bool) -> None:
        if is_first or not allow_tf32:
            torch.set_float32_matmul_precision("high" if allow_tf32 else "highest")

    with _MATMUL.changed(change):
        yield


@contextmanager
def csv_field_size(max_characters: int) -> Iterator[None]:
    """Accept fields of at least ``max_characters`` in CSV files."""
    with _FIELD_SIZE.changed(
        lambda _: csv.field_size_limit(max(max_characters, csv.field_size_limit()))
    ):
        yield


@contextmanager
def figure_style(name: str) -> Iterator[None]:
    """Draw figures in a matplotlib style instead of the user's; one thread draws at a time."""
    import matplotlib as mpl
    import matplotlib.style

    with _DRAWING, mpl.rc_context():
        mpl.rcdefaults()
        mpl.style.use(name)
        yield


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
