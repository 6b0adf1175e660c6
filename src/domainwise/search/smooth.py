"""A smooth score for choosing: which rows are hit on a few domains is noise, how clearly is less.

For classes it is minus the log loss of probabilities that a logistic curve makes of outputs for
domains left out, for numbers minus the squared error. The classes of a domain, then the domains,
count the same. The curve is common to all splits, so that a search hands in the outputs of all of
them, instead of a score of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.calibration.curves import class_columns, equal_weights, fit_curve
from domainwise.scoring.predictions import codes_of
from domainwise.splits.draw import draw_rows

#: Rows on which candidates are compared, at most.
COMPARED_ROWS = 5000
#: Probabilities of trees are never quite 0: a logarithm is taken.
LEAST_PROBABILITY = 1e-3


def outputs(model: Any, X: Any, n_classes: int, codes: Array | None = None) -> Array:
    """Log-probabilities or decision values of all classes, or values of a continuous target.

    ``n_classes`` is 0 for the latter. ``codes`` are the places of the model's classes among all;
    None if they are codes. One column for each class, or one.
    """
    if not n_classes:
        values = np.asarray(model.predict(X), dtype=np.float64)
        return values.reshape(len(values), 1)
    if hasattr(model, "decision_function"):
        found = class_columns(np.asarray(model.decision_function(X), dtype=np.float64))
        least = found.min(axis=1, initial=0.0)
    else:
        if hasattr(model, "predict_proba"):
            p = np.asarray(model.predict_proba(X), dtype=np.float64)
        else:
            p = (np.asarray(model.predict(X)).reshape(-1, 1) == model.classes_).astype(np.float64)
        found = np.log(np.maximum(p, LEAST_PROBABILITY))
        least = np.full(len(p), np.log(LEAST_PROBABILITY))
    if found.shape[1] == n_classes:
        return found
    columns = np.repeat(least[:, None], n_classes, axis=1)  # of classes that it has not seen
    columns[:, np.asarray(model.classes_ if codes is None else codes, dtype=np.intp)] = found
    return columns


def row_losses(values: Array, y: Array, domains: Array, n_classes: int) -> Array:
    """What each row of a domain left out adds to the loss; y are codes of classes, or numbers."""
    if not n_classes:
        return np.asarray(equal_weights(domains) * (y - values[:, 0]) ** 2)
    weights = equal_weights(domains, y)
    curve, _ = fit_curve(values, y, weights)
    chosen = curve.probabilities(values)[np.arange(len(y)), y]
    return np.asarray(-weights * np.log(np.maximum(chosen, 1e-300)))


@dataclass(frozen=True)
class SmoothScore:
    """The smooth score, for searches: they keep outputs, and have them scored together."""

    y: Array  #: classes as they are called, or a continuous target, of all rows of the search
    domains: Array | None
    classes: Array | None  #: names of the classes; None for a continuous target

    def __call__(self, model: Any, X: Any, y: Array) -> float:
        """Score of some rows by a curve of their own."""
        alone = SmoothScore(np.asarray(y), None, self.classes)
        return float(alone.scores([self.outputs(model, X)], [np.arange(len(y))])[0])

    def outputs(self, model: Any, X: Any) -> Array:
        """Outputs of a candidate for rows that it was fitted without."""
        if self.classes is None:
            return outputs(model, X, 0)
        codes = codes_of(model.classes_, self.classes)
        found = outputs(model, X, len(self.classes), codes)
        # A model that knows all classes may have them in another order.
        return found if len(codes) < len(self.classes) else found[:, np.argsort(codes)]

    def scores(self, values: Sequence[Array], tests: Sequence[Array]) -> Array:
        """Scores of a candidate on the splits, whose mean is the score of all rows.

        ``values`` are outputs for the test rows of each split, ``tests`` these rows.
        """
        rows = np.concatenate(tests)
        domains = np.zeros(len(rows), int) if self.domains is None else self.domains[rows]
        domains = np.unique(domains, return_inverse=True)[1]
        kept = draw_rows(domains, max(COMPARED_ROWS, 2 * (int(domains.max()) + 1)), 0)
        y = self.y[rows[kept]]
        n_classes = 0 if self.classes is None else len(self.classes)
        y = y if self.classes is None else codes_of(y, self.classes)
        losses = row_losses(np.concatenate(values)[kept], y, domains[kept], n_classes)
        split = np.repeat(np.arange(len(tests)), [len(test) for test in tests])[kept]
        return -len(tests) * np.bincount(split, losses, minlength=len(tests))


def grouped_scores(
    scorer: Any, groups: Sequence[Sequence[int]], found: Sequence[Any], tests: Sequence[Array]
) -> Array:
    """The same of candidates that were scored in groups, all groups of a split together."""
    order, n = np.argsort(np.concatenate(groups)), len(groups)
    by_split = [list(chain(*found[i : i + n])) for i in range(0, len(found), n)]
    return scores_table(scorer, [[values[i] for i in order] for values in by_split], tests)


def scores_table(scorer: Any, found: Sequence[Sequence[Any]], tests: Sequence[Array]) -> Array:
    """Scores of shape (candidates, splits) from what :func:`scored` gave, split by split."""
    if not isinstance(scorer, SmoothScore):
        return np.array(found, dtype=np.float64).T
    return np.array([scorer.scores(values, tests) for values in zip(*found, strict=True)])
