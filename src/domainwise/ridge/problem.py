"""Ridge regression with the invariant kernel, and its errors, computed from moments (theory 13).

With M landmark features Phi and a domain factor F, kernel ridge regression with the invariant
kernel minimizes ``sum_i s_i |y_i - f(x_i)|^2 + alpha (|f|^2 + w f'FF'f)``. This is least squares
with the penalty ``alpha (I + w DD')``, ``D = Phi'F``. Solutions and errors are computed from the
number of rows, mean and centred second moment of each cell (set of rows), as arrays or tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.arrays.namespace import concatenate_columns, shifted_solve, to_device_of, to_host
from domainwise.gram.sums import (
    Cells,
    NystromSums,
    add_groups,
    cells_by_split,
    joined_cells,
    merged_cells,
)
from domainwise.gram.tiles import in_threads
from domainwise.splits.folds import SplitParts

#: Eigenvalues of the domain kernel below this fraction of the largest one are treated as zero.
RANK_TOLERANCE = 1e-12
#: Regression scores that can be computed from squared errors, variances and means of the targets.
ERROR_SCORES = ("neg_mean_squared_error", "neg_root_mean_squared_error", "r2")


@dataclass(frozen=True)
class Columns:
    """Layout of the columns of moments: features, descriptors of domains, targets.

    If all rows of a cell have the same class, ``codes`` contains the targets of each class, and
    there are no columns of targets.
    """

    n_features: int
    n_descriptors: int = 0
    codes: Mapping[Any, Array] | None = None


@dataclass(frozen=True)
class WeightedMoments:
    """Weighted moments of rows; the second moment is about the mean."""

    n_samples: int
    total: float  #: sum of weights
    mean: Any
    second: Any


def weighted_moments(
    cells: Mapping[Any, NystromSums], weights: Mapping[Any, float], columns: Columns
) -> WeightedMoments:
    """Merge cells with one weight for all rows of a cell, and add the targets of classes."""
    masses = {key: weights[key] * cell.n_samples for key, cell in cells.items()}
    total = sum(masses.values())
    any_mean = next(iter(cells.values())).mean
    means = {}
    for key, cell in cells.items():
        targets = [] if columns.codes is None else [to_device_of(columns.codes[key], any_mean)]
        means[key] = concatenate_columns([cell.mean, *targets])
    mean = sum(masses[key] * means[key] for key in cells) / total
    width = len(any_mean)
    second: Any = mean[:, None] * mean * 0.0
    for key, cell in cells.items():
        second[:width, :width] += weights[key] * cell.second
        if len(cells) > 1:
            deviation = means[key] - mean
            second += deviation[:, None] * (masses[key] * deviation)
    n_samples = sum(cell.n_samples for cell in cells.values())
    return WeightedMoments(n_samples, float(total), mean, second)


@dataclass(frozen=True)
class RidgeProblem:
    """Moments and domain directions that the solutions for all penalties share."""

    second: Any  #: weighted, centred second moment of the M features
    cross: Any  #: weighted, centred products of features and c targets, of shape (M, c)
    mean: Any  #: weighted mean of the features
    target: Any  #: weighted mean of the targets
    #: ``Phi'F`` by ``conditional``: whether domains are compared within classes
    directions: dict[bool, Any]
    #: Values of all solutions for held-out rows, in adjacent columns; None without rows in memory
    held_out: Any = None

    @classmethod
    def of_moments(
        cls, moments: WeightedMoments, columns: Columns, directions: dict[bool, Any]
    ) -> RidgeProblem:
        """Create the problem from moments and domain directions."""
        m, first = columns.n_features, columns.n_features + columns.n_descriptors
        second, mean = moments.second, moments.mean
        return cls(second[:m, :m], second[:m, first:], mean[:m], mean[first:], directions)

    def solutions(self, kinds: Sequence[tuple[float, bool]], alphas: Sequence[float]) -> Any:
        """Return solutions for each kind of penalty (weight, conditional) and each alpha.

        With S = ``second`` and C = ``cross``, ``(S + alpha I + alpha w DD')^-1 C`` is computed with
        Woodbury's formula, so that all kinds share the solutions for C and D with the same alpha.
        Solutions are in adjacent columns; alpha varies fastest.
        """
        n_targets = self.cross.shape[1]
        D_used = {c: D for c, D in self.directions.items() if any(w and k == c for w, k in kinds)}
        C_and_D = concatenate_columns([self.cross, *D_used.values()])
        solutions: dict[tuple[int, int], Any] = {}
        for a, alpha in enumerate(alphas):
            solved = shifted_solve(self.second, alpha, C_and_D)
            ridge_solution, first, solved_directions = solved[:, :n_targets], n_targets, {}
            for conditional, D in D_used.items():
                solved_directions[conditional] = solved[:, first : first + D.shape[1]]
                first += D.shape[1]
            for k, (weight, conditional) in enumerate(kinds):
                solutions[k, a] = ridge_solution
                if weight and D_used[conditional].shape[1]:
                    D, Z = D_used[conditional], solved_directions[conditional]
                    inner = D.T @ Z
                    solutions[k, a] = ridge_solution - Z @ shifted_solve(
                        (inner + inner.T) / 2, 1.0 / (alpha * weight), D.T @ ridge_solution
                    )
        order = [(k, a) for k in range(len(kinds)) for a in range(len(alphas))]
        return concatenate_columns([solutions[key] for key in order])

    def squared_errors(self, coefficients: Any, moments: WeightedMoments, columns: Columns) -> Any:
        """Return weighted sums of squared errors on other rows, computed from their moments.

        ``coefficients`` contains solutions of shape (M, candidates * c); errors have the shape
        (candidates, c).
        """
        other_problem = self.of_moments(moments, columns, {})
        c, first = len(self.target), columns.n_features + columns.n_descriptors
        target_squares = moments.second[first:, first:].diagonal()
        B = coefficients.reshape(len(coefficients), -1, c)
        shape = B.shape[1:]
        explained = (coefficients * (other_problem.second @ coefficients)).sum(0).reshape(shape)
        products = (B * other_problem.cross[:, None, :]).sum(0)
        offset = (other_problem.mean - self.mean) @ coefficients
        bias = (other_problem.target - self.target) - offset.reshape(shape)
        return (target_squares - 2.0 * products + explained + moments.total * bias**2).clip(min=0.0)


def span(parts: Iterable[tuple[Any, Array]], shift: float, m: int, like: Any) -> Any:
    """Return ``Phi'F`` for ``FF' = GG' (GG' + shift I)^-1`` of centred label features G.

    ``parts`` are pairs ``(Phi'G, G'G)`` for mutually orthogonal sets of label features.
    """
    blocks = [to_device_of(np.zeros((m, 0)), like)]
    for cross, gram in parts:
        d, V = np.linalg.eigh(gram)
        is_nonzero = d > RANK_TOLERANCE * max(float(d[-1]), np.finfo(float).tiny)
        blocks.append(cross @ to_device_of(V[:, is_nonzero] / np.sqrt(d[is_nonzero] + shift), like))
    return concatenate_columns(blocks)


def group_parts(
    groups: Mapping[Any, tuple[int, Any]], m: int, conditional: bool
) -> Iterator[tuple[Any, Array]]:
    """Yield ``parts`` for :func:`span` from the sums of (class, domain) groups.

    With ``conditional``, domains are compared within each class.
    """
    by_class: dict[Any, list[Any]] = {}
    for (label, domain), (count, total) in groups.items():
        by_class.setdefault(label if conditional else None, []).append((domain, (count, total[:m])))
    for class_groups in by_class.values():
        sums = add_groups(class_groups)
        if len(sums) < 2:
            continue
        counts = np.array([n for n, _ in sums.values()], dtype=np.float64)
        mean = sum(total for _, total in sums.values()) / counts.sum()
        cross = concatenate_columns([(total - n * mean)[:, None] for n, total in sums.values()])
        yield cross, np.diag(counts) - np.outer(counts, counts / counts.sum())


def descriptor_parts(cells: Iterable[NystromSums], columns: Columns) -> Iterator[tuple[Any, Array]]:
    """Yield ``parts`` for :func:`span` from the continuous descriptors within each cell."""
    m, end = columns.n_features, columns.n_features + columns.n_descriptors
    for cell in cells:
        yield cell.second[:m, m:end], to_host(cell.second[m:end, m:end])


# Penalties, and scores of all candidates of one kernel on all splits.

#: Function of a split's index, problem, solutions and test moments that returns scores.
SplitScore = Callable[[int, RidgeProblem, Any, WeightedMoments], Array]


@dataclass(frozen=True)
class Penalties:
    """The candidates of one kernel, and arguments that they share."""

    kinds: Sequence[tuple[float, bool]]  #: pairs of domain_weight and conditional
    alphas: Sequence[float]
    epsilon: float  #: regularization of the domain kernel
    class_weight: Any = None  #: by class label of the cells, or "balanced"

    @property
    def conditionals(self) -> list[bool]:
        """Values of ``conditional`` that occur with a positive weight."""
        return sorted({conditional for weight, conditional in self.kinds if weight})

    def class_weights(self, counts: Mapping[Any, int]) -> dict[Any, float]:
        """Return the row weight for each class, as in :class:`sklearn.svm.SVC`."""
        if self.class_weight is None:
            return dict.fromkeys(counts, 1.0)
        if isinstance(self.class_weight, str):
            mean_count = sum(counts.values()) / len(counts)
            return {label: mean_count / n for label, n in counts.items()}
        return {label: float(self.class_weight.get(label, 1.0)) for label in counts}

    def directions(
        self, parts: Callable[[bool], Any], n_samples: int, m: int, like: Any
    ) -> dict[bool, Any]:
        """Return ``Phi'F`` for each value of ``conditional``; ``parts`` returns those of span."""
        shift = n_samples * self.epsilon
        return {c: span(parts(c), shift, m, like) for c in self.conditionals}

    def problem(self, cells: Cells, columns: Columns) -> RidgeProblem:
        """Create the problem for the rows of these cells, of which there is one per class."""
        counts = {label: cell.n_samples for label, cell in cells.items()}
        groups = add_groups(chain.from_iterable(cell.groups.items() for cell in cells.values()))
        m = columns.n_features

        def parts(conditional: bool) -> Any:
            if not columns.n_descriptors:
                return group_parts(groups, m, conditional)
            compared_cells = cells.values() if conditional else [joined_cells(cells)]
            return descriptor_parts(compared_cells, columns)

        like = next(iter(cells.values())).mean
        directions = self.directions(parts, sum(counts.values()), m, like)
        moments = weighted_moments(cells, self.class_weights(counts), columns)
        return RidgeProblem.of_moments(moments, columns, directions)


def score_cells(
    cells: Cells, columns: Columns, splits: SplitParts, penalties: Penalties, score: SplitScore
) -> Array:
    """Return the scores of all candidates, of shape (candidates, splits).

    A column is NaN if its split has no training rows, no test rows, or only one training class.
    """
    n_candidates = len(penalties.kinds) * len(penalties.alphas)
    scores = np.full((n_candidates, len(splits)), np.nan)
    split_cells, lock = enumerate(cells_by_split(cells, splits)), Lock()

    def work(thread: int, threads: int) -> None:
        while True:
            with lock:  # the cells of a split are merged when a thread is ready for it
                i, (train, test) = next(split_cells, (-1, ({}, {})))
            if i < 0:
                return
            classes = {label for cell in train.values() for label in cell.classes()}
            if not train or not test or (len(classes) == 1 and classes != {None}):
                continue
            problem = penalties.problem(train, columns)
            solutions = problem.solutions(penalties.kinds, penalties.alphas)
            # The classes of the held-out rows have equal weights.
            weights = {label: 1.0 / (len(test) * cell.n_samples) for label, cell in test.items()}
            scores[:, i] = score(i, problem, solutions, weighted_moments(test, weights, columns))

    on_device = not isinstance(next(iter(cells.values())).mean, np.ndarray)
    in_threads(1 if on_device else len(splits), work)
    return scores


def error_score(columns: Columns, scoring: str | None = None) -> SplitScore:
    """Return a score that is computed from squared errors, for which moments suffice."""
    targets = slice(columns.n_features + columns.n_descriptors, None)

    def score(split: int, problem: RidgeProblem, solutions: Any, test: WeightedMoments) -> Array:
        errors = to_host(problem.squared_errors(solutions, test, columns)) / test.total
        return scores_from_errors(scoring, errors, test, targets)

    return score


def needs_predictions(scoring: Any, classification: bool) -> bool:
    """Whether a score requires predictions for rows, not only moments."""
    return scoring is not None and (classification or scoring not in ERROR_SCORES)


def scores_from_errors(
    scoring: str | None, errors: Array, test: WeightedMoments, targets: slice
) -> Array:
    """Return scores from mean squared errors (candidates, targets); None is the negative MSE."""
    if scoring == "neg_root_mean_squared_error":
        return -np.sqrt(errors).mean(axis=1)
    if scoring != "r2":
        return -errors.mean(axis=1)
    mean, variance = to_host(test.mean[targets]), to_host(test.second.diagonal()[targets])
    variance = variance / test.total
    # As in scikit-learn: 0 if the target is constant and errors are not 0, NaN for a single row.
    is_constant = variance <= (1e-14 * mean) ** 2
    ratios = np.where(is_constant, errors > 0, errors / np.where(is_constant, 1.0, variance))
    return np.asarray((1.0 - ratios).mean(axis=1)) if test.n_samples > 1 else errors[:, 0] * np.nan


def problem_of_all_rows(cells: Cells, columns: Columns, penalties: Penalties) -> RidgeProblem:
    """Create the problem for the rows of all cells."""
    by_class: Cells = {}
    for (_, label), cell in cells.items():
        by_class = merged_cells(by_class, {label: cell})
    return penalties.problem(by_class, columns)
