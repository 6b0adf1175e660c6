"""Scores by which a search compares candidates: a scorer, or a smooth score over all splits.

Accuracy on a few domains is noisy, because it ignores confidence. The smooth score of classes is
the negative log loss of probabilities that a logistic curve computes from outputs for held-out
domains; for a continuous target, it is the negative squared error. All domains have equal weights.
One curve is fitted to the outputs for all splits; a search therefore collects these outputs instead
of a score for each split. The predictors at the end of the file score projections quickly.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Protocol, Self

import numpy as np
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import get_scorer

from domainwise.base.arrays import Array, group_sums
from domainwise.base.inputs import weight_argument
from domainwise.base.process import filtered_warnings
from domainwise.held_out.calibration.curves import class_columns, equal_weights, fit_curve
from domainwise.held_out.calibration.decisions import DecisionRule
from domainwise.held_out.folds import draw_rows
from domainwise.held_out.scoring.measures import Measure
from domainwise.held_out.scoring.predictions import Outputs, codes_of
from domainwise.held_out.scoring.statistics import defined_score

Outcome = float | Array  #: a score, or outputs for the test rows of a split

#: Maximum number of rows on which candidates are compared.
MAX_ROWS = 5000
#: Lower bound for probabilities before logarithms are taken; trees may predict 0.
MIN_PROBABILITY = 1e-3


class Score(Protocol):
    """A score by which candidates are compared."""

    def outcome(self, model: Any, X: Any, y: Array, sample_weight: Any = None) -> Outcome:
        """Return the score of a fitted model, or its outputs if the score needs all splits."""

    def table(self, outcomes: Sequence[Sequence[Outcome]], test_sets: Sequence[Array]) -> Array:
        """Return scores of shape (candidates, splits) from the outcomes of each candidate."""


def as_score(scoring: Any) -> Score:
    """Convert a scorer or its name to a score."""
    if isinstance(scoring, Scorer | SmoothScore):
        return scoring
    return Scorer(get_scorer(scoring) if isinstance(scoring, str) else scoring)


@dataclass(frozen=True)
class Scorer:
    """A scikit-learn scorer, which scores each split separately."""

    scorer: Any

    def outcome(self, model: Any, X: Any, y: Array, sample_weight: Any = None) -> float:
        """Return the score of a candidate."""
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        try:
            return float(self.scorer(model, X, y, **weights))
        except AttributeError as error:
            if "predict_proba" not in str(error):
                raise
            raise ValueError(
                "scoring needs probabilities, but candidates have no predict_proba during the "
                "search. Choose a scorer that uses predictions or decision values, such as "
                "'balanced_accuracy'."
            ) from error

    def table(self, outcomes: Sequence[Sequence[Outcome]], test_sets: Sequence[Array]) -> Array:
        """Return the scores unchanged."""
        return np.array(outcomes, dtype=np.float64)


@contextmanager
def quiet_scores() -> Iterator[None]:
    """Skip validation, and ignore expected warnings, while candidates are scored."""
    with (
        config_context(assume_finite=True, skip_parameter_validation=True),
        filtered_warnings(),
    ):
        for message in (
            "Variables are collinear",
            "y_pred contains classes not in y_true",
            "A single label was found",
        ):
            warnings.filterwarnings("ignore", message=message)
        yield


def outputs(model: Any, X: Any, n_classes: int, class_codes: Array | None = None) -> Array:
    """Return log-probabilities or decision values for all classes, or predicted numbers.

    There is one column for each class, or one for a continuous target (``n_classes`` is 0).
    ``class_codes`` are the codes of the model's classes; None if ``classes_`` contains codes.
    """
    if not n_classes:
        values = np.asarray(model.predict(X), dtype=np.float64)
        return values.reshape(len(values), 1)
    if class_codes is None:
        class_codes = getattr(model, "classes_", None)
    if hasattr(model, "decision_function"):
        return decision_outputs(model.decision_function(X), class_codes, n_classes)
    if hasattr(model, "predict_proba"):
        p = np.asarray(model.predict_proba(X), dtype=np.float64)
    else:
        p = (np.asarray(model.predict(X)).reshape(-1, 1) == model.classes_).astype(np.float64)
    return _all_classes(log_probabilities(p), np.log(MIN_PROBABILITY), class_codes, n_classes)


def log_probabilities(p: Array) -> Array:
    """Return logarithms of probabilities; those below ``MIN_PROBABILITY`` are replaced by it."""
    return np.asarray(np.log(np.maximum(p, MIN_PROBABILITY)))


def decision_outputs(values: Array, class_codes: Any, n_classes: int) -> Array:
    """Return decision values of all classes, given those of the classes in ``class_codes``."""
    columns = class_columns(np.asarray(values, dtype=np.float64))
    return _all_classes(columns, columns.min(axis=1, initial=0.0)[:, None], class_codes, n_classes)


def _all_classes(values: Array, fill_value: Any, class_codes: Any, n_classes: int) -> Array:
    """Return one column per class, with ``fill_value`` for classes that the model has not seen."""
    if class_codes is None:
        return values
    columns = np.empty((len(values), n_classes))
    columns[:] = fill_value
    columns[:, np.asarray(class_codes, dtype=np.intp)] = values
    return columns


def row_losses(
    values: Array,
    y: Array,
    row_weights: Array,
    n_classes: int,
    sample_weight: Array | None = None,
) -> Array:
    """Return the weighted loss of each held-out row; y contains class codes or numbers."""
    if not n_classes:
        return np.asarray(row_weights * (y - values[:, 0]) ** 2)
    curve, _ = fit_curve(values, y, row_weights, sample_weight=sample_weight)
    probabilities = curve.probabilities(values)[np.arange(len(y)), y]
    return np.asarray(-row_weights * np.log(np.maximum(probabilities, 1e-300)))


@dataclass(frozen=True)
class SmoothScore:
    """The smooth score for searches, which scores the outputs for all splits together."""

    y: Array  #: class names or a continuous target, for all rows of the search
    domains: Array | None  #: the domain of each row; None for a single domain
    classes: Array | None  #: names of the classes; None for a continuous target
    #: A metric of classes by which splits are scored instead, with the probabilities of the curve
    #: and the classes that ``rule`` predicts from them; None for the log loss.
    measure: Measure | None = None
    rule: DecisionRule | None = None
    weights: Array | None = None  #: the weight of each row; None without weights

    def __call__(self, model: Any, X: Any, y: Array) -> float:
        """Score a model on these rows, with a curve that is fitted to the same rows."""
        score = SmoothScore(np.asarray(y), None, self.classes)
        return float(score.table([[self.outputs(model, X)]], [np.arange(len(y))])[0, 0])

    def outcome(self, model: Any, X: Any, y: Array, sample_weight: Any = None) -> Array:
        """Return the outputs of a candidate for held-out rows."""
        return self.outputs(model, X)

    def table(self, outcomes: Sequence[Sequence[Any]], test_sets: Sequence[Array]) -> Array:
        """Return scores of shape (candidates, splits), whose row means are the overall scores.

        ``outcomes`` are outputs for the test rows of each split, and ``test_sets`` are the indices
        of these rows. One curve is fitted to the outputs of each candidate.
        """
        rows = np.concatenate(test_sets)
        domains = np.zeros(len(rows), int) if self.domains is None else self.domains[rows]
        domain_codes = np.unique(domains, return_inverse=True)[1]
        max_rows = max(MAX_ROWS, 2 * (int(domain_codes.max()) + 1))
        sample = draw_rows(domain_codes, max_rows, 0)
        y, n_classes = self.y[rows[sample]], 0
        if self.classes is not None:
            y, n_classes = codes_of(y, self.classes), len(self.classes)
        weights = None if self.weights is None else self.weights[rows[sample]]
        row_weights = equal_weights(domain_codes[sample], sample_weight=weights)
        n_splits = len(test_sets)
        split_indices = np.repeat(np.arange(n_splits), [len(test) for test in test_sets])[sample]
        sampled_outputs = (np.concatenate(values)[sample] for values in outcomes)
        if self.measure is not None:
            split_rows = [np.flatnonzero(split_indices == k) for k in range(n_splits)]
            return np.array(
                [self._measured(o, y, row_weights, weights, split_rows) for o in sampled_outputs]
            )
        losses = [row_losses(o, y, row_weights, n_classes, weights) for o in sampled_outputs]
        return np.array([-n_splits * np.bincount(split_indices, loss, n_splits) for loss in losses])

    def _measured(
        self,
        values: Array,
        y: Array,
        row_weights: Array,
        weights: Array | None,
        split_rows: list[Array],
    ) -> list[float]:
        """Score each split by ``measure``; NaN where it is not defined."""
        assert self.measure is not None
        assert self.classes is not None
        assert self.rule is not None
        curve, _ = fit_curve(values, y, row_weights, sample_weight=weights)
        probabilities = curve.probabilities(values)
        predictions = self.classes[self.rule.codes(probabilities)]
        order = self.rule.positive_last
        ordered_p = probabilities[:, order]
        outputs = Outputs(self.classes[y], predictions, ordered_p, weight=weights)
        score = partial(self.measure.score_outputs, self.classes[order], outputs)
        return [defined_score(score, rows) for rows in split_rows]

    def outputs(self, model: Any, X: Any) -> Array:
        """Return log-probabilities, decision values or numbers, with one column per class."""
        if self.classes is None:
            return outputs(model, X, 0)
        return outputs(model, X, len(self.classes), codes_of(model.classes_, self.classes))


def quick_head(head: Any) -> Any:
    """Return an unfitted copy of a head, or an equivalent one that is faster to fit."""
    is_lda = type(head) is LinearDiscriminantAnalysis
    if is_lda and repr(head.get_params()) == repr(LinearDiscriminantAnalysis().get_params()):
        return QuickDiscriminant()
    return clone(head)


@cache
def lost_degrees_of_freedom() -> int:
    """Return the degrees of freedom per class that LDA subtracts in the installed scikit-learn."""
    # For these rows, the coefficient is 3 if none is subtracted, and 1.5 if one is.
    lda = LinearDiscriminantAnalysis().fit([[0.0], [2.0], [3.0], [5.0]], [0, 0, 1, 1])
    return round(2 - 2 * float(lda.coef_[0, 0]) / 3)


def _scale_factor(n: float, n_classes: int) -> float:
    """Return the square root of the degrees of freedom within classes, which is at least 1."""
    return float(np.sqrt(max(n - n_classes * lost_degrees_of_freedom(), 1)))


@dataclass(frozen=True)
class ProjectedRows:
    """Projected training rows and their targets."""

    values: Array
    y: Array
    weights: Array | None = None

    def mapped(self, W: Array) -> ProjectedRows:
        """Multiply the rows by W."""
        return replace(self, values=self.values @ W)

    def split(self, n: int) -> list[ProjectedRows]:
        """Split the columns into n blocks of equal size."""
        return [replace(self, values=block) for block in np.hsplit(self.values, n)]

    def std(self) -> Array:
        """Return the standard deviation of each column."""
        deviations = self.values - np.average(self.values, axis=0, weights=self.weights)
        return np.asarray(np.sqrt(np.average(deviations**2, axis=0, weights=self.weights)))

    def fit(self, head: Any) -> Any:
        """Fit a copy of a head to the rows, and return it."""
        return copy(head).fit(self.values, self.y, **weight_argument(head, self.weights))


@dataclass(frozen=True)
class ProjectedMoments:
    """Moments of projected training rows, which determine linear discriminants and ridge fits."""

    counts: Array  #: number of rows in each class, or of all rows if the target is continuous
    means: Array  #: column means of each class, or of all rows
    scatter: Array  #: sums of squares and products of deviations from these means
    classes: Array | None = None
    cross: Any = None  #: sums of products of the columns with the centred continuous target
    target_mean: Any = None  #: mean of the continuous target

    def mapped(self, W: Array) -> ProjectedMoments:
        """Return the moments of the rows multiplied by W."""
        cross = None if self.cross is None else W.T @ self.cross
        return replace(self, means=self.means @ W, scatter=W.T @ self.scatter @ W, cross=cross)

    def split(self, n: int) -> list[ProjectedMoments]:
        """Split the columns into n blocks of equal size."""
        return [self.mapped(block) for block in np.hsplit(np.eye(len(self.scatter)), n)]

    def std(self) -> Array:
        """Return the standard deviation of each column."""
        n = self.counts.sum()
        deviations = self.means - self.counts @ self.means / n
        squares = self.scatter.diagonal() + self.counts @ deviations**2
        return np.asarray(np.sqrt(squares.clip(0.0) / n))

    def fit(self, head: Any) -> Any:
        """Fit the default head of a search, which ``head`` must be, and return it."""
        return QuickRidge(self) if self.classes is None else QuickDiscriminant().fit_moments(self)


class QuickRidge(RegressorMixin, BaseEstimator):
    """Ridge regression with scikit-learn's default penalty, computed from moments."""

    def __init__(self, moments: ProjectedMoments) -> None:
        self.moments = moments
        S = moments.scatter
        self._coef = np.linalg.solve(S + np.eye(len(S)), moments.cross)
        self._bias = moments.target_mean - (moments.means @ self._coef).ravel()

    def predict(self, X: Array) -> Array:
        """Return predicted targets; a single column is returned as a vector."""
        values = X @ self._coef + self._bias
        return np.asarray(values[:, 0] if values.shape[1] == 1 else values)


class QuickDiscriminant(ClassifierMixin, BaseEstimator):
    """Linear discriminant analysis with scikit-learn's defaults, but without input validation.

    Validation takes most of the time if there are few rows.
    """

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit to rows, which must be finite."""
        classes, class_codes = np.unique(y, return_inverse=True)
        weights = np.ones(len(y)) if sample_weight is None else sample_weight
        counts = np.bincount(class_codes, weights)
        means = group_sums(X * weights[:, None], class_codes, len(counts)) / counts[:, None]
        residuals = (X - means[class_codes]) * np.sqrt(weights)[:, None]
        std = np.sqrt((residuals**2).sum(axis=0) / counts.sum())
        std[std == 0] = 1.0
        scale = std * _scale_factor(counts.sum(), len(counts))
        _, singular_values, V = np.linalg.svd(residuals / scale, full_matrices=False)
        return self._fit_svd(classes, counts, means, singular_values, V / std)

    def fit_moments(self, moments: ProjectedMoments) -> Self:
        """Fit to moments of rows."""
        n, k = moments.counts.sum(), len(moments.counts)
        std = np.sqrt(moments.scatter.diagonal().clip(0.0) / n)
        std[std == 0] = 1.0
        scale = std * _scale_factor(n, k)
        eigenvalues, V = np.linalg.eigh(moments.scatter / np.outer(scale, scale))
        singular_values, classes = np.sqrt(eigenvalues[::-1].clip(0.0)), moments.classes
        assert classes is not None
        directions = V.T[::-1] / std
        return self._fit_svd(classes, moments.counts, moments.means, singular_values, directions)

    def _fit_svd(
        self, classes: Array, counts: Array, means: Array, singular_values: Array, directions: Array
    ) -> Self:
        """Fit from the singular values and directions of deviations from class means."""
        n, k = counts.sum(), len(counts)
        overall_mean = counts @ means / n
        whitening = directions[singular_values > 1e-4].T / singular_values[singular_values > 1e-4]
        deviations = (means - overall_mean) @ whitening
        weighted_deviations = np.sqrt(counts / (k - 1))[:, None] * deviations
        _, between_singular_values, V = np.linalg.svd(weighted_deviations, full_matrices=False)
        V = V[between_singular_values > 1e-4 * between_singular_values.max(initial=0.0)]
        deviations = deviations @ V.T
        coef = deviations @ (whitening @ V.T).T
        bias = -0.5 * (deviations**2).sum(axis=1) - coef @ overall_mean + np.log(counts / n)
        if k == 2:
            coef, bias = coef[1] - coef[0], bias[1] - bias[0]
        self.classes_, self._coef, self._bias = classes, coef.T, bias
        return self

    def decision_function(self, X: Array) -> Array:
        """Return decision values: one per row for two classes, else one per class."""
        return np.asarray(X @ self._coef + self._bias)

    def predict(self, X: Array) -> Array:
        """Return the predicted class of each row."""
        return np.asarray(self.classes_[class_columns(self.decision_function(X)).argmax(axis=1)])

    def predict_proba(self, X: Array) -> Array:
        """Return the probability of each class."""
        values = self.decision_function(X)
        # For two classes, class_columns returns (-v, v), but log-probabilities must differ by v.
        scale = 0.5 if values.ndim == 1 else 1.0
        return np.asarray(softmax(scale * class_columns(values), axis=1))
