"""The searches of InvariantRidgeCV and InvariantRidgeClassifierCV, over rows or over their sums.

Both searches score all penalties of a kernel on all splits in one pass.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from domainwise.algebra.backends import Backend, backend_of
from domainwise.algebra.gram.nystrom import LabelMap, NystromMap
from domainwise.algebra.gram.sums import (
    CellRows,
    Cells,
    CellSums,
    cells_by_split,
    check_cell_memory,
    merged_cells,
)
from domainwise.algebra.kernels.approximations import FourierMap
from domainwise.algebra.labels import max_residual_trace
from domainwise.base.arrays import Array, to_device_of, to_host
from domainwise.base.inputs import Labels
from domainwise.base.process import single_blas_thread
from domainwise.estimators.projections.projection import Expansion
from domainwise.estimators.ridge.problem import (
    Columns,
    Penalties,
    RidgeProblem,
    SplitScore,
    error_score,
    problem_of_all_rows,
    score_cells,
)
from domainwise.estimators.ridge.scores import Rows, class_targets
from domainwise.held_out import folds
from domainwise.held_out.scoring.measures import check_task
from domainwise.held_out.search.driver import Candidate, limit_jobs, outputs_by_row
from domainwise.held_out.search.scores import as_score, quiet_scores

#: Up to this number of rows, splits are checked, and those that cannot be scored are removed.
MAX_CHECKED_ROWS = 1500
ADVICE = "use fewer landmarks (n_landmarks), kernels or gammas, or fewer groups of domains (cv)"


def kernel_of(nystrom: NystromMap) -> tuple[str, float]:
    """Return the name and gamma of a map's kernel."""
    kernel = nystrom.kernel
    return kernel.kernel if isinstance(kernel, FourierMap) else kernel.name, kernel.gamma


class RidgeSearch:
    """A search over penalties and kernels; each kernel has a feature map."""

    splits: list[Any]  #: pairs of training parts and test parts (sets of rows or domains)

    def __init__(self, maps: list[NystromMap], penalties: Penalties) -> None:
        self.maps, self.penalties = maps, penalties

    def candidates(self) -> list[Candidate]:
        """Return all combinations of kernels and penalties."""
        return [
            {"kernel": name, "gamma": gamma, "domain_weight": w, "conditional": c, "alpha": alpha}
            for name, gamma in map(kernel_of, self.maps)
            for (w, c), alpha in self.penalties.combinations
        ]

    def run(self, n_jobs: int | None) -> tuple[Array, list[RidgeProblem]]:
        """Return the scores of all candidates, and each map's ridge problem for all rows."""
        n_jobs = limit_jobs(n_jobs)
        score_map = delayed(partial(self._score_map, single_thread=n_jobs not in (None, 1)))
        results = Parallel(n_jobs=n_jobs)(map(score_map, range(len(self.maps))))
        scores, problems = zip(*results, strict=True)
        return np.vstack(scores), list(problems)

    def _score_map(self, i: int, single_thread: bool) -> tuple[Array, RidgeProblem]:
        with single_blas_thread(single_thread):
            return self.scores(i)

    @abstractmethod
    def scores(self, i: int) -> tuple[Array, RidgeProblem]:
        """Return scores (candidates, splits) for map i, and its ridge problem for all rows."""


def average_members(
    maps: Sequence[NystromMap], problems: Sequence[RidgeProblem], members: Sequence[Candidate]
) -> list[Expansion]:
    """Average the members, and return one function for each of their kernels."""
    expansions, share = [], 1.0 / len(members)
    for nystrom, problem in zip(maps, problems, strict=True):
        group = [m for m in members if (m["kernel"], m["gamma"]) == kernel_of(nystrom)]
        if group:
            penalties = [([(m["domain_weight"], m["conditional"])], [m["alpha"]]) for m in group]
            with single_blas_thread():  # more threads hardly reduce the time
                coefficients = share * sum(problem.solutions(*penalty) for penalty in penalties)
            target_mean = share * len(group) * problem.target_mean
            intercept = target_mean - problem.feature_mean @ coefficients
            expansions.append(Expansion.from_features(nystrom, coefficients, intercept))
    return expansions


# Rows in memory.


class RowSearch(RidgeSearch):
    """Search over rows in memory; one pass per kernel computes moments of cells (sets of rows).

    ``predicted_rows`` are indices of rows for which held-out values of all candidates are stored.
    """

    def __init__(
        self,
        estimator: Any,
        maps: list[NystromMap],
        penalties: Penalties,
        rows: Rows,
        predicted_rows: Array,
    ) -> None:
        super().__init__(maps, penalties)
        self.rows, self.predicted_rows = rows, predicted_rows
        self.scoring, self.rule = estimator.scoring, estimator._scored_rule()
        if self.scoring is not None:
            check_task(self.scoring, rows.target.codes is not None)
        self.descriptors = descriptors_of(estimator, rows, penalties)
        n_domains, domain_codes = rows.domain.n_categories, rows.codes()[1]
        if folds.leaves_domains_out(rows.cv) and n_domains > 1 and len(rows.X) > MAX_CHECKED_ROWS:
            codes, targets = to_host(domain_codes), folds.target_numbers(rows.y)
            weights = np.ones(len(codes)) if rows.weights is None else rows.weights
            sizes = np.bincount(codes, weights)
            sums = np.column_stack([np.bincount(codes, weights * t) for t in targets.T])
            domain_parts, splits = folds.split_domains(rows.cv, sizes, sums / sizes[:, None])
            passes: list[Any] = [(to_device_of(domain_parts, domain_codes)[domain_codes], splits)]
        else:
            host_domain_codes = None if rows.domain.codes is None else to_host(rows.domain.codes)
            options: Any = {"classification": rows.target.codes is not None, "cv": rows.cv}
            X = to_host(rows.X) if len(rows.X) <= MAX_CHECKED_ROWS else None
            row_splits, _ = folds.domain_folds(rows.y, host_domain_codes, X=X, **options)
            passes = [
                (to_device_of(part_codes, domain_codes), splits)
                for part_codes, splits in folds.split_rows(row_splits, len(rows.X))
            ]
        self.splits = [split for _, splits in passes for split in splits]
        self.by_class = _needs_class_moments(penalties, self.descriptors)
        self.passes = [
            (cells_of(rows, part_codes, self.by_class, self.descriptors), part_codes, splits)
            for part_codes, splits in passes
        ]
        n_cells = max(len(cell_rows.cell_keys) for cell_rows, _, _ in self.passes)
        width = max(m.n_features for m in maps) + self.passes[0][0].n_extra_columns
        check_cell_memory(n_cells, [width], rows.X, ADVICE)

    def scores(self, i: int) -> tuple[Array, RidgeProblem]:
        """Return scores (candidates, splits) for map i, and its ridge problem for all rows."""
        nystrom, rows, first_split = self.maps[i], self.rows, 0
        columns = columns_of(nystrom, rows.target, self.by_class, self.descriptors)
        scores: list[Array] = []
        problem: Any = None
        stored_values: dict[int, tuple[Array, Array]] = {}
        for cell_rows, part_codes, splits in self.passes:
            cells = backend_of(rows.X).sum_cells(nystrom, rows.X, cell_rows)
            pass_args = (part_codes, splits, first_split, stored_values)
            score = self._split_score(nystrom, columns, *pass_args)
            scores.append(score_cells(cells, columns, splits, self.penalties, score))
            problem = problem_of_all_rows(cells, columns, self.penalties)
            first_split += len(splits)
        if stored_values:
            ordered_values = (stored_values[split] for split in sorted(stored_values))
            split_values, positions = zip(*ordered_values, strict=True)
            held_out = outputs_by_row(split_values, positions, len(self.predicted_rows))
            problem = replace(problem, held_out=held_out)
        return np.hstack(scores), problem

    def _split_score(
        self,
        nystrom: NystromMap,
        columns: Columns,
        part_codes: Any,
        splits: folds.SplitParts,
        first_split: int,
        stored_values: dict[int, tuple[Array, Array]],
    ) -> SplitScore:
        """Return a function that scores a split and stores its held-out values."""
        host_part_codes, y, score_errors = to_host(part_codes), self.rows.y, error_score(columns)

        def score(split: int, problem: RidgeProblem, solutions: Any, test: Any) -> Array:
            is_test = np.isin(host_part_codes, splits[split][1])
            positions = np.flatnonzero(is_test[self.predicted_rows])
            indices = self.predicted_rows[positions]
            if self.scoring is not None:
                indices = np.flatnonzero(is_test)
            X_test = self.rows.X[to_device_of(indices, part_codes)]
            outputs = to_host(expansion(nystrom, problem, solutions)(X_test))
            is_stored = np.isin(indices, self.predicted_rows)
            stored_values[first_split + split] = outputs[is_stored], positions
            if self.scoring is None:
                return score_errors(split, problem, solutions, test)
            candidate_outputs = np.hsplit(outputs, solutions.shape[1] // len(problem.target_mean))
            weights = None if self.rows.weights is None else self.rows.weights[indices]
            args, scorer = (y[indices], weights), as_score(self.scoring)
            with quiet_scores():
                return np.array([scorer.outcome(self.rule, o, *args) for o in candidate_outputs])

        return score

    def held_out(self, members: Sequence[Candidate], problems: Sequence[RidgeProblem]) -> Array:
        """Return the mean held-out values of the members for ``predicted_rows``.

        Values are NaN for rows that no split holds out.
        """
        penalties, kernels = self.penalties.combinations, map(kernel_of, self.maps)
        values_by_kernel = dict(zip(kernels, [p.held_out for p in problems], strict=True))
        member_values = []
        for m in members:
            blocks = np.hsplit(values_by_kernel[m["kernel"], m["gamma"]], len(penalties))
            penalty = ((m["domain_weight"], m["conditional"]), m["alpha"])
            member_values.append(blocks[penalties.index(penalty)])
        return np.asarray(np.mean(member_values, axis=0))


def descriptors_of(estimator: Any, rows: Rows, penalties: Penalties) -> Array | None:
    """Return features of continuous domain descriptors; None if domains are labels."""
    if rows.domain.values is None:
        return None
    max_weight = max(weight for weight, _ in penalties.domain_penalties)
    label_map = LabelMap.choose(
        rows.domain.values,
        "rbf" if estimator.domain_kernel == "auto" else estimator.domain_kernel,
        estimator.domain_gamma,
        max_residual_trace(estimator.domain_epsilon, max_weight),
        name="the domain kernel",
        weights=rows.weights,
    )
    return label_map.features(rows.domain.values)


def expansion(nystrom: NystromMap, problem: RidgeProblem, solutions: Any) -> Expansion:
    """Return a function whose values are those of all solutions, in adjacent columns."""
    mean = problem.target_mean
    repeated_mean = mean.reshape(1, -1) + 0.0 * solutions[0].reshape(-1, len(mean))
    intercept = repeated_mean.reshape(-1) - problem.feature_mean @ solutions
    return Expansion.from_features(nystrom, solutions, intercept)


def _needs_class_moments(penalties: Penalties, descriptors: Array | None) -> bool:
    """Return whether a problem requires the moments of each class separately."""
    is_conditional = descriptors is not None and True in penalties.conditionals
    return penalties.class_weight is not None or is_conditional


def cells_of(rows: Rows, part_codes: Any, by_class: bool, descriptors: Array | None) -> CellRows:
    """Divide rows into cells by part, and also by class if ``by_class``."""
    blocks = [] if descriptors is None else [descriptors]
    blocks += [] if by_class else [rows.Y]
    extra_columns = np.hstack(blocks) if blocks else None
    n_categories = rows.target.n_categories, rows.domain.n_categories
    options: Any = n_categories, extra_columns, by_class, rows.weights
    return CellRows.of_parts(part_codes, *rows.codes(), *options)


def columns_of(
    nystrom: NystromMap, target: Labels, by_class: bool, descriptors: Array | None
) -> Columns:
    """Return the column layout of the moments for cells from :func:`cells_of`."""
    targets_by_class = dict(enumerate(class_targets(target.n_categories))) if by_class else None
    n_descriptors = 0 if descriptors is None else descriptors.shape[1]
    return Columns(nystrom.n_features, n_descriptors, targets_by_class)


def held_out_values(
    nystrom: NystromMap, penalties: Penalties, rows: Rows, splits: Sequence[folds.Split]
) -> list[list[Array]]:
    """Return the values of all solutions for the test rows of each split; domains must be labels.

    Rows are summed once, in sets that no split divides.
    """
    by_class = _needs_class_moments(penalties, None)
    columns = columns_of(nystrom, rows.target, by_class, None)
    values: list[list[Array]] = []
    for part_codes, split_parts in folds.split_rows(splits, len(rows.X)):
        cell_rows = cells_of(rows, part_codes, by_class, None)
        cells = backend_of(rows.X).sum_cells(nystrom, rows.X, cell_rows)
        for train_cells, _ in cells_by_split(cells, split_parts):
            problem = penalties.problem(train_cells, columns)
            solutions = problem.solutions(penalties.domain_penalties, penalties.alphas)
            X_test = rows.X[splits[len(values)][1]]
            outputs = to_host(expansion(nystrom, problem, solutions)(X_test))
            values.append(np.hsplit(outputs, len(penalties.combinations)))
    return values


def problem_of(
    estimator: Any, nystrom: NystromMap, rows: Rows, penalties: Penalties
) -> RidgeProblem:
    """Create the ridge problem for all rows."""
    descriptors = descriptors_of(estimator, rows, penalties)
    by_class = _needs_class_moments(penalties, descriptors)
    cell_rows = cells_of(rows, np.zeros(len(rows.X), dtype=np.int64), by_class, descriptors)
    cells = backend_of(rows.X).sum_cells(nystrom, rows.X, cell_rows)
    columns = columns_of(nystrom, rows.target, by_class, descriptors)
    return problem_of_all_rows(cells, columns, penalties)


# Sums of rows that are not stored.


def cells_by_domain(backend: Backend, maps: list[NystromMap], rows: Rows) -> CellSums:
    """Sum a batch of rows by domain and class; keys are (domain, class) pairs."""
    class_codes, domain_codes = rows.codes()
    extra_columns: Any = rows.Y if rows.target.codes is None else None
    class_names = [None] if rows.target.names is None else rows.target.names.tolist()
    domain_names = rows.domain.names.tolist()
    cell_codes = domain_codes * len(class_names) + class_codes
    cell_keys = list(product(domain_names, class_names))
    group_keys = [(label, domain) for domain, label in cell_keys]
    options: Any = cell_keys, group_keys, extra_columns, rows.weights
    cell_rows = CellRows(cell_codes, cell_codes, *options)
    widths = [nystrom.n_features + cell_rows.n_extra_columns for nystrom in maps]
    check_cell_memory(len(cell_keys), widths, rows.X, ADVICE)
    return CellSums([backend.sum_cells(nystrom, rows.X, cell_rows) for nystrom in maps])


def _sizes_and_targets(
    cells: Cells, n_features: int, domains: Array, classes: Any
) -> tuple[Array, Array]:
    """Return the size of each domain, and its mean target or class code."""
    codes = (
        None if classes is None else {name: [code] for code, name in enumerate(classes.tolist())}
    )
    sizes: list[list[Any]] = []
    mean_targets: list[Array] = []
    for domain in domains.tolist():
        pairs = [(cell, label) for (name, label), cell in cells.items() if name == domain]
        sizes.append([cell.n_samples for cell, _ in pairs])
        means: list[Any] = [
            to_host(cell.mean)[n_features:] if codes is None else codes[label]
            for cell, label in pairs
        ]
        mean_targets.append(np.average(means, axis=0, weights=sizes[-1]))
    return np.array([sum(counts) for counts in sizes]), np.array(mean_targets)


class SumSearch(RidgeSearch):
    """Search over sums by domain and class, by a score that needs no predictions for rows."""

    def __init__(self, estimator: Any, penalties: Penalties) -> None:
        super().__init__(estimator._maps, penalties)
        self.sums, self.scoring = estimator._sums, estimator.scoring
        self.domains, self.classes = estimator.domains_, vars(estimator).get("classes_")
        labels = _sizes_and_targets(
            self.sums.maps[0], self.maps[0].n_features, self.domains, self.classes
        )
        self.domain_parts, self.splits = folds.split_domains(estimator.cv, *labels)

    def scores(self, i: int) -> tuple[Array, RidgeProblem]:
        """Return scores (candidates, splits) for map i, and its ridge problem for all rows."""
        classes = self.classes
        targets_by_class = None if classes is None else dict(enumerate(class_targets(len(classes))))
        columns = Columns(self.maps[i].n_features, 0, targets_by_class)
        cells, score = self._cells(self.sums.maps[i]), error_score(columns, self.scoring)
        scores = score_cells(cells, columns, self.splits, self.penalties, score)
        return scores, problem_of_all_rows(cells, columns, self.penalties)

    def _cells(self, domain_cells: Cells) -> Cells:
        """Merge the cells of domains into cells by part and class code."""
        class_names = [None] if self.classes is None else self.classes.tolist()
        cells: Cells = {}
        domains_and_parts = zip(self.domains.tolist(), self.domain_parts.tolist(), strict=True)
        for (domain, part), (code, name) in product(domains_and_parts, enumerate(class_names)):
            if (domain, name) in domain_cells:
                key = (part, None if name is None else code)
                cells = merged_cells(cells, {key: domain_cells[domain, name]})
        return cells
