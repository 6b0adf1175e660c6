"""Products with thin matrices that are constant on groups of rows, as lifted labels are.

``K V`` with V = table[group] is a weighted sum of the kernel values' sums over groups. Those cost
what one column costs, so a fit does not slow down with the number of classes and domains.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from domainwise.arrays import Array
from domainwise.gram.torch.fused import MAX_COLUMNS, FusedKernel, Tile, on_device, split_count
from domainwise.kernels.functions import Kernel

Tensor = Any

#: Rows of a stretch whose kernel values are summed in float32.
STRETCH = 16384
#: Padding every group to whole tiles may add this share of the rows.
MAX_PADDING = 1 / 8
TILE = Tile()


def worth_grouping(n_rows: int, n_groups: int) -> bool:
    """Whether groups are large enough for their padding not to matter."""
    return n_groups * TILE.columns <= MAX_PADDING * n_rows


class GroupedProduct:
    """``(K - 1) table[codes]`` for any table, with K the fused kernel of the rows of X.

    ``codes`` are the groups of the rows, 0 ... G - 1, and ``counts`` the sizes of the groups.
    """

    def __init__(
        self, kernel: Kernel, X: Tensor, codes: Tensor, counts: Array, *, precision: str
    ) -> None:
        sizes = counts.astype(np.int64)
        tiles = -(-sizes // TILE.columns)
        ends = np.cumsum(tiles) * TILE.columns
        starts = ends - tiles * TILE.columns
        order = codes.argsort(stable=True)
        # Sorted row i of group g goes to starts[g] + i - (rows of the groups before).
        shift = torch.from_numpy(starts - (np.cumsum(sizes) - sizes)).to(X.device)
        place = torch.arange(len(X), device=X.device) + shift[codes[order]]
        source = torch.zeros(int(ends[-1]), dtype=torch.int64, device=X.device)
        source[place] = order
        self.fused = FusedKernel(kernel, X[source], X, precision=precision)
        self.weights = torch.zeros(self.fused.right.padded, device=X.device)
        self.weights[place] = 1.0
        if self.fused.factored:
            self.weights *= torch.exp2(-self.fused.right.half)
        self.counts = torch.from_numpy(sizes).to(X.device).double()
        self.group_weights = torch.zeros_like(self.counts).index_add_(
            0, codes[order], self.weights[place].double()
        )
        blocks = self.fused.left.padded // TILE.rows
        splits = split_count(blocks, int(tiles.sum()))
        segments, bounds = _segments(starts, ends, -(-int(ends[-1]) // splits))
        self.segments = torch.from_numpy(segments).to(X.device)
        self.bounds = torch.from_numpy(bounds).to(X.device)
        self.grid = (blocks, len(bounds) - 1)

    def product(self, table: Array) -> Tensor:
        """Multiply; ``table`` has one row per group."""
        place = self.counts.device
        values = torch.from_numpy(np.array(table, dtype=np.float64)).to(place)
        parts = [
            self._launch(values[:, i : i + MAX_COLUMNS])
            for i in range(0, values.shape[1], MAX_COLUMNS)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _launch(self, table: Tensor) -> Tensor:
        from domainwise.gram.torch.triton_kernel import fused_group_product

        fused, r = self.fused, table.shape[1]
        R = 1 << (r - 1).bit_length()
        padded = torch.zeros((len(table), R), device=table.device)
        padded[:, :r] = table
        out = torch.empty((self.grid[1], fused.left.padded, R), device=table.device)
        with on_device(table):
            fused_group_product[self.grid](
                fused.left.rows,
                fused.right.rows,
                fused.left.half,
                fused.right.half,
                self.weights,
                padded,
                self.segments,
                self.bounds,
                out,
                fused.coefs,
                fused.left.padded,
                fused.right.padded,
                *fused.scalars,
                R=R,
                BM=TILE.rows,
                BN=TILE.columns,
                num_warps=TILE.warps,
                num_stages=TILE.stages,
                **fused.options,
            )
        ones = torch.ones(r, dtype=torch.float64, device=table.device)
        return fused._finished(out, r, ones, self.group_weights @ table, self.counts @ table)


def _segments(starts: Array, ends: Array, chunk: int) -> tuple[Array, Array]:
    """Cut groups at the borders of chunks and after ``STRETCH`` rows.

    Returns (first, last, group) of each stretch, and the first stretch of each chunk.
    """
    chunk = -(-chunk // TILE.columns) * TILE.columns
    stretches: list[tuple[int, int, int]] = []
    bounds = [0]
    for group, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        while start < end:
            border = len(bounds) * chunk
            stop = min(end, start + STRETCH, border)
            stretches.append((start, stop, group))
            if stop == border:
                bounds.append(len(stretches))
            start = stop
    if bounds[-1] != len(stretches):
        bounds.append(len(stretches))
    return np.array(stretches, dtype=np.int32).reshape(-1), np.array(bounds, dtype=np.int32)
