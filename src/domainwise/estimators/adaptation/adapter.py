"""SiteAdapter, and the base class of models that can be adapted to a site with a few labels."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from domainwise.base import inputs
from domainwise.base.arrays import (
    Array,
    ArrayLike,
    CrossValidator,
    Decision,
    Estimator,
    MaybeArray,
    Scoring,
)
from domainwise.base.messages import ContextWarning, warn_caller
from domainwise.base.process import one_thread
from domainwise.base.signatures import documented_arguments
from domainwise.estimators.adaptation import corrections, site
from domainwise.estimators.adaptation.corrections import Prior, SourceOutputs
from domainwise.estimators.adaptation.site import SiteLabels, SiteQuantiles, SiteScores
from domainwise.estimators.conformal import DomainMetaEstimator, fit_rows
from domainwise.held_out.calibration.curves import Curve, fit_domain_curve
from domainwise.held_out.calibration.decisions import DecisionRule, Decisions
from domainwise.held_out.folds import domain_folds, without_rows
from domainwise.held_out.scoring.measures import choose_measure, counts_by_domain
from domainwise.held_out.scoring.pooling import true_score_range
from domainwise.held_out.scoring.predictions import HeldOut, codes_of, weights_classes
from domainwise.held_out.scoring.statistics import expected_range, expected_score

PROBABILITIES = "predict_proba"


class Adaptable(ABC):
    """A model that can be adapted to a site with a few labels.

    In ``fit``, a subclass sets ``held_out_`` and calls :meth:`_reset_adaptation`. It computes
    outputs without correction in :meth:`_outputs`, and predicts from the outputs of
    :meth:`_corrected`. Outputs are class probabilities, or a column of predicted values. For a
    continuous target, it calls :meth:`_learn_within` to fit a model of differences inside a site,
    which is used only after adaptation.
    """

    classes_: Array
    held_out_: HeldOut | None
    _source_rule: DecisionRule | None  #: the rule before adaptation
    _own_scores: Array | None = None  #: scores of models of a domain's own rows, if computed
    within_: Any = None  #: the model of differences inside a site; None if it is not useful
    site_labels_: dict[str, SiteLabels]  #: only in adapted models, like the next three attributes
    n_site_labels_: int
    corrections_: dict[str, Array]
    site_quantiles_: dict[str, SiteQuantiles]
    scoring: Any

    @abstractmethod
    def _outputs(self, X: Any, sample_domain: Any) -> Array:
        """Return outputs without correction: one column per class, or a single column."""

    @property
    def _rule(self) -> DecisionRule | None:
        """The rule by which a classifier decides; None means the most probable class."""
        rule: DecisionRule | None = getattr(self, "decision_rule_", None)
        return rule

    @_rule.setter
    def _rule(self, rule: DecisionRule | None) -> None:
        self.decision_rule_ = rule

    @property
    def _site_scoring(self) -> Any:
        """The score of ``label_gain_``."""
        return self.scoring

    def _reset_adaptation(self) -> None:
        """Remove attributes that were set by an earlier fit or adaptation."""
        names = ("site_labels_", "n_site_labels_", "corrections_", "site_quantiles_", "within_")
        for name in (*names, "priors_", "_source_rule", "_own_scores", "_label_gains"):
            vars(self).pop(name, None)

    def _learn_within(self, X: Any, estimators: Sequence[Any] | None = None) -> None:
        """Fit a within-site model; ``X`` contains the rows of ``held_out_``."""
        self.within_ = None
        outputs = self._source_outputs()["plain"]
        if self.held_out_ is None or outputs.has_classes:
            return
        learned = corrections.learn_within(X, outputs, estimators)
        if learned is not None:
            self.within_ = learned[0]
            self.held_out_ = replace(self.held_out_, within=learned[1])

    def _within_rows(self, X: Any) -> Any:
        """Return the features of the within-site model for the rows of X."""
        return X

    def _with_within(self, outputs: Array, X: Any) -> Array:
        """Add the outputs of the within-site model, if there is one, as a second column."""
        if self.within_ is None:
            return outputs
        return np.column_stack([outputs, self.within_.predict(self._within_rows(X))])

    def _source_outputs(self) -> dict[str, SourceOutputs]:
        """Return held-out outputs: "plain" without context and, if available, "context"."""
        held_out = getattr(self, "held_out_", None)
        if held_out is None:
            raise AttributeError(
                f"this {type(self).__name__} has no held-out predictions, because it was fitted in "
                "batches, by merge, or with an older version of domainwise. Call fit "
                "with all rows in memory before you call adapt."
            )
        if not is_classifier(self) and held_out.plain.shape[1] > 1:
            raise AttributeError(
                "adapt requires a single target, but y had several columns in fit. Fit one model "
                "per column."
            )
        source_outputs = {}
        for mode in ("plain", "context"):
            if (outputs := getattr(held_out, mode)) is not None:
                if held_out.within is not None:
                    outputs = np.column_stack([outputs, held_out.within])
                labels = held_out.y, held_out.domain
                source_outputs[mode] = SourceOutputs(
                    *labels, outputs.astype(float), held_out.weights
                )
        return source_outputs

    @cached_property
    def priors_(self) -> dict[str, Prior]:
        """Priors learned from source domains, for outputs without ("plain") and with context."""
        source_outputs = self._source_outputs()
        return {mode: corrections.learn_prior(outputs) for mode, outputs in source_outputs.items()}

    @property
    def _unadapted_rule(self) -> DecisionRule | None:
        """The rule for a site without labels."""
        return vars(self).get("_source_rule", self._rule)

    def _held_out_scores(self, outputs: SourceOutputs) -> tuple[site.Score, Array]:
        """Return the function that scores outputs, and the score of each held-out domain."""
        classes = getattr(self, "classes_", None)
        scorer = site.outputs_score(self._site_scoring, classes, self._unadapted_rule)
        n_domains = int(outputs.domain_codes.max()) + 1
        return scorer, site.domain_scores(outputs, scorer, n_domains)

    @cached_property
    def _label_gains(self) -> dict[str, dict[str, SiteScores]]:
        """The gain of the score and of the loss, for outputs without and with context."""
        gains = {}
        for mode, outputs in self._source_outputs().items():
            score = *self._held_out_scores(outputs), self._site_scoring
            gains[mode] = site.label_gains(outputs, score, self._unadapted_rule)
        return gains

    def label_gain(
        self,
        n_sites: int = 1,
        *,
        loss: bool = False,
        context: bool = False,
        first_rows: bool = False,
    ) -> Array:
        """Return expected mean scores of new sites, by number of labels from each of them.

        Each source domain is treated as a new site, and is adapted with the other domains' priors.

        Parameters
        ----------
        n_sites : int, default=1
            Number of new sites whose mean score is predicted.
        loss : bool, default=False
            Whether the score is the negative log loss or the negative root mean squared error,
            instead of ``scoring``.
        context : bool, default=False
            Whether rows are predicted together with the other rows of their site.
        first_rows : bool, default=False
            Whether the labels are those of the first rows of a site, in table order, instead of
            random rows.

        Returns
        -------
        gain : structured array
            The number of labels (``n_labels``: 0, 5, 10, 20, 50), the mean ``score`` of the source
            domains, and the bounds ``low`` and ``high`` of a 90 % prediction interval for the
            mean score of ``n_sites`` new sites. Bounds are NaN with fewer than four source domains.
        """
        gains = self._label_gains
        gain = gains.get("context" if context else "plain", gains["plain"])
        return gain["loss" if loss else "score"].structured(n_sites, first_rows)

    def _expected_range(self, mode: str) -> tuple[float, float] | None:
        source_outputs = self._source_outputs()
        scores = self._held_out_scores(source_outputs.get(mode, source_outputs["plain"]))[1]
        return expected_range(scores, self._site_scoring)

    @property
    def expected_range_(self) -> tuple[float, float] | None:
        """Range that contains the score on a new domain with 90 % probability; None if unknown."""
        return self._expected_range("plain")

    @property
    def context_expected_range_(self) -> tuple[float, float] | None:
        """Like ``expected_range_``, but for rows that are predicted with context."""
        return self._expected_range("context")

    @property
    def expected_true_range_(self) -> tuple[float, float] | None:
        """Range of the true score on a new domain (90 %), without the chance of a few rows there.

        Unlike ``expected_range_``, it is for an infinite number of rows. None if unknown.
        """
        classes, outputs = getattr(self, "classes_", None), self._source_outputs()["plain"]
        default = "neg_root_mean_squared_error" if classes is None else "balanced_accuracy"
        labels = outputs.y if classes is None else classes
        measure = choose_measure(self.scoring or default, labels, classes is not None)
        records = [
            site.scored_outputs(part.outputs, part.y, classes, self._rule, part.weights)
            for part in map(outputs.take, outputs.rows_by_domain().values())
        ]
        return true_score_range(measure, classes, records)

    @property
    def label_gain_(self) -> Array:
        """Expected scores with labels from a new site, for rows that are predicted one by one."""
        return self.label_gain()

    @property
    def label_gain_loss_(self) -> Array:
        """The same for the negative log loss, or the negative root mean squared error."""
        return self.label_gain(loss=True)

    @property
    def context_label_gain_(self) -> Array:
        """Expected scores with labels from a new site, for rows that are predicted with context."""
        return self.label_gain(context=True)

    @property
    def label_gain_domains_(self) -> Array:
        """Number of source domains with enough rows, for each entry of ``label_gain_``."""
        return self._label_gains["plain"]["score"].n_domains

    @property
    def label_advice_(self) -> str:
        """What labels from a new site are worth, in sentences."""
        name = "log loss" if is_classifier(self) else "RMSE"
        return site.describe(self._label_gains["plain"]["loss"], name, self._own_scores)

    def score_own_rows(self, X: Array, y: Array, sample_domain: ArrayLike) -> None:
        """Score models of a domain's own rows, for ``label_advice_``; X contains numbers."""
        codes = inputs.check_sample_domain(sample_domain, len(y), "delta").codes
        targets = codes_of(y, self.classes_) if is_classifier(self) else np.asarray(y, dtype=float)
        with one_thread():
            self._own_scores = site.own_site_scores(X, targets, np.asarray(codes))

    def adapt(self, X: ArrayLike, y: ArrayLike, *, X_site: MaybeArray = None) -> Self:
        """Return a copy of the fitted model, adapted to a new site with labelled rows from it.

        The model itself is not changed. The copy can be adapted with further labels:
        ``model.adapt(A, a).adapt(B, b)`` equals the model adapted with all labels in one call.

        Parameters
        ----------
        X : array-like of shape (n_labels, n_features)
            Labelled rows from one site, with the same columns as in ``fit``. One row is enough. The
            rows should be a random sample: rows that resemble each other get less weight.
        y : array-like of shape (n_labels,)
            Targets of these rows. Classes must have occurred in ``fit``.
        X_site : array-like of shape (n_rows, n_features), default=None
            Unlabelled rows from the site, about as many as will be predicted together. Only models
            with context use them, to estimate the distribution of the site's rows. Without them,
            the copy predicts rows one by one, even if ``sample_domain`` is passed.

        Returns
        -------
        model : object
            A fitted copy whose predictions are corrected for the site.
        """
        check_is_fitted(self)
        try:
            source_outputs = self._source_outputs()
        except AttributeError as error:
            raise ValueError(str(error)) from None
        priors, targets = self.priors_, self._site_targets(y)
        if inputs.count_rows(X) != len(targets):
            raise ValueError(
                f"y has {len(targets)} entries, but X has {inputs.count_rows(X)} rows. Pass one "
                "label per row."
            )
        model = copy.copy(self)
        if not len(targets):
            return model
        outputs = self._with_within(self._outputs(X, None), X)
        site_labels = {"plain": SiteLabels.from_rows(outputs, targets)}
        if "context" in priors and X_site is None:
            warn_caller(
                "X_site is missing, so the adapted model predicts rows one by one, even if "
                "sample_domain is passed. To adapt predictions with context, pass the site's "
                "unlabelled rows as X_site.",
                ContextWarning,
            )
        elif "context" in priors:
            outputs = self._with_within(self._site_outputs(X, X_site), X)
            site_labels["context"] = SiteLabels.from_rows(outputs, targets)
        previous_labels = getattr(self, "site_labels_", None)
        if previous_labels is not None:  # "context" needs outputs with context for all labels
            modes = [mode for mode in site_labels if mode in previous_labels]
            site_labels = {mode: previous_labels[mode].join(site_labels[mode]) for mode in modes}
        model.site_labels_ = site_labels
        model.n_site_labels_ = len(site_labels["plain"])
        model.corrections_ = {m: site_labels[m].correction(priors[m]) for m in site_labels}
        model._source_rule = self._unadapted_rule
        outputs, correction = site_labels["plain"].outputs, model.corrections_["plain"]
        model._rule = site.site_rule(self._unadapted_rule, priors["plain"], outputs, correction)
        model.site_quantiles_ = {
            mode: SiteQuantiles.from_labels(source_outputs[mode], priors[mode], site_labels[mode])
            for mode in site_labels
        }
        return model

    def _site_outputs(self, X: Any, X_site: Any) -> Array:
        """Return outputs for labelled rows, predicted together with the site's unlabelled rows."""
        rows = np.concatenate([np.asarray(X), np.asarray(X_site)])
        return self._outputs(rows, np.zeros(len(rows), dtype=np.intp))[: inputs.count_rows(X)]

    def _site_targets(self, y: Any) -> Array:
        """Return the targets of labelled rows as class codes, or as numbers."""
        y = inputs.plain_array(y, "y")
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if not y.size:
            return np.zeros(0, dtype=np.intp)
        targets = inputs.checked_labels(y, "y")
        return codes_of(targets, self.classes_) if is_classifier(self) else targets.astype(float)

    def _corrected(self, X: Any, sample_domain: Any) -> Array:
        """Return outputs, corrected for the site if the model is adapted."""
        site_corrections = getattr(self, "corrections_", None)
        if site_corrections is None:
            return self._outputs(X, sample_domain)
        mode = "context" if sample_domain is not None and "context" in site_corrections else "plain"
        outputs = self._outputs(X, sample_domain if mode == "context" else None)
        return self.priors_[mode].apply(self._with_within(outputs, X), site_corrections[mode])


@documented_arguments
class SiteAdapter(Decisions, Adaptable, DomainMetaEstimator):
    """Adapt any classifier or regressor to a new site with a few labels.

    The errors of a model at a new site are partly systematic: predicted values have a wrong level
    or slope, or each class has a bias. ``fit`` holds out domains to learn how much sites differ in
    this way, which determines how strongly a few labels change the predictions.

    Parameters
    ----------
    estimator : classifier or regressor
        The estimator to adapt. The probabilities of a classifier are corrected. If it has only
        decision values, or weights classes, its outputs are first converted to probabilities by
        curves that are fitted to held-out domains.
    cv : int, splitter or iterable, default=None
        None holds out one domain at a time, or one of ten groups of domains if there are more than
        ten.
    scoring : str or callable, default=None
        Scorer for ``domain_scores_`` and ``label_gain_``. None means balanced accuracy for classes,
        and the negative root mean squared error for a continuous target.
    n_jobs : int, default=None
        Number of folds that are fitted in parallel.
    {decision}

    Attributes
    ----------
    estimator_ : estimator
        The estimator fitted to all rows.
    classes_ : ndarray
        Class labels of a classifier.
    curves_ : dict
        Curves that convert outputs to probabilities, if the estimator has no predict_proba or
        weights classes.
    {decided}
    domain_scores_ : ndarray of shape (n_domains,)
        For each source domain, the score of the estimator that was fitted without this domain.
    expected_score_ : tuple of float
        Mean of ``domain_scores_``, and the lower and upper bounds of an approximate 95 % confidence
        interval for it.
    expected_range_ : tuple of float or None
        Range that contains the score on a new domain with 90 % probability. None with fewer than
        four domains.
    expected_true_range_ : tuple of float or None
        The same for the true score, which would be measured on infinitely many rows of the new
        domain. It is about as narrow as the domains are similar; see
        :func:`domainwise.metrics.pool_scores`.
    label_gain_ : structured array
        Expected score with ``n_labels`` (0, 5, 10, 20, 50) labels from a new site: ``score``, and
        bounds ``low`` and ``high`` of a 90 % prediction interval for one new site (see
        :meth:`label_gain`).
    label_gain_loss_ : structured array
        The same for the negative log loss, or the negative root mean squared error.
    label_advice_ : str
        What labels from a new site are worth, in sentences.
    label_gain_domains_ : ndarray of int
        Number of source domains with enough rows for each number of labels.
    n_site_labels_ : int
        Number of labels that the model was adapted with; only after :meth:`adapt`.

    See Also
    --------
    domainwise.DomainEnsembleClassifier : An ensemble with its own ``adapt`` method.
    domainwise.selection.DomainConformal : Prediction sets for any estimator, without new labels.

    Notes
    -----
    For a continuous target, adapted predictions are :math:`a + b f(x)`, where a and b minimize the
    squared errors on the labelled rows plus a penalty on their distance from 0 and 1. A copy of
    the estimator, fitted to the differences of targets from the mean of their domain, takes part if
    this is better on held-out domains. For classes, each class has an offset in log-odds, which
    also have a slope. The penalty follows from the variance of these terms between held-out
    domains.

    References
    ----------
    E. W. Steyerberg, G. J. J. M. Borsboom, H. C. van Houwelingen, M. J. C. Eijkemans and J. D. F.
    Habbema (2004), "Validation and updating of predictive logistic regression models: a study on
    sample size and shrinkage", Statistics in Medicine 23, doi:10.1002/sim.1844.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from domainwise import SiteAdapter
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(n_domains=8, random_state=0)
    >>> X, y = data.data[:, 1:], data.data[:, 0] + data.sample_domain
    >>> is_source = data.sample_domain > 0
    >>> model = SiteAdapter(LinearRegression())
    >>> model = model.fit(X[is_source], y[is_source], sample_domain=data.sample_domain[is_source])
    >>> X_new, y_new = X[~is_source], y[~is_source]
    >>> adapted = model.adapt(X_new[:10], y_new[:10])
    >>> for m in (model, adapted):
    ...     print(f"mean absolute error: {abs(m.predict(X_new[10:]) - y_new[10:]).mean():.1f}")
    mean absolute error: 4.1
    mean absolute error: 0.8
    """

    estimator: Estimator = field(kw_only=False)
    cv: CrossValidator = None
    scoring: Scoring = None
    n_jobs: int | None = None
    decision: Decision = "auto"

    _parameter_constraints: ClassVar[dict[str, Any]] = {"estimator": "no_validation"}

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Self:
        """Fit the estimator, and learn from held-out domains how much sites differ.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Classes or continuous targets.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row. None treats all rows as one domain, from which differences
            between sites cannot be learned.
        {row_weights}

        {returns_self}
        """
        cv = without_rows(self.cv, sample_weight)
        labels = y, sample_domain, sample_weight
        X, y, sample_domain, weights, target, domain = self._check_inputs(X, *labels)
        classes = target.names
        targets = y if classes is None else target.codes
        splits, _ = domain_folds(y, domain.codes, classification=classes is not None, cv=cv, X=X)
        fold_outputs = Parallel(n_jobs=self.n_jobs)(
            delayed(self._held_out_outputs)(X, y, sample_domain, weights, train, test)
            for train, test in splits
        )
        self.estimator_ = fit_rows(self.estimator, X, y, sample_domain, weights=weights)
        test_rows = np.concatenate([test for _, test in splits])
        y_test, domain_codes = targets[test_rows], domain.codes[test_rows]
        test_weights = None if weights is None else weights[test_rows]
        self.curves_: dict[str, Curve] = {}
        outputs = {m: np.concatenate([fold[m] for fold in fold_outputs]) for m in fold_outputs[0]}
        has_probabilities = hasattr(self.estimator_, PROBABILITIES)
        needs_curves = weights_classes(self.estimator) or not has_probabilities
        if classes is not None and needs_curves:
            for mode, values in outputs.items():
                columns = self._curve_inputs(values)
                curve = fit_domain_curve(columns, y_test, domain_codes, test_weights)
                self.curves_[mode], outputs[mode] = curve, curve.probabilities(columns)
        self._reset_adaptation()
        plain, context = outputs["plain"], outputs.get("context")
        self.held_out_ = HeldOut.from_rows(
            y_test, domain_codes, plain, context, weights=test_weights
        )
        self.decision_rule_ = None
        if classes is not None:
            self._class_counts = counts_by_domain(target.codes, domain.codes, len(classes), weights)
            # The default score is the balanced accuracy.
            self.decide(self.decision, self.scoring or "balanced_accuracy")
        source_outputs, n_domains = self._source_outputs(), len(domain.names)
        scorer = site.outputs_score(self.scoring, classes, self._rule)
        self.domain_scores_ = site.domain_scores(source_outputs["plain"], scorer, n_domains)
        self.expected_score_ = expected_score(self.domain_scores_, 0, self.scoring)
        if classes is None:
            rows = test_rows[HeldOut.stored_rows(domain_codes)]
            self._learn_within(inputs.take_rows(X, rows), [self.estimator])
        self._quantiles = {m: corrections.domain_quantiles(o) for m, o in source_outputs.items()}
        return self

    def _held_out_outputs(self, *args: Any) -> dict[str, Array]:
        """Return outputs for the test rows of a split, after fitting to its training rows."""
        predictions_by_mode = self._held_out_predictions(*args)
        return {mode: site.model_outputs(p) for mode, p in predictions_by_mode.items()}

    def _curve_inputs(self, values: Array) -> Array:
        """Return logarithms of probabilities; other values unchanged."""
        has_probabilities = hasattr(self.estimator, PROBABILITIES)
        return corrections.smooth_logs(values) if has_probabilities else values

    def _outputs(self, X: Any, sample_domain: Any) -> Array:
        predictions = self._predictions(X, sample_domain)
        outputs = site.model_outputs(predictions)
        curve = self.curves_.get("plain" if predictions.sample_domain is None else "context")
        return outputs if curve is None else curve.probabilities(self._curve_inputs(outputs))

    def predict(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Return predictions, corrected for the site if the model is adapted.

        {new_rows}
        sample_domain : array-like of shape (n_rows,), default=None
            The domain of each row, for estimators that predict the rows of a domain together.

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        rule, classes = self.decision_rule_, getattr(self, "classes_", None)
        if rule is None and not hasattr(self, "corrections_"):
            return self._predictions(X, sample_domain).labels
        outputs = self._corrected(X, sample_domain)
        if classes is None:
            return outputs[:, 0]
        return np.asarray(classes[outputs.argmax(axis=1) if rule is None else rule.codes(outputs)])

    @available_if(is_classifier)
    def predict_proba(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Return the probability of each class, in the order of ``classes_``.

        {as_in_predict}

        Returns
        -------
        p : ndarray of shape (n_rows, n_classes)
        """
        return self._corrected(X, sample_domain)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: MaybeArray = None) -> float:
        """Return the accuracy of a classifier, or R² of a regressor.

        Parameters
        ----------
        X, y
            Rows, and their classes or continuous targets.
        sample_weight : array-like of shape (n_rows,), default=None
            Weight of each row.

        Returns
        -------
        score : float
        """
        metric = accuracy_score if is_classifier(self) else r2_score
        return float(metric(y, self.predict(X), sample_weight=sample_weight))
