"""Kinds of members: what is tried of each, what it predicts on domains left out, how it is fitted.

A kind lists *candidates*, which are dicts of arguments. Candidates in one *batch* share work. One
argument of each kind is its *path*: of the candidates that differ in nothing else the best is
kept, and of these the best ``n_average`` are averaged, because scores on few domains are noisy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from sklearn import config_context, ensemble
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import has_fit_parameter

from domainwise.arrays import Array
from domainwise.calibration.curves import class_columns
from domainwise.checks.inputs import Labels
from domainwise.invariant import InvariantSVC, InvariantSVR
from domainwise.invariant.search import KernelPath
from domainwise.kernels.functions import resolve_gamma
from domainwise.ridge import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.ridge.base import Rows, split_values
from domainwise.search.scores import outputs
from domainwise.search.search import Split
from domainwise.splits.folds import draw_rows

Candidate = dict[str, Any]

GAMMAS = (0.3, 1.0, 3.0)  #: times the median rule
#: Trees in the end, and while candidates are compared.
TREES, COMPARED_TREES = 200, 100
#: Features beyond which trees try a few of them at each split only.
MANY_FEATURES = 50
#: Trees of boosting in all, of which classes take one each at a time.
BOOSTED_TREES = 500
#: Rows below which boosting needs fewer bins; empty ones cost most of its time.
FEW_ROWS = 2000


@dataclass(frozen=True)
class Sources:
    """Rows to learn from."""

    X: Array  #: in units of the sources, in context or not
    y: Array  #: codes of classes, or values with mean 0 and variance 1
    target: Labels
    domain: Labels
    class_weight: Any  #: by code, or "balanced", or None
    seed: int

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a continuous target."""
        return self.target.n_categories

    def evenly(self, rows: Array, most: int) -> Array:
        """At most so many of some rows, drawn evenly from their domains."""
        most = max(most, 2 * self.domain.n_categories)
        return rows[draw_rows(self.domain.codes[rows], most, self.seed)]


class Kind(ABC):
    """A kind of member."""

    name: str
    path: ClassVar[str | None] = None
    #: Arguments in which the candidates of a batch agree; None computes each by itself.
    shared: ClassVar[tuple[str, ...] | None] = None
    n_average: ClassVar[int] = 1
    #: Rows that it learns from, at most.
    most_rows: ClassVar[int] = 20_000
    #: Whether it also learns from rows in context.
    in_context = True
    #: Deviations at which far values level off; None leaves them.
    clip: ClassVar[float | None] = None

    def candidates(self, sources: Sources) -> list[Candidate]:
        """What is tried."""
        return [{}]

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Candidates that are computed together."""
        found: dict[Any, list[int]] = {}
        for i, candidate in enumerate(candidates):
            key = i if self.shared is None else tuple(candidate[name] for name in self.shared)
            found.setdefault(key, []).append(i)
        return list(found.values())

    @abstractmethod
    def predict(self, sources: Sources, split: Split, batch: Sequence[Candidate]) -> list[Array]:
        """Outputs of a batch on the test rows of a split."""

    @abstractmethod
    def fit(self, sources: Sources, chosen: Sequence[Candidate]) -> list[Any]:
        """Estimators whose outputs are averaged, fitted to all rows."""


class Separate(Kind):
    """A kind with an estimator for each candidate."""

    @abstractmethod
    def estimator(self, sources: Sources, candidate: Candidate) -> Any:
        """An estimator with the arguments of a candidate; class weights come by themselves."""

    def weighted(self, sources: Sources, candidate: Candidate) -> Any:
        """An estimator with the arguments of a candidate and, where it takes any, class weights."""
        model = self.estimator(sources, candidate)
        if sources.class_weight is not None and "class_weight" in model.get_params():
            model.set_params(class_weight=sources.class_weight)
        return model

    def fitted(self, sources: Sources, candidate: Candidate, rows: Array) -> Any:
        """An estimator of a candidate, fitted to some rows, and told domains where it takes any."""
        model, y = self.weighted(sources, candidate), sources.y[rows]
        options: dict[str, Any] = {}
        if has_fit_parameter(model, "sample_domain"):
            options["sample_domain"] = sources.domain.codes[rows]
        unweighted = sources.class_weight is not None and "class_weight" not in model.get_params()
        if unweighted and has_fit_parameter(model, "sample_weight"):
            options["sample_weight"] = compute_sample_weight(sources.class_weight, y)
        return model.fit(sources.X[rows], y, **options)

    def predict(self, sources: Sources, split: Split, batch: Sequence[Candidate]) -> list[Array]:
        """Outputs of a batch on the test rows of a split."""
        rows = sources.evenly(split.train, self.most_rows)
        models = [self.fitted(sources, candidate, rows) for candidate in batch]
        return [outputs(model, sources.X[split.test], sources.n_classes) for model in models]

    def fit(self, sources: Sources, chosen: Sequence[Candidate]) -> list[Any]:
        """Estimators whose outputs are averaged, fitted to all rows."""
        rows = sources.evenly(np.arange(len(sources.X)), self.most_rows)
        return [self.fitted(sources, candidate, rows) for candidate in chosen]


def grid(**values: Sequence[Any]) -> list[Candidate]:
    """All combinations of values; those of the last argument vary fastest."""
    return [dict(zip(values, point, strict=True)) for point in product(*values.values())]


def levelled(X: Array, clip: float | None) -> Array:
    """Values far out level off at some deviations; those near are as they were."""
    return X if clip is None else clip * np.tanh(X / clip)


class _Linear(Separate):
    """Logistic regression, or ridge regression."""

    name, path, in_context = "linear", "C", False

    def candidates(self, sources: Sources) -> list[Candidate]:
        return grid(C=(1e-3, 1e-2, 1e-1, 1.0, 10.0))

    def estimator(self, sources: Sources, candidate: Candidate) -> Any:
        if not sources.n_classes:
            return Ridge(alpha=1.0 / candidate["C"])
        return LogisticRegression(C=candidate["C"], max_iter=1000)


class _Trees(Separate):
    """Extremely randomised trees."""

    name, path = "extra_trees", "min_samples_leaf"
    #: Thresholds are drawn between the extremes: with long tails, few of them fall among the rows.
    clip = 3.0

    def candidates(self, sources: Sources) -> list[Candidate]:
        features: tuple[Any, ...] = ("sqrt", 0.5) if sources.n_classes else (0.3, 1.0)
        few = sources.X.shape[1] > MANY_FEATURES
        return grid(max_features=features[:1] if few else features, min_samples_leaf=(1, 5))

    def predict(self, sources: Sources, split: Split, batch: Sequence[Candidate]) -> list[Array]:
        # By fewer trees than in the end.
        fewer = [{**candidate, "n_estimators": COMPARED_TREES} for candidate in batch]
        return super().predict(sources, split, fewer)

    def estimator(self, sources: Sources, candidate: Candidate) -> Any:
        trees = ensemble.ExtraTreesClassifier if sources.n_classes else ensemble.ExtraTreesRegressor
        return trees(**{"n_estimators": TREES, "random_state": sources.seed, **candidate})


class _Boosting(Separate):
    """Gradient boosting, stopped where domains left out say so."""

    name, path, shared = "boosting", "max_iter", ("max_leaf_nodes",)

    def candidates(self, sources: Sources) -> list[Candidate]:
        each = sources.n_classes if sources.n_classes > 2 else 1
        most = max(20, min(120, BOOSTED_TREES // each))
        stages = sorted({max(5, most // 8), most // 4, most // 2, most})
        return grid(max_leaf_nodes=(4, 16), max_iter=stages)

    def predict(self, sources: Sources, split: Split, batch: Sequence[Candidate]) -> list[Array]:
        rows = sources.evenly(split.train, self.most_rows)
        model = self.fitted(sources, batch[-1], rows)
        X, wanted = sources.X[split.test], {candidate["max_iter"] for candidate in batch}
        staged = model.staged_decision_function if sources.n_classes else model.staged_predict
        stages = [values for i, values in enumerate(staged(X), 1) if i in wanted]
        if not sources.n_classes:
            return [values[:, None] for values in stages]
        # What is known of a stage, as an estimator.
        known = [
            {"classes_": model.classes_, "decision_function": lambda _, v=v: v} for v in stages
        ]
        return [outputs(SimpleNamespace(**stage), X, sources.n_classes) for stage in known]

    def estimator(self, sources: Sources, candidate: Candidate) -> Any:
        boosting: Any = ensemble.HistGradientBoostingRegressor
        if sources.n_classes:
            boosting = ensemble.HistGradientBoostingClassifier
        return boosting(
            **candidate,
            early_stopping=False,
            l2_regularization=1.0,
            max_bins=63 if len(sources.X) < FEW_ROWS else 255,
            random_state=sources.seed,
        )


class _InvariantSVM(Separate):
    """Support vector machines with the invariant kernel."""

    name, path, n_average, most_rows, in_context = "invariant_svm", "C", 3, 2000, False
    clip, shared = 6.0, ("gamma",)

    def candidates(self, sources: Sources) -> list[Candidate]:
        weights = (0.0, 1.0) if sources.domain.n_categories > 1 else (0.0,)
        costs = (0.1, 1.0, 10.0) if sources.n_classes else (1.0, 10.0, 100.0)
        return grid(gamma=gammas("rbf", sources.X), domain_weight=weights, C=costs)

    def predict(self, sources: Sources, split: Split, batch: Sequence[Candidate]) -> list[Array]:
        rows = sources.evenly(split.train, self.most_rows)
        y, domain = sources.y[rows], sources.domain.codes[rows]
        first = self.estimator(sources, batch[0])
        path = KernelPath.evaluate(first, sources.X[rows], sources.X[split.test])
        path.add_domains(first, y, domain)
        found = []
        for candidate in batch:
            K, cross = path.kernels(candidate["domain_weight"], False)
            machine = self.weighted(sources, candidate)._exact_machine()
            with config_context(assume_finite=True, skip_parameter_validation=True):
                machine.fit(K, y)
                found.append(outputs(machine, cross, sources.n_classes))
        return found

    def estimator(self, sources: Sources, candidate: Candidate) -> Any:
        return InvariantSVC(**candidate) if sources.n_classes else InvariantSVR(**candidate)


class _InvariantRidge(Kind):
    """Kernel ridge regression with the invariant kernel."""

    name, path, n_average, clip = "invariant_ridge", "alpha", 10, 6.0
    shared = ("kernel", "gamma")
    ALPHAS = (0.03, 0.3, 1.0, 3.0, 10.0, 100.0)
    WEIGHTS = (0.0, 1.0, 10.0)
    #: Landmarks while candidates are compared; the average of the chosen has more.
    LANDMARKS = 400

    def candidates(self, sources: Sources) -> list[Candidate]:
        return [
            {"kernel": name, "gamma": gamma, "domain_weight": w, "conditional": c, "alpha": alpha}
            for name in ("rbf", "laplacian")
            for gamma in gammas(name, sources.X)
            for (w, c), alpha in product(self._kinds(sources), self.ALPHAS)
        ]

    def predict(self, sources: Sources, split: Split, batch: Sequence[Candidate]) -> list[Array]:
        model = self._model(sources)
        kernel = (batch[0]["kernel"], batch[0]["gamma"])
        most = max(self.LANDMARKS, 2 * sources.domain.n_categories)
        landmarks = draw_rows(sources.domain.codes[split.train], most, sources.seed)
        rows = Rows(sources.X, sources.target, sources.domain)
        kinds = self._kinds(sources)
        values = split_values(model, kernel, kinds, self.ALPHAS, rows, split, landmarks)
        return [class_columns(v) if sources.n_classes else v for v in values]

    def fit(self, sources: Sources, chosen: Sequence[Candidate]) -> list[Any]:
        # The average of functions of one kernel is one function.
        model = self._model(sources)
        model.classes_ = np.arange(sources.n_classes)
        model._flat, model.n_features_in_ = True, sources.X.shape[1]
        rows = Rows(sources.X, sources.target, sources.domain)
        return [model._fit_points(rows, list(chosen))]

    def _model(self, sources: Sources) -> Any:
        if not sources.n_classes:
            return InvariantRidgeCV(random_state=sources.seed)
        return InvariantRidgeClassifierCV(
            class_weight=sources.class_weight, random_state=sources.seed
        )

    def _kinds(self, sources: Sources) -> list[tuple[float, bool]]:
        if sources.domain.n_categories < 2:
            return [(0.0, False)]
        conditionals = (False, True) if sources.n_classes else (False,)
        return [(0.0, False)] + [(w, c) for c in conditionals for w in self.WEIGHTS if w]


class Own(Separate):
    """An estimator that the user has given."""

    def __init__(self, name: str, template: Any) -> None:
        self.name, self.template = name, template

    def estimator(self, sources: Sources, candidate: Candidate) -> Any:
        """A copy of the estimator."""
        return clone(self.template)


def gammas(kernel: str, X: Array) -> list[float]:
    """Widths of a kernel around the median rule; any will do where all rows are the same."""
    try:
        middle = resolve_gamma("median", kernel, X)
    except ValueError:
        middle = 1.0
    return [factor * middle for factor in GAMMAS]


KINDS: dict[str, type[Kind]] = {
    kind.name: kind for kind in (_Linear, _Boosting, _Trees, _InvariantRidge, _InvariantSVM)
}
