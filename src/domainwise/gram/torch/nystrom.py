"""Sums over the Nystrom features of tensors: one pass on the device, small matrices to the host."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch

from domainwise.arrays import Array
from domainwise.arrays.namespace import beside, cross_distances, to_host
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.sums import CellRows, Cells, CellSums, NystromSums, given_landmarks
from domainwise.gram.tiles import panels
from domainwise.gram.torch.operator import full_precision
from domainwise.kernels.functions import Kernel, current_precision

Tensor = Any

#: Bytes of the features of one batch.
BATCH_BYTES = {"cuda": 512 * 2**20, "cpu": 16 * 2**20}
#: Up to this many groups are summed by a product with their indicators, which is reproducible.
MAX_INDICATORS = 512
#: GPUs (compute capability) that multiply float64 about as quickly as float32.
QUICK_DOUBLE = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))


def sum_rows(
    nystrom: NystromMap,
    X: Tensor,
    codes: Any,
    keys: Sequence[Hashable],
    dense: Callable[[slice], Array | None],
    *,
    moments: bool = True,
) -> NystromSums:
    """Sum over the rows of X as :func:`domainwise.gram.sums.sum_rows` does.

    Rows are taken about the mean of the first batch, which keeps the digits of their moments;
    everything is added up in float64.
    """
    codes = torch.as_tensor(codes).to(X.device)
    sums: _Sums | None = None
    features = _Features(nystrom, X)
    with full_precision():
        for rows in panels(len(X), features.batch_rows):
            values = features(X[rows])
            labels = dense(rows)
            if labels is not None:
                placed = torch.from_numpy(np.asarray(labels)).to(values)
                values = torch.cat([values, placed], 1)
            if sums is None:
                sums = _Sums(values, 0 if moments else nystrom.n_features, len(keys))
            sums.add(values, codes[rows])
    assert sums is not None
    return sums.finished(keys).mapped(to_host)


def sum_cells(maps: Sequence[NystromMap], X: Tensor, rows: CellRows) -> CellSums:
    """Sum over the rows of X as :func:`domainwise.gram.sums.sum_cells` does, all on the device.

    Products of features with each other are taken in float64. Those that make the features follow
    :func:`domainwise.precision`: ``"tf32"`` lets float32 rows have TF32 features.
    """
    cells, groups = (torch.as_tensor(codes).to(X.device) for codes in (rows.cells, rows.groups))
    order = torch.argsort(cells, stable=True)
    counts = torch.bincount(cells, minlength=len(rows.cell_keys)).tolist()
    dense = None if rows.dense is None else torch.as_tensor(rows.dense)
    rounded = X.dtype == torch.float32 and current_precision() == "tf32"
    features = [_Features(nystrom, X, X.dtype if rounded else None) for nystrom in maps]
    landmarks = given_landmarks(maps)
    shared = None if landmarks is None else beside(landmarks, X)
    batch_rows = min(of_map.batch_rows for of_map in features)
    total: list[Cells] = [{} for _ in maps]
    start = 0
    with full_precision(tf32=rounded):
        for key, count in zip(rows.cell_keys, counts, strict=True):
            inside, start = order[start : start + count], start + count
            sums: list[_Sums | None] = [None] * len(maps)
            for part in panels(count, batch_rows):
                index = inside[part]
                batch = X[index]
                distances = None if shared is None else cross_distances(batch, shared, l1=True)
                for k, of_map in enumerate(features):
                    values = of_map(batch, distances).double()
                    if dense is not None:
                        columns = dense[index.to(dense.device)]
                        values = torch.cat([values, columns.to(values)], 1)
                    if sums[k] is None:
                        sums[k] = _Sums(values, 0, len(rows.group_keys))
                    sums[k].add(values, groups[index])  # type: ignore[union-attr]
            for cells_of_map, cell in zip(total, sums, strict=True):
                if cell is not None:
                    cells_of_map[key] = cell.finished(rows.group_keys)
    return CellSums(total)


class _Features:
    """Features of batches of rows, or plain kernel values where the map asks for those."""

    def __init__(self, nystrom: NystromMap, X: Tensor, dtype: Any = None) -> None:
        landmarks = torch.from_numpy(nystrom.landmarks).to(X.device)
        self.map = nystrom
        self.dtype = dtype or torch.promote_types(sum_dtype(X), landmarks.dtype)
        self.right = nystrom.kernel.prepare(landmarks).right
        self.inverse = None
        if not nystrom.direct and nystrom.triangle is not None:
            eye = torch.eye(nystrom.n_features, dtype=torch.float64, device=X.device)
            triangle = torch.from_numpy(nystrom.triangle).to(X.device)
            inverse = torch.linalg.solve_triangular(triangle, eye, upper=False)
            self.inverse = inverse.T.to(self.dtype).contiguous()
        budget = BATCH_BYTES.get(X.device.type, BATCH_BYTES["cpu"])
        self.batch_rows = max(256, budget // (8 * nystrom.n_features))

    def __call__(self, X: Tensor, distances: Tensor | None = None) -> Tensor:
        kernel = self.map.kernel
        if distances is None:
            X = X.to(self.right.dtype)
            values = kernel.block(kernel.prepare(X).left, self.right).to(self.dtype)
        else:
            assert isinstance(kernel, Kernel)
            chosen = torch.as_tensor(self.map.chosen).to(distances.device)
            values = kernel.of_distances(distances[:, chosen]).to(self.dtype)
        if self.inverse is None:
            return values
        return (values + kernel.constant) @ self.inverse


class _Sums:
    """Running sums about the mean of the first batch.

    The second moments of the first ``skipped`` columns with each other stay zero.
    """

    def __init__(self, first: Tensor, skipped: int, n_groups: int) -> None:
        width, options = first.shape[1], {"dtype": torch.float64, "device": first.device}
        self.centre, self.skipped = first.mean(0), skipped
        self.second = torch.zeros((width, width), **options)
        self.groups = torch.zeros((n_groups, width), **options)
        self.counts = torch.zeros(n_groups, **options)

    def add(self, values: Tensor, codes: Tensor) -> None:
        """Add a batch, which is overwritten."""
        values -= self.centre
        self.second[self.skipped :] += values[:, self.skipped :].T @ values
        n_groups = len(self.counts)
        self.counts += torch.bincount(codes, minlength=n_groups)
        if n_groups <= MAX_INDICATORS:
            indicator = torch.zeros((len(codes), n_groups), dtype=values.dtype, device=codes.device)
            self.groups += indicator.scatter_(1, codes[:, None], 1.0).T @ values
        else:
            self.groups.index_add_(0, codes, values.double())

    def finished(self, keys: Sequence[Hashable]) -> NystromSums:
        """Return the sums, second moments about the mean of all rows."""
        n, first = float(self.counts.sum()), self.skipped
        centre = self.centre.double()
        shift = self.groups.sum(0) / n
        self.second[first:] -= n * torch.outer(shift[first:], shift)
        self.second[:first, first:] = self.second[first:, :first].T
        totals = self.groups + self.counts[:, None] * centre
        groups = {
            key: (int(count), total)
            for key, count, total in zip(keys, self.counts.tolist(), totals, strict=True)
            if count
        }
        return NystromSums(int(n), centre + shift, self.second, groups)


def sum_dtype(X: Tensor) -> Any:
    """Precision of the products that are summed: float64 where it costs nothing."""
    if X.device.type == "cuda" and torch.cuda.get_device_capability(X.device) in QUICK_DOUBLE:
        return torch.float64
    return X.dtype
