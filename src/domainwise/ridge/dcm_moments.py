"""The grid of FastDCMCV from moments: one pass over the rows serves all splits (theory 13.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import block_diag
from sklearn.base import clone

from domainwise.arrays import Array
from domainwise.backends import backend_of
from domainwise.checks.inputs import Labels
from domainwise.gram.sums import Cells, check_cell_memory, finalize
from domainwise.gram.tiles import single_blas_thread
from domainwise.kernels.functions import check_finite
from domainwise.labels.factors import LabelSpace
from domainwise.methods.contract import Gram
from domainwise.ridge.moments import split_rows
from domainwise.ridge.problem import by_split, joined
from domainwise.ridge.rows import Rows, cells_of
from domainwise.search.heads import rows_lost
from domainwise.search.search import Split, Task

ADVICE = "choose fewer n_landmarks, or a cv that leaves domains out in fewer groups"


class MomentFold:
    """A split whose training rows are known by their moments, in a cell for each class.

    Linear discriminant analysis and ridge regression look at means and covariances alone: they are
    fitted to a few points that have those of the projected rows.
    """

    y: Array  #: of these points

    def __init__(self, template: Any, cells: Cells, X_test: Array, target: Labels) -> None:
        self.template, self.cells, self.X_test, self.target = template, cells, X_test, target
        self.n_targets = 0 if target.values is None else target.values.shape[1]
        self.sums = joined(cells)
        for part in (self.sums.mean, self.sums.second):
            check_finite(part, template._map.landmarks.dtype)

    def gram(self, conditional: bool) -> tuple[Gram, LabelSpace]:
        """Return the operator of the training rows and their label space."""
        template, end = self.template, len(self.sums.mean) - self.n_targets
        gram, _, _ = finalize(
            self.sums.mapped(lambda part: part[:end] if part.ndim == 1 else part[:end, :end]),
            template._map,
            target=template._target_map,
            domain=template._domain_map,
            conditional=conditional,
        )
        return gram, gram.labels

    def project(self, gram: Any, dual: Array, image: Array) -> tuple[Array, Array]:
        """Return points that stand for the training rows, and the test rows."""
        weights, nystrom, m = gram.weights(dual), self.template._map, gram.size
        mean = self.sums.mean[:m]
        offset = mean @ weights - nystrom.kernel.constant * nystrom.dual(weights).sum(axis=0)
        test = nystrom.values(self.X_test, weights) - offset
        if self.n_targets:
            chosen = np.r_[:m, len(self.sums.mean) - self.n_targets : len(self.sums.mean)]
            both = block_diag(weights, np.eye(self.n_targets))
            inside = self.sums.second[np.ix_(chosen, chosen)]
            points = _points(both.T @ inside @ both / self.sums.n_samples)
            points[:, weights.shape[1] :] += self.sums.mean[-self.n_targets :]
            train, y = np.hsplit(points, [weights.shape[1]])
            self.y = y[:, 0] if self.n_targets == 1 else y
            return train, test
        labels = sorted(self.cells)
        centres = np.array([self.cells[label].mean[:m] - mean for label in labels]) @ weights
        inside = sum(cell.second[:m, :m] for cell in self.cells.values())
        n_points, left = 2 * weights.shape[1], (1 - rows_lost()) * len(labels)
        rows = max(self.sums.n_samples - rows_lost() * len(labels), 1)
        share = (n_points + left) / (n_points * rows)
        points = centres[0] + _points(share * weights.T @ inside @ weights)
        self.y = self.target.names[labels + [labels[0]] * len(points)]
        return np.vstack([centres, points]), test

    def fitted(self, head: Any, Z: Array) -> Any:
        """Fit a predictor to projected points."""
        n = self.sums.n_samples
        if self.n_targets:
            return head.fit(Z, self.y, sample_weight=np.full(len(Z), n / len(Z)))
        shares = [self.cells[label].n_samples / n for label in sorted(self.cells)]
        return head.set_params(priors=shares).fit(Z, self.y)


def _points(covariance: Array) -> Array:
    """Points of mean zero that have a covariance, two for each column."""
    size = np.sqrt(covariance.diagonal().clip(np.finfo(float).tiny))
    values, V = np.linalg.eigh(covariance / np.outer(size, size))
    half = (V * np.sqrt(len(V) * values.clip(0.0))).T * size
    return np.vstack([half, -half])


def score_from_moments(
    task: Task, X: Array, y: Array, target: Labels, domain: Labels, splits: list[Split]
) -> list[list[Any]]:
    """Score every point of the grid on every split; a row is projected where it is left out."""
    with single_blas_thread(task.one_thread):
        template = clone(task.template)
        template._begin(backend_of(X), X, target, domain)
        folds = _training_cells(template, Rows(X, target, domain), splits)
        return [
            task.scores(MomentFold(template, cells, X[split.test], target), y[split.test])
            for split, cells in zip(splits, folds, strict=True)
        ]


def _training_cells(template: Any, rows: Rows, splits: list[Split]) -> Iterator[Cells]:
    """Yield the cells of the rows that each split trains on, by class."""
    X, dense = rows.X, template._dense_labels(rows.target, rows.domain, slice(None))
    for part_of, parts in split_rows([(split.train, split.test) for split in splits], len(X)):
        cell_rows = cells_of(rows, part_of, True, dense)
        width = template._map.n_features + cell_rows.width
        check_cell_memory(len(cell_rows.cell_keys), [width], X, ADVICE)
        (cells,) = backend_of(X).sum_cells([template._map], X, cell_rows).maps
        for train, _ in by_split(cells, parts):
            yield train
