"""Gram operators for tensors, with thin matrices on the device of X, and sums over rows."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from domainwise.algebra.gram import iterative, sums, tiles
from domainwise.algebra.gram.nystrom import NystromMap
from domainwise.algebra.gram.torch import fused
from domainwise.algebra.gram.torch.fused import FusedKernel, GroupedProduct, can_fuse
from domainwise.algebra.kernels.approximations import Basis
from domainwise.algebra.kernels.functions import Kernel, current_precision
from domainwise.algebra.labels import RowLabels
from domainwise.base.arrays import Array, to_device_of, to_host
from domainwise.base.process import matmul_precision

Tensor = Any

#: Maximum size of the features of a batch, in bytes.
BATCH_BYTES = {"cuda": 512 * 2**20, "cpu": 16 * 2**20}
#: Compute capabilities of GPUs that multiply float64 numbers about as fast as float32 numbers.
FAST_DOUBLE = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))


class TorchStreamedGram(iterative.IterativeGram):
    """Centred Gram matrix of the rows of a tensor, re-evaluated for each product."""

    def __init__(self, X: Tensor, kernel: Kernel, labels: RowLabels, **options: Any) -> None:
        super().__init__(X, kernel, labels, **options)
        self._multiply = kernel_product(kernel, X)
        self.info = {"product": "feature products" if kernel.is_product else "blocked torch"}
        if can_fuse(kernel, X):
            self.info = {"product": "triton", "precision": current_precision()}

    def lifted_product(self, coordinates: Array) -> tuple[Tensor, Tensor]:
        """Return ``V`` and ``K V``; if rows are in groups, kernel values are summed by group."""
        labels: Any = self.labels
        if "precision" not in self.info or labels.codes is None or self.roots is not None:
            return super().lifted_product(coordinates)
        # Groups are padded to whole tiles, which is not worthwhile if it adds many rows.
        if len(labels.counts) * fused.GROUP_TILE.columns > fused.MAX_PADDING * self.n_samples:
            return super().lifted_product(coordinates)
        group_values = coordinates / np.sqrt(labels.counts)[:, None]
        r = group_values.shape[1]
        group_values = group_values - labels.counts @ group_values / self.n_samples
        if self._row_means is None:
            group_values = np.hstack([group_values, np.ones((len(group_values), 1))])
        grouped_product = GroupedProduct(
            self.kernel, self.X, labels.codes, labels.counts, precision=self.info["precision"]
        )
        image = self._centred_image(grouped_product.product(group_values), r)
        return self.lift(coordinates), image

    def uncentred_product(self, V: Tensor) -> Tensor:
        """Return ``K V`` without storing K."""
        return self._multiply(V)

    def iteration_products(self) -> tuple[iterative.Product, iterative.Product | None]:
        """Return the product and, if its precision is ``"tf32"``, a ``"tf32x3"`` one, else None."""
        if self.info.get("precision") != "tf32":
            return self.product, None
        multiply = kernel_product(self.kernel, self.X, precision="tf32x3")
        return self.product, lambda V: self.centred_product(V, multiply)

    @cached_property
    def _preconditioner(self) -> iterative.Preconditioner:
        """A preconditioner with ``U = H k(X, landmarks) C`` for a small matrix C (theory 8.2).

        Features are evaluated again for each use. With M landmarks and N rows, this takes M/N times
        as long as a product with K. For a million rows, stored features would need as much memory
        as all other arrays together.
        """
        X, roots = self.X, 1.0 if self.roots is None else self.roots
        landmarks = X[to_device_of(iterative.landmark_rows(self.n_rows, self.seed), X)]
        eps = float(torch.finfo(torch.float32).eps)
        nystrom = iterative.LandmarkFeatures(self.kernel, landmarks.double(), eps)
        eigenvalues, root = iterative.inverse_root(nystrom.centred_moments(X, self.roots), eps)
        C = nystrom.root @ root
        sum_over_rows = kernel_product(self.kernel, X, landmarks, precision="tf32x3")
        sum_over_landmarks = kernel_product(self.kernel, landmarks, X, precision="tf32x3")

        def expand(W: Tensor) -> Tensor:
            image = sum_over_landmarks(C @ W) * roots
            return image - self.constant_part(image)

        def project(R: Tensor) -> Tensor:
            return C.T @ sum_over_rows((R - self.constant_part(R)) * roots)

        return iterative.Preconditioner(eigenvalues, project, expand)


def kernel_product(
    kernel: Basis, right: Tensor, left: Tensor | None = None, *, precision: str | None = None
) -> iterative.Product:
    """Return a function that computes ``k(left, right) V`` in float64 for a thin float64 V.

    ``left`` is ``right`` by default. ``kernel.constant`` is subtracted from k.
    """
    if left is not None:
        dtype = torch.promote_types(left.dtype, right.dtype)
        left, right = left.to(dtype), right.to(dtype)
    if isinstance(kernel, Kernel) and can_fuse(kernel, right):
        return FusedKernel(kernel, right, left, precision=precision or current_precision()).product
    rows = kernel.prepare(right)
    if left is None:
        return partial(tiles.symmetric_product, kernel, rows)
    return partial(tiles.cross_product, kernel, left, rows)


def sum_rows(nystrom: NystromMap, X: Tensor, group_codes: Any, *labels: Any, **options: Any) -> Any:
    """Sum over rows on the device, as :func:`~domainwise.algebra.gram.sums.sum_rows` does."""
    options["batch_rows"] = _batch_rows(nystrom, X)
    nystrom = TensorMap.on_device_of(X, nystrom)
    options["weights"] = _on_device(options.get("weights"), X)
    with matmul_precision(X):
        total = sums.sum_rows(nystrom, X, _on_device(group_codes, X), *labels, **options)
    return total.mapped(to_host)


def sum_cells(nystrom: NystromMap, X: Tensor, rows: sums.CellRows) -> sums.Cells:
    """Sum over rows on the device, as :func:`~domainwise.algebra.gram.sums.sum_cells` does.

    Second moments are computed in float64. Features of float32 rows are computed in TF32 if
    :func:`domainwise.precision` is ``"tf32"``.
    """
    field_names = ("cell_codes", "group_codes", "extra_columns", "weights")
    rows = replace(rows, **{name: _on_device(getattr(rows, name), X) for name in field_names})
    use_tf32 = X.dtype == torch.float32 and current_precision() == "tf32"
    device_map = TensorMap.on_device_of(X, nystrom, use_tf32)
    with matmul_precision(X, allow_tf32=use_tf32):
        return sums.sum_cells(device_map, X, rows, batch_rows=_batch_rows(nystrom, X))


def _on_device(array: Any, X: Tensor) -> Any:
    """Return an array as a tensor on the device of X; None stays None."""
    return None if array is None else torch.as_tensor(array).to(X.device)


def _batch_rows(nystrom: NystromMap, X: Tensor) -> int:
    """Return the number of rows whose features are computed at a time."""
    return max(256, BATCH_BYTES[X.device.type] // (8 * nystrom.n_features))


@dataclass(frozen=True)
class TensorMap(NystromMap):
    """A :class:`NystromMap` with landmarks on the device of the rows."""

    dtype: Any = None  # type: ignore[misc]

    @classmethod
    def on_device_of(cls, X: Tensor, nystrom: NystromMap, tf32: bool = False) -> TensorMap:
        """Return the map on the device of X; if ``tf32``, features have the dtype of X."""
        attributes = {field.name: getattr(nystrom, field.name) for field in fields(nystrom)}
        attributes["landmarks"] = _on_device(nystrom.landmarks, X)
        # Features are computed in float64 on devices where that is as fast as float32.
        has_fast_double = X.is_cuda and torch.cuda.get_device_capability(X.device) in FAST_DOUBLE
        dtype = torch.float64 if has_fast_double and not tf32 else X.dtype
        if not tf32:
            dtype = torch.promote_types(dtype, attributes["landmarks"].dtype)
        return cls(**attributes, dtype=dtype)
