"""Gram operators whose thins are float64 tensors on the device of X."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

from domainwise.arrays import Array
from domainwise.arrays.namespace import on_device
from domainwise.gram.dense import DenseGram, available_memory, dense_fits
from domainwise.gram.iterative import IterativeGram, Preconditioner, inverse_root, landmark_rows
from domainwise.gram.tiles import panels
from domainwise.gram.torch.groups import GroupedProduct, worth_grouping
from domainwise.gram.torch.products import full_precision, kernel_matrix, kernel_product
from domainwise.kernels.functions import Kernel
from domainwise.kernels.precision import current_precision
from domainwise.labels.factors import RowLabels

Tensor = Any

#: Rows whose features are held at a time while their second moment is summed.
PANEL_ROWS = 32768


class TensorThins:
    """Thins are float64 tensors on the device of the rows."""

    xp = torch
    n_samples: int
    seed: int
    device: Any

    def placed(self, A: Array) -> Tensor:
        """Return a small matrix where the thins are."""
        return on_device(A, self.device)

    def random(self, columns: int) -> Tensor:
        """Return a thin of normal numbers, the same for the same seed."""
        generator = torch.Generator(self.device).manual_seed(self.seed)
        place = {"dtype": torch.float64, "device": self.device}
        return torch.randn((self.n_samples, columns), generator=generator, **place)


class TorchDenseGram(TensorThins, DenseGram):
    """A centred Gram matrix that is stored, in float64."""


class TorchStreamedGram(TensorThins, IterativeGram):
    """Centred Gram matrix of the rows of a tensor, evaluated anew for each product."""

    def __init__(self, X: Tensor, kernel: Kernel, labels: RowLabels, **options: Any) -> None:
        super().__init__(labels, X.dtype, X.device, **options)
        self.X, self.kernel = X, kernel
        self._quick = self._accurate = kernel_product(kernel, X)
        self.info = {"product": self._quick.path}
        if self._quick.path == "triton":
            self.info["precision"] = current_precision()
        self._lifted: tuple[Any, Array] | None = None

    def lift(self, coordinates: Array) -> Tensor:
        """Turn label-space coordinates into rows, and remember what they were made of."""
        thin = super().lift(coordinates)
        self._lifted = (weakref.ref(thin), coordinates)
        return thin

    def product(self, V: Tensor) -> Tensor:
        """Return ``H K H V``; one that is constant on groups of rows is multiplied group-wise."""
        labels: Any = self.labels
        if self._lifted is None or self._lifted[0]() is not V or labels.codes is None:
            return super().product(V)
        if self._quick.path != "triton" or not worth_grouping(self.n_samples, len(labels.counts)):
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
        """Return ``K V`` without K."""
        return self._quick.product(V)

    def accurate_product(self, V: Tensor) -> Tensor:
        """Return a product of full float32 accuracy, whatever the precision of the iteration.

        That makes the iteration a refinement.
        """
        if self.info.get("precision") == "tf32" and self._accurate is self._quick:
            self._accurate = kernel_product(self.kernel, self.X, precision="tf32x3")
        return self._centred_product(V, self._accurate.product)

    def _build_preconditioner(self) -> LandmarkPreconditioner:
        return LandmarkPreconditioner(self.X, self.kernel, self.seed)

    def _stored(self) -> TorchDenseGram | None:
        if not dense_fits(self.n_samples, free_memory(self.device)):
            return None
        return TorchDenseGram(kernel_matrix(self.kernel, self.X), self.labels, self.X.dtype)


class LandmarkPreconditioner(Preconditioner):
    """``U = H k(X, landmarks) C`` with a small matrix C (theory 8.2).

    Its features are evaluated anew for each use. Keeping those of a million rows would take as much
    memory as everything else together; evaluating them costs M/N of one product with K.
    """

    def __init__(self, X: Tensor, kernel: Kernel, seed: int) -> None:
        landmarks = X[torch.from_numpy(landmark_rows(len(X), seed)).to(X.device)]
        eps = float(torch.finfo(torch.float32).eps)
        _, root = inverse_root(kernel.matrix(landmarks.double()), eps)
        self.values, turn = inverse_root(_second_moment(kernel, X, landmarks, root), eps)
        self._coefficients = root @ turn
        self._down = kernel_product(kernel, X, landmarks, precision="tf32x3")
        self._up = kernel_product(kernel, landmarks, X, precision="tf32x3")

    def down(self, R: Tensor) -> Tensor:
        """Return ``U'R``."""
        return self._coefficients.T @ self._down.product(R - R.mean(0))

    def up(self, W: Tensor) -> Tensor:
        """Return ``U W``."""
        image = self._up.product(self._coefficients @ W)
        return image - image.mean(0)


def _second_moment(kernel: Kernel, X: Tensor, landmarks: Tensor, root: Tensor) -> Tensor:
    """``Phi'Phi`` of the centred features ``Phi = k(X, landmarks) root``, in float64."""
    right = kernel.prepare(landmarks).right
    second = torch.zeros((root.shape[1],) * 2, dtype=torch.float64, device=X.device)
    total = torch.zeros(root.shape[1], dtype=torch.float64, device=X.device)
    with full_precision():
        for rows in panels(len(X), PANEL_ROWS):
            values = kernel.block(kernel.prepare(X[rows]).left, right).double()
            features = (values + kernel.constant) @ root
            second.addmm_(features.T, features)
            total += features.sum(0)
    return second - torch.outer(total, total) / len(X)


def free_memory(device: Any) -> int | None:
    """Return the bytes free on a device, or None where that is not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory()
