"""Member types of an ensemble, and fitted members.

A member type is a kind of search, as defined in :mod:`domainwise.held_out.search.driver`. Among
candidates that differ only in the argument named by ``path``, the best one is selected. The
``n_average`` best of the selected candidates are averaged, because scores on few domains are noisy.
To add a type, write a class and add it to ``_TYPES``; grids are in ``held_out/search/grids.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any, ClassVar

import numpy as np
from sklearn import ensemble
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import has_fit_parameter

from domainwise.algebra.kernels.functions import resolve_gamma
from domainwise.base.arrays import Array, read_only
from domainwise.base.inputs import weight_argument
from domainwise.base.messages import needs_extra
from domainwise.base.process import one_thread
from domainwise.estimators.ensemble.held_out import HeldOutScore
from domainwise.estimators.ensemble.trees import (
    SymmetricBoostingClassifier,
    SymmetricBoostingRegressor,
    pack_forest,
    round_leaves,
    unpack_forest,
)
from domainwise.estimators.invariant import InvariantSVC, InvariantSVR
from domainwise.estimators.invariant.tuning import SplitKernels
from domainwise.estimators.ridge import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.estimators.ridge.scores import Rows
from domainwise.held_out.calibration.curves import Curve, class_columns
from domainwise.held_out.folds import Split, draw_rows
from domainwise.held_out.search import driver, grids
from domainwise.held_out.search.driver import Candidate, Data, Outcomes, Race
from domainwise.held_out.search.scores import Score, decision_outputs, log_probabilities, outputs

#: Number of trees in the final forest, and during the search.
TREES, COMPARED_TREES = 100, 30
#: Number of rows on which invariant ridge compares kernels if the number of kernels is limited.
KERNEL_ROWS = 2000
#: With more features than this, forests try only the smaller number of features per split.
MANY_FEATURES = 50


@dataclass(frozen=True)
class MemberData(Data):
    """Standardized rows; targets are class codes, or numbers scaled to unit variance."""

    target: Any = None
    domain: Any = None
    sizes: grids.EnsembleSizes = grids.ENSEMBLE[0]  #: the candidates for this number of rows
    #: Candidates selected without context, or on fewer rows; they restrict the search.
    hints: Sequence[Candidate] = ()

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a continuous target."""
        return int(self.target.n_categories)

    def at(self, rows: Array) -> MemberData:
        """Return some of the rows, with the codes of all classes and domains."""
        labels = {"target": self.target.take(rows), "domain": self.domain.take(rows)}
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, X=self.X[rows], y=self.y[rows], weights=weights, **labels)

    def row_weights(self, rows: Array, *, with_classes: bool) -> Array | None:
        """Return the weights of rows, multiplied by those of their classes if requested."""
        weights = None if self.weights is None else self.weights[rows]
        if not with_classes or self.class_weight is None:
            return weights
        return compute_sample_weight(self.class_weight, self.y[rows]) * (
            1.0 if weights is None else weights
        )

    def sample(self, rows: Array, max_rows: int | None) -> Array:
        """Sample at most ``max_rows`` of these rows, evenly from their domains; None keeps all."""
        if max_rows is None:
            return rows
        max_rows = max(max_rows, 2 * self.domain.n_categories)
        return rows[draw_rows(self.domain.codes[rows], max_rows, self.seed)]


@dataclass(frozen=True)
class Member:
    """A fitted member."""

    name: str
    in_context: bool  #: whether it uses context
    parameters: list[Candidate]  #: the selected candidates, best first
    estimators: list[Any]  #: fitted estimators, whose outputs are averaged
    n_classes: int  #: 0 for a continuous target
    clip: float | None  #: limit that large values approach, in standard deviations
    curve: Curve | None  #: calibration curve from outputs to probabilities
    #: Lowest and highest prediction of a continuous target that is safe on held-out domains.
    bounds: tuple[float, float] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"estimators": [pack_forest(model) for model in self.estimators]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, estimators=[unpack_forest(model) for model in state["estimators"]])

    def predict(self, X: Array) -> Array:
        """Return class probabilities, or a column of predicted targets, for standardized rows."""
        X = read_only(soft_clip(X, self.clip))
        estimator_outputs = [outputs(model, X, self.n_classes) for model in self.estimators]
        for model_outputs in estimator_outputs:
            check_outputs(model_outputs, len(X), self.name)
        mean_outputs = np.mean(estimator_outputs, axis=0)
        if self.curve is not None:
            return self.curve.probabilities(mean_outputs)
        return mean_outputs if self.bounds is None else np.clip(mean_outputs, *self.bounds)


class MemberType:
    """Base class of member types, each of which is a kind of search."""

    name: str
    path: ClassVar[str] = ""  #: name of the argument in which the candidates of a path differ
    #: Arguments that the candidates of a batch share; None puts each candidate in its own batch.
    shared_arguments: ClassVar[tuple[str, ...] | None] = None
    n_average: ClassVar[int] = 1
    #: Whether fewer candidates are averaged if this is better on held-out domains.
    may_average_fewer: ClassVar[bool] = False
    #: Maximum number of rows to which estimators are fitted; None for no limit.
    max_rows: ClassVar[int | None] = 20_000
    #: Whether fits are so slow that domains are held out in fewer groups.
    expensive = False
    #: Whether estimators are also fitted with context.
    in_context = True
    #: Limit that large values approach, in standard deviations; None for no limit.
    clip: ClassVar[float | None] = None
    one_pass = False  #: whether the outputs of a batch are computed for all splits together

    def search(
        self,
        data: Any,
        splits: Sequence[Split],
        score: HeldOutScore,
        name: str,
        *,
        in_context: bool,
        n_jobs: int | None,
    ) -> tuple[Member, Array]:
        """Select candidates on held-out domains.

        Return a member without fitted estimators, and its predictions for held-out domains.
        """
        data = replace(data, X=soft_clip(data.X, self.clip))
        rule = partial(driver.best_of_paths, path=(self.path,), n=self.n_average)
        # A user's scorer might be undefined on the few domains in the first round of a race.
        race = Race() if score.scoring is None else None
        with one_thread():
            search_result = driver.search(self, data, splits, score, rule, race=race, n_jobs=n_jobs)
            values: Any = search_result.held_out
            counts = range(1 if self.may_average_fewer else len(values), len(values) + 1)
            means = [values[:n].mean(axis=0, dtype=np.float64) for n in counts]
            scores = [np.nanmean(score.selection_scores(mean)) for mean in means]
            mean, n_chosen = means[np.argmax(scores)], counts[np.argmax(scores)]
            curve = bounds = None
            if score.n_classes:
                curve = score.curve(mean)
                predictions = curve.probabilities(mean)
            else:
                bounds, predictions = score.safe_bounds(mean)
        output_settings = (score.n_classes, self.clip, curve, bounds)
        chosen = search_result.chosen[:n_chosen]
        return Member(name, in_context, chosen, [], *output_settings), predictions

    def fit_member(self, member: Member, data: dict[bool, MemberData]) -> Member:
        """Fit the selected candidates to all rows, given without and with context."""
        rows = data[member.in_context]
        with one_thread():
            rows = replace(rows, X=soft_clip(rows.X, self.clip))
            return replace(member, estimators=self.fit(rows, member.parameters))

    def candidates(self, data: Any) -> list[Candidate]:
        """Return the candidates to compare."""
        return [{}]

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Group candidates that share computations, and return their indices."""
        if self.shared_arguments is None:
            return [[i] for i in range(len(candidates))]
        return driver.batches_by(candidates, self.shared_arguments)

    def outcomes(
        self, data: Any, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Return the outputs of candidates for the test rows of each split."""
        with one_thread():  # results do not depend on n_jobs, not even in the last bits
            outputs_by_split = [self.outputs(data, *split, batch, score) for split in splits]
        return list(zip(*outputs_by_split, strict=True))

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Any]:
        """Return the outputs of a batch of candidates for the test rows of a split."""
        rows = data.sample(train, self.max_rows)
        models = [self.fit_candidate(data, candidate, rows) for candidate in batch]
        batch_outputs = [score.outcome(model, data.X[test], data.y[test]) for model in models]
        for candidate_outputs in batch_outputs:
            check_outputs(candidate_outputs, len(test), self.name)
        return batch_outputs

    def fit(self, data: Any, chosen: Sequence[Candidate]) -> list[Any]:
        """Fit the chosen candidates to all rows."""
        rows = data.sample(np.arange(len(data.X)), self.max_rows)
        return [self.fit_candidate(data, candidate, rows) for candidate in chosen]

    def refit_predict(self, data: Any, member: Member, train: Array, X: Array) -> Array:
        """Fit a member's best candidate to the rows ``train``, and return predictions for ``X``."""
        data = replace(data, X=soft_clip(data.X, self.clip)).take(train)
        with one_thread():
            models = self.fit(data, member.parameters[:1])
        return replace(member, estimators=models).predict(X)

    @abstractmethod
    def estimator(self, data: Any, candidate: Candidate) -> Any:
        """Return an unfitted estimator for a candidate, without class weights."""

    def weighted_estimator(self, data: Any, candidate: Candidate) -> Any:
        """Return an unfitted estimator for a candidate, with class weights if it accepts them."""
        model = self.estimator(data, candidate)
        if data.class_weight is not None and "class_weight" in model.get_params():
            model.set_params(class_weight=data.class_weight)
        return model

    def fit_candidate(self, data: Any, candidate: Candidate, rows: Array) -> Any:
        """Fit the estimator for a candidate to these rows, and return it."""
        model, y = self.weighted_estimator(data, candidate), data.y[rows]
        fit_arguments: dict[str, Any] = {}
        if has_fit_parameter(model, "sample_domain"):
            fit_arguments["sample_domain"] = data.domain.codes[rows]
        with_classes = "class_weight" not in model.get_params()
        with_classes &= has_fit_parameter(model, "sample_weight")
        weights = data.row_weights(rows, with_classes=with_classes)
        fit_arguments |= weight_argument(model, weights)
        return model.fit(data.X[rows], y, **fit_arguments)


def check_outputs(values: Array, n_rows: int, name: str) -> None:
    """Raise ValueError if a member's outputs cannot be averaged."""
    if len(values) != n_rows:
        raise ValueError(
            f"member {name!r} returned {len(values)} predictions for {n_rows} rows. Make it return "
            "one prediction per row."
        )
    is_invalid = ~np.isfinite(values).all(axis=1)
    if is_invalid.any():
        raise ValueError(
            f"member {name!r} returned NaN or infinite values for {is_invalid.sum()} of "
            f"{n_rows} rows. Make it return finite numbers, or remove it from members."
        )


def soft_clip(X: Array, clip: float | None) -> Array:
    """Clip values smoothly to the range from ``-clip`` to ``clip``; small values hardly change."""
    return X if clip is None else clip * np.tanh(X / clip)


def gamma_grid(kernel: str, data: Any) -> list[float]:
    """Return values of gamma around that of the median rule, or around 1 if all rows are equal."""
    try:
        median_gamma = resolve_gamma("median", kernel, data.X, data.weights)
    except ValueError:
        median_gamma = 1.0
    return [factor * median_gamma for factor in grids.MEMBER_GAMMAS]


class _Linear(MemberType):
    """Logistic regression or ridge regression."""

    name, path, in_context = "linear", "C", False

    def candidates(self, data: Any) -> list[Candidate]:
        return grid(C=grids.LINEAR_COSTS)

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        if not data.n_classes:
            return Ridge(alpha=1.0 / candidate["C"])
        return LogisticRegression(C=candidate["C"], max_iter=1000)


class _ExtraTrees(MemberType):
    """Extremely randomized trees."""

    name, path, expensive, max_rows = "extra_trees", "min_samples_leaf", True, 5000
    #: Thresholds are drawn between a feature's extremes; with long tails, few would be useful.
    clip = 3.0

    def candidates(self, data: Any) -> list[Candidate]:
        max_features = grids.TREE_FEATURES["classes" if data.n_classes else "numbers"]
        has_many_features = data.X.shape[1] > MANY_FEATURES
        leaf_sizes = data.sizes.tree_leaves
        max_features = max_features[:1] if has_many_features else max_features
        candidates = grid(max_features=max_features, min_samples_leaf=leaf_sizes)
        return restrict(candidates, data.hints, ("max_features", "min_samples_leaf"))

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Array]:
        if data.n_classes > 2:
            candidates = [{**candidate, "n_estimators": COMPARED_TREES} for candidate in batch]
            return super().outputs(data, train, test, candidates, score)
        # For classes coded as 0 and 1, regression trees have the same splits as classification
        # trees, because the variance is half the Gini impurity. They take half as long to fit.
        rows = data.sample(train, self.max_rows)
        arguments = {"n_estimators": COMPARED_TREES, "random_state": data.seed}
        batch_outputs = []
        for candidate in batch:
            forest = ensemble.ExtraTreesRegressor(**arguments, **candidate)
            forest.fit(data.X[rows], data.y[rows], data.row_weights(rows, with_classes=True))
            values = forest.predict(data.X[test])[:, None]
            if data.n_classes:
                values = log_probabilities(np.hstack([1.0 - values, values]))
            batch_outputs.append(values.astype(np.float32))
        return batch_outputs

    def fit_candidate(self, data: Any, candidate: Candidate, rows: Array) -> Any:
        return round_leaves(super().fit_candidate(data, candidate, rows))

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        forest = ensemble.ExtraTreesClassifier if data.n_classes else ensemble.ExtraTreesRegressor
        fixed_args = {"n_estimators": TREES, "random_state": data.seed}
        return forest(**{**fixed_args, **candidate})


class _Boosting(MemberType):
    """Gradient boosting, with the size of trees and the number of rounds chosen by scores.

    Trees are symmetric or, with more rows, those of HistGradientBoosting.
    """

    name, path, max_rows, expensive = "boosting", "max_iter", None, True
    n_average, may_average_fewer = 2, True  #: shapes of trees
    shared_arguments: ClassVar[tuple[str, ...]] = ("max_depth", "max_leaf_nodes")
    max_rounds: ClassVar[int] = 120  #: largest number of rounds for all shapes of trees
    settings: ClassVar[Candidate] = {}  #: arguments that all candidates share

    def candidates(self, data: Any) -> list[Candidate]:
        candidates = [
            {**shape, self.path: max(2, min(shape[self.path], self.max_rounds) // divisor)}
            for shape in self.shapes(data)
            for divisor in (8, 4, 2, 1)
        ]
        most_rounds = max((2 * hint[self.path] for hint in data.hints), default=np.inf)
        candidates = [c for c in candidates if c[self.path] <= most_rounds]
        # With context, boosting takes twice as long, and one shape fewer is compared.
        hints = data.hints[: max(1, len(self.shapes(data)) - 1)]
        return restrict(candidates, hints, self.shared_arguments)

    def shapes(self, data: Any) -> Sequence[Mapping[str, Any]]:
        """Return the shapes of trees to compare, with the largest number of rounds for each."""
        shapes: Sequence[Mapping[str, Any]]
        shapes = data.sizes.boosting["classes" if data.n_classes else "numbers"]
        return shapes

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Array]:
        model = self.fit_candidate(data, batch[-1], data.sample(train, self.max_rows))
        stages = self.stages(model, data.X[test], [c[self.path] for c in batch])
        if data.n_classes:
            classes, n_classes = model.classes_, data.n_classes
            stages = (decision_outputs(values, classes, n_classes) for values in stages)
        return [values.astype(np.float32) for values in stages]

    def stages(self, model: Any, X: Array, round_counts: Sequence[int]) -> Iterator[Array]:
        """Yield decision values or predictions after each of these numbers of rounds."""
        if hasattr(model, "staged"):
            yield from model.staged(X, set(round_counts))
            return
        stages = getattr(model, "staged_decision_function", None) or model.staged_predict
        for n_rounds, values in enumerate(stages(X), 1):
            if n_rounds in round_counts:
                yield values.reshape(len(values), -1).copy()

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        arguments = {"random_state": data.seed, **self.settings, **candidate}
        if "max_leaf_nodes" in candidate:
            kind = "Classifier" if data.n_classes else "Regressor"
            histogram = getattr(ensemble, f"HistGradientBoosting{kind}")
            return histogram(early_stopping=False, l2_regularization=1.0, **arguments)
        model_type = SymmetricBoostingClassifier if data.n_classes else SymmetricBoostingRegressor
        return model_type(**arguments)


class _OtherBoosting(_Boosting):
    """Gradient boosting from a package that the ``boosting`` extra installs."""

    rounds_argument: ClassVar[str]  #: argument of predict that sets the number of rounds
    sizes: ClassVar[tuple[int, ...]]  #: sizes of trees
    model_types: ClassVar[tuple[str, str]]  #: names of the regressor and the classifier

    def __init__(self) -> None:
        with needs_extra(f"the member {self.name!r}", "boosting"):
            import_module(self.name)

    def shapes(self, data: Any) -> list[Candidate]:
        """Return the sizes of trees to compare, with the largest number of rounds."""
        return [{self.shared_arguments[0]: n, self.path: self.max_rounds} for n in self.sizes]

    def stages(self, model: Any, X: Array, round_counts: Sequence[int]) -> Iterator[Array]:
        """Yield log-probabilities or predictions after each of these numbers of rounds."""
        predict = getattr(model, "predict_proba", model.predict)
        for n_rounds in round_counts:
            values = np.asarray(predict(X, **{self.rounds_argument: n_rounds}))
            yield values[:, None] if values.ndim == 1 else log_probabilities(values)

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        model_type = getattr(import_module(self.name), self.model_types[data.n_classes > 0])
        options = {"random_state": data.seed, "learning_rate": 0.1, **self.settings}
        return model_type(**options, **candidate)


class _LightGBM(_OtherBoosting):
    """Gradient boosting with LightGBM."""

    name, path, rounds_argument = "lightgbm", "n_estimators", "num_iteration"
    shared_arguments, sizes = ("num_leaves",), (4, 16)
    model_types = ("LGBMRegressor", "LGBMClassifier")
    settings: ClassVar = {"reg_lambda": 1.0, "n_jobs": 1, "verbose": -1, "deterministic": True}


class _CatBoost(_OtherBoosting):
    """Gradient boosting with CatBoost."""

    name, path, rounds_argument = "catboost", "iterations", "ntree_end"
    shared_arguments, sizes = ("depth",), (2, 6)
    model_types = ("CatBoostRegressor", "CatBoostClassifier")
    settings: ClassVar = {"thread_count": 1, "verbose": 0, "allow_writing_files": False}


class _InvariantSVM(MemberType):
    """Support vector machines with the invariant kernel."""

    name, path, n_average, max_rows, in_context = "invariant_svm", "C", 3, 1000, False
    clip, shared_arguments, expensive = 6.0, ("gamma",), True
    #: Maximum number of rows to which candidates are fitted during the search.
    COMPARED_ROWS = 400

    def candidates(self, data: Any) -> list[Candidate]:
        costs = grids.SVM_COSTS["classes" if data.n_classes else "numbers"]
        weights = grids.SVM_WEIGHTS if data.domain.n_categories > 1 else (0.0,)
        return grid(gamma=gamma_grid("rbf", data), domain_weight=weights, C=costs)

    def outputs(self, data: Any, train: Array, test: Array, batch: Any, score: Any) -> list[Array]:
        rows = data.sample(train, self.COMPARED_ROWS)
        labels = data.y[rows], data.domain.codes[rows]
        weights = data.row_weights(rows, with_classes=False)
        machines = [self.weighted_estimator(data, candidate) for candidate in batch]
        split_kernels = SplitKernels.evaluate(machines[0], data.X[rows], data.X[test])
        pairs = (split_kernels.fit_svm(machine, *labels, weights) for machine in machines)
        return [score.outcome(model, test_kernel, data.y[test]) for model, test_kernel in pairs]

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        return InvariantSVC(**candidate) if data.n_classes else InvariantSVR(**candidate)


class _InvariantRidge(MemberType):
    """Kernel ridge regression with the invariant kernel, fitted from moments of all rows."""

    name, path, n_average, clip, max_rows = "invariant_ridge", "alpha", 10, 6.0, None
    shared_arguments, one_pass = ("kernel", "gamma"), True
    #: Number of best candidates without context whose kernels are also tried with context.
    CONTEXT_KERNELS = 3

    def search(
        self, data: Any, splits: Sequence[Split], score: HeldOutScore, name: str, **options: Any
    ) -> tuple[Member, Array]:
        """Compare kernels on a sample of the rows first if their number is limited."""
        n_kernels = data.sizes.ridge_kernels
        if n_kernels is None:
            data = replace(data, hints=data.hints[: self.CONTEXT_KERNELS])
            return super().search(data, splits, score, name, **options)
        if not data.hints:
            rows = data.sample(np.arange(len(data.X)), KERNEL_ROWS)
            sets = (tuple(np.flatnonzero(np.isin(rows, indices)) for indices in s) for s in splits)
            used_splits: list[Any] = [s for s in sets if len(s[0]) and len(s[1])]
            sample, sample_score = data.at(rows), score.take(rows)
            member, _ = super().search(sample, used_splits, sample_score, name, **options)
            data = replace(data, hints=member.parameters)
        kernels = list(dict.fromkeys((c["kernel"], c["gamma"]) for c in data.hints))[:n_kernels]
        hints = [c for c in data.hints if (c["kernel"], c["gamma"]) in kernels]
        return super().search(replace(data, hints=hints), splits, score, name, **options)

    def candidates(self, data: Any) -> list[Candidate]:
        weight_pairs = [(0.0, False)]
        if data.domain.n_categories > 1:
            conditionals = (False, True) if data.n_classes else (False,)
            weight_pairs += [(w, c) for c in conditionals for w in grids.RIDGE_MEMBER_WEIGHTS]
        candidates: list[Candidate] = [
            {"kernel": kernel, "gamma": gamma, "domain_weight": w, "conditional": c, "alpha": alpha}
            for kernel in ("rbf", "laplacian")
            for gamma in gamma_grid(kernel, data)
            for (w, c), alpha in product(weight_pairs, grids.RIDGE_MEMBER_ALPHAS)
        ]
        return restrict(candidates, data.hints, ("kernel", "gamma"))

    def outcomes(
        self, data: Any, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Return the outputs of candidates with one kernel for the test rows of all splits."""
        landmarks = data.X[data.sample(np.arange(len(data.X)), data.sizes.landmarks[0])]
        rows = Rows(data.X, data.target, data.domain, data.weights)
        with one_thread():
            outputs = self.estimator(data, {}).candidate_values(rows, batch, splits, landmarks)
        convert = class_columns if data.n_classes else np.asarray
        return [[convert(v).astype(np.float32) for v in by_split] for by_split in outputs]

    def fit(self, data: Any, chosen: Sequence[Candidate]) -> list[Any]:
        model = self.estimator(data, {})
        return [model.fit_candidates(data.X, data.y, data.domain.codes, chosen, data.weights)]

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        n_landmarks = min(data.sizes.landmarks[1], len(data.X))
        options = {"random_state": data.seed, "n_landmarks": n_landmarks}
        if not data.n_classes:
            return InvariantRidgeCV(**options)
        return InvariantRidgeClassifierCV(class_weight=data.class_weight, **options)


class UserMember(MemberType):
    """The member type of an estimator that the user passed."""

    def __init__(self, name: str, template: Any) -> None:
        self.name, self.template = name, template

    def estimator(self, data: Any, candidate: Candidate) -> Any:
        """Return a copy of the estimator."""
        return clone(self.template)


def grid(**values_by_argument: Sequence[Any]) -> list[Candidate]:
    """Return all combinations of values; the last argument varies fastest."""
    combinations = product(*values_by_argument.values())
    return [dict(zip(values_by_argument, values, strict=True)) for values in combinations]


def restrict(
    candidates: list[Candidate], chosen: Sequence[Candidate], names: Sequence[str]
) -> list[Candidate]:
    """Return the candidates whose arguments ``names`` have the same values as in a chosen one.

    If ``chosen`` is empty, return all candidates. The values of gamma in the grid depend on the
    columns, so the value closest to the chosen one is used.
    """

    def distance(reference: Candidate, candidate: Candidate) -> float:
        ratio = candidate.get("gamma", 1.0) / reference.get("gamma", 1.0)
        n_different = sum(candidate.get(n) != reference.get(n) for n in names if n != "gamma")
        return abs(float(np.log(ratio))) + 1e3 * n_different

    closest_candidates = [min(candidates, key=partial(distance, reference)) for reference in chosen]
    allowed_values = [[candidate.get(name) for name in names] for candidate in closest_candidates]
    return [c for c in candidates if not chosen or [c.get(n) for n in names] in allowed_values]


_TYPES = (_Linear, _Boosting, _ExtraTrees, _InvariantRidge, _InvariantSVM, _LightGBM, _CatBoost)
MEMBER_TYPES: dict[str, type[MemberType]] = {t.name: t for t in _TYPES}
