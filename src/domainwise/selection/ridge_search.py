"""The search behind InvariantRidgeCV and InvariantRidgeClassifierCV, and what they average."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.metrics import get_scorer
from sklearn.utils.validation import check_is_fitted

from domainwise.arrays import Array
from domainwise.checks.inputs import (
    COUNT,
    DOMAIN_CONSTRAINTS,
    LANDMARK_CONSTRAINTS,
    POSITIVE,
    SEARCH_CONSTRAINTS,
    Labels,
)
from domainwise.estimators.projection import fixed_seed
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.tiles import single_blas_thread
from domainwise.invariant.correction import domain_factor, domain_rows
from domainwise.invariant.kernel import check_rows
from domainwise.invariant.ridge import Expansion, RidgeMoments, summed
from domainwise.kernels.functions import Kernel, make_kernel, resolve_gamma
from domainwise.kernels.landmarks import choose_landmarks, landmark_count
from domainwise.selection.search import Split, cv_results, make_splits, scored

AUTO_GAMMAS = (0.3, 1.0, 3.0)  #: times the median rule
AUTO_WEIGHTS = (0.0, 0.1, 1.0, 10.0)
AUTO_ALPHAS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
#: ``n_landmarks="auto"``: all rows up to here, this many of them beyond.
AUTO_LANDMARKS = 1000


@dataclass(frozen=True)
class Rows:
    """Rows to learn from: their targets as numbers, and what each row weighs."""

    X: Array
    Y: Array
    weights: Array
    target: Labels
    domain: Labels


@dataclass(frozen=True)
class Spectrum:
    """Everything that is varied for one kernel: kinds of penalty, and alphas."""

    kinds: Sequence[tuple[float, bool]]
    alphas: Sequence[float]


class InvariantRidge(BaseEstimator):
    """The search, for classes and for a continuous target."""

    __metadata_request__fit = {"sample_domain": True}

    kernels: Any
    gammas: Any
    alphas: Any
    domain_weights: Any
    n_average: int
    n_landmarks: Any
    domain_kernel: Any
    domain_gamma: Any
    domain_epsilon: float
    cv: Any
    scoring: Any
    n_jobs: int | None
    random_state: Any

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernels": ["array-like"],
        "gammas": SEARCH_CONSTRAINTS["gammas"],
        "alphas": ["array-like"],
        "domain_weights": ["array-like"],
        "n_average": [COUNT],
        "n_landmarks": LANDMARK_CONSTRAINTS["n_landmarks"],
        **DOMAIN_CONSTRAINTS,
        "domain_epsilon": [POSITIVE],
        "cv": SEARCH_CONSTRAINTS["cv"],
        "scoring": SEARCH_CONSTRAINTS["scoring"],
        "n_jobs": SEARCH_CONSTRAINTS["n_jobs"],
        "random_state": LANDMARK_CONSTRAINTS["random_state"],
    }

    def _search(self, rows: Rows, y: Array, conditionals: Sequence[bool]) -> None:
        scorer = get_scorer(self.scoring) if isinstance(self.scoring, str) else self.scoring
        scorer = self._rule().default_score if scorer is None else scorer
        spectrum = Spectrum(self._kinds(rows.domain, conditionals), _positive(self, "alphas"))
        kernels = self._kernels(rows.X)
        count = self._landmark_count(rows)
        splits = make_splits(self.cv, y, rows.target, rows.domain)
        chosen = [self._landmarks(rows.X[split.train], count) for split in splits]
        tasks = list(product(kernels, zip(splits, chosen, strict=True)))
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(_score_split)(self, kernel, spectrum, rows, y, split, landmarks, scorer)
            for kernel, (split, landmarks) in tasks
        )
        # One column per split; rows in the order of kernels, kinds, alphas.
        by_kernel = [found[i : i + len(splits)] for i in range(0, len(found), len(splits))]
        scores = np.vstack([np.column_stack(part) for part in by_kernel])
        points = [
            {"kernel": name, "gamma": gamma, "domain_weight": w, "conditional": c, "alpha": alpha}
            for name, gamma in kernels
            for (w, c), alpha in product(spectrum.kinds, spectrum.alphas)
        ]
        self.cv_results_ = cv_results(points, scores)
        self.n_splits_ = len(splits)
        self.best_index_ = int(self.cv_results_["rank_test_score"].argmin())
        self.best_params_ = points[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self._fit_points(rows, self._members(points, len(spectrum.alphas)))

    def _fit_points(self, rows: Rows, points: list[dict[str, Any]]) -> Self:
        """Average some points of the grid, fitted to all rows."""
        self.members_ = points
        self.expansions_ = self._average(rows, self._landmarks(rows.X, self._landmark_count(rows)))
        self.domains_ = rows.domain.names
        return self

    def _landmark_count(self, rows: Rows) -> int:
        if isinstance(self.n_landmarks, str):
            return AUTO_LANDMARKS
        return landmark_count(self.n_landmarks, len(rows.X))

    def settled(self) -> Any:
        """Return the best single kernel without a search, not fitted; it needs no domains."""
        best = self.best_params_
        return clone(self).set_params(
            kernels=[best["kernel"]],
            gammas=[best["gamma"]],
            alphas=[best["alpha"]],
            domain_weights=[0.0],
            n_average=1,
            cv=2,
        )

    def _members(self, points: list[dict[str, Any]], n_alphas: int) -> list[dict[str, Any]]:
        """The best alpha of each kernel and penalty, and of these the best ``n_average``."""
        rank = self.cv_results_["rank_test_score"].reshape(-1, n_alphas)
        best = rank.argmin(axis=1) + n_alphas * np.arange(len(rank))
        order = np.argsort(rank.min(axis=1), kind="stable")[: self.n_average]
        return [points[i] for i in best[order]]

    def _average(self, rows: Rows, landmarks: Array) -> list[Expansion]:
        """The members fitted to all rows, one function for each kernel among them."""
        kernels = dict.fromkeys((member["kernel"], member["gamma"]) for member in self.members_)
        expansions = []
        for kernel in kernels:
            mine = [m for m in self.members_ if (m["kernel"], m["gamma"]) == kernel]
            conditionals = {m["conditional"] for m in mine if m["domain_weight"]}
            features, moments = _moments(self, kernel, rows, conditionals, landmarks)
            solutions = [
                moments.solutions(m["conditional"], m["domain_weight"], (m["alpha"],)) for m in mine
            ]
            mean = np.mean([one for (one,) in solutions], axis=0)
            share = len(mine) / len(self.members_)
            expansions.append(moments.function(features, mean, share))
        return expansions

    def _landmarks(self, X: Array, count: int) -> Array:
        """Rows that functions are built from, spread by k-means++ where not all are taken."""
        rng = np.random.default_rng(fixed_seed(self.random_state))
        return choose_landmarks("kmeans++", X, min(count, len(X)), None, Kernel("rbf"), rng)

    def _kernels(self, X: Array) -> list[tuple[str, float]]:
        names = [str(name) for name in self.kernels]
        known = ("rbf", "laplacian", "linear", "poly", "cosine")
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            given = ", ".join(repr(name) for name in unknown) or "none"
            raise ValueError(f"kernels holds {given}; use some of {', '.join(known)}")
        found = []
        for name in names:
            if not isinstance(self.gammas, str):
                gammas: Sequence[float] = _positive(self, "gammas")
            elif name in ("linear", "cosine"):
                gammas = (1.0,)
            else:
                middle = resolve_gamma("median", name, X)
                gammas = [middle * factor for factor in AUTO_GAMMAS]
            found += [(name, float(gamma)) for gamma in gammas]
        return found

    def _kinds(self, domain: Labels, conditionals: Sequence[bool]) -> list[tuple[float, bool]]:
        """Weights and how domains are compared; weight 0, where both are the same, once."""
        weights = [float(weight) for weight in self.domain_weights]
        if not weights or not all(0 <= weight < np.inf for weight in weights):
            raise ValueError(
                f"domain_weights={self.domain_weights!r} must hold at least one finite number, "
                "none of them negative"
            )
        if domain.codes is not None and domain.n_categories < 2:
            return [(0.0, False)]
        plain = [(0.0, False)] if 0.0 in weights else []
        return plain + [(w, bool(c)) for c in conditionals for w in weights if w > 0]

    def _values(self, X: Any) -> Array:
        check_is_fitted(self)
        return summed(self.expansions_, check_rows(self, X, reset=False))


def _positive(estimator: Any, name: str) -> tuple[float, ...]:
    values = tuple(float(value) for value in getattr(estimator, name))
    if not values or not all(0 < value < np.inf for value in values):
        raise ValueError(f"{name}={getattr(estimator, name)!r} must hold positive numbers")
    return values


def _moments(
    estimator: Any,
    kernel: tuple[str, float],
    rows: Rows,
    conditionals: set[bool],
    landmarks: Array,
) -> tuple[NystromMap, RidgeMoments]:
    """Features of one kernel, and the sums over rows that all of its penalties share."""
    name, gamma = kernel
    X, n = rows.X, len(rows.X)
    made = make_kernel(name, X, gamma=gamma)
    factors = {
        conditional: domain_factor(
            domain_rows(
                n,
                rows.domain,
                rows.target if conditional else None,
                kernel=estimator.domain_kernel,
                gamma=estimator.domain_gamma,
                epsilon=estimator.domain_epsilon,
                weight=max(estimator.domain_weights),
            ),
            estimator.domain_epsilon,
        )
        for conditional in conditionals
    }
    features = NystromMap.from_landmarks(made, X[landmarks])
    return features, RidgeMoments.of_rows(features, X, rows.Y, rows.weights, factors)


def split_values(
    estimator: Any,
    kernel: tuple[str, float],
    spectrum: Spectrum,
    rows: Rows,
    y: Array,
    split: Split,
    landmarks: Array,
) -> list[Array]:
    """Values on the test rows of one split, of all penalties of one kernel.

    One block for each of the kinds and alphas, with a column per value of the target.
    """
    weights = estimator._row_weights(y[split.train])
    train = Rows(rows.X[split.train], rows.Y[split.train], weights, split.target, split.domain)
    kinds = spectrum.kinds
    if split.domain.codes is not None and split.domain.n_categories < 2:
        kinds = [(0.0, False)] * len(kinds)  # one source domain is left: no weight matters
    with single_blas_thread(estimator.n_jobs not in (None, 1)):
        conditionals = {conditional for weight, conditional in kinds if weight}
        features, moments = _moments(estimator, kernel, train, conditionals, landmarks)
        solutions = [
            solution
            for weight, conditional in kinds
            for solution in moments.solutions(conditional, weight, spectrum.alphas)
        ]
        function = moments.function(features, np.hstack(solutions))
        return np.hsplit(function(rows.X[split.test]), len(solutions))


def _score_split(
    estimator: Any,
    kernel: tuple[str, float],
    spectrum: Spectrum,
    rows: Rows,
    y: Array,
    split: Split,
    landmarks: Array,
    scorer: Any,
) -> Array:
    """Scores of all penalties of one kernel on one split, in the order of kinds and alphas."""
    blocks = split_values(estimator, kernel, spectrum, rows, y, split, landmarks)
    rule = estimator._rule()
    # A few hundred scores of few rows each: checking their arguments would take most of the time.
    with (
        config_context(assume_finite=True, skip_parameter_validation=True),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        return np.array([scored(scorer, rule, values, y[split.test]) for values in blocks])


class ClassRule(ClassifierMixin, BaseEstimator):
    """Turns decision values into classes, for scorers: its X are the values."""

    def __init__(self, classes: Any = None) -> None:
        self.classes = classes

    @property
    def classes_(self) -> Array:
        """Classes, in the order of the columns."""
        return np.asarray(self.classes)

    def predict(self, values: Array) -> Array:
        """Classes by sign (two of them) or by the largest value."""
        if values.shape[1] == 1:
            return self.classes_[(values[:, 0] > 0).astype(int)]
        return self.classes_[values.argmax(axis=1)]

    def decision_function(self, values: Array) -> Array:
        """The values, one column for two classes."""
        return values[:, 0] if values.shape[1] == 1 else values

    @staticmethod
    def default_score(rule: ClassRule, values: Array, y: Array) -> float:
        """Balanced accuracy, without the checks that make scikit-learn's slow for small splits."""
        _, codes = np.unique(y, return_inverse=True)
        hits = np.bincount(codes, rule.predict(values) == y)
        return float(np.mean(hits / np.bincount(codes)))


class NumberRule(RegressorMixin, BaseEstimator):
    """Passes predicted values on, for scorers: its X are the values."""

    def predict(self, values: Array) -> Array:
        """The values."""
        return values[:, 0] if values.shape[1] == 1 else values

    @staticmethod
    def default_score(rule: NumberRule, values: Array, y: Array) -> float:
        """Negative root mean squared error."""
        squares = np.mean((rule.predict(values) - y) ** 2, axis=0)
        return -float(np.mean(np.sqrt(squares)))
