"""An estimator whose ``fit`` chooses the arguments of a method on held-out domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from domainwise.base.arrays import Array
from domainwise.base.inputs import (
    check_sample_domain,
    check_sample_weight,
    quiet_about_domains,
    take_rows,
)
from domainwise.base.signatures import arguments
from domainwise.estimators.adaptation.adapter import Adaptable
from domainwise.estimators.adaptation.site import model_outputs
from domainwise.held_out.calibration import decisions
from domainwise.held_out.calibration.curves import Curve, fit_domain_curve, improves
from domainwise.held_out.folds import Split, domain_folds, sample_rows
from domainwise.held_out.scoring import predictions
from domainwise.held_out.scoring.measures import choose_measure, counts_by_domain, positive_last
from domainwise.held_out.scoring.predictions import HeldOut, MetaEstimator, Predictions
from domainwise.held_out.search.driver import Candidate, Data, Race, held_out_outputs, search
from domainwise.held_out.search.scores import SmoothScore, as_score, outputs
from domainwise.models.candidates import MethodSearchKind, in_units

MAX_INNER_FOLDS = 5  #: maximum number of folds of source domains on which arguments are chosen
#: Maximum number of rows on which arguments are chosen; the final fit uses all rows. There is no
#: limit for estimators that are searches: their candidates share computations, or use landmarks.
SEARCH_ROWS = 5000
SVM_SEARCH_ROWS = 1500  #: the same for SVMs, whose time grows faster than the square of the rows
RACE_SPLITS = 3  #: number of splits after which clearly worse candidates are dropped


def _estimator_has(name: str) -> Any:
    """Return a function that checks whether the estimator, fitted or not, has a method."""
    return lambda self: hasattr(getattr(self, "estimator_", self.estimator), name)


def _has_probabilities(search: MethodSearch) -> bool:
    """Return whether there are probabilities: the estimator's, or those of a calibration curve."""
    has_curve = search.calibrates or search.curve_ is not None
    return has_curve or bool(_estimator_has("predict_proba")(search))


@arguments
class MethodSearch(Adaptable, MetaEstimator):
    """An estimator with arguments chosen on held-out source domains.

    ``grid`` contains candidate values by argument, in ``units`` (see
    :class:`~domainwise.held_out.search.grids.InUnits`); with None, there is no search. ``step`` is
    the pipeline step with the arguments. With ``searches``, the estimator is a search, and gets the
    splits, scorer and values. A user's ``own`` estimator gets the original domain labels.
    ``scoring=None`` means a smooth score (:class:`~domainwise.held_out.search.scores.SmoothScore`).
    ``pos_label`` is the positive class for scores such as F1; None means the second of two classes.
    ``cv=None`` holds out source domains in at most five groups.

    The outputs of a classifier for held-out rows calibrate its probabilities, if this improves them
    (theory 16.4). From these, ``decision`` predicts classes; "auto" depends on ``metric``, by which
    methods are compared. A user's ``own`` estimator keeps its probabilities, unless it weights
    classes or has a grid but no probabilities, and its predictions, unless ``metric`` requires
    others. Without a grid, ``curve`` is used instead of a calibration.

    ``fit`` sets ``estimator_`` (with the selected arguments, fitted to all rows), ``best_params_``,
    ``varied_`` (arguments with more than one candidate value), ``n_candidates_``, ``selected_on_``
    (whether "domains" or "rows" were held out, or None), ``settled_`` (an unfitted estimator
    with the selected arguments) and, for classes, ``curve_`` and ``applied_rule``. Outputs for the
    rows of held-out domains are stored in ``held_out_``, which :meth:`adapt` needs, if the search
    computes them; otherwise, :meth:`hold_out` does.

    >>> from sklearn.svm import SVC
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> search = MethodSearch(SVC(), {"gamma": [0.3, 3.0]}, {"gamma": "median"})
    >>> search.fit(data.data, data.target, sample_domain=data.sample_domain).n_candidates_
    2
    """

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
    decision: Any = "auto"
    metric: Any = None
    curve: Any = None

    #: The curve that computes probabilities; None if the estimator's own are used.
    curve_: Curve | None = field(default=None, init=False)
    #: The rule for ``curve_`` or for the estimator's probabilities; None if the estimator decides.
    _rule: decisions.DecisionRule | None = field(default=None, init=False)
    held_out_: HeldOut | None = field(default=None, init=False)

    def fit(self, X: Any, y: Any, sample_domain: Any = None, sample_weight: Any = None) -> Self:
        """Choose arguments on held-out source domains, then fit to all rows."""
        y, weights = np.asarray(y), check_sample_weight(sample_weight, len(y))
        domain_codes = check_sample_domain(sample_domain, len(y), "delta").codes
        domains = sample_domain if self.own or sample_domain is None else domain_codes
        self._reset_adaptation()
        self.curve_, self._rule, self.held_out_ = self.curve, None, None
        if self.grid is None and not self.calibrates:
            model = clone(self.estimator)
            if self.searches:
                model.set_params(scoring=self.scoring and self._scorer(y, domain_codes, weights)[0])
            predictions.fit_with_domains(model, X, y, domains, weights)
            if self.searches:
                model.set_params(scoring=None)
            return self.set_fitted(model, {}, [{}], None)._decide(y, domain_codes, weights)
        row_indices = np.arange(len(y))
        if not self.searches:
            is_svm = isinstance(self.estimator, (SVC, SVR)) and not self.own
            row_indices = sample_rows(domain_codes, SVM_SEARCH_ROWS if is_svm else SEARCH_ROWS)
        data = Data(X, y, None if domains is None else np.asarray(domains), weights=weights)
        search_data = data if len(row_indices) == len(y) else data.take(row_indices)
        y_and_codes = y[row_indices], domain_codes[row_indices]
        search_rows = *y_and_codes, search_data.weights
        scorer, is_usable = self._scorer(*search_rows)
        classification = _is_classification(self.estimator, y)
        options: Any = {"cv": self.cv, "max_splits": MAX_INNER_FOLDS, "is_usable": is_usable}
        options |= {"classification": classification, "X": search_data.X}
        splits, selected_on = domain_folds(*y_and_codes, **options)
        units = self.units or {}
        grids = in_units(self.grid or {}, units, search_data, splits)
        with quiet_about_domains():  # domain_folds has warned already
            if self.searches:
                held_out = self._fit_search(data, splits, grids, scorer, selected_on)
                return self._decide(y, domain_codes, weights, held_out)
            use_shortcuts = not self.own and isinstance(X, np.ndarray)
            kind = MethodSearchKind(self.estimator, self.step, grids, use_shortcuts)
            # A user's score may be too noisy on individual domains to drop candidates early.
            race = Race(first=RACE_SPLITS) if self.scoring is None and not self.own else None
            score, n_jobs = as_score(scorer), self.n_jobs
            search_result = search(kind, search_data, splits, score, race=race, n_jobs=n_jobs)
            chosen, held_out = search_result.chosen[0], search_result.held_out
            if self.calibrates and held_out is None:  # a user's scorer does not return outputs
                smooth_score = self._smooth_score(*search_rows)
                held_out = held_out_outputs(kind, search_data, splits, [chosen], smooth_score)
            # Rescale values that were chosen on fewer rows to all rows.
            row_ratio = len(y) / len(row_indices)
            factors = {"rows": row_ratio, "per row": 1.0 / row_ratio}
            chosen_arguments = {
                name: value * factors[units[name]] if units.get(name) in factors else value
                for name, value in chosen.items()
            }
            (model,) = kind.fit(replace(data, sample_domain=domains), [chosen_arguments])
            self.set_fitted(model, chosen_arguments, kind.candidates(data), selected_on)
            held_out = None if held_out is None else held_out[0]
            return self._decide(y, domain_codes, weights, held_out, row_indices)

    def _smooth_score(self, y: Array, domain_codes: Array, weights: Array | None) -> SmoothScore:
        classes = np.unique(y) if _is_classification(self.estimator, y) else None
        return SmoothScore(y, domain_codes, classes, weights=weights)

    def _scorer(self, y: Array, domain_codes: Array, weights: Array | None) -> tuple[Any, Any]:
        """Return the scorer, and a function that returns whether it is defined on a split."""
        score = self._smooth_score(y, domain_codes, weights)
        if self.scoring is None:
            return score, lambda train, test: True
        classes, classification = score.classes, score.classes is not None
        measure = choose_measure(self.scoring, y, classification, self.pos_label)
        is_defined = partial(measure.is_defined, classification=classification)
        computes_outputs = self.calibrates or "param_grid" in self.estimator.get_params(deep=False)
        if classes is None or measure.is_custom or self.own or not computes_outputs:
            return measure.scorer, is_defined
        counts = counts_by_domain(
            predictions.codes_of(y, classes), domain_codes, len(classes), weights
        )
        positive = classes.tolist().index(positive_last(classes, self.pos_label).tolist()[-1])
        rule = decisions.rule_for(self.decision, counts, self.scoring, positive)
        return replace(score, measure=measure, rule=rule), is_defined

    def _fit_search(
        self, data: Data, splits: list[Split], grids: list[Any], scorer: Any, selected_on: str
    ) -> Array | None:
        """Fit an estimator that is itself a search, with these splits, values and scorer.

        Return the outputs of the best candidate for held-out rows, for a projection.
        """
        model, held_out = clone(self.estimator), None
        inner_search = model.named_steps[self.step] if self.step else model
        has_grid = "param_grid" in inner_search.get_params(deep=False)
        inner_search.set_params(**({"param_grid": grids} if has_grid else grids[0]))
        if isinstance(scorer, SmoothScore) and not self.step and not has_grid:
            scorer = None  # kernel ridge regression computes its own smooth score at no extra cost
        inner_search.set_params(cv=splits, scoring=scorer)
        predictions.fit_with_domains(model, data.X, data.y, data.sample_domain, data.weights)
        if self.step:
            projection, held_out = inner_search.best_estimator_, inner_search.held_out_outputs_
            held_out = None if held_out is None else held_out[0]
            model = Pipeline([(n, projection if n == self.step else s) for n, s in model.steps])
        else:
            inner_search.set_params(cv=None, scoring=None)  # splits would store all row indices
        candidates = inner_search.cv_results_["params"]
        self.set_fitted(model, inner_search.best_params_, candidates, selected_on)
        return held_out

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
        if isinstance(fitted_estimator, decisions.Decisions) and is_classifier(fitted_estimator):
            fitted_estimator.decide(self.decision, self.metric, self._positive)
        return self

    def hold_out(
        self, X: Any, y: Any, sample_domain: Any = None, sample_weight: Any = None
    ) -> None:
        """Set ``held_out_``, with five groups of domains held out in turn.

        The estimator is fitted with the selected arguments, without a search.
        """
        y = np.asarray(y)
        domain_codes = check_sample_domain(sample_domain, len(y), "delta").codes
        rows = sample_rows(domain_codes, SEARCH_ROWS)
        domains = None if sample_domain is None else np.asarray(sample_domain)
        data = Data(X, y, domains, weights=check_sample_weight(sample_weight, len(y))).take(rows)
        y, domain_codes, values = y[rows], domain_codes[rows], []
        classes = np.asarray(self.classes_) if _is_classification(self.estimator, y) else None
        options: Any = {"max_splits": MAX_INNER_FOLDS, "X": data.X}
        with quiet_about_domains():
            splits, _ = domain_folds(y, domain_codes, classification=classes is not None, **options)
            for train, test in splits:
                part = data.take(train)
                part_rows = part.X, part.y, part.sample_domain, part.weights
                model = predictions.fit_with_domains(clone(self.settled_), *part_rows)
                values.append(model_outputs(Predictions(model, take_rows(data.X, test), classes)))
        test_rows, outputs = np.concatenate([test for _, test in splits]), np.concatenate(values)
        targets, domain_codes = y[test_rows], domain_codes[test_rows]
        weights = None if data.weights is None else data.weights[test_rows]
        if classes is None:
            targets = targets.astype(np.float64)
        else:
            targets = predictions.codes_of(targets, classes)
            if not hasattr(self, "predict_proba"):
                self.curve_ = fit_domain_curve(outputs, targets, domain_codes, weights)
                outputs = self.curve_.probabilities(outputs)
        self.held_out_ = HeldOut.from_rows(targets, domain_codes, outputs, weights=weights)
        self._held_out_rows = rows[test_rows[HeldOut.stored_rows(domain_codes)]]

    def learn_within(self, X: Any) -> None:
        """Fit a model of differences inside a site to the rows of ``held_out_``."""
        rows = self.__dict__.pop("_held_out_rows", None)
        if rows is not None and self.held_out_ is not None:
            self._learn_within(take_rows(X, rows), [self.settled_] if self.own else None)

    # Probabilities and decisions.

    @property
    def calibrates(self) -> bool:
        """Whether ``fit`` calibrates the estimator's outputs on held-out domains."""
        decides_itself = isinstance(self.estimator, decisions.Decisions)
        if decides_itself or self.curve is not None or not is_classifier(self.estimator):
            return False
        if not self.own:
            return self.grid is not None
        if predictions.has_argument(self.estimator.predict):  # its predictions depend on other rows
            return False
        # Without a grid, further fits would be needed only for the calibration.
        lacks_probabilities = not hasattr(self.estimator, "predict_proba")
        return predictions.weights_classes(self.estimator) or (
            lacks_probabilities and self.grid is not None
        )

    def _decide(
        self,
        y: Array,
        domain_codes: Array,
        weights: Array | None,
        values: Array | None = None,
        rows: Any = slice(None),
    ) -> Self:
        """Calibrate probabilities on outputs for held-out ``rows``, and set the decision rule."""
        if isinstance(self.estimator_, Adaptable):
            return self
        self.held_out_ = getattr(self.estimator_, "held_out_", None)
        if isinstance(self.estimator_, decisions.Decisions) or self.held_out_ is not None:
            return self
        classification = _is_classification(self.estimator, y)
        targets = predictions.codes_of(y, self.classes_) if classification else y.astype(np.float64)
        if values is not None and (self.calibrates or not classification):
            is_held_out = np.isfinite(values).all(axis=1)
            rows, values = np.arange(len(y))[rows][is_held_out], values[is_held_out]
            labels = targets[rows], np.unique(domain_codes[rows], return_inverse=True)[1]
            row_weights = None if weights is None else weights[rows]
            if classification:
                curve = self._own_curve
                if curve is None or improves(values, *labels, curve, row_weights):
                    curve = self.curve_ = fit_domain_curve(values, *labels, row_weights)
                values = curve.probabilities(values)
            self.held_out_ = HeldOut.from_rows(*labels, values, weights=row_weights)
            if not classification:
                self._held_out_rows = rows[HeldOut.stored_rows(labels[1])]
        if classification:
            counts = counts_by_domain(targets, domain_codes, len(self.classes_), weights)
            options = self.held_out_, self.metric, self._positive
            rule = decisions.choose_rule(self.decision, counts, *options)
            is_calibrated = self.held_out_ is not None
            self._rule = rule if is_calibrated or not self._decides_itself(rule) else None
        return self

    @property
    def _own_curve(self) -> Curve | None:
        """The curve of an estimator with probabilities; None if they must be calibrated."""
        model, n_classes = self.estimator_, len(self.classes_)
        if predictions.weights_classes(model) or not hasattr(model, "predict_proba"):
            return None
        is_sigmoid = n_classes == 2 and hasattr(model, "decision_function")
        return Curve(0.5 if is_sigmoid else 1.0, np.zeros(n_classes))

    def _decides_itself(self, rule: decisions.DecisionRule) -> bool:
        """Return whether the estimator's own predictions are used instead of those of the rule."""
        if isinstance(self.estimator, DummyClassifier) or not hasattr(self, "predict_proba"):
            return True
        has_threshold = isinstance(
            self.estimator, FixedThresholdClassifier | TunedThresholdClassifierCV
        )
        return self.own and self.decision == "auto" and (rule.kind == "argmax" or has_threshold)

    @property
    def _positive(self) -> int:
        """Code of the positive one of two classes."""
        names = [str(name) for name in self.classes_.tolist()]
        return names.index(str(self.pos_label)) if str(self.pos_label) in names else 1

    @property
    def applied_rule(self) -> decisions.DecisionRule | None:
        """The rule by which classes are predicted; None if the estimator decides without one."""
        inner_rule: decisions.DecisionRule | None = getattr(self.estimator_, "applied_rule", None)
        return inner_rule if self._rule is None else self._rule

    @property
    def decides(self) -> bool:
        """Whether predictions are computed here, and not by the estimator."""
        is_adapted = hasattr(self, "corrections_")
        return self._rule is not None or self.curve_ is not None or is_adapted

    def with_threshold(self, threshold: float) -> Self:
        """Return a copy that predicts the positive class if its probability is at least this."""
        old_rule, search = self.applied_rule, copy(self)
        positive = self._positive if old_rule is None else old_rule.positive
        search._rule = decisions.threshold_rule(threshold, positive, len(self.classes_))
        return search

    @property
    def settled_(self) -> Any:
        """An unfitted estimator with the selected arguments, without a search."""
        model = self.estimator_
        if hasattr(model, "settled"):
            model = model.settled()
        else:
            model = clone(model.best_estimator_ if self.searches and not self.step else model)
        if not is_classifier(model):
            return model
        # A threshold that was tuned or set is also used by the new model.
        decision, rule = self.decision, self.applied_rule
        if rule is not None:
            decision = rule.kind if rule.kind in ("argmax", "balanced") else rule.threshold
        options = {"own": self.own, "pos_label": self.pos_label, "metric": self.metric}
        return MethodSearch(model, decision=decision, curve=self.curve_, **options)

    @property
    def classes_(self) -> Array:  # type: ignore[override]
        """Class labels."""
        return np.asarray(self.estimator_.classes_)

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit."""
        return int(self.estimator_.n_features_in_)

    def _call(self, method: str, X: Any, sample_domain: Any) -> Any:
        check_is_fitted(self)
        call = getattr(self.estimator_, method)
        if sample_domain is None or not predictions.has_argument(call):
            return call(X)
        return call(X, sample_domain=sample_domain)

    def predict(self, X: Any, sample_domain: Any = None) -> Any:
        """Predict; ``sample_domain`` is passed to estimators that use other rows of a domain."""
        check_is_fitted(self)
        if hasattr(self, "corrections_") and not is_classifier(self):
            return self._corrected(X, sample_domain)[:, 0]
        if self._rule is None and not hasattr(self, "corrections_"):
            return self._call("predict", X, sample_domain)
        p = self.predict_proba(X, sample_domain)
        return self.classes_[p.argmax(axis=1) if self._rule is None else self._rule.codes(p)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, sample_domain: Any = None) -> Any:
        """Return probabilities of the classes."""
        check_is_fitted(self)
        if hasattr(self, "corrections_"):
            return self._corrected(X, sample_domain)
        if self.curve_ is None:
            return self._call("predict_proba", X, sample_domain)
        class_codes = np.arange(len(self.classes_))
        return self.curve_.probabilities(outputs(self.estimator_, X, len(class_codes), class_codes))

    def _outputs(self, X: Any, sample_domain: Any) -> Array:
        source_model = copy(self)
        source_model.__dict__.pop("corrections_", None)
        if is_classifier(self):
            return np.asarray(source_model.predict_proba(X), dtype=np.float64)
        return np.asarray(source_model.predict(X), dtype=np.float64).reshape(-1, 1)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any, sample_domain: Any = None) -> Any:
        """Return decision values."""
        return self._call("decision_function", X, sample_domain)

    @property
    def adaptable(self) -> Adaptable:
        """The model that is adapted: the estimator if it has this method, else this object."""
        return self.estimator_ if isinstance(self.estimator_, Adaptable) else self

    def adapt(self, X: Any, y: Any, *, X_site: Any = None) -> Self:
        """Return a copy that is adapted to the site from which the labelled rows come."""
        if self.adaptable is self:
            return super().adapt(X, y, X_site=X_site)
        adapted_search = copy(self)
        adapted_search.estimator_ = self.estimator_.adapt(X, y, X_site=X_site)
        return adapted_search

    @property
    def _site_scoring(self) -> Any:
        return self.metric

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


def hold_out(
    pipeline: Pipeline, X: Any, y: Any, sample_domain: Any, sample_weight: Any = None
) -> None:
    """Compute what ``adapt`` needs, for a fitted pipeline and the rows that it was fitted to."""
    model = pipeline[-1]
    with config_context(transform_output="default"):
        X = pipeline[:-1].transform(X)
        if model.adaptable is model:
            if model.held_out_ is None:
                model.hold_out(X, y, sample_domain, sample_weight)
            model.learn_within(X)
        if getattr(X, "dtype", None) == np.float64 and sample_domain is not None:
            model.adaptable.score_own_rows(X, np.asarray(y), sample_domain)


def _is_classification(estimator: Any, y: Any) -> bool:
    """Return whether the task is classification, from the estimator's type or else from y."""
    if is_classifier(estimator) or is_regressor(estimator):
        return bool(is_classifier(estimator))
    return not type_of_target(y).startswith("continuous")
