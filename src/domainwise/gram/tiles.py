"""Products with a kernel matrix that is never stored: tile by tile, in threads.

A tile is small enough to stay in the cache between its evaluation and its use. Which thread takes
which tile is fixed and the threads' sums are added in order, so the bits of a result depend on the
number of threads alone; that number is the BLAS thread count in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from sklearn import get_config
from threadpoolctl import ThreadpoolController

from domainwise.arrays import Array
from domainwise.kernels.fourier import Basis
from domainwise.kernels.functions import Kernel, Prepared

#: A tile larger than this gains nothing: it no longer fits the cache.
MAX_TILE_BYTES = 4 * 2**20
#: One that is copied, and mirrored, is quickest if small; not a caller's function, called for each.
COPIED_TILE_BYTES = 2**18


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def n_threads() -> int:
    """Return the number of threads BLAS may use here."""
    counts = [lib["num_threads"] for lib in _controller().info() if lib.get("user_api") == "blas"]
    return max(counts, default=1)


def blas_limit(threads: int) -> Any:
    """Limit BLAS in this process until ``restore_original_limits`` of the result is called."""
    return _controller().limit(limits=threads, user_api="blas")


def one_thread() -> Any:
    """Keep BLAS and OpenMP to one thread; looking for the libraries each time would take 5 ms."""
    return _controller().limit(limits=1)


@contextmanager
def single_blas_thread(active: bool = True) -> Iterator[None]:
    """Keep BLAS to one thread while tiles run in threads of their own."""
    if not active:
        yield
        return
    with blas_limit(1):
        yield


def tile_side(itemsize: int, most: int | None = None) -> int:
    """Rows (and columns) of a square tile within scikit-learn's ``working_memory``."""
    budget = min(float(get_config()["working_memory"]) * 2**20, most or MAX_TILE_BYTES)
    return max(1, int(np.sqrt(budget / itemsize)))


def panels(n: int, side: int) -> list[slice]:
    """Cut n rows into slices of at most ``side`` rows."""
    return [slice(i, min(i + side, n)) for i in range(0, n, side)]


def upper_tiles(n: int, side: int) -> list[tuple[slice, slice]]:
    """Tiles on and above the diagonal of a square matrix."""
    return list(combinations_with_replacement(panels(n, side), 2))


def tile_values(kernel: Basis, left: Array, right: Array, buffer: Array) -> Array:
    """Evaluate a tile in memory that is there already."""
    out = buffer[: len(left) * len(right)].reshape(len(left), len(right))
    return np.asarray(kernel.block(left, right, out))


def in_threads(n_tasks: int, work: Callable[[int, int], Any]) -> list[Any]:
    """Run ``work(thread, n_threads)`` for each thread and return the results in order."""
    threads = min(n_threads(), n_tasks) if n_tasks > 1 else 1
    if threads == 1:
        return [work(0, 1)]
    with single_blas_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda t: work(t, threads), range(threads)))


def symmetric_product(kernel: Kernel, rows: Prepared, V: Array) -> Array:
    """Return ``K V`` in float64 for the uncentred kernel of one set of rows.

    Each tile off the diagonal is evaluated once and used for itself and for its mirror image.
    """
    if kernel.is_product:
        return thin_product(rows.left, thin_product(rows.right.T, V))
    n, dtype = len(rows.left), rows.left.dtype
    V = np.ascontiguousarray(V, dtype=dtype)
    side = tile_side(dtype.itemsize)
    tiles = upper_tiles(n, side)

    def work(thread: int, threads: int) -> Array:
        total = np.zeros((n, V.shape[1]))
        buffer = np.empty(side * side, dtype=dtype)
        for a, b in tiles[thread::threads]:
            tile = tile_values(kernel, rows.left[a], rows.right[b], buffer)
            total[a] += tile @ V[b]
            if a != b:
                total[b] += tile.T @ V[a]
        return total

    return np.sum(in_threads(len(tiles), work), axis=0)


def cross_product(kernel: Basis, X: Array, rows: Prepared, V: Array) -> Array:
    """Return ``k(X, rows) V`` in float64 for the uncentred kernel; X is prepared tile by tile."""
    if kernel.is_product:
        return thin_product(kernel.prepare(X).left, thin_product(rows.right.T, V))
    dtype = np.promote_types(X.dtype, rows.right.dtype)
    V = np.ascontiguousarray(V, dtype=dtype)
    side = tile_side(dtype.itemsize)
    cuts = panels(len(X), side)
    total = np.zeros((len(X), V.shape[1]))

    def work(thread: int, threads: int) -> None:
        buffer = np.empty(side * side, dtype=dtype)
        for a in cuts[thread::threads]:
            left = kernel.prepare(X[a].astype(dtype, copy=False)).left
            for b in panels(len(rows.right), side):
                total[a] += tile_values(kernel, left, rows.right[b], buffer) @ V[b]

    in_threads(len(cuts), work)
    return total


def kernel_matrix(kernel: Kernel, rows: Prepared) -> Array:
    """Return the whole uncentred kernel matrix of one set of rows in float64, exactly symmetric."""
    if kernel.is_product:
        rows = Prepared(rows.left.astype(np.float64), rows.right.astype(np.float64))
    n, dtype = len(rows.left), rows.left.dtype
    K = np.empty((n, n))
    side = tile_side(dtype.itemsize, None if kernel.function else COPIED_TILE_BYTES)
    tiles = upper_tiles(n, side)

    def work(thread: int, threads: int) -> None:
        for a, b in tiles[thread::threads]:
            tile = kernel.block(rows.left[a], rows.right[b])
            if a == b:
                np.add(tile, tile.T, out=K[a, a])
                K[a, a] *= 0.5
                continue
            K[a, b] = tile
            K[b, a] = tile.T

    in_threads(len(tiles), work)
    return K


def thin_product(A: Array, B: Array) -> Array:
    """Return ``A B`` in float64 without a float64 copy of a whole float32 A.

    A product of rows in float32 would leave the range of K, which a projection with a small ridge
    does not forgive.
    """
    if A.dtype == np.float64:
        return np.asarray(A @ B)
    if A.shape[0] < A.shape[1]:
        total = np.zeros((A.shape[0], B.shape[1]))
        for a in panels(A.shape[1], 4096):
            total += A[:, a].astype(np.float64) @ B[a]
        return total
    return np.vstack([A[a].astype(np.float64) @ B for a in panels(len(A), 4096)])
