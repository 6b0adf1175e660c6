"""Members of an ensemble: the candidates of each type, and the fitted result of its search.

A type of member is a kind of search (:mod:`domainwise.search.driver`). One of its arguments is the
*path*: among candidates that differ only in this argument, the best is selected. The ``n_average``
best of the selected candidates are averaged, because scores on few domains are noisy. A new type is
a class here that is listed in ``MEMBER_TYPES``; its grid is in ``search/grids.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any, ClassVar

import numpy as np
from sklearn import ensemble
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import ExtraTreeRegressor
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from domainwise.arrays import Array
from domainwise.calibration.curves import Curve, class_columns
from domainwise.ensemble.forests import packed, round_leaves, unpacked
from domainwise.ensemble.held_out import HeldOutScore
from domainwise.ensemble.symmetric import SymmetricBoostingClassifier, SymmetricBoostingRegressor
from domainwise.gram.tiles import one_thread
from domainwise.invariant import InvariantSVC, InvariantSVR
from domainwise.invariant.search import KernelPath
from domainwise.kernels.functions import resolve_gamma
from domainwise.ridge import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.ridge.scores import Rows
from domainwise.search import grids
from domainwise.search.driver import (
    Candidate,
    Data,
    Outcomes,
    Race,
    batches_by,
    best_of_paths,
    search,
)
from domainwise.search.scores import Score, decision_outputs, log_probabilities, outputs
from domainwise.splits.folds import Split, draw_rows

#: Trees in the final forest, and while candidates are compared.
TREES, COMPARED_TREES = 100, 30
#: With more rows, trees have no small leaves: these gain little and make files large.
MANY_ROWS = 1500
#: With more features, trees try only a few of them at each split.
MANY_FEATURES = 50


@dataclass(frozen=True)
class MemberData(Data):
    """Rows scaled by the source domains; targets are class codes, or have unit variance."""

    target: Any = None
    domain: Any = None
    #: Candidates chosen by the same type without context; with context it searches near these.
    around: Sequence[Candidate] = ()

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a continuous target."""
        return int(self.target.n_categories)

    def evenly(self, rows: Array, max_rows: int | None) -> Array:
        """Draw at most ``max_rows`` of these rows, evenly from their domains; None takes all."""
        if max_rows is None:
            return rows
        max_rows = max(max_rows, 2 * self.domain.n_categories)
        return rows[draw_rows(self.domain.codes[rows], max_rows, self.seed)]


@dataclass(frozen=True)
class Member:
    """A fitted member."""

    name: str
    in_context: bool  #: whether it predicts rows in context
    parameters: list[Candidate]  #: the chosen candidates, the best first
    estimators: list[Any]  #: their outputs are averaged
    n_classes: int  #: 0 for a continuous target
    clip: float | None  #: standard deviations at which large values level off
    curve: Curve | None  #: from outputs to probabilities

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"estimators": [packed(model) for model in self.estimators]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, estimators=[unpacked(model) for model in state["estimators"]])

    def predict(self, X: Array) -> Array:
        """Probabilities of the classes, or one column of values, for rows scaled as in training."""
        X = soft_clipped(X, self.clip)
        values = [outputs(model, X, self.n_classes) for model in self.estimators]
        for output in values:
            check_outputs(output, len(X), self.name)
        mean = np.mean(values, axis=0)
        return np.asarray(mean if self.curve is None else self.curve.probabilities(mean))


class MemberType:
    """A type of member: a kind of search, with an estimator for each candidate."""

    name: str
    path: ClassVar[str] = ""
    #: Arguments that the candidates of a batch share; None puts each candidate in its own batch.
    shared: ClassVar[tuple[str, ...] | None] = None
    n_average: ClassVar[int] = 1
    #: Largest number of rows that it is fitted to; None sets no limit for the final fit.
    most_rows: ClassVar[int | None] = 20_000
    #: Whether fits are so slow that larger groups of domains are held out together.
    expensive = False
    #: Whether it also learns from rows in context.
    in_context = True
    #: Standard deviations at which large values level off; None leaves them unchanged.
    clip: ClassVar[float | None] = None
    one_pass = False

    def search(
        self,
        data: Any,
        splits: Sequence[Split],
        score: HeldOutScore,
        name: str,
        *,
        in_context: bool,
        n_jobs: int | None,
        everything: Any = None,
    ) -> tuple[Member, Array]:
        """Choose candidates on held-out domains and fit them to all rows.

        Also returns the predictions for held-out domains. If ``data`` is a sample of the rows,
        ``everything`` has all of them.
        """
        data, everything = (
            rows if rows is None else replace(rows, X=soft_clipped(rows.X, self.clip))
            for rows in (data, everything)
        )
        rule = partial(best_of_paths, path=(self.path,), n=self.n_average)
        # A score that the user chose may not be defined on the few domains of a first round.
        race = Race() if score.scoring is None else None
        with threadpool_limits(1):
            result = search(self, data, splits, score, rule, race=race, n_jobs=n_jobs)
            assert result.held_out is not None
            mean = result.held_out.mean(axis=0, dtype=np.float64)
            curve = score.curve(mean) if score.n_classes else None
            estimators = self.fit(data if everything is None else everything, result.chosen)
        fitted = (score.n_classes, self.clip, curve)
        member = Member(name, in_context, result.chosen, estimators, *fitted)
        return member, np.asarray(mean if curve is None else curve.probabilities(mean))

    def candidates(self, data: Any) -> list[Candidate]:
        """List the candidates to compare."""
        return [{}]

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """List indices of candidates that share work."""
        if self.shared is None:
            return [[i] for i in range(len(candidates))]
        return batches_by(candidates, self.shared)

    def outcomes(
        self, data: Any, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Outputs of candidates for the test rows of these splits."""
        with one_thread():  # the same sums, and the same bits, whatever n_jobs is
            by_split = [self.outputs(data, *split, batch, score) for split in splits]
        return Outcomes(list(zip(*by_split, strict=True)))

    def outputs(
        self,
        data: Any,
        train: Array,
        test: Array,
        batch: Sequence[Candidate],
        score: Score,
    ) -> list[Any]:
        """Outputs of a batch for the test rows of a split."""
        rows = data.evenly(train, self.most_rows)
        models = [self.fitted(data, candidate, rows) for candidate in batch]
        return [score.outcome(model, data.X[test], data.y[test]) for model in models]

    def fit(self, data: Any, chosen: Sequence[Candidate]) -> list[Any]:
        """Fit the estimators whose outputs are averaged to all rows."""
        rows = data.evenly(np.arange(len(data.X)), self.most_rows)
        return [self.fitted(data, candidate, rows) for candidate in chosen]

    def refit_predict(self, data: Any, member: Member, train: Array, X: Array) -> Array:
        """Fit the best candidate of a member to the rows ``train`` only, and predict ``X``."""
        data = replace(data, X=soft_clipped(data.X, self.clip)).take(train)
        with threadpool_limits(1), one_thread():
            models = self.fit(data, member.parameters[:1])
        return replace(member, estimators=models).predict(X)

    @abstractmethod
    def estimator(self, data: Any, candidate: Candidate) -> Any:
        """Make an estimator with the arguments of a candidate; class weights are set later."""

    def weighted(self, data: Any, candidate: Candidate) -> Any:
        """Make an estimator with a candidate's arguments, and class weights if it takes them."""
        model = self.estimator(data, candidate)
        if data.class_weight is not None and "class_weight" in model.get_params():
            model.set_params(class_weight=data.class_weight)
        return model

    def fitted(self, data: Any, candidate: Candidate, rows: Array) -> Any:
        """Fit the estimator of a candidate to these rows, with domains if it takes them."""
        model, y = self.weighted(data, candidate), data.y[rows]
        options: dict[str, Any] = {}
        if has_fit_parameter(model, "sample_domain"):
            options["sample_domain"] = data.domain.codes[rows]
        unweighted = data.class_weight is not None and "class_weight" not in model.get_params()
        if unweighted and has_fit_parameter(model, "sample_weight"):
            options["sample_weight"] = compute_sample_weight(data.class_weight, y)
        return model.fit(data.X[rows], y, **options)


def check_outputs(values: Array, n_rows: int, name: str) -> None:
    """Refuse outputs of a member that cannot be averaged."""
    if len(values) != n_rows:
        raise ValueError(
            f"member {name!r} returned {len(values)} predictions for {n_rows} rows; it must "
            "return one per row"
        )
    not_finite = ~np.isfinite(values).all(axis=1)
    if not_finite.any():
        raise ValueError(
            f"member {name!r} returned NaN or infinite values for {not_finite.sum()} of {n_rows} "
            "rows; make it return numbers for all rows, or leave it out of members"
        )


def soft_clipped(X: Array, clip: float | None) -> Array:
    """Let large values level off at ``clip``; small values hardly change."""
    return X if clip is None else clip * np.tanh(X / clip)


def gammas(kernel: str, X: Array) -> list[float]:
    """Values of gamma around the median heuristic, or around 1 if all rows are the same."""
    try:
        median = resolve_gamma("median", kernel, X)
    except ValueError:
        median = 1.0
    return [factor * median for factor in grids.MEMBER_GAMMAS]


class _Linear(MemberType):
    """Logistic regression, or ridge regression."""

    name, path, in_context = "linear", "C", False

    def candidates(self, data: Any) -> list[Candidate]:
        return grid(C=grids.LINEAR_COSTS)

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        if not data.n_classes:
            return Ridge(alpha=1.0 / candidate["C"])
        return LogisticRegression(C=candidate["C"], max_iter=1000)


class _ExtraTrees(MemberType):
    """Extremely randomised trees."""

    name, path, expensive, most_rows = "extra_trees", "min_samples_leaf", True, 5000
    #: Thresholds are drawn between the extremes: with long tails, few of them fall among the rows.
    clip = 3.0

    def candidates(self, data: Any) -> list[Candidate]:
        features = grids.TREE_FEATURES["classes" if data.n_classes else "numbers"]
        many_features = data.X.shape[1] > MANY_FEATURES
        leaves = grids.TREE_LEAVES[-1:] if len(data.X) > MANY_ROWS else grids.TREE_LEAVES
        features = features[:1] if many_features else features
        candidates = grid(max_features=features, min_samples_leaf=leaves)
        return near(candidates, data.around, ("max_features", "min_samples_leaf"))

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Array]:
        if data.n_classes > 2:
            small = [{**candidate, "n_estimators": COMPARED_TREES} for candidate in batch]
            return super().outputs(data, train, test, small, score)
        # For two classes, the share of the second one is a mean, and splits by its variance are the
        # splits by Gini impurity. Trees that are fitted one by one take half as long as
        # scikit-learn's forests.
        rows = data.evenly(train, self.most_rows)
        X, X_test = (data.X[selected].astype(np.float32) for selected in (rows, test))
        y, weight = data.y[rows].astype(np.float64)[:, None], None
        if data.class_weight is not None:
            weight = compute_sample_weight(data.class_weight, data.y[rows])
        values = []
        for candidate in batch:
            total = np.zeros(len(test))
            for i in range(COMPARED_TREES):
                tree = ExtraTreeRegressor(**candidate, random_state=data.seed + i)
                total += tree.fit(X, y, weight, check_input=False).predict(
                    X_test, check_input=False
                )
            mean = (total / COMPARED_TREES)[:, None]
            if data.n_classes:
                mean = log_probabilities(np.hstack([1.0 - mean, mean]))
            values.append(mean.astype(np.float32))
        return values

    def fitted(self, data: Any, candidate: Candidate, rows: Array) -> Any:
        return round_leaves(super().fitted(data, candidate, rows))

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        trees = ensemble.ExtraTreesClassifier if data.n_classes else ensemble.ExtraTreesRegressor
        options = {"n_estimators": TREES, "random_state": data.seed}
        return trees(**{**options, **candidate})


class _Boosting(MemberType):
    """Gradient boosting, with the number of rounds that predicts held-out domains best."""

    name, path, most_rows, expensive = "boosting", "max_iter", None, True
    shared: ClassVar[tuple[str, ...]] = ("max_depth",)
    #: Sizes of trees, with few rows and with many.
    sizes: ClassVar[tuple[tuple[int, ...], tuple[int, ...]]] = grids.BOOSTING_DEPTHS
    most_rounds: ClassVar[int] = 120
    settings: ClassVar[Candidate] = {}

    def candidates(self, data: Any) -> list[Candidate]:
        stages = [max(2, self.most_rounds // divisor) for divisor in (8, 4, 2, 1)]
        sizes = self.sizes[len(data.X) > MANY_ROWS]
        candidates = grid(**{self.shared[0]: sizes, self.path: stages})
        return near(candidates, data.around, self.shared)

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Array]:
        model = self.fitted(data, batch[-1], data.evenly(train, self.most_rows))
        stages = list(model.staged(data.X[test], {candidate[self.path] for candidate in batch}))
        if data.n_classes:
            stages = [decision_outputs(v, model.classes_, data.n_classes) for v in stages]
        return [values.astype(np.float32) for values in stages]

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        boosting = SymmetricBoostingClassifier if data.n_classes else SymmetricBoostingRegressor
        return boosting(**{"random_state": data.seed, **self.settings, **candidate})


@dataclass(frozen=True)
class _Rounds:
    """A boosted model of another package that predicts with its first rounds only."""

    model: Any
    stop: dict[str, int]  #: number of rounds, by the package's name for this argument

    @property
    def classes_(self) -> Array:
        return np.asarray(self.model.classes_)

    def predict(self, X: Array) -> Array:
        return np.asarray(self.model.predict(X, **self.stop))

    def predict_proba(self, X: Array) -> Array:
        return np.asarray(self.model.predict_proba(X, **self.stop))


class _OtherBoosting(_Boosting):
    """Gradient boosting of a package that the extra ``boosting`` installs."""

    stop: ClassVar[str]  #: argument of predict that sets the number of rounds

    def __init__(self) -> None:
        try:
            import_module(self.name)
        except ImportError as error:
            raise ImportError(
                f"members holds {self.name!r}, which needs a package that cannot be imported "
                f'({error}): pip install "domainwise[boosting]"'
            ) from error

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Array]:
        model = self.fitted(data, batch[-1], data.evenly(train, self.most_rows))
        stages = (_Rounds(model, {self.stop: candidate[self.path]}) for candidate in batch)
        return [score.outcome(stage, data.X[test], data.y[test]) for stage in stages]


class _LightGBM(_OtherBoosting):
    """Gradient boosting by LightGBM."""

    name, path, shared, stop = "lightgbm", "n_estimators", ("num_leaves",), "num_iteration"
    sizes = ((4, 16), (4, 16))
    settings: ClassVar[Candidate] = {"reg_lambda": 1.0}

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        import lightgbm

        boosting = lightgbm.LGBMClassifier if data.n_classes else lightgbm.LGBMRegressor
        options = {"n_jobs": 1, "verbose": -1, "random_state": data.seed, "deterministic": True}
        return boosting(**{**options, **self.settings, **candidate})


class _CatBoost(_OtherBoosting):
    """Gradient boosting by CatBoost."""

    name, path, shared, stop = "catboost", "iterations", ("depth",), "ntree_end"
    sizes = ((2, 6), (2, 6))
    settings: ClassVar[Candidate] = {"learning_rate": 0.1}

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        import catboost

        boosting = catboost.CatBoostClassifier if data.n_classes else catboost.CatBoostRegressor
        options: Candidate = {"thread_count": 1, "verbose": 0, "allow_writing_files": False}
        return boosting(**options, random_seed=data.seed, **self.settings, **candidate)


class _InvariantSVM(MemberType):
    """Support vector machines with the invariant kernel."""

    name, path, n_average, most_rows, in_context = "invariant_svm", "C", 3, 1000, False
    clip, shared, expensive = 6.0, ("gamma",), True
    #: Largest number of rows that candidates are fitted to while they are compared.
    COMPARED_ROWS = 400

    def candidates(self, data: Any) -> list[Candidate]:
        costs = grids.SVM_COSTS["classes" if data.n_classes else "numbers"]
        weights = grids.SVM_WEIGHTS if data.domain.n_categories > 1 else (0.0,)
        return grid(gamma=gammas("rbf", data.X), domain_weight=weights, C=costs)

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Array]:
        rows = data.evenly(train, self.COMPARED_ROWS)
        y, domain = data.y[rows], data.domain.codes[rows]
        machines = [self.weighted(data, candidate) for candidate in batch]
        path = KernelPath.evaluate(machines[0], data.X[rows], data.X[test])
        fitted = (path.fitted(machine, y, domain) for machine in machines)
        return [score.outcome(model, cross, data.y[test]) for model, cross in fitted]

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        return InvariantSVC(**candidate) if data.n_classes else InvariantSVR(**candidate)


class _InvariantRidge(MemberType):
    """Kernel ridge regression with the invariant kernel, from moments of all rows."""

    name, path, n_average, clip, most_rows = "invariant_ridge", "alpha", 10, 6.0, None
    shared, one_pass = ("kernel", "gamma"), True
    #: Landmarks while candidates are compared, and of the final average, which has more.
    COMPARED_LANDMARKS, LANDMARKS = 200, 400
    #: Number of chosen candidates whose kernels are also tried with context.
    TRIED_IN_CONTEXT = 3

    def candidates(self, data: Any) -> list[Candidate]:
        penalties = [(0.0, False)]
        if data.domain.n_categories > 1:
            conditionals = (False, True) if data.n_classes else (False,)
            penalties += [(w, c) for c in conditionals for w in grids.RIDGE_MEMBER_WEIGHTS]
        candidates: list[Candidate] = [
            {"kernel": name, "gamma": gamma, "domain_weight": w, "conditional": c, "alpha": alpha}
            for name in ("rbf", "laplacian")
            for gamma in gammas(name, data.X)
            for (w, c), alpha in product(penalties, grids.RIDGE_MEMBER_ALPHAS)
        ]
        return near(candidates, data.around[: self.TRIED_IN_CONTEXT], ("kernel", "gamma"))

    def outcomes(
        self, data: Any, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Outputs of candidates with one kernel for the test rows of all splits."""
        landmarks = data.X[data.evenly(np.arange(len(data.X)), self.COMPARED_LANDMARKS)]
        rows = Rows(data.X, data.target, data.domain)
        with one_thread():
            values = self.estimator(data, {}).candidate_values(rows, batch, splits, landmarks)
        columns = class_columns if data.n_classes else np.asarray
        return Outcomes([[columns(v).astype(np.float32) for v in by_split] for by_split in values])

    def fit(self, data: Any, chosen: Sequence[Candidate]) -> list[Any]:
        model = self.estimator(data, {})
        return [model.fit_candidates(data.X, data.y, data.domain.codes, candidates=chosen)]

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        settings = {"random_state": data.seed, "n_landmarks": min(self.LANDMARKS, len(data.X))}
        if not data.n_classes:
            return InvariantRidgeCV(**settings)
        return InvariantRidgeClassifierCV(class_weight=data.class_weight, **settings)


class UserMember(MemberType):
    """A member for an estimator that the user passed."""

    def __init__(self, name: str, template: Any) -> None:
        self.name, self.template = name, template

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Array]:
        """Outputs of the estimator, after a check."""
        values = super().outputs(data, train, test, batch, score)
        for output in values:
            check_outputs(output, len(test), self.name)
        return values

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        """Copy the estimator."""
        return clone(self.template)


def grid(**values: Sequence[Any]) -> list[Candidate]:
    """All combinations of values; those of the last argument vary fastest."""
    return [dict(zip(values, point, strict=True)) for point in product(*values.values())]


def near(
    candidates: list[Candidate], chosen: Sequence[Candidate], names: Sequence[str]
) -> list[Candidate]:
    """Candidates with the same values of these arguments as a chosen one; all if none are chosen.

    Gamma depends on the columns, so the closest value counts as the same.
    """

    def distance(other: Candidate, candidate: Candidate) -> float:
        return sum(
            abs(float(np.log(candidate[name] / other[name])))
            if name == "gamma"
            else 1e3 * (candidate[name] != other[name])
            for name in names
        )

    closest = [min(candidates, key=partial(distance, other)) for other in chosen]
    values = [{name: candidate[name] for name in names} for candidate in closest]
    return [c for c in candidates if not chosen or {name: c[name] for name in names} in values]


MEMBER_TYPES: dict[str, type[MemberType]] = {
    kind.name: kind
    for kind in (
        _Linear,
        _Boosting,
        _ExtraTrees,
        _InvariantRidge,
        _InvariantSVM,
        _LightGBM,
        _CatBoost,
    )
}
#: The types of members="auto": those that need no other package.
AUTO = tuple(name for name, kind in MEMBER_TYPES.items() if not issubclass(kind, _OtherBoosting))
