"""Candidates of a search that differ in more than their kernel share its values on a split."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.svm import SVC, SVR

from domainwise.arrays import Array
from domainwise.backends import backend_of
from domainwise.checks.inputs import quiet_about_domains
from domainwise.estimators.exact_base import KernelProjection
from domainwise.estimators.projection import one_thread_for_few
from domainwise.kernels.functions import Kernel
from domainwise.search.heads import quick_head
from domainwise.search.path import projections
from domainwise.search.search import quiet_scores, scored
from domainwise.splits.folds import Split


def kernel_groups(model: Any, candidates: list[dict[str, Any]], X: Any) -> list[list[int]]:
    """Numbers of the candidates that have a kernel in common, or each by itself."""
    machine = type(model) in (SVC, SVR) and model.kernel == "rbf"
    if not (machine or isinstance(model, KernelProjection)) or not isinstance(X, np.ndarray):
        return [[i] for i in range(len(candidates))]
    groups: dict[Any, list[int]] = {}
    for i, candidate in enumerate(candidates):
        kernel = [candidate.get(name, getattr(model, name)) for name in ("kernel", "gamma")]
        groups.setdefault(tuple(map(repr, kernel)), []).append(i)
    return list(groups.values())


def judge_group(
    model: Any,
    step: str,
    candidates: list[dict[str, Any]],
    X: Array,
    y: Array,
    domains: Array | None,
    split: Split,
    scorer: Any,
) -> list[Any]:
    """Score candidates with a common kernel on one split, as fits of each would."""
    train, test = split
    judged = []
    with quiet_about_domains(), one_thread_for_few(X), quiet_scores():
        if step:
            template, head = model.named_steps[step], model.steps[-1][1]
            given = None if domains is None else domains[train]
            labels = template._check_labels(backend_of(X), y[train], given, X[train])
            for Z, Z_test in projections(
                template, candidates, X[train], y[train], X[test], *labels
            ):
                fitted = quick_head(head).fit(Z, y[train])
                judged.append(scored(scorer, fitted, Z_test, y[test]))
            return judged
        kernel = Kernel("rbf", gamma=candidates[0].get("gamma", model.gamma)).centred_on(X[train])
        K, cross = kernel.matrix(X[train]), kernel.matrix(X[test], X[train])
        for arguments in candidates:
            fitted = clone(model).set_params(**{**arguments, "kernel": "precomputed"})
            judged.append(scored(scorer, fitted.fit(K, y[train]), cross, y[test]))
    return judged
