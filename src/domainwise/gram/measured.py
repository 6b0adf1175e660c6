"""Kernel matrices seen tile by tile, as the measures in ``metrics`` need them.

A *tile function* maps two slices of rows to that block of a kernel matrix. Sums over all pairs of
rows are taken over the tiles on and above the diagonal, so nothing of size N x N is ever held.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from domainwise.checks.inputs import is_continuous, label_array
from domainwise.checks.labels import encode
from domainwise.gram.tiles import upper_tiles
from domainwise.kernels.functions import Kernel, resolve_gamma

# Rows of a tile: 1024 x 1024 float64 is 8 MiB, small enough for a few of them to live in cache.
TILE_ROWS = 1024

Tile = Callable[[slice, slice], NDArray[np.float64]]


def centred_inner_products(
    kernels: list[Tile], n_samples: int, block_size: int
) -> NDArray[np.float64]:
    """Matrix of tr(H K_i H K_j) over the given kernels, in one pass over their tiles.

    tr(H K H L) = sum(K * L) - 2/N (K1)'(L1) + (1'K1)(1'L1)/N^2.
    """
    products = np.zeros((len(kernels), len(kernels)))
    row_sums = np.zeros((len(kernels), n_samples))
    for rows, columns in upper_tiles(n_samples, block_size):
        values = [kernel(rows, columns) for kernel in kernels]
        mirrored = rows != columns
        for i, value in enumerate(values):
            row_sums[i, rows] += value.sum(axis=1)
            if mirrored:
                row_sums[i, columns] += value.sum(axis=0)
            for j in range(i + 1):
                products[i, j] += (1 + mirrored) * np.vdot(value, values[j])
    products += np.tril(products, -1).T
    totals = row_sums.sum(axis=1)
    centred: NDArray[np.float64] = (
        products - 2.0 / n_samples * row_sums @ row_sums.T + np.outer(totals, totals) / n_samples**2
    )
    # A constant side leaves only rounding: report it as the exact zero it stands for.
    constant = np.diag(centred) <= 1e-13 * np.diag(products)
    centred[constant, :] = 0.0
    centred[:, constant] = 0.0
    return centred


def alignment(inner: NDArray[np.float64], i: int, j: int) -> float:
    """tr(K_i K_j) over the norms; 0 where a centred kernel vanishes."""
    scale = np.sqrt(max(inner[i, i], 0.0) * max(inner[j, j], 0.0))
    return float(np.clip(inner[i, j] / scale, 0.0, 1.0)) if scale > 0 else 0.0


def kernel_tile(values: ArrayLike, name: str, kernel: str, gamma: float | str) -> tuple[Tile, int]:
    """Return the function that evaluates a tile of the kernel of ``values``, and the row count."""
    values = label_array(values, name)
    if kernel == "auto":
        kernel = "rbf" if is_continuous(values) else "delta"
    if kernel == "delta":
        codes, _ = encode(values, name)
        return delta_tile(codes), len(codes)
    if values.ndim == 1 and name != "Z":
        values = values[:, None]
    X = check_array(values, dtype=np.float64, input_name=name)
    # Distances and centred inner products ignore the mean; small numbers round less.
    X = X - X.mean(axis=0)
    if kernel == "linear":
        return (lambda rows, columns: X[rows] @ X[columns].T), len(X)
    return _rbf_tile(X, _gamma(gamma, X, name)), len(X)


def delta_tile(codes: NDArray[np.intp]) -> Tile:
    """Kernel of labels: 1 where they are equal."""

    def tile(rows: slice, columns: slice) -> NDArray[np.float64]:
        return (codes[rows, None] == codes[None, columns]).astype(np.float64)

    return tile


def _rbf_tile(X: NDArray[np.float64], gamma: float) -> Tile:
    kernel = Kernel("rbf", gamma=gamma).centred_on(X)
    prepared = kernel.prepare(X)

    def tile(rows: slice, columns: slice) -> NDArray[np.float64]:
        # k - 1 in place of k: centring and MMD cancel the constant, and tiny gammas stay exact.
        values = kernel.block(prepared.left[rows], prepared.right[columns])
        if rows == columns:
            np.fill_diagonal(values, 0.0)
        return values

    return tile


def _gamma(gamma: float | str, X: NDArray[np.float64], name: str) -> float:
    try:
        return resolve_gamma(gamma, "rbf", X)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
