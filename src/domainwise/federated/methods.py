"""What can be fitted from sums alone, and what is chosen for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.model_selection import ParameterGrid

from domainwise.estimators import FastCOIR, FastDCM, FastDICA
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
