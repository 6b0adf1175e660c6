"""Settings of the whole process, which blocks of code in overlapping threads change and restore.

No other module changes them. OpenMP's number of threads belongs to the calling thread.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from threading import RLock, get_ident
from typing import Any, cast

import numpy as np
from threadpoolctl import ThreadpoolController

from domainwise.base.namespace import namespace


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
