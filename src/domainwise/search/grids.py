"""The default grids of all searches: what is tried where the user names nothing."""

from __future__ import annotations

import numpy as np

#: DCMCV: gammas times the median rule, ridges, and domain weights.
DCM_GAMMAS = (0.25, 1.0, 4.0)
DCM_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, np.inf)
DCM_WEIGHTS = (0.0, 0.01, 0.1, 1.0, 10.0)

#: InvariantRidgeCV: gammas times the median rule, and domain weights.
RIDGE_GAMMAS = (0.3, 1.0, 3.0)
RIDGE_WEIGHTS = (0.0, 0.1, 1.0, 10.0)
#: Times the number of rows in thousands, beyond one thousand: penalties are sums over rows.
RIDGE_ALPHAS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)

#: Members of ensembles: gammas of kernels times the median rule.
MEMBER_GAMMAS = (0.3, 1.0, 3.0)
LINEAR_COSTS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
#: Features that a tree tries at each split: the first alone where there are many.
TREE_FEATURES: dict[str, tuple[str | float, ...]] = {
    "classes": ("sqrt", 0.5),
    "numbers": (0.3, 1.0),
}
TREE_LEAVES = (1, 5)
BOOSTING_LEAVES = (4, 16)
SVM_COSTS = {"classes": (0.1, 1.0, 10.0), "numbers": (1.0, 10.0, 100.0)}
SVM_WEIGHTS = (0.0, 1.0)
RIDGE_MEMBER_WEIGHTS = (1.0, 10.0)  #: beside 0
RIDGE_MEMBER_ALPHAS = (0.03, 0.3, 1.0, 3.0, 10.0, 100.0)
