"""The tuned setting: parameters chosen by holding out source domains, never by looking further."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.kernels.functions import resolve_gamma
from domainwise.paper.cases import Case
from domainwise.paper.data import Split, rows_of_domain
from domainwise.paper.methods import Method, Parameters, build_pipeline, fit_pipeline
from domainwise.paper.scores import METRICS, score_predictions

#: Values searched, as multiples of the median rule for gamma.
GAMMAS = (0.3, 1.0, 3.0)
SVM_GAMMAS = (0.1, 0.3, 1.0, 3.0)
SVM_COSTS = (0.1, 1.0, 10.0, 100.0)
RIDGES = (1e-3, 1e-1, float("inf"))
WEIGHTS = (0.01, 1.0)
INVARIANT_WEIGHTS = (0.01, 0.1, 1.0)  #: tried after C and gamma were chosen without domains
LAMBDAS = (1e-3, 1e-1, 10.0)
COMPONENTS = (2, 10)


@dataclass(frozen=True)
class Selection:
    """What was chosen, how well it did on held-out sources, and by which rule."""

    parameters: Parameters
    score: float
    n_candidates: int
    rule: str


def select(
    case: Case, method: Method, split: Split, rng: np.random.Generator, random_state: int
) -> Selection:
    """Choose a method's parameters on source domains only.

    Parameters
    ----------
    case : Case
        Task, metric and size of the search.
    method : Method
        What to tune.
    split : Split
        Only its source part is used.
    rng : numpy.random.Generator
        Draws the tuning rows and the groups of domains.
    random_state : int
        For landmarks.

    Returns
    -------
    Selection
    """
    rows = tuning_rows(split, case, rng)
    X, y, domain = split.X[rows], split.y[rows], split.sample_domain[rows]
    folds = list(domain_folds(domain, case.tuning_folds, rng))
    metric = selection_metric(case)
    candidates = grid(case, method, _scaled(case, X), random_state)
    sign = 1.0 if METRICS[metric].greater_is_better else -1.0

    def mean_score(parameters: Parameters) -> float:
        scores = [
            _fold_score(case, method, parameters, X, y, domain, held, metric) for held in folds
        ]
        return float(np.mean(scores))

    # The first of equals wins: grids begin with the plainest choice.
    found = [(mean_score(parameters), parameters) for parameters in candidates]
    best = max(found, key=lambda pair: sign * pair[0])
    if method.key == "invariant":
        weighted = [replace(best[1], domain_weight=weight) for weight in INVARIANT_WEIGHTS]
        found = [best, *((mean_score(parameters), parameters) for parameters in weighted)]
        best = max(found, key=lambda pair: sign * pair[0])
        candidates += weighted
    n_domains = len(np.unique(domain))
    groups = "each source domain" if len(folds) == n_domains else f"{len(folds)} groups of sources"
    rule = (
        f"best mean {METRICS[metric].label} over {groups} held out in turn,"
        f" at most {case.tuning_rows} rows per domain, {len(candidates)} candidates"
    )
    chosen = replace(best[1], n_landmarks=method.n_landmarks(len(split.X), case.m))
    return Selection(chosen, best[0], len(candidates), rule)


def selection_metric(case: Case) -> str:
    """What tuning maximises: the ranking metric, with AUC of labels as balanced accuracy."""
    return "balanced_accuracy" if case.metrics[0] == "label_auc" else case.metrics[0]


def balanced(case: Case) -> bool:
    """Whether the metric asks for balanced class weights."""
    return selection_metric(case) == "balanced_accuracy"


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
        class_weight="balanced" if balanced(case) else None,
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
        name = method.key.removeprefix("fast")
        if name == "kpca":
            axes["n_components"] = COMPONENTS
        if name in ("coir", "dcm"):
            axes["ridge"] = RIDGES
        if name == "dcm":
            axes["domain_weight"] = WEIGHTS
        if name == "dica":
            axes["lam"] = LAMBDAS
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


def _fold_score(
    case: Case,
    method: Method,
    parameters: Parameters,
    X: Array,
    y: Array,
    domain: Array,
    held: Array,
    metric: str,
) -> float:
    """Score on held-out source domains; the worst one where a candidate cannot be fitted."""
    pipeline = build_pipeline(
        method,
        parameters,
        task=case.task,
        scaling=case.scaling,
        impute=bool(np.isnan(X).any()),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_pipeline(pipeline, X[~held], y[~held], domain[~held])
            predicted = pipeline.predict(X[held])
    except (ValueError, np.linalg.LinAlgError):
        return -np.inf if METRICS[metric].greater_is_better else np.inf
    return score_predictions([metric], y[held], predicted)[metric]
