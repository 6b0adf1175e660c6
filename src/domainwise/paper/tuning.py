"""The tuned setting: parameters chosen by holding out source domains, never by looking further.

The search is scikit-learn's. What is here is what the tables' numbers hang on: the grids, in the
order in which ties are broken, the rows drawn for tuning, and the groups of domains held out.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from domainwise.arrays import Array
from domainwise.kernels.functions import resolve_gamma
from domainwise.paper.cases import Case
from domainwise.paper.data import Split, rows_of_domain
from domainwise.paper.methods import Method, Parameters, build_pipeline
from domainwise.paper.scores import METRICS, score_predictions
from domainwise.scoring.predictions import fit_with_domains

#: Values searched, as multiples of the median rule for gamma.
GAMMAS = (0.3, 1.0, 3.0)
SVM_GAMMAS = (0.1, 0.3, 1.0, 3.0)
SVM_COSTS = (0.1, 1.0, 10.0, 100.0)
RIDGES = (1e-3, 1e-1, float("inf"))
WEIGHTS = (0.01, 1.0)
INVARIANT_WEIGHTS = (0.01, 0.1, 1.0)  #: tried after C and gamma were chosen without domains
INDEPENDENCE = (0.1, 1.0, 10.0)  #: over the number of rows
_SCATTER = {"ridge": (1e-4, 1e-2, 1.0), "domain_weight": WEIGHTS}
#: What projections choose from beside gamma; fast ones as the exact ones do.
AXES: dict[str, dict[str, tuple[Any, ...]]] = {
    "kpca": {"n_components": (2, 10)},
    "coir": {"ridge": RIDGES},
    "dcm": {"ridge": RIDGES, "domain_weight": WEIGHTS},
    "dica": {"lam": (1e-3, 1e-1, 10.0)},
    "sca": _SCATTER,
    "mda": _SCATTER,
}


def select(
    case: Case, method: Method, split: Split, rng: np.random.Generator, random_state: int
) -> tuple[Parameters, dict[str, Any]]:
    """Choose a method's parameters on source domains; ``rng`` draws rows and groups.

    Also returns the record of how they were chosen, and how well they did on held-out sources.
    """
    rows = tuning_rows(split, case, rng)
    X, y, domain = split.X[rows], split.y[rows], split.sample_domain[rows]
    folds = list(domain_folds(domain, case.tuning_folds, rng))
    metric = METRICS[selection_metric(case)]
    impute = bool(np.isnan(X).any())

    def best_of(candidates: list[Parameters]) -> tuple[Parameters, float]:
        """The best mean score; the first of equals wins, and what cannot be fitted loses."""
        models = [build_pipeline(case, method, choice, impute=impute) for choice in candidates]
        search = GridSearchCV(
            Pipeline([("model", models[0])]),
            {"model": models},
            scoring=make_scorer(
                lambda y_true, y_pred: score_predictions([metric.key], y_true, y_pred)[metric.key],
                greater_is_better=metric.greater_is_better,
            ),
            cv=[(np.flatnonzero(~held), np.flatnonzero(held)) for held in folds],
            refit=False,
            error_score=-np.inf,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_with_domains(search, X, y, domain)
        sign = 1.0 if metric.greater_is_better else -1.0
        return candidates[search.best_index_], sign * float(search.best_score_)

    candidates = grid(case, method, _scaled(case, X), random_state)
    best, score = best_of(candidates)
    if method.key == "invariant":
        weighted = [replace(best, domain_weight=weight) for weight in INVARIANT_WEIGHTS]
        candidates += weighted
        best, score = best_of([best, *weighted])
    n_domains = len(np.unique(domain))
    groups = "each source domain" if len(folds) == n_domains else f"{len(folds)} groups of sources"
    rule = (
        f"best mean {metric.label} over {groups} held out in turn,"
        f" at most {case.tuning_rows} rows per domain, {len(candidates)} candidates"
    )
    chosen = replace(best, n_landmarks=method.n_landmarks(len(split.X), case.m))
    found = {"source_score": score, "candidates": len(candidates)}
    return chosen, {"rule": rule, "parameters": chosen.shown(method), **found}


def selection_metric(case: Case) -> str:
    """What tuning maximises: the ranking metric, with AUC of labels as balanced accuracy."""
    return "balanced_accuracy" if case.metrics[0] == "label_auc" else case.metrics[0]


def tuning_rows(split: Split, case: Case, rng: np.random.Generator) -> Array:
    """At most ``case.tuning_rows`` rows of each source domain, keeping its class ratio."""
    parts = [
        rows_of_domain(
            np.flatnonzero(split.sample_domain == name),
            split.y,
            case.tuning_rows,
            stratified=case.task == "classification",
            rng=rng,
        )
        for name in np.unique(split.sample_domain)
    ]
    return np.concatenate(parts)


def domain_folds(domain: Array, n_folds: int, rng: np.random.Generator) -> Iterator[Array]:
    """Masks of held-out rows: one domain each, or groups where there are more than ``n_folds``."""
    names = rng.permutation(np.unique(domain))
    for group in np.array_split(names, min(n_folds, len(names))):
        yield np.isin(domain, group)


def grid(case: Case, method: Method, X: Array, random_state: int) -> list[Parameters]:
    """Candidates of a method. ``X`` are scaled source rows, for the median rule."""
    median = resolve_gamma("median", "rbf", X)
    base = Parameters(
        epsilon=case.epsilon,
        n_components=case.n_components,
        class_weight="balanced" if selection_metric(case) == "balanced_accuracy" else None,
        predictor_gamma="scale",
        n_landmarks=method.n_landmarks(len(X), case.m),
        random_state=random_state,
    )
    axes: dict[str, tuple[Any, ...]]
    if method.key in ("svm", "invariant"):
        gammas = tuple(median * factor for factor in SVM_GAMMAS)
        axes = {"C": SVM_COSTS, "gamma": gammas}
        base = replace(base, predictor_gamma=None, domain_weight=0.0)
    else:
        axes = {"gamma": tuple(median * factor for factor in GAMMAS)}
        axes |= AXES.get(method.key.removeprefix("fast"), {})
        if method.key == "mida":
            axes["domain_weight"] = tuple(weight / len(X) for weight in INDEPENDENCE)
    return [
        replace(base, **dict(zip(axes, values, strict=True)))
        for values in itertools.product(*axes.values())
    ]


def _scaled(case: Case, X: Array) -> Array:
    """Rows as the projection will see them."""
    if case.scaling == "none":
        return X
    low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    mean, spread = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    origin, width = (low, high - low) if case.scaling == "minmax" else (mean, spread)
    return np.nan_to_num((X - origin) / np.where(width > 0, width, 1.0))
