"""The search behind InvariantRidgeCV and InvariantRidgeClassifierCV, and what they average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from sklearn.metrics import get_scorer
from sklearn.utils.validation import check_is_fitted

from domainwise.arrays import Array
from domainwise.arrays.algebra import on_host
from domainwise.backends.base import backend_of
from domainwise.checks.inputs import (
    COUNT,
    DOMAIN_CONSTRAINTS,
    LANDMARK_CONSTRAINTS,
    POSITIVE,
    SEARCH_CONSTRAINTS,
    Labels,
)
from domainwise.estimators.projection import fixed_seed
from domainwise.gram.cells import CellRows
from domainwise.gram.label_sums import LabelMap
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.tiles import single_blas_thread
from domainwise.invariant.moments import Columns, RidgeProblem
from domainwise.invariant.ridge import Expansion, summed
from domainwise.kernels.landmarks import choose_landmarks, landmark_count
from domainwise.labels.factors import residual_trace
from domainwise.selection.moment_search import (
    HeldRows,
    Judge,
    Penalties,
    all_rows,
    leaves_domains_out,
    minus_errors,
    score_cells,
    split_domains,
    split_rows,
)
from domainwise.selection.ridge_rules import (
    class_codes,
    minus_squared_errors,
    scores_of_predictions,
)
from domainwise.selection.search import cv_results, make_splits

AUTO_GAMMAS = (0.3, 1.0, 3.0)  #: times the median rule
AUTO_WEIGHTS = (0.0, 0.1, 1.0, 10.0)
#: Times the number of rows in thousands, beyond one thousand: penalties are sums over rows.
AUTO_ALPHAS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
#: ``n_landmarks="auto"``: all rows up to here, this many of them beyond.
AUTO_LANDMARKS = 1000
#: Share of a solution that rounding of the sums may make up.
SUM_ROUNDING = 1e-9
#: Up to here features of all rows are held; beyond, their moments by cell.
HELD_ROWS = 1000


@dataclass(frozen=True)
class Rows:
    """Rows to learn from, their targets as numbers, and their labels."""

    X: Any
    Y: Any
    y: Any
    target: Labels
    domain: Labels


class InvariantRidge(BaseEstimator):
    """The search, for classes and for a continuous target."""

    __metadata_request__fit = {"sample_domain": True}

    kernels: Any
    gammas: Any
    alphas: Any
    domain_weights: Any
    n_average: int
    n_landmarks: Any
    landmarks: Any
    domain_kernel: Any
    domain_gamma: Any
    domain_epsilon: float
    cv: Any
    scoring: Any
    n_jobs: int | None
    random_state: Any

    class_weight: Any = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernels": ["array-like"],
        "gammas": SEARCH_CONSTRAINTS["gammas"],
        "alphas": SEARCH_CONSTRAINTS["gammas"],
        "domain_weights": ["array-like"],
        "n_average": [COUNT],
        "n_landmarks": LANDMARK_CONSTRAINTS["n_landmarks"],
        "landmarks": LANDMARK_CONSTRAINTS["landmarks"],
        **DOMAIN_CONSTRAINTS,
        "domain_epsilon": [POSITIVE],
        "cv": SEARCH_CONSTRAINTS["cv"],
        "scoring": SEARCH_CONSTRAINTS["scoring"],
        "n_jobs": SEARCH_CONSTRAINTS["n_jobs"],
        "random_state": LANDMARK_CONSTRAINTS["random_state"],
    }

    def _search(self, rows: Rows, conditionals: Sequence[bool]) -> None:
        """Score every candidate on every split, and average the best."""
        n = len(rows.X)
        penalties = self._penalties(n, rows.domain, rows.target, conditionals)
        maps = self._maps(rows, penalties, n)
        held = n <= HELD_ROWS and isinstance(rows.X, np.ndarray)
        search = _HeldSearch if held else _MomentSearch
        each = search(self, rows, penalties, self._descriptors(rows.domain, penalties))
        groups = [list(group) for _, group in groupby(maps, key=_shares_distances)]
        with single_blas_thread(self.n_jobs not in (None, 1)):
            found = Parallel(n_jobs=self.n_jobs)(delayed(each)(group) for group in groups)
        scores, problems = zip(*(one for group in found for one in group), strict=True)
        self._choose(np.vstack(scores), list(problems), maps, penalties)
        self.domains_ = rows.domain.names

    def _choose(
        self,
        scores: Array,
        problems: list[RidgeProblem],
        maps: list[NystromMap],
        penalties: Penalties,
    ) -> None:
        """Keep results, and fit the best to all rows."""
        kernels = [(nystrom.kernel.name, nystrom.kernel.gamma) for nystrom in maps]
        points = [
            {"kernel": name, "gamma": gamma, "domain_weight": w, "conditional": c, "alpha": alpha}
            for name, gamma in kernels
            for (w, c), alpha in product(penalties.kinds, penalties.alphas)
        ]
        self.cv_results_ = cv_results(points, scores)
        self.n_splits_ = scores.shape[1]
        self.best_index_ = int(self.cv_results_["rank_test_score"].argmin())
        self.best_params_ = points[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.members_ = self._members(points, len(penalties.alphas))
        self.expansions_ = []
        for kernel, nystrom, problem in zip(kernels, maps, problems, strict=True):
            mine = [m for m in self.members_ if (m["kernel"], m["gamma"]) == kernel]
            if mine:
                each = [
                    problem.solutions([(m["domain_weight"], m["conditional"])], [m["alpha"]])
                    for m in mine
                ]
                share = 1.0 / len(self.members_)
                mean, part = share * sum(each), share * len(mine)
                self.expansions_.append(
                    Expansion.of_features(
                        nystrom, mean, part * problem.target - problem.mean @ mean
                    )
                )

    def _members(self, points: list[dict[str, Any]], n_alphas: int) -> list[dict[str, Any]]:
        """The best alpha of each kernel and penalty, and of these the best ``n_average``."""
        rank = self.cv_results_["rank_test_score"].reshape(-1, n_alphas)
        best = rank.argmin(axis=1) + n_alphas * np.arange(len(rank))
        order = np.argsort(rank.min(axis=1), kind="stable")[: self.n_average]
        return [points[i] for i in best[order]]

    def _maps(self, rows: Rows, penalties: Penalties, n_rows: int) -> list[NystromMap]:
        """Landmarks, which serve all kernels and splits, as a map for each kernel."""
        backend = backend_of(rows.X)
        X = backend.on_host(rows.X)
        named = self._kernels(rows.X)
        rng = np.random.default_rng(fixed_seed(self.random_state))
        kernels = [backend.make_kernel(name, rows.X, gamma=gamma) for name, gamma in named]
        if isinstance(self.landmarks, str):
            count = min(AUTO_LANDMARKS, len(X))
            if not isinstance(self.n_landmarks, str):
                count = landmark_count(self.n_landmarks, n_rows)
            codes = None if rows.domain.codes is None else on_host(rows.domain.codes)
            chosen = choose_landmarks(self.landmarks, X, count, codes, kernels[0], rng)
            landmarks = np.array(X[chosen])
        else:
            landmarks = _given_landmarks(self.landmarks, X)
        precision = {"ridge": min(penalties.alphas) / n_rows, "rounding": SUM_ROUNDING}
        return [NystromMap.from_landmarks(kernel, landmarks, **precision) for kernel in kernels]

    def _kernels(self, X: Any) -> list[tuple[str, float]]:
        names = [str(name) for name in self.kernels]
        known = ("rbf", "laplacian", "linear", "poly", "cosine")
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            given = ", ".join(repr(name) for name in unknown) or "none"
            raise ValueError(f"kernels holds {given}; use some of {', '.join(known)}")
        found = []
        for name in names:
            if not isinstance(self.gammas, str):
                gammas: Sequence[float] = self._positive("gammas")
            elif name in ("linear", "cosine"):
                gammas = (1.0,)
            else:
                middle = backend_of(X).make_kernel(name, X, gamma="median").gamma
                gammas = [middle * factor for factor in AUTO_GAMMAS]
            found += [(name, float(gamma)) for gamma in gammas]
        return found

    def _penalties(
        self, n_rows: int, domain: Labels, target: Labels, conditionals: Sequence[bool]
    ) -> Penalties:
        """Weights and how domains are compared; weight 0, where both are the same, once."""
        weights = [float(weight) for weight in self.domain_weights]
        if not weights or not all(0 <= weight < np.inf for weight in weights):
            raise ValueError(
                f"domain_weights={self.domain_weights!r} must hold at least one finite number, "
                "none of them negative"
            )
        kinds = [(0.0, False)] if 0.0 in weights else []
        kinds += [(w, bool(c)) for c in conditionals for w in weights if w > 0]
        if domain.codes is not None and domain.n_categories < 2:
            kinds = [(0.0, False)]
        if isinstance(self.alphas, str):
            alphas = tuple(alpha * max(1.0, n_rows / 1000) for alpha in AUTO_ALPHAS)
        else:
            alphas = self._positive("alphas")
        class_weight = self.class_weight
        if isinstance(class_weight, dict):
            assert target.names is not None
            names = target.names.tolist()
            class_weight = {c: class_weight[n] for c, n in enumerate(names) if n in class_weight}
        return Penalties(kinds, alphas, float(self.domain_epsilon), class_weight)

    def _positive(self, name: str) -> tuple[float, ...]:
        values = tuple(float(value) for value in getattr(self, name))
        if not values or not all(0 < value < np.inf for value in values):
            raise ValueError(f"{name}={getattr(self, name)!r} must hold positive numbers")
        return values

    def _descriptors(self, domain: Labels, penalties: Penalties) -> LabelMap | None:
        """Features of continuous descriptors of domains."""
        if domain.values is None:
            return None
        return LabelMap.choose(
            domain.values,
            "rbf" if self.domain_kernel == "auto" else self.domain_kernel,
            self.domain_gamma,
            residual_trace(self.domain_epsilon, max(weight for weight, _ in penalties.kinds)),
            name="the domain kernel",
        )

    def _rule(self) -> Any:
        raise AssertionError("a subclass says what values mean")

    def _values(self, X: Any) -> Any:
        check_is_fitted(self, "expansions_")
        backend = backend_of(X)
        X = backend.check_rows(self, X, reset=False)
        backend.check_model(self.expansions_[0].dual, X)
        return summed(self.expansions_, X)


class _Search:
    """What a search over the kernels of one fit has in common; pickled to workers."""

    def __init__(
        self, estimator: Any, rows: Rows, penalties: Penalties, descriptors: LabelMap | None
    ) -> None:
        self.rows, self.penalties, self.cv = rows, penalties, estimator.cv
        scoring = estimator.scoring
        self.scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
        self.rule = estimator._rule()
        self.descriptors = None
        if descriptors is not None:
            assert rows.domain.values is not None
            self.descriptors = descriptors.features(rows.domain.values)

    def split(self) -> list[tuple[Array, Array]]:
        """Rows to train on and to test on."""
        rows = self.rows
        found = make_splits(self.cv, rows.X, rows.y, rows.target, rows.domain)
        return [(split.train, split.test) for split in found]


class _HeldSearch(_Search):
    """Few rows: their features are held, and every split takes what it needs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.splits = self.split()

    def __call__(self, maps: list[NystromMap]) -> list[tuple[Array, RidgeProblem]]:
        """Scores of each map's candidates, and its problem for all rows."""
        return [self._one(nystrom) for nystrom in maps]

    def _one(self, nystrom: NystromMap) -> tuple[Array, RidgeProblem]:
        rows, penalties = self.rows, self.penalties
        n = len(rows.X)
        codes = [
            labels.codes if labels.codes is not None else np.zeros(n, dtype=int)
            for labels in (rows.target, rows.domain)
        ]
        held = HeldRows(
            nystrom.features(rows.X).astype(np.float64, copy=False),
            rows.Y,
            np.column_stack(codes),
            self.descriptors,
        )
        columns = []
        for train, test in self.splits:
            problem = held.problem(train, penalties)
            solutions = problem.solutions(penalties.kinds, penalties.alphas)
            blocks = held.predicted(test, problem, solutions)
            if self.scorer is not None:
                columns.append(scores_of_predictions(self.scorer, self.rule, blocks, rows.y[test]))
            else:
                weights = 1.0 / np.bincount(codes[0][test])[codes[0][test]]
                columns.append(minus_squared_errors(blocks, rows.Y[test], weights))
        return np.column_stack(columns), held.problem(np.arange(n), penalties)


class _MomentSearch(_Search):
    """Any number of rows: one pass for each kernel, and moments by cell from there on."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        rows, n = self.rows, len(self.rows.X)
        classes = rows.target.codes
        n_domains = rows.domain.n_categories
        conditional = self.descriptors is not None and True in self.penalties.conditionals
        # Classes are kept apart where they weigh differently, in training or in the score.
        apart = self.penalties.class_weight is not None or self.scorer is None or conditional
        self.apart = classes is not None and apart
        if leaves_domains_out(self.cv) and n_domains > 1:
            part_of, splits = split_domains(self.cv, n_domains)
            passes = [(part_of[on_host(rows.domain.codes)], splits)]
        else:
            passes = split_rows(self.split(), n)
        self.passes = [(self._cell_rows(part_of), part_of, splits) for part_of, splits in passes]

    def _cell_rows(self, part_of: Array) -> CellRows:
        rows, n = self.rows, len(self.rows.X)
        names = [0] if rows.target.codes is None else list(range(rows.target.n_categories))
        classes = 0 if rows.target.codes is None else rows.target.codes
        domains = 0 if rows.domain.codes is None else rows.domain.codes
        n_domains = max(1, rows.domain.n_categories)
        label = (lambda c: None) if rows.target.codes is None else (lambda c: c)
        group_keys = [(label(c), d) for c in names for d in range(n_domains)]
        parts = range(int(part_of.max()) + 1)
        keys: list[Any] = [(p, None) for p in parts]
        cells = part_of
        groups = classes * n_domains + domains + np.zeros(n, dtype=np.int64)
        if self.apart:
            cells, keys = part_of * len(names) + classes, list(product(parts, names))
        dense = [] if self.descriptors is None else [self.descriptors]
        dense += [] if self.apart else [rows.Y]
        return CellRows(cells, groups, keys, group_keys, np.hstack(dense) if dense else None)

    def __call__(self, maps: list[NystromMap]) -> list[tuple[Array, RidgeProblem]]:
        """Scores of each map's candidates, and its problem for all rows."""
        backend, rows = backend_of(self.rows.X), self.rows
        scores: list[list[Array]] = [[] for _ in maps]
        problems: list[Any] = [None] * len(maps)
        width = 0 if self.descriptors is None else self.descriptors.shape[1]
        codes = None
        if self.apart:
            Y = class_codes(rows.target.n_categories)
            codes = dict(enumerate(Y))
        for cell_rows, part_of, splits in self.passes:
            sums = backend.sum_cells(maps, rows.X, cell_rows)
            for k, (nystrom, cells) in enumerate(zip(maps, sums.maps, strict=True)):
                columns = Columns(nystrom.n_features, width, codes)
                judge = minus_errors(columns)
                if self.scorer is not None:
                    judge = self._by_predictions(nystrom, part_of, splits)
                scores[k].append(score_cells(cells, columns, splits, self.penalties, judge))
                problems[k] = all_rows(cells, columns, self.penalties)
        return [
            (np.hstack(columns), problem) for columns, problem in zip(scores, problems, strict=True)
        ]

    def _by_predictions(self, nystrom: NystromMap, part_of: Array, splits: Any) -> Judge:
        """Judge by a scorer, which has to see predictions of the rows left out."""

        def judge(split: int, problem: RidgeProblem, solutions: Any, test: Any) -> Array:
            c = len(problem.target)
            copies = solutions.shape[1] // c
            intercept = np.tile(on_host(problem.target), copies) - on_host(problem.mean @ solutions)
            function = Expansion.of_features(nystrom, on_host(solutions), intercept)
            rows = np.flatnonzero(np.isin(part_of, splits[split][1]))
            values = on_host(function(self.rows.X[rows]))
            blocks = np.hsplit(values, copies)
            return scores_of_predictions(self.scorer, self.rule, blocks, self.rows.y[rows])

        return judge


def _shares_distances(nystrom: NystromMap) -> Any:
    """Laplacian kernels of all widths go together; all others by themselves."""
    return "laplacian" if nystrom.kernel.name == "laplacian" else id(nystrom)


def _given_landmarks(landmarks: Any, X: Any) -> Array:
    given = np.asarray(on_host(landmarks) if hasattr(landmarks, "cpu") else landmarks)
    if given.ndim != 2 or given.shape[1] != X.shape[1] or not len(given):
        raise ValueError(
            f"landmarks must have shape (n_landmarks, {X.shape[1]}), got {given.shape}"
        )
    if not np.isfinite(given).all():
        raise ValueError("landmarks contain NaN or infinite values")
    return given.astype(X.dtype)
