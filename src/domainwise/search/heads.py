"""Simple predictors behind projections, which a search fits by the hundred."""

from __future__ import annotations

from functools import cache
from typing import Any, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from domainwise.arrays import Array
from domainwise.calibration.curves import class_columns


def quick_head(head: Any) -> Any:
    """Return what predicts as a head does, not fitted, and takes less time to fit if it can."""
    known = type(head) is LinearDiscriminantAnalysis or hasattr(head, "equal_priors")
    if known and repr(head.get_params()) == repr(LinearDiscriminantAnalysis().get_params()):
        return QuickDiscriminant(getattr(head, "equal_priors", False))
    return clone(head)


@cache
def rows_lost() -> int:
    """How many rows for each class covariances are short of: scikit-learn's versions differ."""
    fitted = LinearDiscriminantAnalysis().fit([[0.0], [2.0], [3.0], [5.0]], [0, 0, 1, 1])
    return round(2 - 2 * float(fitted.coef_[0, 0]) / 3)


class QuickDiscriminant(ClassifierMixin, BaseEstimator):
    """Linear discriminant analysis as scikit-learn does it by default, but for checks of rows.

    These take most of the time where there are few rows. ``equal_priors`` takes classes for
    equally frequent.
    """

    def __init__(self, equal_priors: bool = False) -> None:
        self.equal_priors = equal_priors

    def fit(self, X: Array, y: Array) -> Self:
        """Fit to rows that are known to be finite."""
        self.classes_, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        n, k = len(y), len(counts)
        means = np.stack([X[codes == c].mean(axis=0) for c in range(k)])
        middle = counts @ means / n
        rest = X - means[codes]
        spread = rest.std(axis=0)
        spread[spread == 0] = 1.0
        scale = spread * np.sqrt(n - k * rows_lost())
        _, sizes, V = np.linalg.svd(rest / scale, full_matrices=False)
        white = (V[sizes > 1e-4] / spread).T / sizes[sizes > 1e-4]
        away = (means - middle) @ white
        _, sizes, V = np.linalg.svd(np.sqrt(counts / (k - 1))[:, None] * away, full_matrices=False)
        V = V[sizes > 1e-4 * sizes.max(initial=0.0)]
        away = away @ V.T
        coef = away @ (white @ V.T).T
        bias = -0.5 * (away**2).sum(axis=1) - coef @ middle
        bias += 0.0 if self.equal_priors else np.log(counts / n)
        if k == 2:
            coef, bias = coef[1] - coef[0], bias[1] - bias[0]
        self._coef, self._bias = coef.T, bias
        return self

    def decision_function(self, X: Array) -> Array:
        """One value for two classes, one for each of more."""
        return np.asarray(X @ self._coef + self._bias)

    def predict(self, X: Array) -> Array:
        """Classes."""
        return np.asarray(self.classes_[class_columns(self.decision_function(X)).argmax(axis=1)])

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes."""
        values = self.decision_function(X)
        half = 0.5 if values.ndim == 1 else 1.0  # a value and its negative are one logit apart
        return np.asarray(softmax(half * class_columns(values), axis=1))
