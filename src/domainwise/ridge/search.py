"""The searches of InvariantRidgeCV and InvariantRidgeClassifierCV, over rows or over their sums.

Both are kinds of search (:mod:`domainwise.search.driver`) that score all penalties of a kernel on
all splits in one pass.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, product
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.arrays.namespace import to_device_of, to_host
from domainwise.backends import Backend, backend_of
from domainwise.checks.inputs import Labels
from domainwise.estimators.projection import Expansion
from domainwise.gram.nystrom import LabelMap, NystromMap
from domainwise.gram.sums import (
    CellRows,
    Cells,
    CellSums,
    cells_by_split,
    check_cell_memory,
    merged_cells,
)
from domainwise.gram.tiles import single_blas_thread
from domainwise.kernels.fourier import FourierMap
from domainwise.labels.factors import residual_trace
from domainwise.ridge.problem import (
    Columns,
    Penalties,
    RidgeProblem,
    SplitScore,
    error_score,
    needs_predictions,
    problem_of_all_rows,
    score_cells,
)
from domainwise.ridge.scores import Rows, candidate_scorer, class_codes
from domainwise.search.driver import Candidate, Data, Outcomes, outputs_by_row
from domainwise.splits.folds import (
    Split,
    SplitParts,
    domain_folds,
    leaves_domains_out,
    split_domains,
    split_rows,
)

#: Up to this number of rows, splits that cannot be scored are removed.
MAX_CHECKED_ROWS = 1500
ADVICE = "use fewer landmarks (n_landmarks), kernels or gammas, or fewer groups of domains (cv)"


def kernel_of(nystrom: NystromMap) -> tuple[str, float]:
    """Return the name and gamma of a map's kernel."""
    kernel = nystrom.kernel
    return kernel.kernel if isinstance(kernel, FourierMap) else kernel.name, kernel.gamma


def group_by_distances(maps: Sequence[NystromMap]) -> list[list[NystromMap]]:
    """Group adjacent Laplacian kernels, which share distances; other maps form groups of one."""

    def key(nystrom: NystromMap) -> Any:
        return "laplacian" if nystrom.kernel.name == "laplacian" else id(nystrom)

    return [list(group) for _, group in groupby(maps, key=key)]


class RidgeSearch:
    """A kind of search over penalties and kernels, each of which has a feature map."""

    one_pass = True
    splits: Sequence[Any]  #: of rows, or of sets of rows

    def __init__(self, estimator: Any, maps: list[NystromMap], penalties: Penalties) -> None:
        self.maps, self.penalties, self.cv = maps, penalties, estimator.cv
        self.scorer = None
        if estimator.scoring is not None:
            self.scorer = candidate_scorer(estimator.scoring, estimator._rule())

    def candidates(self, data: Data) -> list[Candidate]:
        """Return all combinations of kernels and penalties."""
        return [
            {"kernel": name, "gamma": gamma, "domain_weight": w, "conditional": c, "alpha": alpha}
            for name, gamma in map(kernel_of, self.maps)
            for (w, c), alpha in product(self.penalties.kinds, self.penalties.alphas)
        ]

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Return the indices of candidates whose maps are summed together."""
        n, batches, first = len(candidates) // len(self.maps), [], 0
        for maps in self.groups():
            batches.append(list(range(first, first + n * len(maps))))
            first += n * len(maps)
        return batches

    def groups(self) -> list[list[NystromMap]]:
        """Return groups of maps that are summed together."""
        return group_by_distances(self.maps)

    def outcomes(
        self, data: Data, splits: Sequence[Any], batch: Sequence[Candidate], score: Any
    ) -> Outcomes:
        """Return scores of candidates, and the problems of their maps for the final fit."""
        kernels = {(candidate["kernel"], candidate["gamma"]) for candidate in batch}
        scores, problems = self.scores([m for m in self.maps if kernel_of(m) in kernels])
        return Outcomes(np.vstack(scores), problems)  # type: ignore[arg-type]

    @abstractmethod
    def scores(self, maps: list[NystromMap]) -> tuple[list[Array], list[RidgeProblem]]:
        """Return the scores of each map's candidates on all splits, and its problem on all rows."""

    def fit(self, data: Data, chosen: Sequence[Candidate]) -> list[Expansion]:
        """Average the chosen candidates; ``data`` contains the problems of the search, not rows."""
        return average_members(self.maps, data.X, chosen)


def average_members(
    maps: Sequence[NystromMap], problems: Sequence[RidgeProblem], members: Sequence[Candidate]
) -> list[Expansion]:
    """Average members, and return a function for each of their kernels."""
    expansions, share = [], 1.0 / len(members)
    for nystrom, problem in zip(maps, problems, strict=True):
        group = [m for m in members if (m["kernel"], m["gamma"]) == kernel_of(nystrom)]
        if group:
            penalties = [([(m["domain_weight"], m["conditional"])], [m["alpha"]]) for m in group]
            with single_blas_thread():  # more threads hardly reduce the time
                coefficients = share * sum(problem.solutions(*penalty) for penalty in penalties)
            intercept = share * len(group) * problem.target - problem.mean @ coefficients
            expansions.append(Expansion.from_features(nystrom, coefficients, intercept))
    return expansions


# Rows in memory.


class RowSearch(RidgeSearch):
    """Search over rows in memory; one pass per kernel computes moments of cells (sets of rows).

    ``predicted`` contains the indices of rows whose held-out values are stored for all candidates.
    """

    def __init__(
        self,
        estimator: Any,
        maps: list[NystromMap],
        penalties: Penalties,
        rows: Rows,
        predicted: Array,
    ) -> None:
        super().__init__(estimator, maps, penalties)
        self.rows, self.predicted = rows, predicted
        self.descriptors = descriptors_of(estimator, rows.domain, penalties)
        n_domains, domains = rows.domain.n_categories, rows.codes()[1]
        check_splits = len(rows.X) <= MAX_CHECKED_ROWS
        if leaves_domains_out(self.cv) and n_domains > 1 and not check_splits:
            parts, splits = split_domains(self.cv, n_domains)
            passes: list[Any] = [(to_device_of(parts, domains)[domains], splits)]
        else:
            codes = None if rows.domain.codes is None else to_host(rows.domain.codes)
            classification = rows.target.codes is not None
            row_splits, _ = domain_folds(rows.y, codes, classification=classification, cv=self.cv)
            passes = [
                (to_device_of(part_of, domains), splits)
                for part_of, splits in split_rows(row_splits, len(rows.X))
            ]
        self.splits = [split for _, splits in passes for split in splits]
        # Classes are summed separately if they have different weights, in training or in the score.
        self.by_class = self.scorer is None or _classes_differ(self.penalties, self.descriptors)
        self.passes = [
            (cells_of(rows, part, self.by_class, self.descriptors), part, splits)
            for part, splits in passes
        ]

    def groups(self) -> list[list[NystromMap]]:
        """Return groups of maps that are summed together, if memory suffices."""
        n_cells = max(len(cell_rows.cell_keys) for cell_rows, _, _ in self.passes)
        width, advice = self.passes[0][0].width, ADVICE
        if self.by_class and self.scorer is None and self.penalties.class_weight is None:
            advice += ", or use scoring='balanced_accuracy', which needs no sums by class"

        def check(maps: list[NystromMap]) -> None:
            sizes = [nystrom.n_features + width for nystrom in maps]
            check_cell_memory(n_cells, sizes, self.rows.X, advice)

        groups = group_by_distances(self.maps)
        try:
            for maps in groups:
                check(maps)
        except MemoryError:
            groups = [[nystrom] for nystrom in self.maps]
            for maps in groups:
                check(maps)
        return groups

    def scores(self, maps: list[NystromMap]) -> tuple[list[Array], list[RidgeProblem]]:
        """Return the scores of each map's candidates, and its problem on all rows."""
        backend, rows = backend_of(self.rows.X), self.rows
        scores: list[list[Array]] = [[] for _ in maps]
        problems: list[Any] = [None] * len(maps)
        values: list[dict[int, tuple[Array, Array]]] = [{} for _ in maps]
        first_split = 0
        for cell_rows, part_of, splits in self.passes:
            sums = backend.sum_cells(maps, rows.X, cell_rows)
            for k, (nystrom, cells) in enumerate(zip(maps, sums.maps, strict=True)):
                columns = columns_of(nystrom, rows.target, self.by_class, self.descriptors)
                score = self._split_score(nystrom, columns, part_of, splits, values[k], first_split)
                scores[k].append(score_cells(cells, columns, splits, self.penalties, score))
                problems[k] = problem_of_all_rows(cells, columns, self.penalties)
            first_split += len(splits)
        for k, by_split in enumerate(values):
            if by_split:
                blocks, indices = zip(*(by_split[i] for i in sorted(by_split)), strict=True)
                held_out = outputs_by_row(blocks, indices, len(self.predicted))
                problems[k] = replace(problems[k], held_out=held_out)
        return [np.hstack(map_scores) for map_scores in scores], problems

    def _split_score(
        self,
        nystrom: NystromMap,
        columns: Columns,
        part_of: Any,
        splits: SplitParts,
        values: dict[int, tuple[Array, Array]],
        first: int,
    ) -> SplitScore:
        """Return a function that scores a split and adds its held-out values to ``values``."""
        parts, y, score_errors = to_host(part_of), self.rows.y, error_score(columns)

        def score(split: int, problem: RidgeProblem, solutions: Any, test: Any) -> Array:
            is_test = np.isin(parts, splits[split][1])
            indices = self.predicted[is_test[self.predicted]]
            rows = np.flatnonzero(is_test) if self.scorer else indices
            held_out = to_host(
                expansion(nystrom, problem, solutions)(self.rows.X[to_device_of(rows, part_of)])
            )
            is_stored = np.isin(rows, self.predicted)
            values[first + split] = held_out[is_stored], np.searchsorted(self.predicted, indices)
            if self.scorer is None:
                return score_errors(split, problem, solutions, test)
            n_candidates = solutions.shape[1] // len(problem.target)
            return self.scorer(np.hsplit(held_out, n_candidates), y[rows])

        return score

    def held_out(self, members: Sequence[Candidate], problems: Sequence[RidgeProblem]) -> Array:
        """Return the mean held-out values of the members for the rows ``predicted``.

        Values are NaN for rows that no split holds out.
        """
        penalties = list(product(self.penalties.kinds, self.penalties.alphas))
        values = {kernel_of(m): p.held_out for m, p in zip(self.maps, problems, strict=True)}
        member_values = []
        for m in members:
            blocks = np.hsplit(values[m["kernel"], m["gamma"]], len(penalties))
            penalty = ((m["domain_weight"], m["conditional"]), m["alpha"])
            member_values.append(blocks[penalties.index(penalty)])
        return np.asarray(np.mean(member_values, axis=0))


def descriptors_of(estimator: Any, domain: Labels, penalties: Penalties) -> Array | None:
    """Return features of continuous domain descriptors; None if domains are labels."""
    if domain.values is None:
        return None
    label_map = LabelMap.choose(
        domain.values,
        "rbf" if estimator.domain_kernel == "auto" else estimator.domain_kernel,
        estimator.domain_gamma,
        residual_trace(estimator.domain_epsilon, max(weight for weight, _ in penalties.kinds)),
        name="the domain kernel",
    )
    return label_map.features(domain.values)


def expansion(nystrom: NystromMap, problem: RidgeProblem, solutions: Any) -> Expansion:
    """Return a function that computes the values of many solutions in adjacent columns."""
    means = problem.target.reshape(1, -1) + 0.0 * solutions[0].reshape(-1, len(problem.target))
    intercept = means.reshape(-1) - problem.mean @ solutions
    return Expansion.from_features(nystrom, solutions, intercept)


def _classes_differ(penalties: Penalties, descriptors: Array | None) -> bool:
    """Whether a problem requires the moments of each class separately."""
    is_conditional = descriptors is not None and True in penalties.conditionals
    return penalties.class_weight is not None or is_conditional


def cells_of(rows: Rows, part_of: Any, by_class: bool, descriptors: Array | None) -> CellRows:
    """Return the cells of rows by part, and also by class if ``by_class``."""
    classes, domains = rows.codes()
    by_class = by_class and rows.target.codes is not None
    columns = [] if descriptors is None else [descriptors]
    columns += [] if by_class else [rows.Y]
    dense_columns = np.hstack(columns) if columns else None
    sizes = rows.target.n_categories, rows.domain.n_categories
    return CellRows.of_parts(part_of, classes, domains, sizes, dense_columns, by_class)


def columns_of(
    nystrom: NystromMap, target: Labels, by_class: bool, descriptors: Array | None
) -> Columns:
    """Return the layout of the moments of the cells that :func:`cells_of` returns."""
    by_class = by_class and target.codes is not None
    codes = dict(enumerate(class_codes(target.n_categories))) if by_class else None
    width = 0 if descriptors is None else descriptors.shape[1]
    return Columns(nystrom.n_features, width, codes)


def held_out_values(
    nystrom: NystromMap, penalties: Penalties, rows: Rows, splits: Sequence[Split]
) -> list[list[Array]]:
    """Return the values of all solutions for the test rows of each split; domains must be labels.

    Rows are summed once, by sets of rows that no split divides.
    """
    by_class = _classes_differ(penalties, None)
    columns = columns_of(nystrom, rows.target, by_class, None)
    values: list[list[Array]] = []
    for part_of, parts in split_rows(splits, len(rows.X)):
        cell_rows = cells_of(rows, part_of, by_class, None)
        cells = backend_of(rows.X).sum_cells([nystrom], rows.X, cell_rows).maps[0]
        for train, _ in cells_by_split(cells, parts):
            problem = penalties.problem(train, columns)
            solutions = problem.solutions(penalties.kinds, penalties.alphas)
            X_test = rows.X[splits[len(values)][1]]
            held_out = to_host(expansion(nystrom, problem, solutions)(X_test))
            values.append(np.hsplit(held_out, len(penalties.kinds) * len(penalties.alphas)))
    return values


def problem_of(
    estimator: Any, nystrom: NystromMap, rows: Rows, penalties: Penalties
) -> RidgeProblem:
    """Create the problem for all rows."""
    descriptors = descriptors_of(estimator, rows.domain, penalties)
    by_class = _classes_differ(penalties, descriptors)
    cell_rows = cells_of(rows, np.zeros(len(rows.X), dtype=np.int64), by_class, descriptors)
    sums = backend_of(rows.X).sum_cells([nystrom], rows.X, cell_rows)
    columns = columns_of(nystrom, rows.target, by_class, descriptors)
    return problem_of_all_rows(sums.maps[0], columns, penalties)


# Sums of rows that are not stored or are in partitions.


def cells_by_domain(backend: Backend, maps: list[NystromMap], rows: Rows) -> CellSums:
    """Sum a batch by domain and class; keys are pairs (domain, class)."""
    classes, domains = rows.codes()
    dense_columns: Any = rows.Y if rows.target.codes is None else None
    labels = [None] if rows.target.names is None else rows.target.names.tolist()
    domain_names = rows.domain.names.tolist()
    cell_codes = domains * len(labels) + classes
    keys = list(product(domain_names, labels))
    groups = [(label, name) for name, label in keys]
    cell_rows = CellRows(cell_codes, cell_codes, keys, groups, dense_columns)
    widths = [nystrom.n_features + cell_rows.width for nystrom in maps]
    check_cell_memory(len(keys), widths, rows.X, ADVICE)
    sums = [backend.sum_cells(group, rows.X, cell_rows) for group in group_by_distances(maps)]
    return CellSums([cells for group_sums in sums for cells in group_sums.maps])


class SumSearch(RidgeSearch):
    """Search over sums by domain and class; scores of predictions require another pass over rows.

    ``partitions`` contain the rows; None if rows are not stored.
    """

    def __init__(
        self,
        estimator: Any,
        maps: list[NystromMap],
        penalties: Penalties,
        sums: CellSums,
        domains: Array,
        classes: Array | None,
        partitions: Any = None,
    ) -> None:
        super().__init__(estimator, maps, penalties)
        self.estimator, self.sums, self.partitions = estimator, sums, partitions
        self.domains, self.classes = domains, classes
        self.part_of, self.parts = split_domains(estimator.cv, len(domains))
        self.splits = self.parts

    def groups(self) -> list[list[NystromMap]]:
        """Return all maps as one group, so that the rows in partitions are read once."""
        return [self.maps]

    def scores(self, maps: list[NystromMap]) -> tuple[list[Array], list[RidgeProblem]]:
        """Return the scores of each map's candidates, and its problem on all rows."""
        classes, scoring = self.classes, self.estimator.scoring
        codes = None if classes is None else dict(enumerate(class_codes(len(classes))))
        needs_rows = needs_predictions(scoring, classes is not None)
        functions: list[dict[int, Expansion]] = []
        scores, problems = [], []
        for nystrom, by_domain in zip(maps, self.sums.maps, strict=True):
            cells, columns = self._cells(by_domain), Columns(nystrom.n_features, 0, codes)
            functions.append({})
            score = error_score(columns, scoring)
            if needs_rows:
                score = _collect_functions(functions[-1], nystrom)
            scores.append(score_cells(cells, columns, self.parts, self.penalties, score))
            problems.append(problem_of_all_rows(cells, columns, self.penalties))
        if needs_rows:
            from domainwise.ridge.partition_scores import held_out_scores

            held_out = [self.domains[np.isin(self.part_of, test)] for _, test in self.parts]
            scores = held_out_scores(self, functions, len(scores[0]), held_out)
        return scores, problems

    def _cells(self, by_domain: Cells) -> Cells:
        """Merge the cells of domains into cells by part and class code."""
        labels = [None] if self.classes is None else self.classes.tolist()
        cells: Cells = {}
        for (d, domain), (c, label) in product(enumerate(self.domains.tolist()), enumerate(labels)):
            if (domain, label) in by_domain:
                key = (int(self.part_of[d]), None if label is None else c)
                cells = merged_cells(cells, {key: by_domain[domain, label]})
        return cells


def _collect_functions(functions: dict[int, Expansion], nystrom: NystromMap) -> SplitScore:
    """Return a score that only collects the functions of each split, for a pass over rows."""

    def score(split: int, problem: RidgeProblem, solutions: Any, test: Any) -> Array:
        functions[split] = expansion(nystrom, problem, solutions)
        return np.array(np.nan)

    return score
