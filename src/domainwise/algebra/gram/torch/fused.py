"""Fused products on CUDA: float16 operands, their scales, and the launch of Triton kernels.

Operands have about 22 significant bits with ``precision("tf32x3")`` and 11 with ``"tf32"``. Both
use float16 *pieces*, which have the 11 bits of TF32 and are twice as fast. A number x is split into
``hi = float16(x)`` and ``lo = float16(x - hi)``, and a product of two numbers into three products,
``hi hi + hi lo + lo hi``. The range of float16 is small, so operands are first scaled by powers of
two. If no common scale fits the data, distances are computed from differences.
"""

from __future__ import annotations

import math
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from domainwise.algebra.gram.tiles import panels
from domainwise.algebra.kernels.functions import Kernel
from domainwise.base.arrays import Array

LOG2E = 1.4426950408889634
#: The number of rows is padded to a multiple of this, so that tiles need no masks.
PAD = 128
#: Kernel values are evaluated as 2^x - 1 if the mean absolute exponent |x| is below this.
SMALL_EXPONENT = 1 / 64
#: If |u|^2/2 is at most this for all rows u, norms are factored out: 2^(u.v) fits into float16.
FACTOR_LIMIT = 7.0
#: Kernel values, at most 1, are multiplied by 2^14, to use more of the range of float16.
LIFT = 14.0
#: Limits for rows in float16: the largest absolute value of all entries is at most MAX_PIECE, and
#: the median over rows of the largest absolute value in a row is at least MIN_MEDIAN.
MAX_PIECE, MIN_MEDIAN = 2.0**10, 2.0**-6
#: Number of rows of a thin matrix (one with few columns) that are split into pieces at a time.
PANEL_ROWS = 2**18
#: Maximum number of columns of a thin matrix in a launch; maximum degree of a polynomial kernel.
MAX_COLUMNS, MAX_DEGREE = 64, 16
#: Maximum number of rows in a segment, over which kernel values are summed in float32.
SEGMENT_ROWS = 16384
#: Maximum number of rows added to pad groups to whole tiles, as a fraction of all rows.
MAX_PADDING = 1 / 8
#: Number of pieces of an operand for each precision; 0 for float32 without pieces.
PIECES = {"tf32": 1, "tf32x3": 2, "ieee": 0}
#: Formulas for kernel values: RBF from inner products, Laplacian, RBF from differences, polynomial.
INNER, LAPLACIAN, DIFFERENCES, POLYNOMIAL = range(4)


@cache
def can_launch(device: Any) -> bool:
    """Return whether Triton can be imported and the device has the required tensor cores."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    with suppress(ImportError):
        import triton

        return triton is not None
    return False


def can_fuse(kernel: Kernel, X: Any) -> bool:
    """Return whether the fused Triton kernel supports this kernel and these rows."""
    if X.dtype != torch.float32 or not can_launch(X.device):
        return False
    if kernel.name == "poly":
        return float(kernel.degree).is_integer() and 1 <= kernel.degree <= MAX_DEGREE
    return kernel.name in ("rbf", "laplacian")


@dataclass(frozen=True)
class Tile:
    """Tile size and other launch parameters; accumulators are flushed every ``flush`` rows."""

    rows: int = 64
    columns: int = 64
    warps: int = 4
    stages: int = 3
    flush: int = 1024


def tile_for(R: int, P: int, n_pieces: int, formula: int) -> Tile:
    """Return the tile that was fastest on an H200 for R columns and P features, both padded."""
    if n_pieces == 0:
        return Tile(stages=2)
    if formula in (LAPLACIAN, DIFFERENCES):
        return Tile(128, warps=8, stages=2)
    if n_pieces == 2 and R >= 32:
        return Tile(128, warps=8, stages=3 if P <= 64 else 2)
    return Tile()


class Side(NamedTuple):
    """Rows as the fused kernel reads them; ``n`` is their number without padding."""

    n: int
    rows: Any
    half_norms: Any  #: half the squared norms


class FusedKernel:
    """A kernel between two sets of float32 rows, prepared to multiply thin matrices.

    Products sum over the rows of ``right``; the result has one row for each row of ``left``, which
    is ``right`` by default.
    """

    def __init__(self, kernel: Kernel, right: Any, left: Any = None, *, precision: str) -> None:
        self.kernel, self.p = kernel, right.shape[1]
        self.n_pieces, self.degree = PIECES[precision], 1
        # Whether norms are factored out, and whether kernel values are evaluated as 2^x - 1.
        self.is_factored = self.uses_exp2m1 = False
        # Factors by which rows, their inner products and kernel values are multiplied.
        self.row_scale = self.product_scale = self.value_scale = 1.0
        # The number added to exponents, and the number subtracted from kernel values.
        self.lift = self.typical_value = 0.0
        self.coefs = torch.zeros(1, device=right.device)
        scaled_right = self._scale_rows(right)
        scaled_left = scaled_right if left is None else self._scale_rows(left)
        if kernel.name == "rbf" and not kernel.by_differences:
            self.formula = INNER
            self._plan_inner(scaled_right, scaled_left)
        elif kernel.name == "poly":
            self.formula = POLYNOMIAL
            self._plan_polynomial(scaled_right, scaled_left)
        else:
            self.formula = LAPLACIAN if kernel.name == "laplacian" else DIFFERENCES
        if self.formula == DIFFERENCES and not kernel.by_differences:
            # -gamma d^2 = -|u - v|^2 for u = sqrt(gamma) x; inner products use sqrt(2 gamma) x.
            scaled_right = scaled_right / math.sqrt(2.0)
            scaled_left = scaled_right if left is None else scaled_left / math.sqrt(2.0)
        if self.formula in (LAPLACIAN, DIFFERENCES):
            self._plan_differences(scaled_right, scaled_left)
        if self.is_factored:
            self.typical_value = 1.0
        elif self.formula != POLYNOMIAL and not self.uses_exp2m1:
            self.lift = LIFT
            self.typical_value = 2.0 ** (LIFT - self.mean_exponent)
        # The number of features p, padded to a size that tl.dot accepts.
        self.padded_p = next((w for w in (16, 32, 64) if self.p <= w), -(-self.p // 64) * 64)
        self.right = self._side(scaled_right)
        self.left = self.right if left is None else self._side(scaled_left)

    def _scale_rows(self, X: Any) -> Any:
        """Return rows minus the origin, scaled so that an exponential kernel is a power of 2."""
        kernel = self.kernel
        X = kernel.subtract_origin(X)
        if kernel.name == "laplacian":
            return X * (kernel.gamma * LOG2E)
        if kernel.name == "rbf":
            factor = 1.0 if kernel.by_differences else 2.0
            return X * math.sqrt(factor * kernel.gamma * LOG2E)
        return X * math.sqrt(kernel.gamma) if kernel.gamma > 0 else X

    def _float16_scale(self, right: Any, left: Any) -> float | None:
        """Return a power of two that scales rows to the range of float16, or None if none does."""
        if not self.n_pieces:
            return 1.0
        largest_value = max(float(right.abs().max()), float(left.abs().max()))
        median_row_maximum = float(right.abs().amax(1).median())
        if largest_value == 0 or (largest_value <= MAX_PIECE and median_row_maximum >= MIN_MEDIAN):
            return 1.0
        scale = 2.0 ** math.floor(math.log2(MAX_PIECE / largest_value))
        return scale if median_row_maximum * scale >= MIN_MEDIAN else None

    def _plan_inner(self, right: Any, left: Any) -> None:
        right_half_norms, left_half_norms = (0.5 * X.square().sum(1) for X in (right, left))
        self.mean_exponent = 2 * float(right_half_norms.mean())
        self.uses_exp2m1 = self.mean_exponent < SMALL_EXPONENT
        max_half_norm = max(float(right_half_norms.max()), float(left_half_norms.max()))
        scale = self._float16_scale(right, left)
        if scale is None:
            self.formula = DIFFERENCES
            return
        self.is_factored = scale == 1.0 and max_half_norm <= FACTOR_LIMIT and not self.uses_exp2m1
        self.product_scale, self.row_scale = 1.0 / scale**2, scale
        if self.uses_exp2m1:
            self.value_scale = _scale_to_one(min(1.0, 4 * max_half_norm))

    def _plan_polynomial(self, right: Any, left: Any) -> None:
        d, c = int(self.kernel.degree), float(self.kernel.coef0)
        coefs = [math.comb(d, k) * c ** (d - k) for k in range(d - 1, 0, -1)]
        self.degree, self.coefs = d, torch.tensor(coefs or [0.0], device=right.device)
        scale = self._float16_scale(right, left)
        if scale is None:
            self.n_pieces, scale = 0, 1.0
        factor = 1.0 if self.kernel.gamma >= 0 else self.kernel.gamma
        self.product_scale, self.row_scale = factor / scale**2, scale
        max_product = abs(factor) * float(right.norm(dim=1).max()) * float(left.norm(dim=1).max())
        self.value_scale = _scale_to_one((max_product + abs(c)) ** d) * 2.0**10

    def _plan_differences(self, right: Any, left: Any) -> None:
        centred_rows = right - right.mean(0)
        max_differences = right.abs().amax(0) + left.abs().amax(0)  # an upper bound in each column
        if self.formula == LAPLACIAN:
            mean_exponent = float(centred_rows.abs().mean(0).sum())
            max_exponent = float(max_differences.sum())
        else:
            mean_exponent = 2 * float(centred_rows.square().mean(0).sum())
            max_exponent = float(max_differences.square().sum())
        self.mean_exponent, self.uses_exp2m1 = mean_exponent, mean_exponent < SMALL_EXPONENT
        if self.uses_exp2m1:
            self.value_scale = _scale_to_one(min(1.0, max_exponent))

    def _side(self, X: Any) -> Side:
        n, n_padded = len(X), -(-len(X) // PAD) * PAD
        half_norms = torch.zeros(n_padded, device=X.device)
        if self.formula in (LAPLACIAN, DIFFERENCES):
            rows = torch.zeros((self.p, n_padded), device=X.device)
            rows[:, :n] = X.T
            return Side(n, rows, half_norms)
        X = X * self.row_scale
        dtype = torch.float16 if self.n_pieces else torch.float32
        shape = (n_padded, max(self.n_pieces, 1), self.padded_p)
        rows = torch.zeros(shape, dtype=dtype, device=X.device)
        split_pieces(X, rows.transpose(0, 1)[:, :n, : self.p])
        if self.n_pieces == 1:
            # Use the norms of the rounded rows, so that distances are consistent.
            X = rows[:n, 0].float()
        half_norms[:n] = (0.5 * self.product_scale) * X.square().sum(1)
        return Side(n, rows, half_norms)

    def product(self, V: Any, *, tile: Tile | None = None) -> Any:
        """Return ``(k(left, right) - kernel.constant) V`` in float64."""
        out = torch.empty((self.left.n, V.shape[1]), dtype=torch.float64, device=V.device)
        for columns in panels(V.shape[1], MAX_COLUMNS):
            out[:, columns] = self._launch(V[:, columns], tile)
        return out

    def _launch(self, V: Any, tile: Tile | None) -> Any:
        from domainwise.algebra.gram.torch.triton_kernel import fused_product

        r = V.shape[1]
        min_columns = 1 if r == 1 else 8 if self.n_pieces == 2 else 16
        R = max(min_columns, 1 << (r - 1).bit_length())
        tile = tile or tile_for(R, self.padded_p, self.n_pieces, self.formula)
        Z, scales, weighted_sums = self._split_thin(V, R)
        n_blocks, n_right = len(self.left.half_norms) // tile.rows, len(self.right.half_norms)
        n_chunks = chunk_count(n_blocks, n_right // tile.columns)
        chunk_rows = -(-n_right // (n_chunks * tile.columns)) * tile.columns
        grid = (n_blocks, -(-n_right // chunk_rows))
        out = self.launch(fused_product, grid, [Z], [chunk_rows], R, tile, FLUSH=tile.flush)
        return self._unscale(out, r, scales, weighted_sums, V.sum(0))

    def launch(
        self, function: Any, grid: Any, operands: Any, sizes: Any, R: int, tile: Tile, **meta: Any
    ) -> Any:
        """Run a Triton kernel on a grid (blocks of left rows, chunks of right rows).

        It takes rows, norms, ``operands``, output, coefs, row counts, ``sizes`` and scales.
        """
        left, right = self.left, self.right
        sides = (left.rows, right.rows, left.half_norms, right.half_norms)
        row_counts = (len(left.half_norms), len(right.half_norms), *sizes)
        scalars = (self.product_scale, self.value_scale, self.lift, self.typical_value)
        is_inner = self.formula in (INNER, POLYNOMIAL)
        meta |= {"FORMULA": self.formula, "PIECES": self.n_pieces, "FACTORED": self.is_factored}
        meta |= {"EXP2M1": self.uses_exp2m1, "DEGREE": self.degree, "R": R}
        meta |= {"P": self.padded_p if is_inner else self.p, "BM": tile.rows, "BN": tile.columns}
        meta |= {"BK": min(64, self.padded_p) if is_inner else 16}
        meta |= {"num_warps": tile.warps, "num_stages": tile.stages}
        out = torch.empty((grid[1], len(left.half_norms), R), device=left.half_norms.device)
        # Under Triton's interpreter, there is no CUDA device to select.
        with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
            function[grid](*sides, *operands, out, self.coefs, *row_counts, *scalars, **meta)
        return out

    def _unscale(self, out: Any, r: int, scales: Any, weighted_sums: Any, column_sums: Any) -> Any:
        """Return products with ``k - constant``: add the chunks in ``out``, and undo the scaling.

        To correct for the subtracted ``typical_value``, pass the column sums of the multiplied
        matrix, weighted by the factors of the norms (``weighted_sums``) and unweighted.
        """
        n = self.left.n
        products = out[0, :n, :r].double()
        for chunk in out[1:, :n, :r]:
            products += chunk
        products *= 1.0 / (scales * (self.value_scale * 2.0**self.lift))
        if self.is_factored:
            products += weighted_sums
            products *= torch.exp2(-self.left.half_norms[:n].double())[:, None]
            products -= column_sums
        elif self.lift:
            products += (self.typical_value / 2.0**self.lift - 1.0) * column_sums
        return products

    def _split_thin(self, V: Any, R: int) -> tuple[Any, Any, Any]:
        """Return V scaled, padded and split into pieces; the scales; and weighted column sums."""
        (n, r), device = V.shape, V.device
        weights = None
        if self.is_factored:
            weights = torch.exp2(-self.right.half_norms[:n].to(V.dtype))[:, None]
        weighted_sums = V.sum(0) if weights is None else (weights.T @ V)[0]
        scales = torch.ones(r, dtype=torch.float64, device=device)
        if self.n_pieces and R > 1:
            maxima = torch.linalg.vector_norm(V, ord=math.inf, dim=0)
            scales = torch.exp2(-torch.floor(torch.log2(torch.where(maxima > 0, maxima, 1.0))))
        n_pieces = self.n_pieces if R > 1 else 0
        dtype = torch.float16 if n_pieces else torch.float32
        shape = (len(self.right.half_norms), max(n_pieces, 1), R)
        Z = torch.zeros(shape, dtype=dtype, device=device)
        # Panels avoid a scaled copy of the whole V.
        for rows in panels(n, PANEL_ROWS):
            panel = V[rows] * scales
            if weights is not None:
                panel *= weights[rows]
            split_pieces(panel, Z[rows].transpose(0, 1)[:, :, :r])
        return Z, scales, weighted_sums


def split_pieces(X: Any, out: Any) -> None:
    """Split X into pieces whose sum approximates X, and write them to ``out``."""
    for piece in out:
        piece.copy_(X)
        X = X - piece


def chunk_count(n_blocks: int, n_tiles: int) -> int:
    """Return the number of chunks into which to divide the right rows, to keep the device busy."""
    return max(1, min(-(-4096 // n_blocks), n_tiles // 8, 256))


def _scale_to_one(x: float) -> float:
    """Return a power of two that scales x > 0 to between 1/2 and 1; 1 for zero and infinity."""
    return 2.0 ** -math.ceil(math.log2(x)) if 0 < x < math.inf else 1.0


#: Tile of :class:`GroupedProduct`.
GROUP_TILE = Tile()


class GroupedProduct:
    """The product ``(K - constant) group_values[group_codes]`` with the kernel matrix K of X.

    ``group_codes`` contains the group of each row, 0 ... G - 1.
    """

    def __init__(
        self, kernel: Kernel, X: Any, group_codes: Any, group_sizes: Array, *, precision: str
    ) -> None:
        group_sizes = group_sizes.astype(np.int64)
        n_tiles = -(-group_sizes // GROUP_TILE.columns)
        ends = np.cumsum(n_tiles) * GROUP_TILE.columns
        starts = ends - n_tiles * GROUP_TILE.columns
        order = group_codes.argsort(stable=True)
        # Row i in group order moves to starts[g] + i - (number of rows before its group g).
        shifts = torch.from_numpy(starts - (np.cumsum(group_sizes) - group_sizes)).to(X.device)
        positions = torch.arange(len(X), device=X.device) + shifts[group_codes[order]]
        source_rows = torch.zeros(int(ends[-1]), dtype=torch.int64, device=X.device)
        source_rows[positions] = order
        self.fused = FusedKernel(kernel, X[source_rows], X, precision=precision)
        self.weights = torch.zeros(len(self.fused.right.half_norms), device=X.device)
        self.weights[positions] = 1.0
        if self.fused.is_factored:
            self.weights *= torch.exp2(-self.fused.right.half_norms)
        self.group_sizes = torch.from_numpy(group_sizes).to(X.device).double()
        self.group_weights = torch.zeros_like(self.group_sizes).index_add_(
            0, group_codes[order], self.weights[positions].double()
        )
        n_blocks = len(self.fused.left.half_norms) // GROUP_TILE.rows
        n_chunks = chunk_count(n_blocks, int(n_tiles.sum()))
        segments, chunk_bounds = _divide_groups(starts, ends, -(-int(ends[-1]) // n_chunks))
        self.segments = torch.from_numpy(segments).to(X.device)
        self.chunk_bounds = torch.from_numpy(chunk_bounds).to(X.device)
        self.grid = (n_blocks, len(chunk_bounds) - 1)

    def product(self, group_values: Array) -> Any:
        """Return the product; ``group_values`` has one row per group."""
        matrix = torch.from_numpy(np.array(group_values, dtype=np.float64)).to(self.weights.device)
        return torch.cat([self._launch(columns) for columns in matrix.split(MAX_COLUMNS, 1)], 1)

    def _launch(self, group_values: Any) -> Any:
        from domainwise.algebra.gram.torch.triton_kernel import fused_group_product

        r = group_values.shape[1]
        R = 1 << (r - 1).bit_length()
        padded_values = torch.zeros((len(group_values), R), device=group_values.device)
        padded_values[:, :r] = group_values
        operands = [self.weights, padded_values, self.segments, self.chunk_bounds]
        out = self.fused.launch(fused_group_product, self.grid, operands, [], R, GROUP_TILE)
        scales = torch.ones(r, dtype=torch.float64, device=group_values.device)
        weighted_sums = self.group_weights @ group_values
        return self.fused._unscale(out, r, scales, weighted_sums, self.group_sizes @ group_values)


def _divide_groups(starts: Array, ends: Array, chunk_rows: int) -> tuple[Array, Array]:
    """Divide groups into segments of at most ``SEGMENT_ROWS`` rows, each within one chunk.

    Return (start, stop, group) for each segment, and the bounds that divide segments into chunks.
    """
    chunk_rows = -(-chunk_rows // GROUP_TILE.columns) * GROUP_TILE.columns
    segments: list[tuple[int, int, int]] = []
    chunk_bounds = [0]
    for group, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        while start < end:
            chunk_end = len(chunk_bounds) * chunk_rows
            stop = min(end, start + SEGMENT_ROWS, chunk_end)
            segments.append((start, stop, group))
            if stop == chunk_end:
                chunk_bounds.append(len(segments))
            start = stop
    if chunk_bounds[-1] != len(segments):
        chunk_bounds.append(len(segments))
    return np.array(segments, dtype=np.int32).reshape(-1), np.array(chunk_bounds, dtype=np.int32)
