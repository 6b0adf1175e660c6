"""Predictors behind a projection, from moments: what scikit-learn would fit to projected rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from domainwise.arrays import Array
from domainwise.gram.cells import Cells
from domainwise.invariant.moments import RidgeProblem
from domainwise.models.method import ClassMeans


def least_squares(problem: RidgeProblem, W: Array, alpha: float = 1.0) -> Array:
    """Coefficients of the components ``(phi - mean) W`` by ridge regression."""
    inner = W.T @ problem.second @ W + alpha * np.eye(W.shape[1])
    return np.asarray(np.linalg.solve(inner, W.T @ problem.cross))


def ridge_head(problem: RidgeProblem, W: Array) -> Ridge:
    """Ridge regression of a continuous target on components, which are centred."""
    head: Any = Ridge()
    head.coef_ = least_squares(problem, W, head.alpha)[:, 0]
    head.intercept_ = float(problem.target[0])
    head.n_features_in_ = W.shape[1]
    return head


def discriminant(cells: Cells, W: Array, classes: Array, class_weight: str | None) -> Any:
    """Linear discriminant analysis of components; ``cells`` are those of each class, in order."""
    m, counts = len(W), np.array([cell.n_samples for cell in cells.values()])
    priors = counts / counts.sum()
    means = np.array([cell.mean[:m] @ W for cell in cells.values()])
    means -= priors @ means  # as a projection centres its rows
    within = sum(W.T @ cell.second[:m, :m] @ W for cell in cells.values())
    coef = means @ np.linalg.pinv(within / counts.sum(), hermitian=True)
    balanced = class_weight == "balanced"
    intercept = -0.5 * (coef * means).sum(axis=1) + (0.0 if balanced else np.log(priors))
    head: Any = ClassMeans() if balanced else LinearDiscriminantAnalysis()
    if len(classes) == 2:
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    head.classes_, head.coef_, head.intercept_ = classes, coef, intercept
    head.priors_ = np.full(len(priors), 1.0 / len(priors)) if balanced else priors
    head.means_, head.xbar_ = means, np.zeros(W.shape[1])
    head.n_features_in_ = W.shape[1]
    return head
