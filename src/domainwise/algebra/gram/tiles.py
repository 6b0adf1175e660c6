"""Products of a kernel matrix with arrays or tensors, tile by tile, without storing the matrix.

A tile is small enough to stay in the cache between its evaluation and its use. The assignment of
tiles to threads is fixed, and the sums of the threads are added in order. The bits of a result
therefore depend only on the number of threads that BLAS may use, and on whether tiles are evaluated
by NumPy or by Numba (for large matrices, if Numba is installed).

Products of float64 rows can be evaluated in float32 (``float32=True``), which is faster. Sums over
tiles are always in float64. The matrix is not centred; its entries are k - ``kernel.constant``.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.utils import check_array

from domainwise.algebra.kernels.approximations import Basis
from domainwise.algebra.kernels.functions import (
    EXPONENT_ERROR,
    MAX_POLYNOMIAL,
    Kernel,
    Prepared,
    compiled_functions,
    resolve_gamma,
)
from domainwise.base.arrays import Array, cast, is_tensor, namespace, squared_norms
from domainwise.base.inputs import encode_labels, is_continuous, label_array
from domainwise.base.process import matmul_precision, n_threads, single_blas_thread

#: Maximum size of a tile: small enough for the cache of a CPU; large enough to keep a GPU busy.
MAX_TILE_BYTES, CUDA_TILE_BYTES = 2**20, 256 * 2**20
#: Minimum number of entries of a matrix, and maximum degree of a polynomial kernel, for which
#: compiled functions are used.
COMPILED_ENTRIES, MAX_DEGREE = 2**24, 16
#: Maximum size of a tile that is copied into a stored matrix, except for callable kernels, which
#: are called once per tile.
COPIED_TILE_BYTES = 2**18


def tile_side(itemsize: int, max_bytes: int | None = None) -> int:
    """Return the side of a square tile; scikit-learn's ``working_memory`` is an upper limit."""
    tile_bytes = min(float(get_config()["working_memory"]) * 2**20, max_bytes or MAX_TILE_BYTES)
    return max(1, int(np.sqrt(tile_bytes / itemsize)))


def _device_tile_side(X: Any, dtype: Any, max_bytes: int | None = None) -> int:
    """Return the side of a square tile of this dtype on the device of X."""
    is_cuda = str(X.device).startswith("cuda")
    return tile_side(dtype.itemsize, CUDA_TILE_BYTES if is_cuda else max_bytes)


def panels(n: int, panel_rows: int) -> list[slice]:
    """Divide n rows into slices of at most ``panel_rows`` rows."""
    return [slice(i, min(i + panel_rows, n)) for i in range(0, n, panel_rows)]


def upper_tiles(n: int, side: int) -> list[tuple[slice, slice]]:
    """Return the tiles on and above the diagonal of a square matrix, as pairs of slices."""
    return list(combinations_with_replacement(panels(n, side), 2))


def tile_values(
    kernel: Basis, left: Any, right: Any, buffer: Any, *, compiled: bool = False
) -> Any:
    """Return the kernel values of a tile, which are written to ``buffer``."""
    out = buffer[: len(left) * len(right)].reshape(len(left), len(right))
    return kernel.block(left, right, out, compiled=compiled)


def in_threads(
    n_tasks: int, work: Callable[[int, int], Any], *, sequential: bool = False
) -> list[Any]:
    """Run ``work(thread, pool_size)`` in up to ``n_tasks`` threads; return the results in order.

    ``sequential=True`` uses one thread. Pass it for tensors, because torch starts its own threads.
    """
    pool_size = 1 if sequential or n_tasks < 2 else min(n_threads(), n_tasks)
    if pool_size == 1:
        return [work(0, 1)]
    with single_blas_thread(), ThreadPoolExecutor(pool_size) as pool:
        return list(pool.map(lambda t: work(t, pool_size), range(pool_size)))


@dataclass(frozen=True)
class FusedTiles:
    """Rows prepared for compiled functions: scaled, divided into blocks, and cast to one dtype."""

    functions: Any  #: the module :mod:`domainwise.algebra.kernels.compiled`
    formula: int  #: how a tile is evaluated, such as ``functions.INNER``
    pack: Callable[[Array], Array]  #: scales prepared rows and divides them into blocks
    right: Array  #: blocks of rows, prepared as right arguments of the kernel
    left: Array  #: blocks of the same rows, prepared as left arguments of the kernel
    coefs: Array  #: coefficients of a polynomial kernel

    @classmethod
    def plan(cls, kernel: Basis, rows: Prepared, n_left: int, dtype: Any) -> FusedTiles | None:
        """Prepare products with ``n_left`` rows; return None if NumPy has to evaluate the tiles."""
        if not isinstance(kernel, Kernel) or is_tensor(rows.right):
            return None
        if not use_compiled(n_left * len(rows.right)):
            return None
        functions, degree = compiled_functions(), int(kernel.degree)
        uses_differences = kernel.by_differences or kernel.name == "laplacian"
        formula = functions.DIFFERENCES if kernel.by_differences else functions.INNER
        if kernel.name == "laplacian":
            formula = functions.LAPLACIAN
        elif kernel.name == "poly" and degree == kernel.degree and 1 <= degree <= MAX_DEGREE:
            formula = functions.POLYNOMIAL
        elif kernel.name != "rbf":
            return None
        powers = range(degree - 1, 0, -1) if formula == functions.POLYNOMIAL else ()
        coefs = [comb(degree, k) * float(kernel.coef0) ** (degree - k) for k in powers]
        # Differences do not depend on the origin, but are more precise for rows close to it.
        origin = rows.right.mean(axis=0) if uses_differences else 0.0
        scale = sqrt(kernel.gamma) if kernel.name == "rbf" else kernel.gamma

        def pack(X: Array) -> Array:
            if uses_differences:
                X = (X - origin) * scale
            # The last two columns of prepared RBF rows contain norms and ones; blocks omit them.
            is_inner = formula == functions.INNER
            X = np.asarray(X[:, :-2] if is_inner else X, dtype=dtype)
            return np.asarray(functions.pack_rows(X, is_inner))

        right = pack(rows.right)
        left = pack(rows.left) if formula == functions.POLYNOMIAL else right
        return cls(functions, formula, pack, right, left, np.array(coefs, dtype=dtype))

    def add_products(
        self, left: Array, pairs: Array, Z_left: Array, Z_right: Array, out: Array
    ) -> None:
        """Add products of block pairs (and mirrored pairs, unless Z_left is empty) to ``out``."""
        pairs = np.ascontiguousarray(pairs)  # Numba would compile again for another layout
        # Python checks for interrupts between batches, about every tenth of a second.
        for batch in panels(len(pairs), 4096):
            self.functions.multiply(
                left, self.right, self.formula, self.coefs, pairs[batch], Z_left, Z_right, out
            )

    def symmetric_product(self, V: Array) -> Array:
        """Return ``K V`` for the kernel matrix K of the rows."""
        Z = self.functions.pack_thin(V, len(self.right), self.right.dtype)
        pairs = np.column_stack(np.triu_indices(len(self.right)))

        def work(thread: int, pool_size: int) -> Array:
            total = np.zeros(Z.shape)
            self.add_products(self.left, pairs[thread::pool_size], Z, Z, total)
            return total

        total = np.sum(in_threads(len(pairs), work), axis=0)
        return np.asarray(self.functions.unpack_thin(total, len(V)))

    def cross_product(self, prepare: Callable[[slice], Array], n_left: int, V: Array) -> Array:
        """Return ``k(X, rows) V`` for the ``n_left`` rows of X, prepared panel by panel."""
        n_blocks, dtype = len(self.right), self.right.dtype
        Z, block_rows = self.functions.pack_thin(V, n_blocks, dtype), self.functions.BLOCK
        thread_rows = -(-n_left // (n_threads() * block_rows)) * block_rows
        row_panels = panels(n_left, min(8192, thread_rows))
        products = np.empty((n_left, V.shape[1]))

        def work(thread: int, pool_size: int) -> None:
            for panel in row_panels[thread::pool_size]:
                left = self.pack(prepare(panel))
                out = np.zeros((len(left), *Z.shape[1:]))
                pairs = np.argwhere(np.ones((len(left), n_blocks), dtype=bool))
                self.add_products(left, pairs, Z[:0], Z, out)
                products[panel] = self.functions.unpack_thin(out, panel.stop - panel.start)

        in_threads(len(row_panels), work)
        return products


def use_compiled(n_entries: int) -> bool:
    """Return whether compiled functions are installed and worthwhile for this many entries."""
    return n_entries >= COMPILED_ENTRIES and compiled_functions() is not None


def can_use_float32(kernel: Basis, rows: Prepared) -> bool:
    """Return whether float32 products of these float64 rows are faster and precise enough."""
    if rows.left.dtype != np.float64 or kernel.is_product or not isinstance(kernel, Kernel):
        return False
    eps = float(np.finfo(np.float32).eps)
    if kernel.name == "rbf" and not kernel.by_differences:
        # The second-to-last column, -1/2 times the squared norm, bounds the error of exponents.
        return float(np.abs(rows.left[:, -2]).max()) * eps <= EXPONENT_ERROR["float32"]
    if not use_compiled(len(rows.left) ** 2):
        return False
    if kernel.name == "poly":
        max_norms = [float(squared_norms(side).max()) ** 0.5 for side in (rows.left, rows.right)]
        largest_value = (max_norms[0] * max_norms[1] + abs(kernel.coef0)) ** float(kernel.degree)
        return float(kernel.degree).is_integer() and largest_value <= MAX_POLYNOMIAL["float32"]
    return kernel.name in ("rbf", "laplacian")


def product_path(kernel: Basis, rows: Prepared, *, float32: bool = False) -> str:
    """Describe how products are computed and, if kernel values are evaluated, their precision."""
    if kernel.is_product:
        return "feature products"
    n, dtype = len(rows.left), np.float32 if float32 else rows.left.dtype
    fused_tiles = FusedTiles.plan(kernel, Prepared(rows.left[:1], rows.right[:1]), n * n, dtype)
    return f"{'numpy tiles' if fused_tiles is None else 'numba'}, {np.dtype(dtype).name}"


def symmetric_product(kernel: Basis, rows: Prepared, V: Any, *, float32: bool = False) -> Any:
    """Return ``K V`` in float64, where K is the uncentred kernel matrix of the rows.

    Each tile off the diagonal is evaluated once and used twice, the second time transposed.
    """
    if kernel.is_product:
        return thin_product(rows.left, thin_product(rows.right.T, V))
    xp, n = namespace(V), len(rows.left)
    dtype = np.dtype(np.float32) if float32 else rows.left.dtype
    scales = column_scales(V) if dtype == xp.float32 else 1.0
    fused_tiles = FusedTiles.plan(kernel, rows, n, dtype)
    if fused_tiles is not None:
        return fused_tiles.symmetric_product(V / scales) * scales
    V, left, right = cast(V / scales, dtype), cast(rows.left, dtype), cast(rows.right, dtype)
    side = _device_tile_side(V, dtype)
    tiles = upper_tiles(n, side)

    def work(thread: int, pool_size: int) -> Any:
        total = xp.zeros(V.shape, dtype=xp.float64, device=V.device)
        buffer = xp.empty(side * side, dtype=dtype, device=V.device)
        for a, b in tiles[thread::pool_size]:
            tile = tile_values(kernel, left[a], right[b], buffer)
            total[a] += tile @ V[b]
            if a != b:
                total[b] += tile.T @ V[a]
        return total

    with matmul_precision(V):
        return sum(in_threads(len(tiles), work, sequential=is_tensor(V))) * scales


def cross_product(kernel: Basis, X: Any, rows: Prepared, V: Any) -> Any:
    """Return ``k(X, rows) V`` in float64 for the uncentred kernel; X is prepared tile by tile."""
    if kernel.is_product:
        return thin_product(kernel.prepare(X).left, thin_product(rows.right.T, V))
    xp = namespace(V)
    dtype = xp.promote_types(X.dtype, rows.right.dtype)

    def prepare_panel(panel: slice) -> Any:
        return kernel.prepare(cast(X[panel], dtype)).left

    scales = column_scales(V) if dtype == xp.float32 else 1.0
    fused_tiles = FusedTiles.plan(kernel, rows, len(X), dtype)
    if fused_tiles is not None:
        return fused_tiles.cross_product(prepare_panel, len(X), V / scales) * scales
    V, side = cast(V / scales, dtype), _device_tile_side(V, dtype)
    row_panels = panels(len(X), side)
    total = xp.zeros((len(X), V.shape[1]), dtype=xp.float64, device=V.device)

    def work(thread: int, pool_size: int) -> None:
        buffer = xp.empty(side * side, dtype=dtype, device=V.device)
        for a in row_panels[thread::pool_size]:
            left = prepare_panel(a)
            for b in panels(len(rows.right), side):
                total[a] += tile_values(kernel, left, rows.right[b], buffer) @ V[b]

    with matmul_precision(V):
        in_threads(len(row_panels), work, sequential=is_tensor(V))
    return total * scales


def column_scales(V: Any) -> Any:
    """Return the largest absolute value of each column (1 if it is 0), to scale V for float32."""
    largest_values = namespace(V).amax(abs(V), 0)
    return largest_values + (largest_values == 0)


def kernel_matrix(kernel: Kernel, X: Any) -> Any:
    """Return the whole uncentred kernel matrix of X in float64, exactly symmetric."""
    xp, n, rows = namespace(X), len(X), kernel.prepare(X)
    if kernel.is_product:
        rows = Prepared(cast(rows.left, xp.float64), cast(rows.right, xp.float64))
    K = xp.empty((n, n), dtype=xp.float64, device=X.device)
    max_bytes = None if kernel.function or is_tensor(X) else COPIED_TILE_BYTES
    tiles = upper_tiles(n, _device_tile_side(X, rows.left.dtype, max_bytes))
    use_numba = use_compiled(n * n)

    def work(thread: int, pool_size: int) -> None:
        for a, b in tiles[thread::pool_size]:
            tile = kernel.block(rows.left[a], rows.right[b], compiled=use_numba)
            K[a, b] = (tile + tile.T) / 2 if a == b else tile
            if a != b:
                K[b, a] = tile.T

    with matmul_precision(X):
        in_threads(len(tiles), work, sequential=is_tensor(X))
    return K


def thin_product(A: Any, B: Any) -> Any:
    """Return ``A B`` in float64 without a float64 copy of a whole float32 A.

    A product rounded to float32 is not in the column space of K, which would make projections with
    a small ridge inaccurate.
    """
    xp, (n, k) = namespace(A), A.shape
    if A.dtype == xp.float64:
        return A @ B
    slices = panels(max(n, k), 2**16 if is_tensor(A) else 4096)
    if n < k:
        return sum(cast(A[:, a], xp.float64) @ B[a] for a in slices)
    return xp.vstack([cast(A[a], xp.float64) @ B for a in slices])


#: Number of rows in a tile: 1024 x 1024 float64 numbers take 8 MiB, so a few fit into the cache.
TILE_ROWS = 1024

TileFunction = Callable[[slice, slice], NDArray[np.float64]]  #: evaluates the tile (rows, columns)


def centred_inner_products(
    tile_functions: list[TileFunction], n_samples: int, tile_rows: int
) -> NDArray[np.float64]:
    """Return tr(H K_i H K_j) for all pairs of kernels, in one pass over their tiles.

    H subtracts means: tr(H K H L) = sum(K * L) - 2/N (K1)'(L1) + (1'K1)(1'L1)/N^2 for N rows.
    """
    products = np.zeros((len(tile_functions), len(tile_functions)))
    row_sums = np.zeros((len(tile_functions), n_samples))
    for rows, columns in upper_tiles(n_samples, tile_rows):
        kernel_tiles = [evaluate_tile(rows, columns) for evaluate_tile in tile_functions]
        is_off_diagonal = rows != columns
        for i, tile in enumerate(kernel_tiles):
            row_sums[i, rows] += tile.sum(axis=1)
            if is_off_diagonal:
                row_sums[i, columns] += tile.sum(axis=0)
            for j in range(i + 1):
                products[i, j] += (1 + is_off_diagonal) * np.vdot(tile, kernel_tiles[j])
    products += np.tril(products, -1).T
    totals = row_sums.sum(axis=1)
    centred_products: NDArray[np.float64] = (
        products - 2.0 / n_samples * row_sums @ row_sums.T + np.outer(totals, totals) / n_samples**2
    )
    # A constant kernel is zero after centring, up to rounding errors: return exact zeros.
    is_constant = np.diag(centred_products) <= 1e-13 * np.diag(products)
    centred_products[is_constant, :] = centred_products[:, is_constant] = 0.0
    return centred_products


def alignment(inner_products: NDArray[np.float64], i: int, j: int) -> float:
    """Return entry (i, j), tr(K_i K_j), divided by both kernels' norms; 0 if a norm is 0."""
    scale = np.sqrt(max(inner_products[i, i], 0.0) * max(inner_products[j, j], 0.0))
    return float(np.clip(inner_products[i, j] / scale, 0.0, 1.0)) if scale > 0 else 0.0


def kernel_tile(
    values: ArrayLike, name: str, kernel: str, gamma: float | str
) -> tuple[TileFunction, int]:
    """Return a function that evaluates tiles of a kernel matrix, and the number of rows."""
    values = label_array(values, name)
    if kernel == "auto":
        kernel = "rbf" if is_continuous(values) else "delta"
    if kernel == "delta":
        label_codes, _ = encode_labels(values, name)
        return delta_tile(label_codes), len(label_codes)
    if values.ndim == 1 and name != "Z":
        values = values[:, None]
    X = check_array(values, dtype=np.float64, input_name=name)
    # Distances and centred inner products do not depend on the mean; subtract it for precision.
    X = X - X.mean(axis=0)
    if kernel == "linear":
        return (lambda rows, columns: X[rows] @ X[columns].T), len(X)
    try:
        rbf = Kernel("rbf", gamma=resolve_gamma(gamma, "rbf", X)).centred_on(X)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    prepared_rows = rbf.prepare(X)

    def evaluate_tile(rows: slice, columns: slice) -> NDArray[np.float64]:
        # Use k - 1, which is precise even for a tiny gamma: centring removes the constant.
        kernel_values = rbf.block(prepared_rows.left[rows], prepared_rows.right[columns])
        if rows == columns:
            np.fill_diagonal(kernel_values, 0.0)
        return kernel_values

    return evaluate_tile, len(X)


def delta_tile(codes: NDArray[np.intp]) -> TileFunction:
    """Return the tile function of the delta kernel: 1 where labels are equal, else 0."""
    return lambda rows, columns: (codes[rows, None] == codes[None, columns]).astype(np.float64)
