"""The default grids of all searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: DCMCV: multiples of the median rule's gamma, ridges, and domain weights.
DCM_GAMMAS = (0.25, 1.0, 4.0)
DCM_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, np.inf)  #: with infinity, no linear system is solved
DCM_WEIGHTS = (0.0, 0.01, 0.1, 1.0, 10.0)

#: InvariantRidgeCV: multiples of the median rule's gamma, and domain weights.
RIDGE_GAMMAS = (0.3, 1.0, 3.0)
RIDGE_WEIGHTS = (0.0, 0.1, 1.0, 10.0)
#: Penalties; above 1000 rows, they are multiplied by ``n_rows / 1000``, because losses are sums.
RIDGE_ALPHAS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)

#: Ensemble members: multiples of the median rule's gamma.
MEMBER_GAMMAS = (0.3, 1.0, 3.0)
LINEAR_COSTS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
#: Number or share of features to try at a split; wide tables use only the first value.
TREE_FEATURES: dict[str, tuple[Any, ...]] = {"classes": ("sqrt", 0.5), "numbers": (0.3, 1.0)}
SVM_COSTS = {"classes": (0.1, 1.0, 10.0), "numbers": (1.0, 10.0)}
SVM_WEIGHTS = (0.0, 1.0)
RIDGE_MEMBER_WEIGHTS = (1.0, 10.0)  #: domain weights, in addition to 0
RIDGE_MEMBER_ALPHAS = (0.03, 0.3, 1.0, 3.0, 10.0, 100.0)


@dataclass(frozen=True)
class EnsembleSizes:
    """Members of an ensemble, and their candidates, up to a number of training rows."""

    max_rows: float  #: largest number of training rows for which this entry is used
    members: tuple[str, ...]  #: members that ``members="auto"`` tries
    #: Shapes of trees that boosting compares for "classes" and for "numbers", with the largest
    #: number of rounds for each: symmetric trees of a depth, or those of HistGradientBoosting.
    boosting: Mapping[str, tuple[Mapping[str, Any], ...]]
    tree_leaves: tuple[
        int, ...
    ]  #: smallest numbers of rows in a leaf of extremely randomized trees
    landmarks: tuple[int, int]  #: landmarks of invariant ridge, in the search and in the final fit
    ridge_kernels: int | None  #: number of kernels compared on all rows; None for all


_ALL = ("linear", "boosting", "extra_trees", "invariant_ridge", "invariant_svm")
_MANY = ("linear", "boosting", "invariant_ridge")
_SMALL, _SYMMETRIC = {"max_depth": 4, "max_iter": 120}, {"max_depth": 5, "max_iter": 120}
_LEAVES_8 = {"max_leaf_nodes": 8, "learning_rate": 0.2, "max_iter": 100}
_LEAVES_31 = {"max_leaf_nodes": 31, "learning_rate": 0.1, "max_iter": 100}
_FEW_ROWS = {"classes": (_SMALL,), "numbers": (_SMALL, _LEAVES_8)}
_ALL_SHAPES = dict.fromkeys(("classes", "numbers"), (_SYMMETRIC, _LEAVES_8, _LEAVES_31))
_MANY_ROWS = dict.fromkeys(("classes", "numbers"), (_LEAVES_8, _LEAVES_31))
_ONE_SHAPE = dict.fromkeys(("classes", "numbers"), (_LEAVES_31,))
#: Members are compared on held-out domains at every size. With many rows, those that cannot use all
#: rows are left out.
ENSEMBLE = (
    EnsembleSizes(1500, _ALL, _FEW_ROWS, (1, 5), (200, 400), None),
    EnsembleSizes(2500, _ALL, _ALL_SHAPES, (5,), (200, 400), None),
    EnsembleSizes(5000, _ALL[:4], _ALL_SHAPES, (5,), (200, 600), 2),
    EnsembleSizes(50_000, _MANY, _MANY_ROWS, (5,), (300, 800), 1),
    EnsembleSizes(np.inf, _MANY, _ONE_SHAPE, (5,), (300, 2000), 1),
)


def ensemble_sizes(n_rows: int) -> EnsembleSizes:
    """Return the entry of ``ENSEMBLE`` for a number of training rows."""
    return next(sizes for sizes in ENSEMBLE if n_rows <= sizes.max_rows)


# Grids for the methods in models/registry.py; pairs are for classification and regression.


@dataclass(frozen=True)
class InUnits:
    """Values to choose from, in a unit that depends on the rows.

    Units are "median" (gamma by the median rule), "deviation" (standard deviation of the target),
    "tolerance" (the same, but at most 1), "rows" (number of rows), "per row" (1 / number of rows),
    "components" (1, but values are limited by the number of training rows) and "if a class is rare"
    (values that are not numbers; otherwise, only the first is used).
    """

    unit: str
    values: Sequence[Any]


Grid = Mapping[str, InUnits | Sequence[Any]]

GAMMAS = InUnits("median", (0.3, 1.0, 3.0))
RIDGES = (1e-3, 1e-1, float("inf"))
WEIGHTS = (0.0, 0.01, 0.1, 1.0)
COSTS = (0.1, 1.0, 10.0, 100.0)
ALPHAS = (1e-2, 1.0, 1e2, 1e4)
LAMBDAS = (1e-4, 1e-2, 1.0)  #: DICA's ``lam``, in multiples of the number of rows
#: Support vector regression ignores errors below a tenth of the target's standard deviation.
SVR: Grid = {
    "C": InUnits("deviation", COSTS),
    "epsilon": InUnits("deviation", (0.1,)),
    "tol": InUnits("tolerance", (1e-3,)),
}
KERNELS: Grid = {"kernel": ("rbf", "laplacian"), "gamma": GAMMAS}
LINEAR = {"C": [1.0 / alpha for alpha in ALPHAS[::-1]]}, {"alpha": ALPHAS}
BOOSTING: Grid = {"max_leaf_nodes": (4, 31)}
#: An SVM without class weights may ignore a rare class. Its probabilities, which are calibrated, do
#: not depend on the weights.
SVC: Grid = {"C": COSTS, "class_weight": InUnits("if a class is rare", (None, "balanced"))}
SVM = {"gamma": GAMMAS, **SVC}, {"gamma": GAMMAS, **SVR}
INVARIANT_SVM = {**KERNELS, **SVC}, {**KERNELS, **SVR}
KPCA: Grid = {"gamma": GAMMAS, "n_components": InUnits("components", (5, 30))}
DICA: Grid = {"gamma": GAMMAS, "lam": InUnits("rows", LAMBDAS)}
SCATTER: Grid = {"gamma": GAMMAS, "ridge": (1e-4, 1e-2, 1.0), "domain_weight": (0.1, 1.0, 10.0)}
MIDA: Grid = {**KPCA, "domain_weight": InUnits("per row", (0.1, 1.0, 10.0))}


def dcm_grid(*weights: float, conditionals: Sequence[bool] = (False,)) -> Grid:
    """Return the grid for DCM with these domain weights and values of ``conditional``."""
    grid: Grid = {"gammas": GAMMAS, "ridges": RIDGES, "domain_weights": weights}
    return {**grid, "conditionals": conditionals} if len(conditionals) > 1 else grid
