"""The paper's Algorithms 1 and 2 behind scikit-learn's fit and transform, for the tables.

They form N x N matrices and are slow; what they are for is to be compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.metrics.pairwise import rbf_kernel

from domainwise.arrays import Array
from domainwise.reference import algorithm1, algorithm2_stable, project


@dataclass(eq=False, repr=False)
class ReferenceDCM(TransformerMixin, BaseEstimator):
    """Algorithm 1: the dense generalized eigenproblem, without a ridge."""

    __metadata_request__fit = {"sample_domain": True}

    n_components: int = 1
    gamma: float = 1.0
    target_gamma: float = 1.0
    epsilon: float = 1e-3
    domain_weight: float = 1.0
    continuous: bool = False  #: whether the target is continuous (RBF) or a label (delta)

    def fit(self, X: Array, y: Array, sample_domain: Array) -> Self:
        """Solve for the source domains."""
        kernel = rbf_kernel(X, gamma=self.gamma)
        result = algorithm1(
            kernel,
            _target_kernel(self, y, y),
            delta_kernel(sample_domain, sample_domain),
            epsilon=self.epsilon,
            n_components=self.n_components,
            domain_weight=self.domain_weight,
        )
        self.X_fit_, self.kernel_ = X, kernel
        self.coefficients_ = result.coefficients
        self.eigenvalues_ = result.eigenvalues
        return self

    def transform(self, X: Array) -> Array:
        """Project rows, centred with the training means."""
        between = rbf_kernel(self.X_fit_, X, gamma=self.gamma)
        return project(self.kernel_, between, self.coefficients_)


@dataclass(eq=False, repr=False)
class ReferenceFastDCM(ReferenceDCM):
    """Algorithm 2 in its stable form, with ``n_landmarks`` uniformly drawn landmarks."""

    n_landmarks: int = 100
    random_state: int = 0

    def fit(self, X: Array, y: Array, sample_domain: Array) -> Self:
        """Solve for the source domains."""
        rng = np.random.default_rng(self.random_state)
        picked = np.sort(rng.choice(len(X), min(self.n_landmarks, len(X)), replace=False))
        landmarks = X[picked]
        # The extension to new points is linear in their kernel values: a zero column and the unit
        # columns read it off, so that new rows can be projected later.
        probes = np.hstack([np.zeros((len(picked), 1)), np.eye(len(picked))])
        result = algorithm2_stable(
            rbf_kernel(X, landmarks, gamma=self.gamma),
            rbf_kernel(landmarks, gamma=self.gamma),
            _target_kernel(self, y, y[picked]),
            _target_kernel(self, y[picked], y[picked]),
            delta_kernel(sample_domain, sample_domain[picked]),
            delta_kernel(sample_domain[picked], sample_domain[picked]),
            probes,
            epsilon=self.epsilon,
            n_components=self.n_components,
            domain_weight=self.domain_weight,
        )
        assert result.projected_new is not None
        self.landmarks_ = landmarks
        self.offset_ = result.projected_new[0]
        self.extension_ = result.projected_new[1:] - self.offset_
        self.eigenvalues_ = result.eigenvalues
        return self

    def transform(self, X: Array) -> Array:
        """Project rows by the Nyström extension."""
        between = rbf_kernel(X, self.landmarks_, gamma=self.gamma)
        projected: Array = between @ self.extension_ + self.offset_
        return projected


def delta_kernel(a: Array, b: Array) -> Array:
    """1 where labels are equal, 0 elsewhere."""
    same: Array = (np.asarray(a)[:, None] == np.asarray(b)).astype(np.float64)
    return same


def _target_kernel(model: Any, a: Array, b: Array) -> Array:
    if not model.continuous:
        return delta_kernel(a, b)
    kernel: Array = rbf_kernel(a.reshape(-1, 1), b.reshape(-1, 1), gamma=model.target_gamma)
    return kernel
