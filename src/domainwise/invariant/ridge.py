"""A function in terms of kernels, which a ridge machine predicts with (theory 12.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from domainwise.arrays import Array
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.tiles import cross_product
from domainwise.kernels.functions import Kernel


@dataclass(frozen=True)
class Expansion:
    """A function ``sum_j k(x, landmark_j) dual_j + intercept`` with c values."""

    kernel: Kernel
    landmarks: Array
    dual: Array
    intercept: Array

    @classmethod
    def of_features(cls, features: NystromMap, coefficients: Array, intercept: Array) -> Expansion:
        """Write a function of the features in terms of the kernel."""
        dual = features.dual(coefficients)
        constant = features.kernel.constant * dual.sum(axis=0)
        return cls(features.kernel, features.landmarks, dual, intercept + constant)

    def __call__(self, X: Array) -> Array:
        """Values of rows, of shape (n, c)."""
        X = X.astype(self.landmarks.dtype, copy=False)
        prepared = self.kernel.prepare(self.landmarks)
        return np.asarray(cross_product(self.kernel, X, prepared, self.dual) + self.intercept)


def summed(expansions: Iterable[Expansion], X: Array) -> Array:
    """Sum of several functions."""
    return np.asarray(sum(function(X) for function in expansions))
