"""Ridge regression with the invariant kernel, and its errors, computed from moments (theory 13).

With M landmark features Phi, row weights s, and a domain factor F with weight w, the solution f
minimizes ``sum_i s_i |y_i - f(x_i)|^2 + alpha (|f|^2 + w f'FF'f)``. This is least squares with the
penalty ``alpha (I + w DD')``, where ``D = Phi'F``. Solutions and errors are computed from moments:
the row count, mean and centred second moment of each cell (a set of rows), as arrays or tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from threading import Lock
from typing import Any

import numpy as np

from domainwise.algebra.gram.sums import (
    Cells,
    NystromSums,
    add_groups,
    cells_by_split,
    joined_cells,
    merged_cells,
)
from domainwise.algebra.gram.tiles import in_threads
from domainwise.base.arrays import Array, concatenate_columns, shifted_solve, to_device_of, to_host
from domainwise.held_out.folds import SplitParts

#: Eigenvalues of the domain kernel below this fraction of the largest one are treated as zero.
RANK_TOLERANCE = 1e-12
#: Regression scores that can be computed from squared errors, variances and means of the targets.
ERROR_SCORES = ("neg_mean_squared_error", "neg_root_mean_squared_error", "r2")


@dataclass(frozen=True)
class Columns:
    """Layout of the columns of moments: features, domain descriptors and targets.

    If each cell contains rows of only one class, there are no target columns, and
    ``class_targets`` contains the target values of each class.
    """

    n_features: int
    n_descriptors: int = 0
    class_targets: Mapping[Any, Array] | None = None

    @property
    def targets(self) -> slice:
        """The target columns."""
        return slice(self.n_features + self.n_descriptors, None)


@dataclass(frozen=True)
class WeightedMoments:
    """Weighted mean and weighted, centred second moment of rows."""

    n_rows: int
    total_weight: float
    mean: Any
    second: Any


def weighted_moments(
    cells: Mapping[Any, NystromSums], row_weights: Mapping[Any, float], columns: Columns
) -> WeightedMoments:
    """Merge cells, with one row weight per cell, and append the target columns of classes."""
    cell_weights = {key: row_weights[key] * cell.n_samples for key, cell in cells.items()}
    total_weight = sum(cell_weights.values())
    first_mean = next(iter(cells.values())).mean
    means = {key: cell.mean for key, cell in cells.items()}
    for key, targets in (columns.class_targets or {}).items():
        if key in cells:
            means[key] = concatenate_columns([means[key], to_device_of(targets, first_mean)])
    mean: Any = sum(cell_weights[key] * means[key] for key in cells) / total_weight
    n_cell_columns = len(first_mean)
    second: Any = mean[:, None] * mean * 0.0
    for key, cell in cells.items():
        second[:n_cell_columns, :n_cell_columns] += row_weights[key] * cell.second
        if len(cells) > 1:
            deviation = means[key] - mean
            second += deviation[:, None] * (cell_weights[key] * deviation)
    n_rows = sum(cell.n_rows for cell in cells.values())
    return WeightedMoments(n_rows, float(total_weight), mean, second)


@dataclass(frozen=True)
class RidgeProblem:
    """Moments and domain directions from which solutions for all penalties are computed."""

    second: Any  #: weighted, centred second moment of the M features
    cross: Any  #: weighted, centred products of features and c targets, of shape (M, c)
    feature_mean: Any  #: weighted
    target_mean: Any  #: weighted
    #: D = ``Phi'F`` by ``conditional``: whether domains are compared within classes
    directions: dict[bool, Any]
    #: values of all solutions for held-out rows, in adjacent columns; None if no rows are in memory
    held_out: Any = None

    @classmethod
    def of_moments(
        cls, moments: WeightedMoments, columns: Columns, directions: dict[bool, Any]
    ) -> RidgeProblem:
        """Create the problem from moments and domain directions."""
        m, targets = columns.n_features, columns.targets
        second, mean = moments.second, moments.mean
        return cls(second[:m, :m], second[:m, targets], mean[:m], mean[targets], directions)

    def solutions(self, penalties: Sequence[tuple[float, bool]], alphas: Sequence[float]) -> Any:
        """Return solutions for each domain penalty (weight, conditional) and each alpha.

        With S = ``second`` and C = ``cross``, ``(S + alpha I + alpha w DD')^-1 C`` is computed by
        Woodbury's formula from ``(S + alpha I)^-1 [C, D]``, which all domain penalties share.
        Solutions are in adjacent columns; alpha varies fastest.
        """
        n_targets = self.cross.shape[1]
        conditionals = {conditional for weight, conditional in penalties if weight}
        directions = {c: D for c, D in self.directions.items() if c in conditionals}
        C_and_D = concatenate_columns([self.cross, *directions.values()])
        solutions: dict[tuple[int, int], Any] = {}
        for a, alpha in enumerate(alphas):
            images = shifted_solve(self.second, alpha, C_and_D)
            ridge_solution, start, direction_images = images[:, :n_targets], n_targets, {}
            for conditional, D in directions.items():
                direction_images[conditional] = images[:, start : start + D.shape[1]]
                start += D.shape[1]
            for p, (weight, conditional) in enumerate(penalties):
                solutions[p, a] = ridge_solution
                if weight and directions[conditional].shape[1]:
                    D, Z = directions[conditional], direction_images[conditional]
                    inner = D.T @ Z
                    solutions[p, a] = ridge_solution - Z @ shifted_solve(
                        (inner + inner.T) / 2, 1.0 / (alpha * weight), D.T @ ridge_solution
                    )
        return concatenate_columns([solutions[key] for key in sorted(solutions)])

    def squared_errors(self, coefficients: Any, moments: WeightedMoments, columns: Columns) -> Any:
        """Return weighted sums of squared errors on other rows, computed from their moments.

        The solutions ``coefficients`` have shape (M, candidates * c), the errors (candidates, c).
        """
        other_problem = self.of_moments(moments, columns, {})
        squared_targets = moments.second[columns.targets, columns.targets].diagonal()
        B = coefficients.reshape(len(coefficients), -1, len(self.target_mean))
        products = coefficients * (other_problem.second @ coefficients)
        quadratic_terms = products.sum(0).reshape(B.shape[1:])
        cross_terms = (B * other_problem.cross[:, None, :]).sum(0)
        shifts = (other_problem.feature_mean - self.feature_mean) @ coefficients
        biases = other_problem.target_mean - self.target_mean - shifts.reshape(B.shape[1:])
        centred_errors = squared_targets - 2.0 * cross_terms + quadratic_terms
        return (centred_errors + moments.total_weight * biases**2).clip(min=0.0)


#: Pairs ``(Phi'G, G'G)`` for mutually orthogonal sets of centred label features G.
Products = Iterable[tuple[Any, Array]]


def domain_directions(products: Products, shift: float, m: int, like: Any) -> Any:
    """Return ``Phi'F`` for ``FF' = GG' (GG' + shift I)^-1``, on the device of ``like``."""
    blocks = [to_device_of(np.zeros((m, 0)), like)]
    for cross, gram in products:
        d, V = np.linalg.eigh(gram)
        is_nonzero = d > RANK_TOLERANCE * max(float(d[-1]), np.finfo(float).tiny)
        blocks.append(cross @ to_device_of(V[:, is_nonzero] / np.sqrt(d[is_nonzero] + shift), like))
    return concatenate_columns(blocks)


def group_products(groups: Mapping[Any, tuple[float, Any]], m: int, conditional: bool) -> Products:
    """Yield the products for :func:`domain_directions` from the sums of (class, domain) groups.

    The first ``m`` columns are features. If ``conditional``, compare domains within each class.
    """
    groups_by_class: dict[Any, list[Any]] = {}
    for (label, domain), (n, total) in groups.items():
        key = label if conditional else None
        groups_by_class.setdefault(key, []).append((domain, (n, total[:m])))
    for class_groups in groups_by_class.values():
        sums = add_groups(class_groups)
        if len(sums) < 2:
            continue
        counts = np.array([n for n, _ in sums.values()], dtype=np.float64)
        mean = sum(total for _, total in sums.values()) / counts.sum()
        cross = concatenate_columns([(total - n * mean)[:, None] for n, total in sums.values()])
        yield cross, np.diag(counts) - np.outer(counts, counts / counts.sum())


def descriptor_products(cells: Iterable[NystromSums], columns: Columns) -> Products:
    """Yield the products for :func:`domain_directions` from the descriptors in each cell."""
    m, stop = columns.n_features, columns.n_features + columns.n_descriptors
    for cell in cells:
        yield cell.second[:m, m:stop], to_host(cell.second[m:stop, m:stop])


# Penalties, and scores of all candidates of one kernel on all splits.

#: Function that returns scores from a split's index, problem, solutions and test moments.
SplitScore = Callable[[int, RidgeProblem, Any, WeightedMoments], Array]


@dataclass(frozen=True)
class Penalties:
    """The candidates of one kernel, and arguments that they share."""

    domain_penalties: Sequence[tuple[float, bool]]  #: pairs of domain_weight and conditional
    alphas: Sequence[float]
    epsilon: float  #: regularization of the domain kernel
    class_weight: Any = None  #: dict of weights by class, as in the keys of cells, or "balanced"

    @property
    def combinations(self) -> list[tuple[tuple[float, bool], float]]:
        """All candidates, in the order of :meth:`RidgeProblem.solutions`."""
        return list(product(self.domain_penalties, self.alphas))

    @property
    def conditionals(self) -> list[bool]:
        """Values of ``conditional`` that occur with a positive weight."""
        return sorted({conditional for weight, conditional in self.domain_penalties if weight})

    def class_weights(self, counts: Mapping[Any, float]) -> dict[Any, float]:
        """Return the row weight for each class, as in :class:`sklearn.svm.SVC`."""
        if self.class_weight is None:
            return dict.fromkeys(counts, 1.0)
        if isinstance(self.class_weight, str):
            mean_count = sum(counts.values()) / len(counts)
            return {label: mean_count / n for label, n in counts.items()}
        return {label: float(self.class_weight.get(label, 1.0)) for label in counts}

    def problem(self, cells: Cells, columns: Columns) -> RidgeProblem:
        """Create the problem for the rows of all cells, which are keyed by class."""
        row_counts = {label: cell.n_samples for label, cell in cells.items()}
        groups = add_groups(chain.from_iterable(cell.groups.items() for cell in cells.values()))
        m, first_mean = columns.n_features, next(iter(cells.values())).mean

        def get_products(conditional: bool) -> Products:
            if not columns.n_descriptors:
                return group_products(groups, m, conditional)
            compared_cells = cells.values() if conditional else [joined_cells(cells)]
            return descriptor_products(compared_cells, columns)

        shift = sum(row_counts.values()) * self.epsilon
        directions = {
            c: domain_directions(get_products(c), shift, m, first_mean) for c in self.conditionals
        }
        moments = weighted_moments(cells, self.class_weights(row_counts), columns)
        return RidgeProblem.of_moments(moments, columns, directions)


def score_cells(
    cells: Cells, columns: Columns, splits: SplitParts, penalties: Penalties, score: SplitScore
) -> Array:
    """Return the scores of all candidates, of shape (candidates, splits).

    A column is NaN if its split has no training rows, no test rows, or only one training class.
    """
    scores = np.full((len(penalties.combinations), len(splits)), np.nan)
    split_cells, lock = enumerate(cells_by_split(cells, splits)), Lock()

    def work(thread: int, pool_size: int) -> None:
        while True:
            with lock:  # cells_by_split merges the cells of a split when a thread asks for them
                i, (train_cells, test_cells) = next(split_cells, (-1, ({}, {})))
            if i < 0:
                return
            classes = {label for cell in train_cells.values() for label in cell.classes()}
            if not train_cells or not test_cells or (len(classes) == 1 and classes != {None}):
                continue
            problem = penalties.problem(train_cells, columns)
            solutions = problem.solutions(penalties.domain_penalties, penalties.alphas)
            test_moments = weighted_moments(test_cells, dict.fromkeys(test_cells, 1.0), columns)
            scores[:, i] = score(i, problem, solutions, test_moments)

    is_on_device = not isinstance(next(iter(cells.values())).mean, np.ndarray)
    in_threads(1 if is_on_device else len(splits), work)
    return scores


def error_score(columns: Columns, scoring: str | None = None) -> SplitScore:
    """Return a function that scores a split by squared errors, for which moments suffice."""

    def score(split: int, problem: RidgeProblem, solutions: Any, moments: WeightedMoments) -> Array:
        errors = to_host(problem.squared_errors(solutions, moments, columns)) / moments.total_weight
        return scores_from_errors(scoring, errors, moments, columns)

    return score


def needs_predictions(scoring: Any, is_classification: bool) -> bool:
    """Return whether a score requires predictions for rows, not only moments."""
    return scoring is not None and (is_classification or scoring not in ERROR_SCORES)


def scores_from_errors(
    scoring: str | None, errors: Array, moments: WeightedMoments, columns: Columns
) -> Array:
    """Convert mean squared errors (candidates, targets) to scores; the default is negative MSE."""
    if scoring == "neg_root_mean_squared_error":
        return -np.sqrt(errors).mean(axis=1)
    if scoring != "r2":
        return -errors.mean(axis=1)
    means = to_host(moments.mean[columns.targets])
    variances = to_host(moments.second.diagonal()[columns.targets]) / moments.total_weight
    # As in scikit-learn: 0 if the target is constant and errors are not 0, NaN for a single row.
    is_constant = variances <= (1e-14 * means) ** 2
    ratios = np.where(is_constant, errors > 0, errors / np.where(is_constant, 1.0, variances))
    return np.asarray((1.0 - ratios).mean(axis=1) * (1.0 if moments.n_rows > 1 else np.nan))


def problem_of_all_rows(cells: Cells, columns: Columns, penalties: Penalties) -> RidgeProblem:
    """Create the problem for all rows, from cells whose keys are (part, class) pairs."""
    cells_by_class: Cells = {}
    for (_, label), cell in cells.items():
        cells_by_class = merged_cells(cells_by_class, {label: cell})
    return penalties.problem(cells_by_class, columns)
