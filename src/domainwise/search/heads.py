"""Fast versions of simple predictors on projections, of which a search fits hundreds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from domainwise.arrays import Array
from domainwise.calibration.curves import class_columns


def quick_head(head: Any) -> Any:
    """Return an unfitted copy of the head, or an equivalent that is faster to fit, if any."""
    is_lda = type(head) is LinearDiscriminantAnalysis or hasattr(head, "equal_priors")
    if is_lda and repr(head.get_params()) == repr(LinearDiscriminantAnalysis().get_params()):
        return QuickDiscriminant(getattr(head, "equal_priors", False))
    return clone(head)


@cache
def rows_lost() -> int:
    """Degrees of freedom per class that covariances lose, which differ by scikit-learn version."""
    fitted = LinearDiscriminantAnalysis().fit([[0.0], [2.0], [3.0], [5.0]], [0, 0, 1, 1])
    return round(2 - 2 * float(fitted.coef_[0, 0]) / 3)


@dataclass(frozen=True)
class ProjectedRows:
    """Projected training rows, to which any predictor can be fitted."""

    values: Array
    y: Array

    def mapped(self, W: Array) -> ProjectedRows:
        """Combine the columns."""
        return replace(self, values=self.values @ W)

    def split(self, n: int) -> list[ProjectedRows]:
        """Return n equal parts of the columns."""
        return [replace(self, values=part) for part in np.hsplit(self.values, n)]

    def spread(self) -> Array:
        """Standard deviation of each column."""
        return np.asarray(self.values.std(axis=0))

    def fitted(self, head: Any) -> Any:
        """Fit a predictor."""
        return quick_head(head).fit(self.values, self.y)


@dataclass(frozen=True)
class ProjectedMoments:
    """Moments of projected training rows, with their classes or their continuous target.

    Linear discriminant analysis and ridge regression need nothing else.
    """

    counts: Array  #: rows of each class; of all rows where the target is continuous
    means: Array  #: of each class, or of all rows
    scatter: Array  #: sums of squares and products about these means
    classes: Array | None = None
    cross: Any = None  #: sums of products of the columns with a continuous target, less its mean
    target: Any = None  #: mean of the continuous target

    def mapped(self, W: Array) -> ProjectedMoments:
        """Combine the columns."""
        cross = None if self.cross is None else W.T @ self.cross
        return replace(self, means=self.means @ W, scatter=W.T @ self.scatter @ W, cross=cross)

    def split(self, n: int) -> list[ProjectedMoments]:
        """Return n equal parts of the columns."""
        width = len(self.scatter)
        return [self.mapped(part) for part in np.hsplit(np.eye(width), n)]

    def spread(self) -> Array:
        """Standard deviation of each column."""
        n = self.counts.sum()
        deviations = self.means - self.counts @ self.means / n
        squares = self.scatter.diagonal() + self.counts @ deviations**2
        return np.asarray(np.sqrt(squares.clip(0.0) / n))

    def fitted(self, head: Any) -> Any:
        """Fit the default predictor of a search, which ``head`` must be."""
        return QuickRidge(self) if self.classes is None else QuickDiscriminant().fit_moments(self)


class QuickRidge(RegressorMixin, BaseEstimator):
    """Ridge regression with scikit-learn's default penalty, from moments."""

    def __init__(self, moments: ProjectedMoments) -> None:
        self.moments = moments
        S = moments.scatter
        self._coef = np.linalg.solve(S + np.eye(len(S)), moments.cross)
        self._bias = moments.target - (moments.means @ self._coef).ravel()

    def predict(self, X: Array) -> Array:
        """Predicted targets; one column is returned as a vector."""
        values = X @ self._coef + self._bias
        return np.asarray(values[:, 0] if values.shape[1] == 1 else values)


class QuickDiscriminant(ClassifierMixin, BaseEstimator):
    """Linear discriminant analysis with scikit-learn's defaults, but without checks of rows.

    These checks take most of the time if there are few rows. ``equal_priors`` assumes that all
    classes are equally frequent.
    """

    def __init__(self, equal_priors: bool = False) -> None:
        self.equal_priors = equal_priors

    def fit(self, X: Array, y: Array) -> Self:
        """Fit to rows that are known to be finite."""
        classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        means = np.stack([X[codes == c].mean(axis=0) for c in range(len(counts))])
        residuals = X - means[codes]
        spread = residuals.std(axis=0)
        spread[spread == 0] = 1.0
        scale = spread * np.sqrt(len(y) - len(counts) * rows_lost())
        _, sizes, V = np.linalg.svd(residuals / scale, full_matrices=False)
        return self._whitened(classes, counts, means, sizes, V / spread)

    def fit_moments(self, moments: ProjectedMoments) -> Self:
        """Fit to moments of rows."""
        n, k = int(moments.counts.sum()), len(moments.counts)
        spread = np.sqrt(moments.scatter.diagonal().clip(0.0) / n)
        spread[spread == 0] = 1.0
        scale = spread * np.sqrt(max(n - k * rows_lost(), 1))
        values, V = np.linalg.eigh(moments.scatter / np.outer(scale, scale))
        sizes, classes = np.sqrt(values[::-1].clip(0.0)), moments.classes
        assert classes is not None
        return self._whitened(classes, moments.counts, moments.means, sizes, V.T[::-1] / spread)

    def _whitened(
        self, classes: Array, counts: Array, means: Array, sizes: Array, V: Array
    ) -> Self:
        """Fit in directions V, along which rows deviate from their class means by ``sizes``."""
        n, k = counts.sum(), len(counts)
        middle = counts @ means / n
        white = V[sizes > 1e-4].T / sizes[sizes > 1e-4]
        deviations = (means - middle) @ white
        _, sizes, V = np.linalg.svd(
            np.sqrt(counts / (k - 1))[:, None] * deviations, full_matrices=False
        )
        V = V[sizes > 1e-4 * sizes.max(initial=0.0)]
        deviations = deviations @ V.T
        coef = deviations @ (white @ V.T).T
        bias = -0.5 * (deviations**2).sum(axis=1) - coef @ middle
        bias += 0.0 if self.equal_priors else np.log(counts / n)
        if k == 2:
            coef, bias = coef[1] - coef[0], bias[1] - bias[0]
        self.classes_, self._coef, self._bias = classes, coef.T, bias
        return self

    def decision_function(self, X: Array) -> Array:
        """Decision values: one for two classes, else one for each class."""
        return np.asarray(X @ self._coef + self._bias)

    def predict(self, X: Array) -> Array:
        """Predicted class of each row."""
        return np.asarray(self.classes_[class_columns(self.decision_function(X)).argmax(axis=1)])

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes."""
        values = self.decision_function(X)
        half = 0.5 if values.ndim == 1 else 1.0  # a value and its negative are one logit apart
        return np.asarray(softmax(half * class_columns(values), axis=1))
