"""A function in terms of kernels, which a ridge machine predicts with (theory 12.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from domainwise.arrays.namespace import placed, to_host
from domainwise.backends import backend_of
from domainwise.backends.devices import moved, portable, restored
from domainwise.gram.nystrom import NystromMap
from domainwise.kernels.fourier import Basis

_ARRAYS = ("landmarks", "dual", "intercept")


@dataclass(frozen=True)
class Expansion:
    """A function ``sum_j k(x, landmark_j) dual_j + intercept`` with c values."""

    kernel: Basis
    landmarks: Any
    dual: Any
    intercept: Any

    @classmethod
    def of_features(cls, features: NystromMap, coefficients: Any, intercept: Any) -> Expansion:
        """Write a function of the features in terms of the kernel, where its coefficients are."""
        dual = features.dual(to_host(coefficients))
        constant = features.kernel.constant * dual.sum(axis=0)
        dual, constant = placed(dual, coefficients), placed(constant, coefficients)
        landmarks = placed(features.landmarks, coefficients)
        return cls(features.kernel, landmarks, dual, intercept + constant)

    def __call__(self, X: Any) -> Any:
        """Values of rows, of shape (n, c)."""
        backend = backend_of(X)
        if not hasattr(X, "cpu"):
            X = X.astype(self.landmarks.dtype, copy=False)
        return backend.cross_product(self.kernel, X, self.landmarks, self.dual) + self.intercept

    def to(self, device: Any) -> Expansion:
        """Return the function on a torch device, or in memory for ``"numpy"``."""
        return replace(self, **{name: moved(getattr(self, name), device) for name in _ARRAYS})

    def __getstate__(self) -> dict[str, Any]:
        return portable(vars(self), _ARRAYS)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(restored(state))
