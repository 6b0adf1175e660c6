"""Fast versions of heads, the simple predictors that a search fits to projected rows."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from domainwise.base.arrays import Array
from domainwise.held_out.calibration.curves import class_columns


def quick_head(head: Any) -> Any:
    """Return an unfitted copy of a head, or an equivalent one that is faster to fit."""
    is_lda = type(head) is LinearDiscriminantAnalysis
    if is_lda and repr(head.get_params()) == repr(LinearDiscriminantAnalysis().get_params()):
        return QuickDiscriminant()
    return clone(head)


@cache
def lost_degrees_of_freedom() -> int:
    """Return the degrees of freedom per class that LDA subtracts in the installed scikit-learn."""
    # For these rows, the coefficient is 3 if none is subtracted, and 1.5 if one is.
    lda = LinearDiscriminantAnalysis().fit([[0.0], [2.0], [3.0], [5.0]], [0, 0, 1, 1])
    return round(2 - 2 * float(lda.coef_[0, 0]) / 3)


def _scale_factor(n: int, n_classes: int) -> float:
    """Return the square root of the degrees of freedom within classes, which is at least 1."""
    return float(np.sqrt(max(n - n_classes * lost_degrees_of_freedom(), 1)))


@dataclass(frozen=True)
class ProjectedRows:
    """Projected training rows and their targets."""

    values: Array
    y: Array

    def mapped(self, W: Array) -> ProjectedRows:
        """Multiply the rows by W."""
        return replace(self, values=self.values @ W)

    def split(self, n: int) -> list[ProjectedRows]:
        """Split the columns into n blocks of equal size."""
        return [replace(self, values=block) for block in np.hsplit(self.values, n)]

    def std(self) -> Array:
        """Return the standard deviation of each column."""
        return np.asarray(self.values.std(axis=0))

    def fit(self, head: Any) -> Any:
        """Fit a copy of a head to the rows, and return it."""
        return copy(head).fit(self.values, self.y)


@dataclass(frozen=True)
class ProjectedMoments:
    """Moments of projected training rows, which determine linear discriminants and ridge fits."""

    counts: Array  #: number of rows in each class, or of all rows if the target is continuous
    means: Array  #: column means of each class, or of all rows
    scatter: Array  #: sums of squares and products of deviations from these means
    classes: Array | None = None
    cross: Any = None  #: sums of products of the columns with the centred continuous target
    target_mean: Any = None  #: mean of the continuous target

    def mapped(self, W: Array) -> ProjectedMoments:
        """Return the moments of the rows multiplied by W."""
        cross = None if self.cross is None else W.T @ self.cross
        return replace(self, means=self.means @ W, scatter=W.T @ self.scatter @ W, cross=cross)

    def split(self, n: int) -> list[ProjectedMoments]:
        """Split the columns into n blocks of equal size."""
        return [self.mapped(block) for block in np.hsplit(np.eye(len(self.scatter)), n)]

    def std(self) -> Array:
        """Return the standard deviation of each column."""
        n = self.counts.sum()
        deviations = self.means - self.counts @ self.means / n
        squares = self.scatter.diagonal() + self.counts @ deviations**2
        return np.asarray(np.sqrt(squares.clip(0.0) / n))

    def fit(self, head: Any) -> Any:
        """Fit the default head of a search, which ``head`` must be, and return it."""
        return QuickRidge(self) if self.classes is None else QuickDiscriminant().fit_moments(self)


class QuickRidge(RegressorMixin, BaseEstimator):
    """Ridge regression with scikit-learn's default penalty, computed from moments."""

    def __init__(self, moments: ProjectedMoments) -> None:
        self.moments = moments
        S = moments.scatter
        self._coef = np.linalg.solve(S + np.eye(len(S)), moments.cross)
        self._bias = moments.target_mean - (moments.means @ self._coef).ravel()

    def predict(self, X: Array) -> Array:
        """Return predicted targets; a single column is returned as a vector."""
        values = X @ self._coef + self._bias
        return np.asarray(values[:, 0] if values.shape[1] == 1 else values)


class QuickDiscriminant(ClassifierMixin, BaseEstimator):
    """Linear discriminant analysis with scikit-learn's defaults, but without input validation.

    Validation takes most of the time if there are few rows.
    """

    def fit(self, X: Array, y: Array) -> Self:
        """Fit to rows, which must be finite."""
        classes, class_codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        means = np.stack([X[class_codes == c].mean(axis=0) for c in range(len(counts))])
        residuals = X - means[class_codes]
        std = residuals.std(axis=0)
        std[std == 0] = 1.0
        scale = std * _scale_factor(len(y), len(counts))
        _, singular_values, V = np.linalg.svd(residuals / scale, full_matrices=False)
        return self._fit_svd(classes, counts, means, singular_values, V / std)

    def fit_moments(self, moments: ProjectedMoments) -> Self:
        """Fit to moments of rows."""
        n, k = int(moments.counts.sum()), len(moments.counts)
        std = np.sqrt(moments.scatter.diagonal().clip(0.0) / n)
        std[std == 0] = 1.0
        scale = std * _scale_factor(n, k)
        eigenvalues, V = np.linalg.eigh(moments.scatter / np.outer(scale, scale))
        singular_values, classes = np.sqrt(eigenvalues[::-1].clip(0.0)), moments.classes
        assert classes is not None
        directions = V.T[::-1] / std
        return self._fit_svd(classes, moments.counts, moments.means, singular_values, directions)

    def _fit_svd(
        self, classes: Array, counts: Array, means: Array, singular_values: Array, directions: Array
    ) -> Self:
        """Fit from the singular values and directions of deviations from class means."""
        n, k = counts.sum(), len(counts)
        overall_mean = counts @ means / n
        whitening = directions[singular_values > 1e-4].T / singular_values[singular_values > 1e-4]
        deviations = (means - overall_mean) @ whitening
        weighted_deviations = np.sqrt(counts / (k - 1))[:, None] * deviations
        _, between_singular_values, V = np.linalg.svd(weighted_deviations, full_matrices=False)
        V = V[between_singular_values > 1e-4 * between_singular_values.max(initial=0.0)]
        deviations = deviations @ V.T
        coef = deviations @ (whitening @ V.T).T
        bias = -0.5 * (deviations**2).sum(axis=1) - coef @ overall_mean + np.log(counts / n)
        if k == 2:
            coef, bias = coef[1] - coef[0], bias[1] - bias[0]
        self.classes_, self._coef, self._bias = classes, coef.T, bias
        return self

    def decision_function(self, X: Array) -> Array:
        """Return decision values: one per row for two classes, else one per class."""
        return np.asarray(X @ self._coef + self._bias)

    def predict(self, X: Array) -> Array:
        """Return the predicted class of each row."""
        return np.asarray(self.classes_[class_columns(self.decision_function(X)).argmax(axis=1)])

    def predict_proba(self, X: Array) -> Array:
        """Return the probability of each class."""
        values = self.decision_function(X)
        # For two classes, class_columns returns (-v, v), but log-probabilities must differ by v.
        scale = 0.5 if values.ndim == 1 else 1.0
        return np.asarray(softmax(scale * class_columns(values), axis=1))
