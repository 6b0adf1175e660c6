"""Nystrom preconditioners: the leading part of K as a few landmarks see it (theory 8.2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.arrays.namespace import namespace
from domainwise.methods.contract import Thin

#: Landmarks: cheap next to one product, and enough for default ridges.
PRECONDITIONER_RANK = 500


def landmark_rows(n_samples: int, seed: int) -> Array:
    """Rows that are landmarks, in ascending order."""
    m = min(PRECONDITIONER_RANK, n_samples)
    return np.sort(np.random.default_rng(seed).choice(n_samples, m, replace=False, shuffle=False))


def inverse_root(A: Any, eps: float) -> tuple[Any, Any]:
    """Eigenvalues d of A above rounding, ascending, and U with ``U'AU = I`` in their order."""
    xp = namespace(A)
    d, U = xp.linalg.eigh(A)
    keep = d > len(d) * eps * max(float(d[-1]), 0.0)
    return d[keep], U[:, keep] / xp.sqrt(d[keep])


class Preconditioner(ABC):
    """Inverse of ``U D U' + shift I``, with D below the smallest value it knows left out."""

    values: Any  #: the diagonal of D, ascending

    @abstractmethod
    def down(self, R: Thin) -> Any:
        """Return ``U'R``."""

    @abstractmethod
    def up(self, W: Any) -> Thin:
        """Return ``U W``."""

    def at(self, shift: float) -> Callable[[Thin], Thin]:
        """Return the preconditioner for one shift."""
        if not len(self.values):
            return lambda R: R
        # The smallest value is where the rest of K begins.
        weights = ((self.values[0] + shift) / (self.values + shift) - 1.0)[:, None]
        return lambda R: R + self.up(weights * self.down(R))


class StoredPreconditioner(Preconditioner):
    """A preconditioner that keeps its U, from centred Nystrom features F with ``F F' ~ K``."""

    def __init__(self, features: Array) -> None:
        second = np.asarray(features.T @ features, dtype=np.float64)
        self.values, root = inverse_root(second, float(np.finfo(features.dtype).eps))
        self.vectors = features @ root.astype(features.dtype)

    def down(self, R: Array) -> Array:
        """Return ``U'R``."""
        return np.asarray(self.vectors.T @ R.astype(self.vectors.dtype, copy=False))

    def up(self, W: Array) -> Array:
        """Return ``U W``."""
        return np.asarray(self.vectors @ W.astype(self.vectors.dtype, copy=False))
