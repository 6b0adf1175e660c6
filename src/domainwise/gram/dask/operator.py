"""The exact operator on Dask: products over pairs of row blocks as a task graph.

Thin matrices (N rows, few columns) are NumPy arrays on the client; the rows of X and all kernel
values stay on workers. A task multiplies by one block of K, tile by tile, and adds the products to
the running sums of two row blocks. Pairs are scheduled like a round-robin tournament: the tasks of
a round are independent, each row block has one running sum, and the order of additions is fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.gram import tiles
from domainwise.gram.dask.graphs import (
    Task,
    call,
    constant,
    fetch,
    memory_per_task,
    run,
    task,
    tree,
)
from domainwise.gram.iterative import (
    IterativeGram,
    LandmarkFeatures,
    Preconditioner,
    landmark_rows,
    whitened_moments,
)
from domainwise.kernels.fourier import Basis
from domainwise.kernels.functions import Kernel
from domainwise.labels.factors import RowLabels

#: Maximum number of rows in a block, so that a failed task does not take long to repeat.
MAX_BLOCK_ROWS = 16_384
#: Minimum number of blocks, so that several workers share the work even if X is small.
MIN_BLOCKS = 8
#: Fraction of a task's memory for its two blocks of rows and all arrays computed from them.
MEMORY_SHARE = 1 / 8
#: Number of columns of thin matrices for which memory is reserved in addition to the blocks.
THIN_COLUMNS = 64


class DaskGram(IterativeGram):
    """Centred Gram matrix of the rows of a Dask array whose chunk sizes are known.

    Each product computes X and evaluates the kernel again, block by block.
    """

    def __init__(self, X: Any, kernel: Kernel, labels: RowLabels, **options: Any) -> None:
        super().__init__(in_blocks(X), kernel, labels, **options)
        self.block_slices = block_slices(self.X)
        self.info = {"n_blocks": len(self.block_slices), "block_rows": self.X.chunksize[0]}

    def uncentred_product(self, V: Array) -> Array:
        """Return ``K V``, computed block by block on the workers."""
        kernel_task, blocks = constant(self.kernel, "kernel"), row_blocks(self.X)
        thin_blocks = self.split(V)
        operands = list(zip(blocks, thin_blocks, strict=True))
        if self.kernel.is_product:
            total = tree([call(_right_product, kernel_task, *pair) for pair in operands], _add)
            return np.vstack(run([call(_left_product, kernel_task, b, total) for b in blocks]))
        sums = [call(_diagonal_product, kernel_task, *pair) for pair in operands]
        for i, j in chain(*tournament(len(blocks))):
            arguments = (blocks[i], blocks[j], thin_blocks[i], thin_blocks[j], sums[i], sums[j])
            sums[i], sums[j] = call(_add_pair, kernel_task, *arguments, n_results=2)
        return np.vstack(run(sums))

    def split(self, V: Array) -> list[Task]:
        """Return the rows of a thin matrix as tasks, one for each block."""
        return [constant(np.ascontiguousarray(V[rows]), "thin") for rows in self.block_slices]

    @cached_property
    def _preconditioner(self) -> Preconditioner:
        """A preconditioner whose features are evaluated by workers and not stored."""
        eps = float(np.finfo(self.dtype).eps)
        landmarks = fetch(self.X[landmark_rows(self.n_samples, self.seed)])
        nystrom = LandmarkFeatures(self.kernel, landmarks, eps)

        def call_on_blocks(function: Callable[..., Any], *operands: list[Task]) -> list[Task]:
            """Return tasks ``function(nystrom, block, *operands)``, one per block of rows."""
            nystrom_task = constant(nystrom, "landmarks")
            block_operands = zip(row_blocks(self.X), *operands, strict=True)
            return [call(function, nystrom_task, *args) for args in block_operands]

        (moments,) = run([tree(call_on_blocks(_moments), _add)])
        mean, eigenvalues, root = whitened_moments(moments, self.n_samples, eps)

        def project(R: Array) -> Array:
            (products,) = run([tree(call_on_blocks(_project, self.split(R)), _add)])
            return np.asarray(root.T @ (products - np.outer(mean, R.sum(axis=0))))

        def expand(W: Array) -> Array:
            weights = root @ W
            weight_tasks = [constant(weights, "weights")] * len(self.block_slices)
            return np.vstack(run(call_on_blocks(_expand, weight_tasks))) - mean @ weights

        return Preconditioner(eigenvalues, project, expand)


def in_blocks(X: Any) -> Any:
    """Rechunk a Dask array into blocks of rows, several of which fit into a task's memory."""
    n, p = X.shape
    block_rows = min(MAX_BLOCK_ROWS, max(1, -(-n // MIN_BLOCKS)))
    memory_bytes = memory_per_task()
    if memory_bytes is not None:
        # Two blocks are in memory, with their left and right prepared rows, thin matrices and sums.
        row_bytes = 2 * (X.dtype.itemsize * 3 * (p + 2) + 8 * 3 * THIN_COLUMNS)
        block_rows = min(block_rows, max(256, int(memory_bytes * MEMORY_SHARE / row_bytes)))
    return X.rechunk({0: block_rows, 1: -1})


def block_slices(X: Any) -> list[slice]:
    """Return one slice for each block: the rows of X that it contains."""
    ends = np.cumsum(X.chunks[0])
    return [slice(int(end - size), int(end)) for end, size in zip(ends, X.chunks[0], strict=True)]


def row_blocks(X: Any) -> list[Task]:
    """Return one task per block of X, which computes and checks the block."""
    blocks = X.to_delayed().ravel()
    return [call(_check_block, *pair) for pair in zip(blocks, block_slices(X), strict=True)]


def tournament(n: int) -> list[list[tuple[int, int]]]:
    """Return rounds of pairs in which each of n players meets every other player once.

    >>> tournament(4)
    [[(0, 3), (1, 2)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]
    """
    players = [*range(n), *([-1] if n % 2 else [])]
    n_pairs, rounds = len(players) // 2, []
    for _ in range(len(players) - 1):
        pairs = zip(players[:n_pairs], reversed(players[n_pairs:]), strict=True)
        rounds.append(sorted((min(pair), max(pair)) for pair in pairs if -1 not in pair))
        players = [players[0], players[-1], *players[1:-1]]
    return rounds


def cross_tasks(kernel: Basis, row_tasks: list[Task], support: Any, dual: Array) -> list[Task]:
    """Return one task for each of ``row_tasks``, which computes ``k(rows, support) dual``."""
    support = in_blocks(support)
    blocks, kernel_task = row_blocks(support), constant(kernel, "kernel")
    dual_tasks = [constant(np.ascontiguousarray(dual[s]), "dual") for s in block_slices(support)]
    sums: list[Task] = [None] * len(row_tasks)
    for pair in zip(blocks, dual_tasks, strict=True):
        rows_and_sums = zip(row_tasks, sums, strict=True)
        sums = [call(_add_cross, kernel_task, rows, *pair, total) for rows, total in rows_and_sums]
    return sums


def cross_in_memory(kernel: Basis, X: Array, support: Any, dual: Array) -> Array:
    """Return ``k(X, support) dual`` for X in memory and support rows on Dask."""
    return np.asarray(run(cross_tasks(kernel, [constant(X, "rows")], support, dual))[0])


@task
def _check_block(block: Any, rows: slice) -> Array:
    X = np.asarray(block)
    if len(X) != rows.stop - rows.start:
        raise ValueError(
            f"the chunk of X for rows {rows.start} to {rows.stop - 1} has {len(X)} rows. Call "
            "X.compute_chunk_sizes() after creating X."
        )
    if not np.isfinite(X).all():
        raise ValueError(
            f"rows {rows.start} to {rows.stop - 1}: Input X contains NaN or infinity. Impute such "
            "values, or remove the rows that contain them."
        )
    return X


@task
def _diagonal_product(kernel: Kernel, rows: Array, V: Array) -> Array:
    return tiles.symmetric_product(kernel, kernel.prepare(rows), V)


@task
def _add_pair(
    kernel: Kernel, left: Array, right: Array, V: Array, W: Array, left_sum: Array, right_sum: Array
) -> tuple[Array, Array]:
    """Add ``k(left, right) W`` to the left sum, and ``k(right, left) V`` to the right sum."""
    left, right = kernel.prepare(left).left, kernel.prepare(right).right
    dtype = left.dtype
    V, W = V.astype(dtype, copy=False), W.astype(dtype, copy=False)
    left_sum, right_sum = left_sum.copy(), right_sum.copy()
    side, use_numba = tiles.tile_side(dtype.itemsize), tiles.use_compiled(len(left) * len(right))
    buffer = np.empty(side * side, dtype=dtype)
    for i in tiles.panels(len(left), side):
        for j in tiles.panels(len(right), side):
            tile = tiles.tile_values(kernel, left[i], right[j], buffer, compiled=use_numba)
            left_sum[i] += tile @ W[j]
            right_sum[j] += tile.T @ V[i]
    return left_sum, right_sum


@task
def _add_cross(kernel: Basis, X: Array, support: Array, dual: Array, total: Array | None) -> Array:
    product = tiles.cross_product(kernel, X, kernel.prepare(support), dual)
    return product if total is None else total + product


@task
def _right_product(kernel: Kernel, rows: Array, V: Array) -> Array:
    return tiles.thin_product(kernel.prepare(rows).right.T, V)


@task
def _left_product(kernel: Kernel, rows: Array, right_product: Array) -> Array:
    return tiles.thin_product(kernel.prepare(rows).left, right_product)


@task
def _moments(nystrom: LandmarkFeatures, rows: Array) -> Array:
    return np.asarray(nystrom.moments(rows))


@task
def _project(nystrom: LandmarkFeatures, rows: Array, R: Array) -> Any:
    return sum(features.T @ R[panel] for panel, features in nystrom.panels(rows))


@task
def _expand(nystrom: LandmarkFeatures, rows: Array, weights: Array) -> Array:
    return np.vstack([features @ weights for _, features in nystrom.panels(rows)])


@task
def _add(arrays: list[Array]) -> Array:
    return np.asarray(sum(arrays[1:], start=arrays[0]))
