"""A Nystrom preconditioner whose features are evaluated anew for each use (theory 8.2).

Keeping the features of a million rows would take as much memory as everything else together;
evaluating them costs M/N of one product with K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from domainwise.gram.iterative import PRECONDITIONER_RANK
from domainwise.gram.tiles import panels
from domainwise.gram.torch.products import full_precision, kernel_product
from domainwise.kernels.functions import Kernel

Tensor = Any

#: Rows whose features are held at a time while their second moment is summed.
PANEL_ROWS = 32768


class LandmarkPreconditioner:
    """Inverse of ``U D U' + shift I`` for the leading part of K seen from a few landmarks.

    ``U = H k(X, landmarks) C`` with a small matrix C.

    Parameters
    ----------
    X : tensor of shape (N, p)
    kernel : Kernel
    seed : int
    """

    def __init__(self, X: Tensor, kernel: Kernel, seed: int) -> None:
        n = len(X)
        m = min(PRECONDITIONER_RANK, n)
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.choice(n, m, replace=False, shuffle=False))
        landmarks = X[torch.from_numpy(chosen).to(X.device)]
        eps = float(torch.finfo(torch.float32).eps)
        d, U = torch.linalg.eigh(kernel.matrix(landmarks.double()))
        keep = d > m * eps * d[-1].clamp(min=0.0)
        root = U[:, keep] / d[keep].sqrt()
        d, W = torch.linalg.eigh(_second_moment(kernel, X, landmarks, root))
        keep = d > m * eps * d[-1].clamp(min=0.0)
        self.values = d[keep]
        self.rank = len(self.values)
        self._coefficients = root @ (W[:, keep] / d[keep].sqrt())
        self._down = kernel_product(kernel, X, landmarks, precision="tf32x3")
        self._up = kernel_product(kernel, landmarks, X, precision="tf32x3")

    def at(self, shift: float) -> Callable[[Tensor], Tensor]:
        """Return the preconditioner for one shift."""
        if not self.rank:
            return lambda R: R
        # eigh gives ascending order: values[0] is the smallest, where the rest of K begins.
        weights = ((self.values[0] + shift) / (self.values + shift) - 1.0)[:, None]
        C = self._coefficients

        def apply(R: Tensor) -> Tensor:
            inner = C.T @ self._down.product(R - R.mean(0))
            up = self._up.product(C @ (weights * inner))
            return R + (up - up.mean(0))

        return apply


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
