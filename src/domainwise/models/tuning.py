"""An estimator whose ``fit`` chooses the arguments of a method on held-out domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from domainwise.algebra.kernels.functions import Kernel, resolve_gamma
from domainwise.base.arrays import Array
from domainwise.base.inputs import check_sample_domain, quiet_about_domains, take_rows
from domainwise.base.signatures import arguments
from domainwise.estimators.ensemble.symmetric import bin_borders
from domainwise.estimators.projections.exact_base import KernelProjection
from domainwise.estimators.projections.path import project_grid
from domainwise.estimators.projections.projection import one_thread_if_small
from domainwise.held_out.folds import Split, domain_folds, draw_rows
from domainwise.held_out.scoring.measures import choose_measure
from domainwise.held_out.scoring.predictions import (
    MetaEstimator,
    fit_with_domains,
    has_argument,
    predicts_most_probable,
)
from domainwise.held_out.search.driver import Candidate, Data, Outcomes, Race, batches_by, search
from domainwise.held_out.search.heads import quick_head
from domainwise.held_out.search.scores import Score, SmoothScore, as_score, quiet_scores

MAX_INNER_FOLDS = 5  #: maximum number of folds of source domains on which arguments are chosen
#: Maximum number of rows on which arguments are chosen; the final fit uses all rows. There is no
#: limit for estimators that are searches: their candidates share computations, or use landmarks.
SEARCH_ROWS = 5000
#: Estimators that use only the bin of each value.
BOOSTING = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)
RACE_SPLITS = 3  #: number of splits after which clearly worse candidates are dropped


@dataclass(frozen=True)
class MethodSearchKind:
    """A search for an estimator's arguments; candidates are fitted like the final model.

    With ``use_shortcuts``, candidates of an SVM or an exact projection that have the same kernel
    share the kernel matrices of a split, and boosting gets bin numbers instead of values.
    """

    estimator: Any
    step: str  #: pipeline step that has the arguments; empty if there is no pipeline
    grids: list[dict[str, Any]]
    use_shortcuts: bool = True
    one_pass = False

    def candidates(self, data: Data) -> list[Candidate]:
        """Return all combinations of the values in each grid."""
        return list(ParameterGrid(self.grids))

    @property
    def _searched_estimator(self) -> Any:
        return self.estimator.named_steps[self.step] if self.step else self.estimator

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Group candidates that share a kernel; otherwise each candidate is a batch."""
        estimator = self._searched_estimator
        is_rbf_svm = type(estimator) in (SVC, SVR) and estimator.kernel == "rbf"
        if self.use_shortcuts and (is_rbf_svm or isinstance(estimator, KernelProjection)):
            return batches_by(candidates, ("kernel", "gamma"))
        return [[i] for i in range(len(candidates))]

    def outcomes(
        self, data: Data, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Score the candidates on one split."""
        ((train, test),) = splits
        train_data, X_test, y_test = data.take(train), take_rows(data.X, test), data.y[test]
        if self.use_shortcuts and isinstance(self.estimator, BOOSTING):
            train_data, X_test = _bin_values(train_data, X_test, self.estimator.max_bins)
        with quiet_about_domains():
            if len(batch) == 1:
                (model,) = self.fit(train_data, batch)
                return Outcomes([[score.outcome(model, X_test, y_test)]])
            with one_thread_if_small(data.X), quiet_scores():
                fitted_pairs = self._fit_shared(train_data, batch, X_test)
                return Outcomes([[score.outcome(model, X, y_test)] for model, X in fitted_pairs])

    def _fit_shared(
        self, train_data: Data, batch: Sequence[Candidate], X_test: Array
    ) -> Iterator[tuple[Any, Array]]:
        """Yield fitted candidates with a common kernel, each with its input for the test rows."""
        if self.step:
            predictor = quick_head(self.estimator.steps[-1][1])
            for Z, Z_test in project_grid(self._searched_estimator, batch, train_data, X_test):
                yield copy(predictor).fit(Z, train_data.y), Z_test
            return
        gamma = batch[0].get("gamma", self.estimator.gamma)
        kernel = Kernel("rbf", gamma=gamma).centred_on(train_data.X)
        K, K_test = kernel.matrix(train_data.X), kernel.matrix(X_test, train_data.X)
        for candidate in batch:
            model = clone(self.estimator).set_params(**{**candidate, "kernel": "precomputed"})
            yield model.fit(K, train_data.y), K_test

    def fit(self, data: Data, chosen: Sequence[Candidate]) -> list[Any]:
        """Fit candidates; domains are passed to estimators that request them."""
        prefix, models = f"{self.step}__" if self.step else "", []
        for candidate in chosen:
            parameters = {prefix + name: clone(v, safe=False) for name, v in candidate.items()}
            model = clone(self.estimator).set_params(**parameters)
            models.append(fit_with_domains(model, data.X, data.y, data.sample_domain))
        return models


def _bin_values(train_data: Data, X_test: Array, n_bins: int) -> tuple[Data, Array]:
    """Replace values by bin numbers, the only information that histogram boosting uses.

    This saves time, because scikit-learn computes bins one by one if rows have weights.
    """
    if np.isnan(train_data.X).any():
        return train_data, X_test
    borders = [bin_borders(column, n_bins) for column in train_data.X.T]

    def to_bin_numbers(X: Array) -> Array:
        pairs = zip(borders, X.T, strict=True)
        return np.column_stack([np.searchsorted(b, x) for b, x in pairs]).astype(np.float64)

    return replace(train_data, X=to_bin_numbers(train_data.X)), to_bin_numbers(X_test)


def _estimator_has(name: str) -> Any:
    """Return a function that checks whether the estimator, fitted or not, has a method."""
    return lambda self: hasattr(getattr(self, "estimator_", self.estimator), name)


@arguments
class MethodSearch(MetaEstimator):
    """An estimator with arguments chosen on held-out source domains.

    ``grid`` contains candidate values by argument, in ``units`` (see
    :class:`~domainwise.held_out.search.grids.InUnits`); with None, there is no search. ``step`` is
    the pipeline step with the arguments. With ``searches``, the estimator is a search, and gets the
    splits, scorer and values. A user's ``own`` estimator gets the original domain labels.
    ``scoring=None`` means a smooth score (:class:`~domainwise.held_out.search.scores.SmoothScore`).
    ``pos_label`` is the positive class for scores such as F1; None means the second of two classes.
    ``cv=None`` holds out source domains in at most five groups.

    ``fit`` sets ``estimator_`` (with the selected arguments, fitted to all rows), ``best_params_``,
    ``varied_`` (arguments with more than one candidate value), ``n_candidates_``, ``selected_on_``
    (whether "domains" or "rows" were held out, or None) and ``settled_`` (an unfitted estimator
    with the selected arguments).

    >>> from sklearn.svm import SVC
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> search = MethodSearch(SVC(), {"gamma": [0.3, 3.0]}, {"gamma": "median"})
    >>> search.fit(data.data, data.target, sample_domain=data.sample_domain).n_candidates_
    2
    """

    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True, "learn_from": True}
    __metadata_request__predict: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__predict_proba: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__decision_function: ClassVar[dict[str, Any]] = {"sample_domain": True}

    estimator: Any = field(kw_only=False)
    grid: Mapping[str, Sequence[Any]] | None = field(default=None, kw_only=False)
    units: Mapping[str, str] | None = field(default=None, kw_only=False)
    step: str = ""
    searches: bool = False
    own: bool = False
    scoring: Any = None
    pos_label: Any = None
    cv: Any = None
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any, sample_domain: Any = None, *, learn_from: Any = None) -> Self:
        """Choose arguments on held-out source domains, then fit to all rows.

        ``learn_from`` is passed to an estimator whose ``fit`` accepts it. It marks the training
        rows; the other rows only describe their domains.
        """
        y = np.asarray(y)
        domain_codes = check_sample_domain(sample_domain, len(y), "delta").codes
        domains = sample_domain if self.own or sample_domain is None else domain_codes
        if self.grid is None:
            model = clone(self.estimator)
            if self.searches:
                model.set_params(scoring=self.scoring and self._scorer(y, domain_codes)[0])
            fit_options = {} if learn_from is None else {"learn_from": learn_from}
            fit_with_domains(model, X, y, domains, **fit_options)
            if self.searches:
                model.set_params(scoring=None)
            return self.set_fitted(model, {}, [{}], None)
        row_indices = np.arange(len(y))
        if not self.searches and domain_codes is not None:
            max_rows = max(SEARCH_ROWS, 2 * (int(domain_codes.max()) + 1))
            row_indices = draw_rows(domain_codes, max_rows, 0)
        data = Data(X, y, None if domains is None else np.asarray(domains))
        search_data = data if len(row_indices) == len(y) else data.take(row_indices)
        y_and_codes = (y[row_indices], None if domain_codes is None else domain_codes[row_indices])
        scorer, is_usable = self._scorer(*y_and_codes)
        splits, selected_on = domain_folds(
            *y_and_codes,
            classification=_is_classification(self.estimator, y),
            cv=self.cv,
            max_splits=MAX_INNER_FOLDS,
            is_usable=is_usable,
        )
        units = self.units or {}
        grids = in_units(self.grid, units, search_data, splits)
        with quiet_about_domains():  # domain_folds has warned already
            if self.searches:
                return self._fit_search(data, splits, grids, scorer, selected_on)
            use_shortcuts = not self.own and isinstance(X, np.ndarray)
            kind = MethodSearchKind(self.estimator, self.step, grids, use_shortcuts)
            # A user's score may be too noisy on individual domains to drop candidates early.
            race = Race(first=RACE_SPLITS) if self.scoring is None and not self.own else None
            score, n_jobs = as_score(scorer), self.n_jobs
            search_result = search(kind, search_data, splits, score, race=race, n_jobs=n_jobs)
            # Rescale values that were chosen on fewer rows to all rows.
            row_ratio = len(y) / len(row_indices)
            factors = {"rows": row_ratio, "per row": 1.0 / row_ratio}
            chosen_arguments = {
                name: value * factors[units[name]] if units.get(name) in factors else value
                for name, value in search_result.chosen[0].items()
            }
            (model,) = kind.fit(replace(data, sample_domain=domains), [chosen_arguments])
            return self.set_fitted(model, chosen_arguments, kind.candidates(data), selected_on)

    def _scorer(self, y: Array, domain_codes: Array | None) -> tuple[Any, Any]:
        """Return the scorer, and a function that returns whether it is defined on a split."""
        classification = _is_classification(self.estimator, y)
        if self.scoring is None:
            score = SmoothScore(y, domain_codes, np.unique(y) if classification else None)
            return score, lambda train, test: True
        measure = choose_measure(self.scoring, y, classification, self.pos_label)
        return measure.scorer, partial(measure.is_defined, classification=classification)

    def _fit_search(
        self, data: Data, splits: list[Split], grids: list[Any], scorer: Any, selected_on: str
    ) -> Self:
        """Fit an estimator that is itself a search, with these splits, values and scorer."""
        model = clone(self.estimator)
        inner_search = model.named_steps[self.step] if self.step else model
        has_grid = "param_grid" in inner_search.get_params(deep=False)
        inner_search.set_params(**({"param_grid": grids} if has_grid else grids[0]))
        if isinstance(scorer, SmoothScore) and not self.step and not has_grid:
            scorer = None  # kernel ridge regression computes its own smooth score at no extra cost
        inner_search.set_params(cv=splits, scoring=scorer)
        fit_with_domains(model, data.X, data.y, data.sample_domain)
        if self.step:
            projection = inner_search.best_estimator_
            model = Pipeline([(n, projection if n == self.step else s) for n, s in model.steps])
        else:
            inner_search.set_params(cv=None, scoring=None)  # splits would store all row indices
        candidates = inner_search.cv_results_["params"]
        return self.set_fitted(model, inner_search.best_params_, candidates, selected_on)

    def set_fitted(
        self,
        fitted_estimator: Any,
        best_candidate: Candidate,
        candidates: Sequence[Candidate],
        selected_on: str | None = "domains",
    ) -> Self:
        """Set the fitted attributes; ``fitted_estimator`` has been fitted to all rows."""
        self.estimator_ = fitted_estimator
        self.best_params_ = dict(best_candidate)
        self.n_candidates_ = len(candidates)
        self.selected_on_ = selected_on
        distinct_values = {name: {repr(c.get(name)) for c in candidates} for name in best_candidate}
        self.varied_ = [name for name in best_candidate if len(distinct_values[name]) > 1]
        return self

    @property
    def settled_(self) -> Any:
        """An unfitted estimator with the selected arguments, without a search."""
        estimator = self.estimator_
        if hasattr(estimator, "settled"):
            return estimator.settled()
        return clone(estimator.best_estimator_ if self.searches and not self.step else estimator)

    @property
    def classes_(self) -> Array:
        """Class labels."""
        return np.asarray(self.estimator_.classes_)

    @property
    def predicts_most_probable(self) -> bool:
        """Whether ``predict`` returns the class with the largest probability."""
        return predicts_most_probable(self.estimator_)

    def _call(self, method: str, X: Any, sample_domain: Any) -> Any:
        check_is_fitted(self)
        call = getattr(self.estimator_, method)
        if sample_domain is None or not has_argument(call):
            return call(X)
        return call(X, sample_domain=sample_domain)

    def predict(self, X: Any, sample_domain: Any = None) -> Any:
        """Predict; ``sample_domain`` is passed to estimators that use other rows of a domain."""
        return self._call("predict", X, sample_domain)

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any, sample_domain: Any = None) -> Any:
        """Return probabilities of the classes."""
        return self._call("predict_proba", X, sample_domain)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any, sample_domain: Any = None) -> Any:
        """Return decision values."""
        return self._call("decision_function", X, sample_domain)

    @available_if(_estimator_has("adapt"))
    def adapt(self, X: Any, y: Any, *, X_site: Any = None) -> Self:
        """Return a copy that is adapted to the site from which the labelled rows come."""
        adapted_search = copy(self)
        adapted_search.estimator_ = self.estimator_.adapt(X, y, X_site=X_site)
        return adapted_search

    @property
    def projection_(self) -> Any:
        """The fitted projection, or None if the method has none."""
        steps = getattr(self.estimator_, "named_steps", {})
        return None if self.own else steps.get("project")

    def score(self, X: Any, y: Any) -> float:
        """Score the predictions with ``scoring``."""
        classification = _is_classification(self.estimator, y)
        measure = choose_measure(self.scoring, np.asarray(y), classification, self.pos_label)
        return float(measure.scorer(self, X, y))


def _is_classification(estimator: Any, y: Any) -> bool:
    """Return whether the task is classification, from the estimator's type or else from y."""
    if is_classifier(estimator) or is_regressor(estimator):
        return bool(is_classifier(estimator))
    return not type_of_target(y).startswith("continuous")


def in_units(
    grid: Mapping[str, Sequence[Any]], units: Mapping[str, str], data: Data, splits: list[Split]
) -> list[dict[str, Any]]:
    """Return one grid per kernel, with values converted from units that depend on the rows.

    >>> data = Data(np.zeros((50, 2)), np.zeros(50))
    >>> in_units({"lam": [0.1]}, {"lam": "rows"}, data, [])
    [{'lam': [5.0]}]
    """
    deviation = (float(np.std(data.y)) or 1.0) if "deviation" in units.values() else 1.0
    scales = {"deviation": deviation, "tolerance": min(deviation, 1.0)}
    scales |= {"rows": len(data.y), "per row": 1.0 / len(data.y)}
    grids = []
    for kernel in grid.get("kernel", ["rbf"]):
        values_by_name: dict[str, Any] = {}
        for name, factors in grid.items():
            unit = units.get(name)
            if unit == "components":
                max_components = min(len(train) for train, _ in splits) - 1
                values_by_name[name] = sorted({min(n, max_components) for n in factors})
            elif unit is None:
                values_by_name[name] = list(factors)
            else:
                is_median = unit == "median"
                scale = resolve_gamma("median", kernel, data.X) if is_median else scales[unit]
                values_by_name[name] = [scale * factor for factor in factors]
        grids.append(values_by_name | ({"kernel": [kernel]} if "kernel" in grid else {}))
    return grids
