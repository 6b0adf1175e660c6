"""Members of an ensemble: what each type tries, and the fitted result of its search.

A type of member is a kind of search (:mod:`domainwise.search.driver`). One argument of each is its
*path*: of the candidates that differ in nothing else the best is kept, and of these the best
``n_average`` are averaged, because scores on few domains are noisy. A new type is a class here that
is listed in ``MEMBER_TYPES``; its grid is in ``search/grids.py``.
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

#: Trees in the end, and while candidates are compared.
TREES, COMPARED_TREES = 100, 30
#: Rows beyond which trees have no small leaves: they gain little, and files would be large.
MANY_ROWS = 1500
#: Features beyond which trees try a few of them at each split only.
MANY_FEATURES = 50


@dataclass(frozen=True)
class MemberData(Data):
    """Rows in units of the sources; targets are codes of classes, or have unit variance."""

    target: Any = None
    domain: Any = None
    #: What the same kind has chosen for rows one by one: in context it searches near that.
    around: Sequence[Candidate] = ()

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a continuous target."""
        return int(self.target.n_categories)

    def evenly(self, rows: Array, most: int | None) -> Array:
        """At most so many of some rows, drawn evenly from their domains; None takes all."""
        if most is None:
            return rows
        most = max(most, 2 * self.domain.n_categories)
        return rows[draw_rows(self.domain.codes[rows], most, self.seed)]


@dataclass(frozen=True)
class Member:
    """A fitted member."""

    name: str
    in_context: bool  #: whether it predicts rows in context
    parameters: list[Candidate]  #: what was chosen, the best first
    estimators: list[Any]  #: their outputs are averaged
    n_classes: int  #: 0 for a continuous target
    clip: float | None  #: deviations at which far values level off
    curve: Curve | None  #: from outputs to probabilities

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"estimators": [packed(model) for model in self.estimators]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, estimators=[unpacked(model) for model in state["estimators"]])

    def predict(self, X: Array) -> Array:
        """Probabilities of the classes, or one column of values, of rows as it knows them."""
        X = levelled(X, self.clip)
        values = [outputs(model, X, self.n_classes) for model in self.estimators]
        for output in values:
            check_outputs(output, len(X), self.name)
        mean = np.mean(values, axis=0)
        return np.asarray(mean if self.curve is None else self.curve.probabilities(mean))


class MemberType:
    """A type of member: a kind of search, with an estimator for each candidate."""

    name: str
    path: ClassVar[str] = ""
    #: Arguments in which the candidates of a batch agree; None computes each by itself.
    shared: ClassVar[tuple[str, ...] | None] = None
    n_average: ClassVar[int] = 1
    #: Rows that it learns from, at most; None is no limit, once parameters are chosen.
    most_rows: ClassVar[int | None] = 20_000
    #: Whether fits take so long that more domains are held out together.
    expensive = False
    #: Whether it also learns from rows in context.
    in_context = True
    #: Deviations at which far values level off; None leaves them.
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
        """Choose on held-out domains, fit to all rows; also return predictions for the former.

        ``everything`` are all rows, where ``data`` are some of them.
        """
        data, everything = (
            each if each is None else replace(each, X=levelled(each.X, self.clip))
            for each in (data, everything)
        )
        rule = partial(best_of_paths, path=(self.path,), n=self.n_average)
        # Scores that are named may not be defined on the domains of a first round.
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
        """List what is tried."""
        return [{}]

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """List indices of candidates that share work."""
        if self.shared is None:
            return [[i] for i in range(len(candidates))]
        return batches_by(candidates, self.shared)

    def outcomes(
        self, data: Any, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Outputs of candidates for the test rows of some splits."""
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

    def again(self, data: Any, member: Member, train: Array, X: Array) -> Array:
        """Predict other rows by the best candidate of a member, fitted to some rows alone."""
        data = replace(data, X=levelled(data.X, self.clip)).take(train)
        with threadpool_limits(1), one_thread():
            models = self.fit(data, member.parameters[:1])
        return replace(member, estimators=models).predict(X)

    @abstractmethod
    def estimator(self, data: Any, candidate: Candidate) -> Any:
        """Make an estimator with the arguments of a candidate; class weights are set later."""

    def weighted(self, data: Any, candidate: Candidate) -> Any:
        """Make an estimator with a candidate's arguments and, where it has any, class weights."""
        model = self.estimator(data, candidate)
        if data.class_weight is not None and "class_weight" in model.get_params():
            model.set_params(class_weight=data.class_weight)
        return model

    def fitted(self, data: Any, candidate: Candidate, rows: Array) -> Any:
        """Fit the estimator of a candidate to some rows, with domains where it takes any."""
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
            "return one for each row"
        )
    strange = ~np.isfinite(values).all(axis=1)
    if strange.any():
        raise ValueError(
            f"member {name!r} returned NaN or infinite values for {strange.sum()} of {n_rows} "
            "rows; make it return numbers for all rows, or leave it out of members"
        )


def levelled(X: Array, clip: float | None) -> Array:
    """Level values far out off at some deviations; those near are unchanged."""
    return X if clip is None else clip * np.tanh(X / clip)


def gammas(kernel: str, X: Array) -> list[float]:
    """Widths of a kernel around the median rule; any will do where all rows are the same."""
    try:
        middle = resolve_gamma("median", kernel, X)
    except ValueError:
        middle = 1.0
    return [factor * middle for factor in grids.MEMBER_GAMMAS]


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
        few = data.X.shape[1] > MANY_FEATURES
        leaves = grids.TREE_LEAVES[-1:] if len(data.X) > MANY_ROWS else grids.TREE_LEAVES
        candidates = grid(max_features=features[:1] if few else features, min_samples_leaf=leaves)
        return near(candidates, data.around, ("max_features", "min_samples_leaf"))

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Array]:
        if data.n_classes > 2:
            fewer = [{**candidate, "n_estimators": COMPARED_TREES} for candidate in batch]
            return super().outputs(data, train, test, fewer, score)
        # Shares of the second class are means, and splits by their variance those by Gini's index:
        # trees that are fitted one by one need half the time of scikit-learn's forests.
        rows = data.evenly(train, self.most_rows)
        X, X_test = (data.X[part].astype(np.float32) for part in (rows, test))
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
    """Gradient boosting, stopped where held-out domains are predicted best."""

    name, path, most_rows, expensive = "boosting", "max_iter", None, True
    shared: ClassVar[tuple[str, ...]] = ("max_depth",)
    #: Sizes of trees, with few rows and with many.
    sizes: ClassVar[tuple[tuple[int, ...], tuple[int, ...]]] = grids.BOOSTING_DEPTHS
    most_rounds: ClassVar[int] = 120
    settings: ClassVar[Candidate] = {}

    def candidates(self, data: Any) -> list[Candidate]:
        stages = [max(2, self.most_rounds // part) for part in (8, 4, 2, 1)]
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
    """A boosted model of another package, stopped after some rounds."""

    model: Any
    stop: dict[str, int]  #: by the name that the package's predictions have for it

    @property
    def classes_(self) -> Array:
        return np.asarray(self.model.classes_)

    def predict(self, X: Array) -> Array:
        return np.asarray(self.model.predict(X, **self.stop))

    def predict_proba(self, X: Array) -> Array:
        return np.asarray(self.model.predict_proba(X, **self.stop))


class _OtherBoosting(_Boosting):
    """Gradient boosting of a package that the extra ``boosting`` installs."""

    stop: ClassVar[str]  #: argument of its predictions

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
    #: Rows that candidates are compared on, at most.
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
    #: Landmarks while candidates are compared; the average of the chosen has more.
    COMPARED_LANDMARKS, LANDMARKS = 200, 400
    #: Chosen candidates whose kernels are tried in context.
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
        return Outcomes([[columns(v).astype(np.float32) for v in of_one] for of_one in values])

    def fit(self, data: Any, chosen: Sequence[Candidate]) -> list[Any]:
        model = self.estimator(data, {})
        return [model.fit_candidates(data.X, data.y, data.domain.codes, candidates=chosen)]

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        settings = {"random_state": data.seed, "n_landmarks": min(self.LANDMARKS, len(data.X))}
        if not data.n_classes:
            return InvariantRidgeCV(**settings)
        return InvariantRidgeClassifierCV(class_weight=data.class_weight, **settings)


class Own(MemberType):
    """An estimator that the user has given."""

    def __init__(self, name: str, template: Any) -> None:
        self.name, self.template = name, template

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Array]:
        """Outputs of the estimator, which are checked."""
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
    candidates: list[Candidate], others: Sequence[Candidate], names: Sequence[str]
) -> list[Candidate]:
    """Candidates with values of some arguments that others have; all if there are no others.

    Of gammas, which depend on the columns, the closest counts.
    """

    def distance(other: Candidate, candidate: Candidate) -> float:
        return sum(
            abs(float(np.log(candidate[name] / other[name])))
            if name == "gamma"
            else 1e3 * (candidate[name] != other[name])
            for name in names
        )

    closest = [min(candidates, key=partial(distance, other)) for other in others]
    wanted = [{name: candidate[name] for name in names} for candidate in closest]
    return [c for c in candidates if not others or {name: c[name] for name in names} in wanted]


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
#: What members="auto" is: types that need no further package.
AUTO = tuple(name for name, kind in MEMBER_TYPES.items() if not issubclass(kind, _OtherBoosting))
