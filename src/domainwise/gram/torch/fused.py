"""Fused products on CUDA: float16 operands, their scales, and the launch of Triton kernels.

Operands have about 22 significant bits with ``precision("tf32x3")`` and 11 with ``"tf32"``. Both
use float16 *pieces*, which have the 11 bits of TF32 at twice the speed. A number x is split into
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

from domainwise.arrays import Array
from domainwise.gram.tiles import panels
from domainwise.kernels.functions import Kernel

LOG2E = 1.4426950408889634
#: The number of rows is padded to a multiple of this, so that tiles need no masks.
PAD = 128
#: Kernel values are evaluated as 2^x - 1 if the mean absolute exponent |x| is below this.
SMALL_EXPONENT = 1 / 64
#: If |x|^2/2 is at most this for all rows, 2^(x.y) fits into float16, and norms are factored out.
FACTOR_LIMIT = 7.0
#: Kernel values, at most 1, are multiplied by 2^14, to use more of the range of float16.
LIFT = 14.0
#: Rows are split into float16 pieces if their largest absolute values have at most this maximum
#: and at least this median.
MAX_PIECE, MIN_MEDIAN = 2.0**10, 2.0**-6
#: Number of rows of a thin matrix (one with few columns) that are split into pieces at a time.
PANEL_ROWS = 2**18
#: Maximum number of columns of a thin matrix in one launch, and degree of a polynomial kernel.
MAX_COLUMNS, MAX_DEGREE = 64, 16
#: Maximum number of rows in a segment, over which kernel values are summed in float32.
SEGMENT_ROWS = 16384
#: Maximum number of rows added to pad groups to whole tiles, as a fraction of all rows.
MAX_PADDING = 1 / 8
#: Number of pieces of an operand for each precision; 0 for float32 without pieces.
PIECES = {"tf32": 1, "tf32x3": 2, "ieee": 0}
#: Formulas for kernel values: RBF from inner products, L1 distances, RBF from differences, powers.
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
        self.pieces, self.degree = PIECES[precision], 1
        # Whether norms are factored out, and whether kernel values are evaluated as 2^x - 1.
        self.factored = self.accurate = False
        # Factors by which rows, their inner products and kernel values are multiplied.
        self.scale = self.unscale = self.value_scale = 1.0
        # Numbers that are added to exponents and subtracted from kernel values, respectively.
        self.lift = self.middle = 0.0
        self.coefs = torch.zeros(1, device=right.device)
        U = self._scaled(right)
        V = U if left is None else self._scaled(left)
        if kernel.name == "rbf" and not kernel.by_differences:
            self.formula = INNER
            self._plan_inner(U, V)
        elif kernel.name == "poly":
            self.formula = POLYNOMIAL
            self._plan_polynomial(U, V)
        else:
            self.formula = LAPLACIAN if kernel.name == "laplacian" else DIFFERENCES
        if self.formula == DIFFERENCES and not kernel.by_differences:
            # -gamma d^2 = -|u - v|^2 for u = sqrt(gamma) x; inner products use sqrt(2 gamma) x.
            U = U / math.sqrt(2.0)
            V = U if left is None else V / math.sqrt(2.0)
        if self.formula in (LAPLACIAN, DIFFERENCES):
            self._plan_differences(U, V)
        if self.factored:
            self.middle = 1.0
        elif self.formula != POLYNOMIAL and not self.accurate:
            self.lift = LIFT
            self.middle = 2.0 ** (LIFT - self.mean_exponent)
        # Number of features, padded to a size that tl.dot accepts.
        self.width = next((w for w in (16, 32, 64) if self.p <= w), -(-self.p // 64) * 64)
        self.right = self._side(U)
        self.left = self.right if left is None else self._side(V)

    def _scaled(self, X: Any) -> Any:
        """Return rows minus the origin, scaled so that an exponential kernel is a power of 2."""
        kernel = self.kernel
        X = kernel.subtract_origin(X)
        if kernel.name == "laplacian":
            return X * (kernel.gamma * LOG2E)
        if kernel.name == "rbf":
            factor = 1.0 if kernel.by_differences else 2.0
            return X * math.sqrt(factor * kernel.gamma * LOG2E)
        return X * math.sqrt(kernel.gamma) if kernel.gamma > 0 else X

    def _float16_scale(self, U: Any, V: Any) -> float | None:
        """Return a power of two that scales rows to the range of float16, or None."""
        if not self.pieces:
            return 1.0
        largest_value = max(float(U.abs().max()), float(V.abs().max()))
        median_value = float(U.abs().amax(1).median())
        if largest_value == 0 or (largest_value <= MAX_PIECE and median_value >= MIN_MEDIAN):
            return 1.0
        scale = 2.0 ** math.floor(math.log2(MAX_PIECE / largest_value))
        return scale if median_value * scale >= MIN_MEDIAN else None

    def _plan_inner(self, U: Any, V: Any) -> None:
        half_U, half_V = (0.5 * W.square().sum(1) for W in (U, V))
        self.mean_exponent = 2 * float(half_U.mean())
        self.accurate = self.mean_exponent < SMALL_EXPONENT
        max_half_norm = max(float(half_U.max()), float(half_V.max()))
        scale = self._float16_scale(U, V)
        if scale is None:
            self.formula = DIFFERENCES
            return
        self.factored = scale == 1.0 and max_half_norm <= FACTOR_LIMIT and not self.accurate
        self.unscale, self.scale = 1.0 / scale**2, scale
        if self.accurate:
            self.value_scale = _scale_to_one(min(1.0, 4 * max_half_norm))

    def _plan_polynomial(self, U: Any, V: Any) -> None:
        d, c = int(self.kernel.degree), float(self.kernel.coef0)
        coefs = [math.comb(d, k) * c ** (d - k) for k in range(d - 1, 0, -1)]
        self.degree, self.coefs = d, torch.tensor(coefs or [0.0], device=U.device)
        scale = self._float16_scale(U, V)
        if scale is None:
            self.pieces, scale = 0, 1.0
        factor = 1.0 if self.kernel.gamma >= 0 else self.kernel.gamma
        self.unscale, self.scale = factor / scale**2, scale
        max_inner_product = abs(factor) * float(U.norm(dim=1).max()) * float(V.norm(dim=1).max())
        self.value_scale = _scale_to_one((max_inner_product + abs(c)) ** d) * 2.0**10

    def _plan_differences(self, U: Any, V: Any) -> None:
        centred_U = U - U.mean(0)
        max_differences = U.abs().amax(0) + V.abs().amax(0)  # an upper bound in each column
        if self.formula == LAPLACIAN:
            mean_exponent = float(centred_U.abs().mean(0).sum())
            max_exponent = float(max_differences.sum())
        else:
            mean_exponent = 2 * float(centred_U.square().mean(0).sum())
            max_exponent = float(max_differences.square().sum())
        self.mean_exponent, self.accurate = mean_exponent, mean_exponent < SMALL_EXPONENT
        if self.accurate:
            self.value_scale = _scale_to_one(min(1.0, max_exponent))

    def _side(self, U: Any) -> Side:
        n, n_padded = len(U), -(-len(U) // PAD) * PAD
        half_norms = torch.zeros(n_padded, device=U.device)
        if self.formula in (LAPLACIAN, DIFFERENCES):
            rows = torch.zeros((self.p, n_padded), device=U.device)
            rows[:, :n] = U.T
            return Side(n, rows, half_norms)
        U = U * self.scale
        dtype = torch.float16 if self.pieces else torch.float32
        shape = (n_padded, max(self.pieces, 1), self.width)
        rows = torch.zeros(shape, dtype=dtype, device=U.device)
        split_pieces(U, rows.transpose(0, 1)[:, :n, : self.p])
        if self.pieces == 1:
            # Use the norms of the rounded rows, so that distances are consistent.
            U = rows[:n, 0].float()
        half_norms[:n] = (0.5 * self.unscale) * U.square().sum(1)
        return Side(n, rows, half_norms)

    def product(self, V: Any, *, tile: Tile | None = None) -> Any:
        """Return ``(k(left, right) - kernel.constant) V`` in float64."""
        out = torch.empty((self.left.n, V.shape[1]), dtype=torch.float64, device=V.device)
        for columns in panels(V.shape[1], MAX_COLUMNS):
            out[:, columns] = self._launch(V[:, columns], tile)
        return out

    def _launch(self, V: Any, tile: Tile | None) -> Any:
        from domainwise.gram.torch.triton_kernel import fused_product

        r = V.shape[1]
        min_columns = 1 if r == 1 else 8 if self.pieces == 2 else 16
        R = max(min_columns, 1 << (r - 1).bit_length())
        tile = tile or tile_for(R, self.width, self.pieces, self.formula)
        Z, scales, weighted_sums = self._split_thin(V, R)
        n_blocks, n_right = len(self.left.half_norms) // tile.rows, len(self.right.half_norms)
        n_chunks = chunk_count(n_blocks, n_right // tile.columns)
        chunk_rows = -(-n_right // (n_chunks * tile.columns)) * tile.columns
        grid = (n_blocks, -(-n_right // chunk_rows))
        out = self.launch(fused_product, grid, [Z], [chunk_rows], R, tile, FLUSH=tile.flush)
        return self._unscaled(out, r, scales, weighted_sums, V.sum(0))

    def launch(
        self, function: Any, grid: Any, operands: Any, sizes: Any, R: int, tile: Tile, **meta: Any
    ) -> Any:
        """Run a Triton kernel on a grid (blocks of left rows, chunks of right rows).

        Its arguments are rows, ``operands``, output, coefficients, row counts, ``sizes``, scales.
        """
        left, right = self.left, self.right
        sides = (left.rows, right.rows, left.half_norms, right.half_norms)
        row_counts = (len(left.half_norms), len(right.half_norms), *sizes)
        scalars = (self.unscale, self.value_scale, self.lift, self.middle)
        is_inner = self.formula in (INNER, POLYNOMIAL)
        meta |= {"FORMULA": self.formula, "PIECES": self.pieces, "FACTORED": self.factored}
        meta |= {"ACCURATE": self.accurate, "DEGREE": self.degree, "R": R}
        meta |= {"P": self.width if is_inner else self.p, "BM": tile.rows, "BN": tile.columns}
        meta |= {"BK": min(64, self.width) if is_inner else 16}
        meta |= {"num_warps": tile.warps, "num_stages": tile.stages}
        out = torch.empty((grid[1], len(left.half_norms), R), device=left.half_norms.device)
        # Under Triton's interpreter, there is no CUDA device to select.
        with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
            function[grid](*sides, *operands, out, self.coefs, *row_counts, *scalars, **meta)
        return out

    def _unscaled(self, out: Any, r: int, scales: Any, weighted_sums: Any, column_sums: Any) -> Any:
        """Return products with ``k - constant``: add the chunks in ``out``, and undo the scaling.

        ``weighted_sums`` and ``column_sums`` are the column sums of the multiplied matrix, with and
        without the norms that were factored out. They correct for the subtracted ``middle``.
        """
        n = self.left.n
        products = out[0, :n, :r].double()
        for chunk in out[1:, :n, :r]:
            products += chunk
        products *= 1.0 / (scales * (self.value_scale * 2.0**self.lift))
        if self.factored:
            products += weighted_sums
            products *= torch.exp2(-self.left.half_norms[:n].double())[:, None]
            products -= column_sums
        elif self.lift:
            products += (self.middle / 2.0**self.lift - 1.0) * column_sums
        return products

    def _split_thin(self, V: Any, R: int) -> tuple[Any, Any, Any]:
        """Return V scaled, padded and split into pieces, the scales, and weighted column sums."""
        (n, r), device = V.shape, V.device
        weights = None
        if self.factored:
            weights = torch.exp2(-self.right.half_norms[:n].to(V.dtype))[:, None]
        weighted_sums = V.sum(0) if weights is None else (weights.T @ V)[0]
        scales = torch.ones(r, dtype=torch.float64, device=device)
        if self.pieces and R > 1:
            maxima = torch.linalg.vector_norm(V, ord=math.inf, dim=0)
            scales = torch.exp2(-torch.floor(torch.log2(torch.where(maxima > 0, maxima, 1.0))))
        n_pieces = self.pieces if R > 1 else 0
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
    """Return a power of two that scales a positive number to between 1/2 and 1; 1 for zero."""
    return 2.0 ** -math.ceil(math.log2(x)) if 0 < x < math.inf else 1.0


#: Tile of :class:`GroupedProduct`.
GROUP_TILE = Tile()


class GroupedProduct:
    """The product ``(K - constant) group_values[group_codes]`` with the kernel matrix K of X.

    ``group_codes`` contains the group of each row, 0 ... G - 1, and ``counts`` the group sizes.
    """

    def __init__(
        self, kernel: Kernel, X: Any, group_codes: Any, counts: Array, *, precision: str
    ) -> None:
        group_sizes = counts.astype(np.int64)
        n_tiles = -(-group_sizes // GROUP_TILE.columns)
        ends = np.cumsum(n_tiles) * GROUP_TILE.columns
        starts = ends - n_tiles * GROUP_TILE.columns
        order = group_codes.argsort(stable=True)
        # Row i in the order of groups moves to starts[g] + i - (number of rows in earlier groups).
        shifts = torch.from_numpy(starts - (np.cumsum(group_sizes) - group_sizes)).to(X.device)
        positions = torch.arange(len(X), device=X.device) + shifts[group_codes[order]]
        source_rows = torch.zeros(int(ends[-1]), dtype=torch.int64, device=X.device)
        source_rows[positions] = order
        self.fused = FusedKernel(kernel, X[source_rows], X, precision=precision)
        self.weights = torch.zeros(len(self.fused.right.half_norms), device=X.device)
        self.weights[positions] = 1.0
        if self.fused.factored:
            self.weights *= torch.exp2(-self.fused.right.half_norms)
        self.counts = torch.from_numpy(group_sizes).to(X.device).double()
        self.group_weights = torch.zeros_like(self.counts).index_add_(
            0, group_codes[order], self.weights[positions].double()
        )
        n_blocks = len(self.fused.left.half_norms) // GROUP_TILE.rows
        n_chunks = chunk_count(n_blocks, int(n_tiles.sum()))
        segments, bounds = _segments(starts, ends, -(-int(ends[-1]) // n_chunks))
        self.segments = torch.from_numpy(segments).to(X.device)
        self.bounds = torch.from_numpy(bounds).to(X.device)
        self.grid = (n_blocks, len(bounds) - 1)

    def product(self, group_values: Array) -> Any:
        """Return the product; ``group_values`` has one row per group."""
        values = torch.from_numpy(np.array(group_values, dtype=np.float64)).to(self.counts.device)
        return torch.cat([self._launch(columns) for columns in values.split(MAX_COLUMNS, 1)], 1)

    def _launch(self, group_values: Any) -> Any:
        from domainwise.gram.torch.triton_kernel import fused_group_product

        r = group_values.shape[1]
        R = 1 << (r - 1).bit_length()
        padded_values = torch.zeros((len(group_values), R), device=group_values.device)
        padded_values[:, :r] = group_values
        operands = [self.weights, padded_values, self.segments, self.bounds]
        out = self.fused.launch(fused_group_product, self.grid, operands, [], R, GROUP_TILE)
        scales = torch.ones(r, dtype=torch.float64, device=group_values.device)
        weighted_sums, column_sums = self.group_weights @ group_values, self.counts @ group_values
        return self.fused._unscaled(out, r, scales, weighted_sums, column_sums)


def _segments(starts: Array, ends: Array, chunk_rows: int) -> tuple[Array, Array]:
    """Divide groups into segments of at most ``SEGMENT_ROWS`` rows that do not cross chunks.

    Return (first row, last row + 1, group) for each segment, and the first segment of each chunk.
    """
    chunk_rows = -(-chunk_rows // GROUP_TILE.columns) * GROUP_TILE.columns
    segments: list[tuple[int, int, int]] = []
    bounds = [0]
    for group, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        while start < end:
            chunk_end = len(bounds) * chunk_rows
            stop = min(end, start + SEGMENT_ROWS, chunk_end)
            segments.append((start, stop, group))
            if stop == chunk_end:
                bounds.append(len(segments))
            start = stop
    if bounds[-1] != len(segments):
        bounds.append(len(segments))
    return np.array(segments, dtype=np.int32).reshape(-1), np.array(bounds, dtype=np.int32)
