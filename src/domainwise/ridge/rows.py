"""From rows to the problems of a ridge search: pairs that are held, or moments by cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, product
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.arrays.namespace import placed, to_host
from domainwise.backends import backend_of
from domainwise.calibration.curves import equal_weights
from domainwise.checks.inputs import Labels
from domainwise.gram.nystrom import LabelMap, NystromMap
from domainwise.gram.sums import CellRows, check_cell_memory
from domainwise.labels.factors import residual_trace
from domainwise.ridge import moments as moment_search
from domainwise.ridge.candidates import named
from domainwise.ridge.problem import Columns, Expansion, RidgeProblem
from domainwise.ridge.rules import (
    Gathered,
    class_codes,
    judging,
)
from domainwise.splits.folds import SplitParts, domain_folds, split_rows

ADVICE = (
    "choose fewer n_landmarks, kernels or gammas, or a cv that leaves domains out in fewer groups"
)

#: Scores of each map's candidates on each split, and its problem for all rows.
Found = list[tuple[Array, RidgeProblem]]


@dataclass(frozen=True)
class Rows:
    """Rows to learn from, and their labels."""

    X: Any
    target: Labels
    domain: Labels

    @property
    def Y(self) -> Array:
        """Targets as numbers."""
        if self.target.codes is None:
            return self.target.values
        return class_codes(self.target.n_categories)[to_host(self.target.codes)]

    @property
    def y(self) -> Array:
        """Targets as scorers see them."""
        if self.target.codes is None:
            return self.Y[:, 0] if self.Y.shape[1] == 1 else self.Y
        return self.target.names[to_host(self.target.codes)]

    def codes(self) -> tuple[Any, Any]:
        """Codes of classes and of domains; zeros where there are none."""
        zeros = np.zeros(len(self.X), dtype=np.int64)
        given = (self.target.codes, self.domain.codes)
        found = [zeros if codes is None else codes for codes in given]
        classes, domains = (placed(c, self.X) if isinstance(c, np.ndarray) else c for c in found)
        return classes, domains


def in_groups(maps: Sequence[NystromMap]) -> list[list[NystromMap]]:
    """Laplacian kernels of all widths share distances; all others go by themselves."""

    def key(nystrom: NystromMap) -> Any:
        return "laplacian" if nystrom.kernel.name == "laplacian" else id(nystrom)

    return [list(group) for _, group in groupby(maps, key=key)]


class _Search:
    """What the searches over one fit's rows have in common."""

    found: list[Any]  #: scores and problems, once they are known, in the order of the maps

    def __init__(self, estimator: Any, rows: Rows, penalties: moment_search.Penalties) -> None:
        self.rows, self.penalties, self.cv = rows, penalties, estimator.cv
        self.judging = None
        if estimator.scoring is not None:
            self.judging = judging(estimator.scoring, estimator._rule())
        self.descriptors = descriptors_of(estimator, rows.domain, penalties)

    def fitting(self, maps: list[NystromMap]) -> list[list[NystromMap]]:
        """Maps that are taken together, as many as memory allows."""
        return in_groups(maps)

    @cached_property
    def splits(self) -> list[tuple[Array, Array]]:
        """Rows to train on and to test on."""
        domains, classes = self.rows.domain.codes, self.rows.target.codes is not None
        codes = None if domains is None else to_host(domains)
        return domain_folds(self.rows.y, codes, classification=classes, cv=self.cv)[0]

    def held(self, nystrom: NystromMap, drawn: Any = None) -> moment_search.HeldRows:
        """Pairs and labels of all rows, or of those drawn."""
        chosen = slice(None) if drawn is None else drawn
        X = self.rows.X[chosen if drawn is None else placed(drawn, self.rows.codes()[1])]
        groups = np.column_stack([to_host(codes)[chosen] for codes in self.rows.codes()])
        descriptors = None if self.descriptors is None else self.descriptors[chosen]
        return moment_search.HeldRows(
            nystrom.gram(to_host(X)), self.rows.Y[chosen], groups, descriptors
        )

    def left_out(
        self, maps: Sequence[NystromMap], members: Sequence[dict[str, Any]], drawn: Array
    ) -> Array:
        """Mean values of members that were fitted without a row's domain, for the rows drawn.

        Members are fitted to rows among those drawn, with penalties that are as strong beside them.
        Rows that no split leaves out have NaN.
        """
        share = len(drawn) / len(self.rows.X)
        total, count = np.zeros((len(drawn), self.rows.Y.shape[1])), np.zeros((len(drawn), 1))
        splits = [[np.flatnonzero(np.isin(drawn, part)) for part in split] for split in self.splits]
        splits = [split for split in splits if all(len(part) for part in split)]
        for _, test in splits:
            count[test] += len(members)
        for nystrom in maps:
            mine = [m for m in members if (m["kernel"], m["gamma"]) == named(nystrom)]
            if not mine:
                continue
            held = self.held(nystrom, drawn)
            for train, test in splits:
                problem = held.problem(train, self.penalties)
                for m in mine:
                    kind = (m["domain_weight"] / share, m["conditional"])
                    solution = problem.solutions([kind], [m["alpha"] * share])
                    total[test] += held.predicted(test, problem, solution)[0]
        return np.asarray(total / np.where(count > 0, count, np.nan))


def descriptors_of(
    estimator: Any, domain: Labels, penalties: moment_search.Penalties
) -> Array | None:
    """Features of continuous descriptors of domains; None for labels."""
    if domain.values is None:
        return None
    found = LabelMap.choose(
        domain.values,
        "rbf" if estimator.domain_kernel == "auto" else estimator.domain_kernel,
        estimator.domain_gamma,
        residual_trace(estimator.domain_epsilon, max(weight for weight, _ in penalties.kinds)),
        name="the domain kernel",
    )
    return found.features(domain.values)


class HeldSearch(_Search):
    """Few rows: all pairs of them are held, and every split takes what it needs."""

    def __call__(self, maps: list[NystromMap]) -> Found:
        """Scores of each map's candidates, and its problem for all rows."""
        return [self._one(nystrom) for nystrom in maps]

    def _one(self, nystrom: NystromMap) -> tuple[Array, RidgeProblem]:
        rows, penalties = self.rows, self.penalties
        classes, held, n = rows.codes()[0], self.held(nystrom), len(rows.X)
        n_points = len(penalties.kinds) * len(penalties.alphas)
        total, count = np.zeros((n, n_points, rows.Y.shape[1])), np.zeros((n, 1, 1))
        columns = []
        for train, test in self.splits:
            problem = held.problem(train, penalties)
            solutions = problem.solutions(penalties.kinds, penalties.alphas)
            blocks = held.predicted(test, problem, solutions)
            total[test] += np.stack(blocks, axis=1)
            count[test] += 1
            if self.judging is None:
                weights = equal_weights(0 * classes[test], classes[test])
                squares = (np.array(blocks) - rows.Y[test]) ** 2
                columns.append(-(weights @ squares).mean(axis=1))
            else:
                columns.append(self.judging(blocks, rows.y[test]))
        left_out = total / np.where(count > 0, count, np.nan)
        everything = replace(held.problem(np.arange(n), penalties), left_out=left_out)
        return np.column_stack(columns), everything

    def left_out(
        self, maps: Sequence[NystromMap], members: Sequence[dict[str, Any]], drawn: Array
    ) -> Array:
        """Mean values of members for all rows, which the search has found on its way."""
        points = list(product(self.penalties.kinds, self.penalties.alphas))
        values = {named(m): p.left_out for m, (_, p) in zip(maps, self.found, strict=True)}
        each = [
            values[m["kernel"], m["gamma"]][
                :, points.index(((m["domain_weight"], m["conditional"]), m["alpha"]))
            ]
            for m in members
        ]
        return np.asarray(np.mean(each, axis=0)[drawn])


class MomentSearch(_Search):
    """Any number of rows: one pass for each kernel, and moments by cell from there on."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        rows = self.rows
        n_domains = rows.domain.n_categories
        if moment_search.leaves_domains_out(self.cv) and n_domains > 1:
            parts, splits = moment_search.split_domains(self.cv, n_domains)
            domains = rows.codes()[1]
            passes: list[Any] = [(placed(parts, domains)[domains], splits)]
        else:
            passes = [
                (placed(part_of, rows.codes()[1]), splits)
                for part_of, splits in split_rows(self.splits, len(rows.X))
            ]
        # Classes are kept apart where they weigh differently, in training or in the score.
        self.apart = self.judging is None or _classes_differ(self.penalties, self.descriptors)
        self.passes = [
            (cells_of(rows, part, self.apart, self.descriptors), part, splits)
            for part, splits in passes
        ]

    def fitting(self, maps: list[NystromMap]) -> list[list[NystromMap]]:
        """Maps that are summed together."""
        n_cells = max(len(cells.cell_keys) for cells, _, _ in self.passes)
        width, advice = self.passes[0][0].width, ADVICE
        if self.apart and self.judging is None and self.penalties.class_weight is None:
            advice += ", or a scoring such as balanced_accuracy, for which classes go together"
        groups = in_groups(maps)
        for group in groups:
            try:
                sizes = [nystrom.n_features + width for nystrom in group]
                check_cell_memory(n_cells, sizes, self.rows.X, advice)
            except MemoryError:
                if len(group) == 1:
                    raise
                return [found for one in maps for found in self.fitting([one])]
        return groups

    def __call__(self, maps: list[NystromMap]) -> Found:
        """Scores of each map's candidates, and its problem for all rows."""
        backend, rows = backend_of(self.rows.X), self.rows
        scores: list[list[Array]] = [[] for _ in maps]
        problems: list[Any] = [None] * len(maps)
        for cell_rows, part_of, splits in self.passes:
            sums = backend.sum_cells(maps, rows.X, cell_rows)
            for k, (nystrom, cells) in enumerate(zip(maps, sums.maps, strict=True)):
                columns = columns_of(nystrom, rows.target, self.apart, self.descriptors)
                judge = moment_search.by_errors(columns)
                if self.judging is not None:
                    judge = self._by_predictions(self.judging, nystrom, part_of, splits)
                scores[k].append(
                    moment_search.score_cells(cells, columns, splits, self.penalties, judge)
                )
                problems[k] = moment_search.all_rows(cells, columns, self.penalties)
        return list(zip(map(np.hstack, scores), problems, strict=True))

    def _by_predictions(
        self, judging: Gathered, nystrom: NystromMap, part_of: Any, splits: SplitParts
    ) -> moment_search.Judge:
        """Judge by a scorer, which has to see predictions of the rows left out."""
        parts, y = to_host(part_of), self.rows.y

        def judge(split: int, problem: RidgeProblem, solutions: Any, test: Any) -> Array:
            rows = np.flatnonzero(np.isin(parts, splits[split][1]))
            left_out = self.rows.X[placed(rows, part_of)]
            return judging(left_out_values(nystrom, problem, solutions, left_out), y[rows])

        return judge


def left_out_values(
    nystrom: NystromMap, problem: RidgeProblem, solutions: Any, X: Any
) -> list[Array]:
    """Values of many solutions on other rows, one block for each."""
    values = to_host(expansion(nystrom, problem, solutions)(X))
    return np.hsplit(values, solutions.shape[1] // len(problem.target))


def expansion(nystrom: NystromMap, problem: RidgeProblem, solutions: Any) -> Expansion:
    """Many solutions as one function, whose values stand side by side."""
    tiled = problem.target.reshape(1, -1) + 0.0 * solutions[0].reshape(-1, len(problem.target))
    intercept = tiled.reshape(-1) - problem.mean @ solutions
    return Expansion.of_features(nystrom, solutions, intercept)


def _classes_differ(penalties: moment_search.Penalties, descriptors: Array | None) -> bool:
    """Whether a problem needs moments of each class."""
    inside = descriptors is not None and True in penalties.conditionals
    return penalties.class_weight is not None or inside


def cells_of(rows: Rows, part_of: Any, apart: bool, descriptors: Array | None) -> CellRows:
    """Cells of parts, and of classes if they are kept apart."""
    apart = apart and rows.target.codes is not None
    dense = [] if descriptors is None else [descriptors]
    dense += [] if apart else [rows.Y]
    sizes = rows.target.n_categories, rows.domain.n_categories
    return CellRows.of_parts(
        part_of, *rows.codes(), sizes, np.hstack(dense) if dense else None, apart
    )


def columns_of(
    nystrom: NystromMap, target: Labels, apart: bool, descriptors: Array | None
) -> Columns:
    """Columns of the moments of such cells."""
    by_class = apart and target.codes is not None
    codes = dict(enumerate(class_codes(target.n_categories))) if by_class else None
    width = 0 if descriptors is None else descriptors.shape[1]
    return Columns(nystrom.n_features, width, codes)


def problem_of(
    estimator: Any, nystrom: NystromMap, rows: Rows, penalties: moment_search.Penalties
) -> RidgeProblem:
    """Problem of all rows, in batches."""
    descriptors = descriptors_of(estimator, rows.domain, penalties)
    apart = _classes_differ(penalties, descriptors)
    cells = cells_of(rows, np.zeros(len(rows.X), dtype=np.int64), apart, descriptors)
    sums = backend_of(rows.X).sum_cells([nystrom], rows.X, cells)
    return moment_search.all_rows(
        sums.maps[0], columns_of(nystrom, rows.target, apart, descriptors), penalties
    )
