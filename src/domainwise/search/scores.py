"""Scores by which a search compares candidates: a scorer, or a smooth score of all splits.

Accuracy on a few domains is noisy; the smooth score also measures confidence. For classes it is
minus the log loss of probabilities that a logistic curve computes from outputs for held-out
domains, for continuous targets minus the squared error. The classes of a domain have equal
weights, and so have the domains. One curve is fitted to all splits, so that a search passes the
outputs for all splits instead of a score for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn import config_context
from sklearn.metrics import get_scorer

from domainwise.arrays import Array
from domainwise.calibration.curves import class_columns, equal_weights, fit_curve
from domainwise.scoring.measures import check_task
from domainwise.scoring.predictions import codes_of
from domainwise.splits.folds import draw_rows

Outcome = float | Array  #: a score, or outputs for the test rows of a split

#: Largest number of rows on which candidates are compared.
COMPARED_ROWS = 5000
#: Lower bound of probabilities, such as those of trees, before logarithms are taken.
LEAST_PROBABILITY = 1e-3


class Score(Protocol):
    """Score by which candidates are compared."""

    def outcome(self, model: Any, X: Any, y: Array) -> Outcome:
        """Return what the score needs from a fitted candidate: its score, or its outputs."""

    def table(self, outcomes: Sequence[Sequence[Outcome]], tests: Sequence[Array]) -> Array:
        """Scores of shape (candidates, splits) from each candidate's outcomes on the test rows."""


def as_score(scoring: Any, classification: bool = False) -> Score:
    """Return the score for a scorer, the name of one, or a score."""
    check_task(scoring, classification)
    if isinstance(scoring, Scorer | SmoothScore):
        return scoring
    return Scorer(get_scorer(scoring) if isinstance(scoring, str) else scoring)


@dataclass(frozen=True)
class Scorer:
    """A scikit-learn scorer, which scores each split separately."""

    scorer: Any

    def outcome(self, model: Any, X: Any, y: Array, **weights: Array) -> float:
        """Score a candidate; explain what is missing if it needs probabilities."""
        try:
            return float(self.scorer(model, X, y, **weights))
        except AttributeError as error:
            if "predict_proba" not in str(error):
                raise
            raise ValueError(
                "this scoring needs probabilities, which candidates do not have while they are "
                "compared: choose one that uses predictions or decision values, such as "
                "balanced_accuracy"
            ) from error

    def table(self, outcomes: Sequence[Sequence[Outcome]], tests: Sequence[Array]) -> Array:
        """Return the scores unchanged."""
        return np.array(outcomes, dtype=np.float64)


@contextmanager
def quiet_scores() -> Iterator[None]:
    """Context for scoring many candidates, without checks or warnings about missing classes."""
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


def outputs(model: Any, X: Any, n_classes: int, codes: Array | None = None) -> Array:
    """Log-probabilities or decision values of all classes, or values of a continuous target.

    There is one column for each class, or one for a continuous target (``n_classes`` is 0).
    ``codes`` are the codes of the model's classes; None if ``classes_`` holds codes.
    """
    if not n_classes:
        values = np.asarray(model.predict(X), dtype=np.float64)
        return values.reshape(len(values), 1)
    places: Any = getattr(model, "classes_", None) if codes is None else codes
    if hasattr(model, "decision_function"):
        return decision_outputs(model.decision_function(X), places, n_classes)
    if hasattr(model, "predict_proba"):
        p = np.asarray(model.predict_proba(X), dtype=np.float64)
    else:
        p = (np.asarray(model.predict(X)).reshape(-1, 1) == model.classes_).astype(np.float64)
    least = np.full(len(p), np.log(LEAST_PROBABILITY))
    return _all_classes(log_probabilities(p), least, places, n_classes)


def log_probabilities(p: Array) -> Array:
    """Logarithms of probabilities, which are at least ``LEAST_PROBABILITY``."""
    return np.asarray(np.log(np.maximum(p, LEAST_PROBABILITY)))


def decision_outputs(values: Array, codes: Array, n_classes: int) -> Array:
    """Decision values of all classes from those of the classes ``codes``."""
    columns = class_columns(np.asarray(values, dtype=np.float64))
    return _all_classes(columns, columns.min(axis=1, initial=0.0), codes, n_classes)


def _all_classes(values: Array, least: Array, codes: Array, n_classes: int) -> Array:
    """Columns for all classes; classes that the model has not seen get the least value."""
    if values.shape[1] == n_classes:
        return values
    columns = np.repeat(least[:, None], n_classes, axis=1)
    columns[:, np.asarray(codes, dtype=np.intp)] = values
    return columns


def row_losses(values: Array, y: Array, domains: Array, n_classes: int) -> Array:
    """Weighted loss of each held-out row; y holds class codes, or a continuous target."""
    if not n_classes:
        return np.asarray(equal_weights(domains) * (y - values[:, 0]) ** 2)
    weights = equal_weights(domains, y)
    curve, _ = fit_curve(values, y, weights)
    chosen = curve.probabilities(values)[np.arange(len(y)), y]
    return np.asarray(-weights * np.log(np.maximum(chosen, 1e-300)))


@dataclass(frozen=True)
class SmoothScore:
    """The smooth score for searches, which scores the outputs for all splits together."""

    y: Array  #: classes by name, or a continuous target, of all rows of the search
    domains: Array | None
    classes: Array | None  #: names of the classes; None for a continuous target

    def __call__(self, model: Any, X: Any, y: Array) -> float:
        """Score of these rows, by a curve that is fitted to them alone."""
        score = SmoothScore(np.asarray(y), None, self.classes)
        return float(score.scores([self.outputs(model, X)], [np.arange(len(y))])[0])

    def outcome(self, model: Any, X: Any, y: Array) -> Array:
        """Outputs of a candidate for rows that it was fitted without."""
        return self.outputs(model, X)

    def table(self, outcomes: Sequence[Sequence[Outcome]], tests: Sequence[Array]) -> Array:
        """Scores of shape (candidates, splits); one curve for all splits of a candidate."""
        return np.array([self.scores(values, tests) for values in outcomes])

    def outputs(self, model: Any, X: Any) -> Array:
        """Return log-probabilities, decision values or numbers, classes in the common order."""
        if self.classes is None:
            return outputs(model, X, 0)
        codes = codes_of(model.classes_, self.classes)
        columns = outputs(model, X, len(self.classes), codes)
        # A model with all classes may have them in another order.
        return columns if len(codes) < len(self.classes) else columns[:, np.argsort(codes)]

    def scores(self, values: Sequence[Any], tests: Sequence[Array]) -> Array:
        """Scores of a candidate on the splits; their mean is the score of all rows.

        ``values`` are outputs for the test rows of each split, ``tests`` the indices of these rows.
        """
        rows = np.concatenate(tests)
        domains = np.zeros(len(rows), int) if self.domains is None else self.domains[rows]
        domains = np.unique(domains, return_inverse=True)[1]
        drawn = draw_rows(domains, max(COMPARED_ROWS, 2 * (int(domains.max()) + 1)), 0)
        y = self.y[rows[drawn]]
        n_classes = 0 if self.classes is None else len(self.classes)
        y = y if self.classes is None else codes_of(y, self.classes)
        losses = row_losses(np.concatenate(values)[drawn], y, domains[drawn], n_classes)
        split = np.repeat(np.arange(len(tests)), [len(test) for test in tests])[drawn]
        return -len(tests) * np.bincount(split, losses, minlength=len(tests))
