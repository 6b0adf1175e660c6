"""A Nystrom preconditioner whose features are evaluated anew for each use (theory 8.2).

Keeping the features of a million rows would take as much memory as everything else together;
evaluating them costs M/N of one product with K.
"""

from __future__ import annotations

from typing import Any

import torch

from domainwise.gram.precondition import Preconditioner, inverse_root, landmark_rows
from domainwise.gram.tiles import panels
from domainwise.gram.torch.products import full_precision, kernel_product
from domainwise.kernels.functions import Kernel

Tensor = Any

#: Rows whose features are held at a time while their second moment is summed.
PANEL_ROWS = 32768


class LandmarkPreconditioner(Preconditioner):
    """``U = H k(X, landmarks) C`` with a small matrix C."""

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
