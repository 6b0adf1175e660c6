"""The search behind DCMCV and FastDCMCV: splits, scores, and the choice among them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn import config_context
from sklearn.base import clone
from sklearn.metrics import get_scorer

from domainwise.arrays import Array
from domainwise.checks.inputs import Labels
from domainwise.checks.warn import warn_caller
from domainwise.gram.tiles import single_blas_thread
from domainwise.search.path import Grid, projected_path
from domainwise.search.smooth import SmoothScore
from domainwise.splits.folds import domain_folds

AUTO_GAMMAS = (0.25, 1.0, 4.0)  #: times the median rule
AUTO_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, np.inf)
AUTO_WEIGHTS = (0.0, 0.01, 0.1, 1.0, 10.0)


class Searched:
    """What a search leaves behind, which :func:`record_search` stores."""

    best_index_: int
    best_params_: dict[str, Any]
    best_score_: float
    cv_results_: dict[str, Any]
    n_splits_: int


@dataclass(frozen=True)
class Split:
    """Rows of one split, with the labels of its training rows."""

    train: Array
    test: Array
    target: Labels
    domain: Labels


def make_splits(cv: Any, y: Array, target: Labels, domain: Labels) -> list[Split]:
    """Split by domains, or by rows where there are no domains to leave out."""
    classification = target.codes is not None
    splits, _ = domain_folds(y, domain.codes, classification=classification, cv=cv)
    return [
        Split(train, test, _subset(target, train), _subset(domain, train)) for train, test in splits
    ]


def _subset(labels: Labels, rows: Array) -> Labels:
    """Labels of some rows, with the categories that occur there."""
    if labels.values is not None:
        return labels.take(rows)
    present, codes = np.unique(labels.codes[rows], return_inverse=True)
    return Labels(codes=codes, names=labels.names[present])


@dataclass(frozen=True)
class Task:
    """Everything needed to score one split at one gamma."""

    make_fold: Any
    template: Any
    grid: Grid
    head: Any
    scoring: Any
    one_thread: bool

    def scores(self, fold: Any, y_test: Array) -> list[Any]:
        """Score every point of the grid on one split."""
        scorer = get_scorer(self.scoring) if isinstance(self.scoring, str) else self.scoring
        with quiet_scores():
            return [
                scored(scorer, fold.fitted(clone(self.head), Z), Z_test, y_test)
                for Z, Z_test in projected_path(fold, self.grid)
            ]


def score_split(task: Task, X: Array, y: Array, split: Split) -> list[list[Any]]:
    """Score every point of the grid on one split, whose rows are at hand."""
    with single_blas_thread(task.one_thread):
        rows = X[split.train], y[split.train], X[split.test]
        fold = task.make_fold(clone(task.template), *rows, split.target, split.domain)
        return [task.scores(fold, y[split.test])]


@contextmanager
def quiet_scores() -> Iterator[None]:
    """Score many candidates: without checks, and without words about domains that lack classes."""
    with (
        config_context(assume_finite=True, skip_parameter_validation=True),
        warnings.catch_warnings(),
    ):
        for message in (
            "Variables are collinear",
            "y_pred contains classes not in y_true",
            "A single label was found",
        ):
            warnings.filterwarnings("ignore", message=message)
        yield


def scored(scorer: Any, model: Any, X: Any, y: Array, **weights: Array) -> Any:
    """Score a candidate, or keep its outputs for a score that looks at all splits together.

    Says it if the score asks for what candidates do not have.
    """
    if isinstance(scorer, SmoothScore):
        return scorer.outputs(model, X)
    try:
        return float(scorer(model, X, y, **weights))
    except AttributeError as error:
        if "predict_proba" not in str(error):
            raise
        raise ValueError(
            "this scoring needs probabilities, which candidates do not have while they are "
            "compared: choose one of decisions or decision values, such as balanced_accuracy"
        ) from error


def comparable(scores: Array) -> Array:
    """Scores of the splits on which there are any.

    Some scores are not defined on some domains, such as an area under a curve where one class
    only occurs. That says nothing about the candidates, who are compared on the other splits.
    """
    defined = _defined(scores)
    if not defined.any():
        raise ValueError(
            "the score is not defined on any split (is there one class only in each of the "
            "domains left out?): choose another scoring, or cv"
        )
    if not defined.all():
        warn_caller(
            f"the score is not defined on {int((~defined).sum())} of {len(defined)} splits (one "
            "class only in a domain left out?): candidates are compared on the others"
        )
    return scores[:, defined]


def _defined(scores: Array) -> Array:
    """Splits on which any candidate has a score."""
    return np.asarray(~np.isnan(scores).all(axis=0))


def ranks(mean: Array) -> Array:
    """Ranks from 1, the best; candidates without a score come last."""
    return rankdata(-np.nan_to_num(mean, nan=-np.inf), method="min").astype(np.int32)


def cv_results(
    points: list[dict[str, Any]], scores: Array, *, arguments: bool = True
) -> dict[str, Any]:
    """Arrange scores as :class:`sklearn.model_selection.GridSearchCV` does.

    Splits on which no candidate has a score do not count in means. ``arguments`` adds a column for
    each argument, where all points have the same.
    """
    compared = comparable(scores)
    mean = compared.mean(axis=1)
    results: dict[str, Any] = {"params": points}
    for name in points[0] if arguments else ():
        results[f"param_{name}"] = np.array([point[name] for point in points])
    for i, column in enumerate(scores.T):
        results[f"split{i}_test_score"] = column
    results["mean_test_score"] = mean
    results["std_test_score"] = compared.std(axis=1)
    results["rank_test_score"] = ranks(mean)
    return results


def record_search(
    model: Any,
    points: list[dict[str, Any]],
    scores: Array,
    best: int | None = None,
    **options: bool,
) -> None:
    """Store what a search has found; the best point is the first of the best rank, or given."""
    results = model.cv_results_ = cv_results(points, scores, **options)
    model.best_index_ = int(results["rank_test_score"].argmin()) if best is None else best
    model.best_params_ = points[model.best_index_]
    model.best_score_ = float(results["mean_test_score"][model.best_index_])
    model.n_splits_ = scores.shape[1]


def choose(points: list[dict[str, Any]], scores: Array, rule: str) -> int:
    """Index of the best point, or of the most regularised one within a standard error of it.

    The standard error is that of the difference to the best point over splits, which leaves out
    how hard each domain is. Among the points within it the largest ridge is taken, then the
    largest weight, then the smallest gamma.
    """
    scores = scores[:, _defined(scores)]
    mean = scores.mean(axis=1)
    best = int(ranks(mean).argmin())
    if rule == "best" or scores.shape[1] < 2:
        return best
    difference = scores[best] - scores
    error = difference.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
    close = np.flatnonzero(mean >= mean[best] - error)
    order = [
        (-points[i]["ridge"], -points[i]["domain_weight"], points[i]["gamma"], i) for i in close
    ]
    return int(min(order)[-1])
