"""The search behind DCMCV and FastDCMCV: splits, scores, and the choice among them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import get_scorer

from domainwise.arrays import Array
from domainwise.checks.inputs import Labels
from domainwise.gram.tiles import single_blas_thread
from domainwise.selection.folds import domain_folds
from domainwise.selection.path import Grid, projected_path
from domainwise.selection.smooth import SmoothScore, scores_table

AUTO_GAMMAS = (0.25, 1.0, 4.0)  #: times the median rule
AUTO_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, np.inf)
AUTO_WEIGHTS = (0.0, 0.01, 0.1, 1.0, 10.0)


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
        return Labels(values=labels.values[rows])
    present, codes = np.unique(labels.codes[rows], return_inverse=True)
    return Labels(codes=codes, names=labels.names[present])


@dataclass(frozen=True)
class Task:
    """Everything needed to score one split at one gamma."""

    make_fold: Any
    template: Any
    gamma: float
    grid: Grid
    head: Any
    scoring: Any
    n_components: int | None
    one_thread: bool


def score_split(task: Task, X: Array, y: Array, split: Split) -> list[Any]:
    """Score every point of the grid on one split."""
    template = clone(task.template).set_params(gamma=task.gamma)
    continuous = split.target.values is not None
    scorer = get_scorer(task.scoring) if isinstance(task.scoring, str) else task.scoring
    scores = []
    with single_blas_thread(task.one_thread), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Variables are collinear")
        # A class that the left-out domain lacks may still be predicted there.
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        fold = task.make_fold(template, X[split.train], X[split.test], split.target, split.domain)
        path = projected_path(
            fold, task.grid, n_components=task.n_components, continuous=continuous
        )
        for Z, Z_test in path:
            head = clone(task.head).fit(Z, y[split.train])
            scores.append(scored(scorer, head, Z_test, y[split.test]))
    return scores


def run_search(
    tasks: list[Task], X: Array, y: Array, splits: list[Split], n_jobs: int | None, verbose: int
) -> Array:
    """Return scores of shape (gammas x grid points, splits)."""
    jobs = [(task, split) for task in tasks for split in splits]
    found = Parallel(n_jobs=n_jobs, verbose=10 * bool(verbose))(
        delayed(score_split)(task, X, y, split) for task, split in jobs
    )
    tests = [split.test for split in splits]
    return np.vstack(
        [
            scores_table(task.scoring, found[i : i + len(splits)], tests)
            for i, task in zip(range(0, len(found), len(splits)), tasks, strict=True)
        ]
    )


def default_head(continuous: bool) -> Any:
    """Return the simple predictor that a projection is judged by."""
    return Ridge() if continuous else LinearDiscriminantAnalysis()


def default_scoring(continuous: bool) -> str:
    """Return a score that domains of different class mix or spread do not distort."""
    return "neg_root_mean_squared_error" if continuous else "balanced_accuracy"


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
        warnings.warn(
            f"the score is not defined on {int((~defined).sum())} of {len(defined)} splits (one "
            "class only in a domain left out?): candidates are compared on the others",
            UserWarning,
            stacklevel=4,
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
