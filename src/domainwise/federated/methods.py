"""What can be fitted from sums alone, what is chosen for it, and predictors behind projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.model_selection import ParameterGrid

from domainwise.arrays import Array
from domainwise.estimators import FastCOIR, FastDCM, FastDICA
from domainwise.gram.cells import Cells
from domainwise.invariant.ridge import RidgeProblem
from domainwise.models.method import ClassMeans
from domainwise.selection import InvariantRidgeClassifierCV, InvariantRidgeCV, LeaveDomainsOut

RIDGE = "invariantridge"
PROJECTIONS: dict[str, Any] = {"fastdcm": FastDCM, "fastcoir": FastCOIR, "fastdica": FastDICA}
METHODS = (RIDGE, *PROJECTIONS)
_RIDGES = (1e-3, 0.1, float("inf"))
#: What projections choose from where nothing else is said; "auto" follows the number of rows.
_CHOSEN: dict[str, dict[str, Any]] = {
    "fastdcm": {"ridge": _RIDGES, "domain_weight": (0.0, 0.01, 0.1, 1.0)},
    "fastcoir": {"ridge": _RIDGES},
    "fastdica": {"lam": "auto"},
}
_NAMES = ("ridge", "domain_weight", "conditional", "lam", "epsilon", "n_components")


def candidates(
    method: str, given: Mapping[str, Any], classes: bool, n_rows: int
) -> list[dict[str, Any]]:
    """Arguments of a projection to choose from, or those of a search that chooses by itself.

    Raises ValueError for names or values that the method does not take.
    """
    if method == RIDGE:
        accepted = ["alphas", "domain_weights", "n_average", *["conditionals"][: int(classes)]]
        points = [dict(given)]
    else:
        known = PROJECTIONS[method]().get_params()
        accepted = [n for n in _NAMES if n in known and (classes or n != "conditional")]
        lists = {**_CHOSEN[method], **given}
        if isinstance(lists.get("lam"), str):
            lists["lam"] = [factor * n_rows for factor in (1e-4, 1e-2, 1.0)]
        points = list(ParameterGrid(lists))
    for name in given:
        if name not in accepted:
            raise ValueError(f"{method} does not choose {name!r}: use {', '.join(accepted)}")
    for point in points:
        build(method, classes, **point)._validate_params()
    return points


def build(method: str, classes: bool, **arguments: Any) -> Any:
    """The estimator with some arguments, not fitted; a search leaves sites out one by one."""
    if method != RIDGE:
        return PROJECTIONS[method](**arguments)
    search: Any = InvariantRidgeClassifierCV if classes else InvariantRidgeCV
    return search(**arguments, cv=LeaveDomainsOut())


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
    shares = counts / counts.sum()
    means = np.array([cell.mean[:m] @ W for cell in cells.values()])
    means -= shares @ means  # as a projection centres its rows
    within = sum(W.T @ cell.second[:m, :m] @ W for cell in cells.values())
    coef = means @ np.linalg.pinv(within / counts.sum(), hermitian=True)
    head: Any = LinearDiscriminantAnalysis() if class_weight is None else ClassMeans()
    head.priors_ = shares if class_weight is None else np.full(len(shares), 1.0 / len(shares))
    intercept = -0.5 * (coef * means).sum(axis=1) + np.log(head.priors_)
    if len(classes) == 2:
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    head.classes_, head.coef_, head.intercept_ = classes, coef, intercept
    head.means_, head.xbar_, head.n_features_in_ = means, np.zeros(W.shape[1]), W.shape[1]
    return head
