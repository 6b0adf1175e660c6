"""Scores of all candidates of one kernel on all splits, from moments or from a few rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
from sklearn.model_selection import LeaveOneGroupOut, LeavePGroupsOut

from domainwise.arrays import Array
from domainwise.arrays.namespace import to_host
from domainwise.gram.sums import Cells, added, cells_by_split, joined_cells, merged_cells
from domainwise.gram.tiles import in_threads
from domainwise.labels.factors import within
from domainwise.ridge import problem as ridge
from domainwise.ridge.rules import score_of_errors
from domainwise.splits.folds import MAX_FOLDS, SplitParts, split_parts
from domainwise.splits.splitters import LeaveDomainsOut

#: The least weight of a row, next to the largest: there are roots of it to divide by.
LEAST_WEIGHT = 1e-12

#: What a split's solutions are worth: called with its number, problem, solutions and test moments.
Judge = Callable[[int, ridge.RidgeProblem, Any, ridge.Weighted], Array]


@dataclass(frozen=True)
class Penalties:
    """Everything that is varied for one kernel, and what all of it shares."""

    kinds: Sequence[tuple[float, bool]]  #: weights, and whether domains are compared inside classes
    alphas: Sequence[float]
    epsilon: float  #: regularisation of the domain kernel
    class_weight: Any = None  #: by the labels that cells have, or "balanced"

    @property
    def conditionals(self) -> list[bool]:
        """Ways of comparing domains that any kind needs."""
        return sorted({conditional for weight, conditional in self.kinds if weight})

    def class_weights(self, counts: Mapping[Any, int]) -> dict[Any, float]:
        """Weight of each row of each class; they add up to the number of rows."""
        if self.class_weight is None:
            return dict.fromkeys(counts, 1.0)
        if isinstance(self.class_weight, str):
            given = {label: 1.0 / n for label, n in counts.items()}
        else:
            given = {label: float(self.class_weight.get(label, 1.0)) for label in counts}
        scale = sum(counts.values()) / sum(given[label] * n for label, n in counts.items())
        return {label: weight * scale for label, weight in given.items()}

    def directions(
        self, parts: Callable[[bool], Any], n_samples: int, m: int, like: Any
    ) -> dict[bool, Any]:
        """``Phi'F`` of each way of comparing domains, from the label features of its parts."""
        shift = n_samples * self.epsilon
        return {c: ridge.span(parts(c), shift, m, like) for c in self.conditionals}

    def problem(self, cells: Cells, columns: ridge.Columns) -> ridge.RidgeProblem:
        """Problem of the rows of some cells, one for each class."""
        counts = {label: cell.n_samples for label, cell in cells.items()}
        groups = added(chain.from_iterable(cell.groups.items() for cell in cells.values()))
        m = columns.n_features

        def parts(conditional: bool) -> Any:
            if not columns.n_descriptors:
                return ridge.group_parts(groups, m, conditional)
            inside = cells.values() if conditional else [joined_cells(cells)]
            return ridge.descriptor_parts(inside, columns)

        like = next(iter(cells.values())).mean
        directions = self.directions(parts, sum(counts.values()), m, like)
        moments = ridge.weighted(cells, self.class_weights(counts), columns)
        return ridge.RidgeProblem.of_moments(moments, columns, directions)


def score_cells(
    cells: Cells, columns: ridge.Columns, splits: SplitParts, penalties: Penalties, judge: Judge
) -> Array:
    """Return the scores of all candidates, of shape (candidates, splits).

    A column is NaN where fewer than two classes are left to train on.
    """
    n_points = len(penalties.kinds) * len(penalties.alphas)
    scores = np.full((n_points, len(splits)), np.nan)
    pairs, turn = enumerate(cells_by_split(cells, splits)), Lock()

    def work(thread: int, threads: int) -> None:
        while True:
            with turn:  # merges are made one after the other, and only as they are needed
                i, (train, test) = next(pairs, (-1, ({}, {})))
            if i < 0:
                return
            classes = {label for cell in train.values() for label in cell.classes()}
            if not train or not test or (len(classes) == 1 and classes != {None}):
                continue
            problem = penalties.problem(train, columns)
            solutions = problem.solutions(penalties.kinds, penalties.alphas)
            # Classes count the same, those that the left-out rows have.
            equal = {label: 1.0 / (len(test) * cell.n_samples) for label, cell in test.items()}
            scores[:, i] = judge(i, problem, solutions, ridge.weighted(test, equal, columns))

    on_device = not isinstance(next(iter(cells.values())).mean, np.ndarray)
    in_threads(1 if on_device else len(splits), work)
    return scores


def by_errors(columns: ridge.Columns, scoring: str | None = None) -> Judge:
    """Judge by squared errors, without looking at a row."""
    targets = slice(columns.n_features + columns.n_descriptors, None)

    def judge(
        split: int, problem: ridge.RidgeProblem, solutions: Any, test: ridge.Weighted
    ) -> Array:
        errors = to_host(problem.squared_errors(solutions, test, columns)) / test.total
        return score_of_errors(scoring, errors, test, targets)

    return judge


def all_rows(cells: Cells, columns: ridge.Columns, penalties: Penalties) -> ridge.RidgeProblem:
    """Problem of the rows of all cells."""
    by_class: Cells = {}
    for (_, label), cell in cells.items():
        by_class = merged_cells(by_class, {label: cell})
    return penalties.problem(by_class, columns)


# SplitParts as sets of parts.


def leaves_domains_out(cv: Any) -> bool:
    """Whether a splitter looks at domains alone, so that it needs no rows."""
    return cv is None or isinstance(cv, LeaveDomainsOut | LeaveOneGroupOut | LeavePGroupsOut)


def split_domains(cv: Any, n_domains: int) -> tuple[Array, SplitParts]:
    """Part of each domain, and the parts of each split.

    Domains that all splits keep together make one part.
    """
    splitter = LeaveDomainsOut(max_splits=MAX_FOLDS) if cv is None else cv
    domains = np.arange(n_domains)
    found = list(splitter.split(domains[:, None], None, domains))
    return split_parts(found, n_domains)


# A few rows, of which all pairs are held.


@dataclass(frozen=True)
class HeldRows:
    """Inner products of the features of all pairs of rows, targets, and labels.

    Functions of some rows are given by weights of these: with as many features as rows, or more,
    systems are as large as the rows of a split are many, and nothing is summed.
    """

    gram: Array
    Y: Array
    groups: Array  #: class and domain code of each row
    descriptors: Array | None = None

    def problem(self, rows: Array, penalties: Penalties) -> HeldProblem:
        """Problem of some of the rows."""
        K, groups, n = self.gram[np.ix_(rows, rows)], self.groups[rows], len(rows)

        def parts(conditional: bool) -> Any:
            if self.descriptors is None:
                return ridge.group_parts(_indicators(groups), n, conditional)
            inside = groups[:, 0] if conditional else np.zeros(n, dtype=int)
            return ((G, G.T @ G) for G in within(self.descriptors[rows], inside))

        labels, codes, counts = np.unique(groups[:, 0], return_inverse=True, return_counts=True)
        weights = penalties.class_weights(dict(zip(labels, counts.tolist(), strict=True)))
        weight = np.array([weights[label] for label in labels])[codes]
        # Domains are compared on all rows, also those whose errors cost nothing.
        root = np.sqrt(np.maximum(weight, LEAST_WEIGHT * weight.max()))
        share = root**2 / np.sum(root**2)
        mean, target = share @ K, share @ self.Y[rows]
        second = K
        second -= mean
        second -= (mean - share @ mean)[:, None]
        if penalties.class_weight is not None:
            second *= root
            second *= root[:, None]
        directions = penalties.directions(parts, n, n, second)
        directions = {name: F / root[:, None] for name, F in directions.items()}
        images = {name: second @ F for name, F in directions.items()}
        cross = root[:, None] * (self.Y[rows] - target)
        return HeldProblem(second, cross, mean, target, directions, images, rows, root)

    def predicted(self, rows: Array, problem: HeldProblem, solutions: Array) -> list[Array]:
        """Values of each solution on some of the rows."""
        c = len(problem.target)
        values = self.gram[np.ix_(rows, problem.rows)] @ solutions - problem.mean @ solutions
        return [values[:, i : i + c] + problem.target for i in range(0, values.shape[1], c)]


@dataclass(frozen=True)
class HeldProblem(ridge.RidgeProblem):
    """A problem whose solutions are weights of rows."""

    rows: Any = None  #: which they are
    root: Any = None  #: of the weight of each row's error
    left_out: Any = None  #: values of each candidate for rows that splits have left out

    def solutions(self, kinds: Sequence[tuple[float, bool]], alphas: Sequence[float]) -> Any:
        """Weights of rows for each kind of penalty and alpha; see :class:`RidgeProblem`."""
        found = self.root[:, None] * super().solutions(kinds, alphas)
        return found - (self.root**2 / np.sum(self.root**2))[:, None] * found.sum(axis=0)


def _indicators(groups: Array) -> dict[Any, tuple[int, Array]]:
    """Number of rows of each group, and which they are."""
    keys, codes, counts = np.unique(groups, axis=0, return_inverse=True, return_counts=True)
    return {
        tuple(key): (int(count), (codes.ravel() == g).astype(np.float64))
        for g, (key, count) in enumerate(zip(keys.tolist(), counts, strict=True))
    }
