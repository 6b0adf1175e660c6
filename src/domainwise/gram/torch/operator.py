"""Gram operators of tensors, with thin matrices on the device of X, and sums over rows."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from domainwise.arrays import Array
from domainwise.arrays.namespace import full_precision, to_device_of, to_host
from domainwise.gram import sums, tiles
from domainwise.gram.dense import DenseGram
from domainwise.gram.iterative import (
    IterativeGram,
    LandmarkFeatures,
    Preconditioner,
    Product,
    landmark_rows,
    whitened_moments,
)
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.torch import fused
from domainwise.gram.torch.fused import FusedKernel, GroupedProduct, can_fuse
from domainwise.kernels.fourier import Basis
from domainwise.kernels.functions import Kernel, current_precision
from domainwise.labels.factors import RowLabels

Tensor = Any

#: Bytes of the features of one batch.
BATCH_BYTES = {"cuda": 512 * 2**20, "cpu": 16 * 2**20}
#: Compute capabilities of GPUs that multiply float64 about as fast as float32.
QUICK_DOUBLE = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))


class TorchDenseGram(DenseGram):
    """A centred Gram matrix that is stored, in float64."""


class TorchStreamedGram(IterativeGram):
    """Centred Gram matrix of the rows of a tensor, re-evaluated for each product."""

    def __init__(self, X: Tensor, kernel: Kernel, labels: RowLabels, **options: Any) -> None:
        super().__init__(X, kernel, labels, **options)
        self._quick = kernel_product(kernel, X)
        self.info = {"product": self._quick.path}
        if self._quick.path == "triton":
            self.info["precision"] = current_precision()
        self._lifted: tuple[Any, Array] | None = None

    def lift(self, coordinates: Array) -> Tensor:
        """Turn label-space coordinates into rows, and remember the coordinates."""
        thin = super().lift(coordinates)
        self._lifted = (weakref.ref(thin), coordinates)
        return thin

    def product(self, V: Tensor) -> Tensor:
        """Return ``H K H V``; a V from :meth:`lift`, constant on groups, is multiplied by group."""
        labels: Any = self.labels
        if self._lifted is None or self._lifted[0]() is not V or labels.codes is None:
            return super().product(V)
        # Groups are padded to whole tiles, which must not add many rows.
        padding = len(labels.counts) * fused.TILE.columns
        if self._quick.path != "triton" or padding > fused.MAX_PADDING * self.n_samples:
            return super().product(V)
        table = self._lifted[1] / np.sqrt(labels.counts)[:, None]
        r = table.shape[1]
        table = table - labels.counts @ table / self.n_samples
        if self._row_means is None:
            table = np.hstack([table, np.ones((len(table), 1))])
        grouped = GroupedProduct(
            self.kernel, self.X, labels.codes, labels.counts, precision=self.info["precision"]
        )
        return self._centred_image(grouped.product(table), r)

    def uncentred_product(self, V: Tensor) -> Tensor:
        """Return ``K V`` without storing K."""
        return self._quick.product(V)

    def iteration_products(self) -> tuple[Product, Product | None]:
        """With precision ``"tf32"``, add ``"tf32x3"`` products for the true residual."""
        if self.info.get("precision") != "tf32":
            return self.product, None
        accurate = kernel_product(self.kernel, self.X, precision="tf32x3")
        return self.product, lambda V: self.centred_product(V, accurate.product)

    @cached_property
    def _preconditioner(self) -> LandmarkPreconditioner:
        return LandmarkPreconditioner(self.X, self.kernel, self.seed)


class LandmarkPreconditioner(Preconditioner):
    """``U = H k(X, landmarks) C`` with a small matrix C (theory 8.2).

    The features are re-evaluated for each use. Storing them for a million rows would take as much
    memory as everything else together; evaluating them costs M/N of one product with K.
    """

    def __init__(self, X: Tensor, kernel: Kernel, seed: int) -> None:
        landmarks = X[to_device_of(landmark_rows(len(X), seed), X)]
        eps = float(torch.finfo(torch.float32).eps)
        features = LandmarkFeatures(kernel, landmarks.double(), eps)
        _, self.values, root = whitened_moments(features.moments(X), len(X), eps)
        self._coefficients = features.root @ root
        self._down = kernel_product(kernel, X, landmarks, precision="tf32x3")
        self._up = kernel_product(kernel, landmarks, X, precision="tf32x3")

    def down(self, R: Tensor) -> Tensor:
        """Return ``U'R``."""
        return self._coefficients.T @ self._down.product(R - R.mean(0))

    def up(self, W: Tensor) -> Tensor:
        """Return ``U W``."""
        image = self._up.product(self._coefficients @ W)
        return image - image.mean(0)


def kernel_product(
    kernel: Basis, right: Tensor, left: Tensor | None = None, *, precision: str | None = None
) -> TiledProduct | FusedKernel:
    """Return an object that multiplies by ``k(left, right)``; ``left`` is ``right`` by default.

    Its method ``product(V)`` returns ``k(left, right) V`` in float64 for a thin float64 V and the
    uncentred kernel, up to the kernel's constant.
    """
    if left is not None:
        dtype = torch.promote_types(left.dtype, right.dtype)
        left, right = left.to(dtype), right.to(dtype)
    if isinstance(kernel, Kernel) and can_fuse(kernel, right):
        return FusedKernel(kernel, right, left, precision=precision or current_precision())
    return TiledProduct(kernel, right, left)


class TiledProduct:
    """Products by tiles, or by features for a kernel that is a plain product of rows."""

    def __init__(self, kernel: Basis, right: Tensor, left: Tensor | None) -> None:
        self.kernel, self.rows, self.left = kernel, kernel.prepare(right), left
        self.path = "feature products" if kernel.is_product else "blocked torch"

    def product(self, V: Tensor) -> Tensor:
        """Multiply a thin matrix."""
        if self.left is None:
            return tiles.symmetric_product(self.kernel, self.rows, V)
        return tiles.cross_product(self.kernel, self.left, self.rows, V)


def sum_rows(nystrom: NystromMap, X: Tensor, codes: Any, *labels: Any, **options: Any) -> Any:
    """Sum over the rows of X as :func:`domainwise.gram.sums.sum_rows` does."""
    features = _Features(nystrom, X)
    options |= {"summands": features, "batch_rows": features.batch_rows}
    with full_precision(X):
        total = sums.sum_rows(nystrom, X, _on_device(codes, X), *labels, **options)
    return total.mapped(to_host)


def sum_cells(maps: Sequence[NystromMap], X: Tensor, rows: sums.CellRows) -> sums.CellSums:
    """Sum over the rows of X as :func:`domainwise.gram.sums.sum_cells` does, all on the device.

    Second moments are computed in float64. The precision of the features follows
    :func:`domainwise.precision`: with ``"tf32"``, features of float32 rows are computed in TF32.
    """
    names = ("cells", "groups", "dense")
    rows = replace(rows, **{name: _on_device(getattr(rows, name), X) for name in names})
    rounded = X.dtype == torch.float32 and current_precision() == "tf32"
    features = [_Features(nystrom, X, X.dtype if rounded else None) for nystrom in maps]
    batch_rows = min(of_map.batch_rows for of_map in features)
    with full_precision(X, tf32=rounded):
        return sums.sum_cells(maps, X, rows, summands=features, batch_rows=batch_rows)


def _on_device(values: Any, X: Tensor) -> Any:
    """Return labels of rows as a tensor on the device of X; None stays None."""
    return None if values is None else torch.as_tensor(values).to(X.device)


class _Features:
    """Features of batches of rows, or plain kernel values if the map is ``direct``."""

    def __init__(self, nystrom: NystromMap, X: Tensor, dtype: Any = None) -> None:
        landmarks = to_device_of(nystrom.landmarks, X)
        self.map = nystrom
        quick = X.is_cuda and torch.cuda.get_device_capability(X.device) in QUICK_DOUBLE
        # Features are computed in float64 on devices where that costs nothing.
        widest = torch.float64 if quick else X.dtype
        self.dtype = dtype or torch.promote_types(widest, landmarks.dtype)
        self.right = nystrom.kernel.prepare(landmarks).right
        self.inverse = None
        if not nystrom.direct and nystrom.triangle is not None:
            eye = torch.eye(nystrom.n_features, dtype=torch.float64, device=X.device)
            triangle = to_device_of(nystrom.triangle, X)
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
            values = kernel.of_distances(distances[:, to_device_of(self.map.chosen, X)]).to(
                self.dtype
            )
        if self.inverse is None:
            return values
        return (values + kernel.constant) @ self.inverse
