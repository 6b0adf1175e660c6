"""How candidates of a ridge search are judged on rows that were left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer
from sklearn.utils.metaestimators import available_if

from domainwise.arrays import Array
from domainwise.arrays.namespace import to_host
from domainwise.calibration.curves import class_columns
from domainwise.ridge.problem import Weighted
from domainwise.scoring.predictions import codes_of
from domainwise.search.scores import Scorer, quiet_scores

#: Scores of numbers that are means over rows.
ROW_MEANS = (
    "neg_mean_absolute_error",
    "neg_mean_absolute_percentage_error",
    "neg_mean_gamma_deviance",
    "neg_mean_poisson_deviance",
    "neg_mean_squared_log_error",
)


class ClassRule(ClassifierMixin, BaseEstimator):
    """Turns decision values into classes, for scorers: its X are the values.

    With ``told`` it has nothing to say but classes.
    """

    def __init__(self, classes: Any = None, told: bool = False) -> None:
        self.classes = classes
        self.told = told

    @property
    def classes_(self) -> Array:
        """Classes, in the order of the columns."""
        return np.asarray(self.classes)

    def codes(self, values: Array) -> Array:
        """Codes of classes, by sign (two of them) or by the largest value."""
        return np.asarray(class_columns(values).argmax(axis=1))

    def predict(self, values: Array) -> Array:
        """Classes that the values tell."""
        return self.classes_[self.codes(values)]

    @available_if(lambda self: not self.told)
    def decision_function(self, values: Array) -> Array:
        """The values, one column for two classes."""
        return values[:, 0] if values.shape[1] == 1 else values


class NumberRule(RegressorMixin, BaseEstimator):
    """Passes predicted values on, for scorers: its X are the values."""

    def predict(self, values: Array) -> Array:
        """The values."""
        return values[:, 0] if values.shape[1] == 1 else values


def class_codes(n_classes: int) -> Array:
    """Targets of each class: -1 and 1 for two of them, else one column for each."""
    if n_classes == 2:
        return np.array([[-1.0], [1.0]])
    return 2.0 * np.eye(n_classes) - 1.0


@dataclass(frozen=True)
class Gathered:
    """A scorer of many candidates that sees the values of all rows.

    Rows may come in pieces, one after the other. Other scorers make less of a piece.
    """

    scorer: Any
    rule: Any

    def __call__(self, blocks: list[Array], y: Array) -> Array:
        """Score the values of candidates on the same rows."""
        return self.scores(self.piece(blocks, y))

    def piece(self, blocks: list[Array], y: Array) -> Any:
        """Take what the score needs of some rows."""
        return blocks, y

    def joined(self, pieces: Sequence[Any]) -> Any:
        """Make one piece of several, in their order."""
        blocks, y = zip(*pieces, strict=True)
        return [np.concatenate(each) for each in zip(*blocks, strict=True)], np.concatenate(y)

    def scores(self, piece: Any) -> Array:
        """Score every candidate."""
        with quiet_scores():
            return np.array([Scorer(self.scorer).outcome(**case) for case in self._cases(piece)])

    def _cases(self, piece: Any) -> Iterator[dict[str, Any]]:
        blocks, y = piece
        return ({"model": self.rule, "X": values, "y": y} for values in blocks)


class Averaged(Gathered):
    """A score that is a mean over rows: number of rows and scores of a piece suffice."""

    def piece(self, blocks: list[Array], y: Array) -> Any:
        """Score the piece."""
        return len(y), super().scores((blocks, y))

    def joined(self, pieces: Sequence[Any]) -> Any:
        """Average by the number of rows."""
        counts, scores = zip(*pieces, strict=True)
        return sum(counts), np.average(scores, axis=0, weights=counts)

    def scores(self, piece: Any) -> Array:
        """Scores of all pieces."""
        return np.asarray(piece[1])


class Counted(Gathered):
    """A score of classes that were told: how often each was told for each suffices."""

    def piece(self, blocks: list[Array], y: Array) -> Any:
        """Count pairs of classes, of shape (candidates, true, told)."""
        n = len(self.rule.classes_)
        codes = n * codes_of(y, self.rule.classes_)
        counts = [np.bincount(codes + self.rule.codes(b), minlength=n * n) for b in blocks]
        return np.reshape(counts, (-1, n, n))

    def joined(self, pieces: Sequence[Any]) -> Any:
        """Add counts."""
        return sum(pieces)

    def _cases(self, piece: Any) -> Iterator[dict[str, Any]]:
        classes, codes = self.rule.classes_, class_codes(len(self.rule.classes_))
        rule = ClassRule(classes, told=True)
        for table in piece:
            true, told = np.nonzero(table)
            weights = table[true, told].astype(float)
            yield {"model": rule, "X": codes[told], "y": classes[true], "sample_weight": weights}


def judging(scoring: Any, rule: Any) -> Gathered:
    """What takes as little of the rows left out as a score allows."""
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    if scoring in ROW_MEANS:
        return Averaged(scorer, rule)
    if isinstance(rule, ClassRule) and isinstance(scorer, type(get_scorer("accuracy"))):
        counted = Counted(scorer, rule)
        try:
            counted.scores(np.eye(len(rule.classes_))[None])
            return counted
        except (AttributeError, TypeError, ValueError):
            pass  # it looks at values, does not know weights, or is not for these classes
    return Gathered(scorer, rule)


#: Scores of numbers that follow from squared errors, variances and means of the targets.
ERROR_SCORES = ("neg_mean_squared_error", "neg_root_mean_squared_error", "r2")


def score_of_errors(scoring: str | None, errors: Array, test: Weighted, targets: slice) -> Array:
    """Score candidates by mean squared errors of shape (candidates, targets); None is these."""
    if scoring == "neg_root_mean_squared_error":
        return -np.sqrt(errors).mean(axis=1)
    if scoring != "r2":
        return -errors.mean(axis=1)
    mean, variance = to_host(test.mean[targets]), to_host(test.second.diagonal()[targets])
    variance = variance / test.total
    # As scikit-learn has it: 0 for whoever errs about a constant, nothing for a single row.
    constant = variance <= (1e-14 * mean) ** 2
    parts = np.where(constant, errors > 0, errors / np.where(constant, 1.0, variance))
    return np.asarray((1.0 - parts).mean(axis=1)) if test.n_samples > 1 else errors[:, 0] * np.nan
