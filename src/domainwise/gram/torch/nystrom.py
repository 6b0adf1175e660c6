"""Sums over the Nystrom features of tensors: one pass on the device, small matrices to the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from domainwise.arrays.namespace import placed, to_host
from domainwise.gram import sums
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.torch.operator import full_precision
from domainwise.kernels.functions import Kernel, current_precision

Tensor = Any

#: Bytes of the features of one batch.
BATCH_BYTES = {"cuda": 512 * 2**20, "cpu": 16 * 2**20}
#: GPUs (compute capability) that multiply float64 about as quickly as float32.
QUICK_DOUBLE = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))


def sum_rows(nystrom: NystromMap, X: Tensor, codes: Any, *labels: Any, **options: Any) -> Any:
    """Sum over the rows of X as :func:`domainwise.gram.sums.sum_rows` does."""
    features = _Features(nystrom, X)
    options |= {"summands": features, "batch_rows": features.batch_rows}
    with full_precision():
        total = sums.sum_rows(nystrom, X, _on_device(codes, X), *labels, **options)
    return total.mapped(to_host)


def sum_cells(maps: Sequence[NystromMap], X: Tensor, rows: sums.CellRows) -> sums.CellSums:
    """Sum over the rows of X as :func:`domainwise.gram.sums.sum_cells` does, all on the device.

    Products of features with each other are taken in float64. Those that make the features follow
    :func:`domainwise.precision`: ``"tf32"`` lets float32 rows have TF32 features.
    """
    names = ("cells", "groups", "dense")
    rows = replace(rows, **{name: _on_device(getattr(rows, name), X) for name in names})
    rounded = X.dtype == torch.float32 and current_precision() == "tf32"
    features = [_Features(nystrom, X, X.dtype if rounded else None) for nystrom in maps]
    batch_rows = min(of_map.batch_rows for of_map in features)
    with full_precision(tf32=rounded):
        return sums.sum_cells(maps, X, rows, summands=features, batch_rows=batch_rows)


def _on_device(values: Any, X: Tensor) -> Any:
    """Labels of rows on the device of X."""
    return None if values is None else torch.as_tensor(values).to(X.device)


class _Features:
    """Features of batches of rows, or plain kernel values where the map asks for those."""

    def __init__(self, nystrom: NystromMap, X: Tensor, dtype: Any = None) -> None:
        landmarks = placed(nystrom.landmarks, X)
        self.map = nystrom
        quick = X.is_cuda and torch.cuda.get_device_capability(X.device) in QUICK_DOUBLE
        # Products that are summed are in float64 where it costs nothing.
        widest = torch.float64 if quick else X.dtype
        self.dtype = dtype or torch.promote_types(widest, landmarks.dtype)
        self.right = nystrom.kernel.prepare(landmarks).right
        self.inverse = None
        if not nystrom.direct and nystrom.triangle is not None:
            eye = torch.eye(nystrom.n_features, dtype=torch.float64, device=X.device)
            triangle = placed(nystrom.triangle, X)
            inverse = torch.linalg.solve_triangular(triangle, eye, upper=False)
            self.inverse = inverse.T.to(self.dtype).contiguous()
        self.batch_rows = max(256, BATCH_BYTES[X.device.type] // (8 * nystrom.n_features))

    def __call__(self, X: Tensor, memory: None = None, distances: Tensor | None = None) -> Tensor:
        kernel = self.map.kernel
        if distances is None:
            X = X.to(self.right.dtype)
            values = kernel.block(kernel.prepare(X).left, self.right).to(self.dtype)
        else:
            assert isinstance(kernel, Kernel)
            values = kernel.of_distances(distances[:, placed(self.map.chosen, X)]).to(self.dtype)
        if self.inverse is None:
            return values
        return (values + kernel.constant) @ self.inverse
