"""DomainEnsembleClassifier and DomainEnsembleRegressor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from domainwise.base.arrays import Array, ArrayLike, ClassWeight, Decision, MaybeArray
from domainwise.base.inputs import Labels, check_classes, check_target
from domainwise.base.messages import warn_caller
from domainwise.base.signatures import documented_arguments
from domainwise.estimators.ensemble import fitting
from domainwise.estimators.ensemble.base import DomainEnsemble
from domainwise.estimators.ensemble.fitting import Table
from domainwise.estimators.ensemble.held_out import HeldOutScore, mixed_domains
from domainwise.held_out.calibration.decisions import Decisions, check_decision
from domainwise.held_out.calibration.quantiles import PredictionIntervals, PredictionSets
from domainwise.held_out.scoring.measures import counts_by_domain


@documented_arguments
class DomainEnsembleClassifier(Decisions, PredictionSets, ClassifierMixin, DomainEnsemble):
    r"""Classifier that averages models, weighted by their scores on held-out domains.

    No type of model is best on all data sets, and scores on a few domains are too noisy to select
    the best one. The ensemble therefore averages several types, such as gradient boosting, kernel
    ridge regression with invariant kernels and logistic regression. Which types and sizes are tried
    depends on the number of rows. The parameters of each member are chosen by the log loss on
    held-out source domains. Probabilities are calibrated on these domains, and averaged with
    weights that decrease exponentially with their log loss. Members that are clearly worse than the
    best one are dropped.

    Probabilities have the class frequencies of the source domains. A decision rule (``decision``)
    turns them into classes.

    If several rows from a new domain are predicted together, ``predict(X, sample_domain=...)`` also
    uses members whose features are relative to the domain (:class:`DomainContext`). This assumes
    that the rows are representative of the domain. ``predict(X)`` predicts each row independently.

    Parameters
    ----------
    members : "auto" or list, default="auto"
        Names of member types (``linear``, ``boosting``, ``extra_trees``, ``invariant_ridge``,
        ``invariant_svm``; "auto" is all of these with few rows, and fewer and larger ones with many
        rows), or ``(name, estimator)`` pairs. The ``boosting`` extra adds ``lightgbm`` and
        ``catboost``, which cannot be saved to model files.
    context : "auto" or bool, default="auto"
        Whether to also fit members that use context. "auto" does so with at least two source
        domains, if at least half of them contain two classes with at least five rows each. If each
        domain has only one class, the statistics of a domain would reveal the class.
    calibration : {"cv", "split"}, default="cv"
        How prediction sets are calibrated. "cv" uses predictions for each domain by members fitted
        without that domain; the coverage is *approximate*. "split" reserves half of the domains;
        the coverage is *guaranteed*, on average over new domains from the same distribution.
    cv : int, splitter or iterable, default=None
        None holds out one domain at a time, or groups of domains if there are more than ten (for
        trees, boosting and support vector machines, more than five). Splitters receive the domains
        as ``groups``. Without a splitter, neither the names of domains nor the order of rows change
        the model.
    scoring : str or callable, default=None
        A scikit-learn scorer with which parameters are chosen and ``domain_scores_`` are computed.
        It does not affect the weights of members.
    n_jobs : int, default=None
        Number of parallel jobs in the search for each member.
    random_state : int, RandomState instance or None, default=None
        Random seed. None uses a fixed seed, so that a refit gives the same result.
    time_budget : float, default=None
        Approximate limit in seconds. Members expected to exceed it are omitted, with a warning.
    verbose : int, default=0
        If not 0, print a line for each member.
    class_weight : dict or "balanced", default=None
        Class weights with which members are fitted; None for equal weights of all rows.
        Probabilities are calibrated to the frequencies of the source domains in any case.
    decision : {"auto", "argmax", "balanced"} or float, default="auto"
        How probabilities are turned into classes. "balanced" divides them by the class frequencies
        of the source domains, "argmax" predicts the most probable class, and a number is the
        smallest probability for which the second of two classes is predicted. "auto" is the rule
        that suits ``scoring`` (balanced accuracy if it is None); for metrics such as F1, the
        threshold is tuned on held-out domains if this is better by more than one standard error.

    Attributes
    ----------
    classes_ : ndarray
        Class labels.
    domains_ : ndarray
        Domain labels seen in fit.
    members_ : dict
        Fitted members that have a weight, by name; names of members that use context start with
        ``context_``.
    decision_rule_ : DecisionRule
        The rule that turns probabilities into classes.
    decision_threshold_ : float
        For two classes, the smallest probability for which the second class is predicted.
    weights_, context_weights_ : dict of float
        Weights of members in predictions without and with context.
    domain_scores_, context_domain_scores_ : ndarray of shape (n_domains,)
        Balanced accuracy, or ``scoring``, on each source domain, of members fitted and weighted
        without this domain. The members' parameters were chosen on all domains.
    expected_score_, context_expected_score_ : tuple of float
        Mean score over domains, and its approximate 95 % interval (bootstrap over domains). With
        context, it is the score if all rows of a domain are predicted together.
    context_batch_size_ : int
        Batch size for which scores with context are computed: the median size of a source domain.
    expected_range_, context_expected_range_ : tuple of float or None
        Range that contains the score of *one* new domain with a probability of 90 %. None with
        fewer than four domains.
    expected_true_range_ : tuple of float or None
        The same for the true score, which would be measured on infinitely many rows.
    label_gain_, context_label_gain_ : structured array
        Expected score with ``n_labels`` (0, 5, 10, 20, 50) labels from a new domain: ``score``,
        and the bounds ``low`` and ``high`` of a 90 % prediction interval for one new domain (see
        :meth:`label_gain`). NaN if no source domain has at least twice as many rows as labels.
    label_gain_loss_ : structured array
        The same for the negative log loss, or the negative root mean squared error.
    label_advice_ : str
        What labels from a new domain are worth, in sentences.
    label_gain_domains_ : ndarray of int
        Number of source domains from which each row of ``label_gain_`` is computed.
    n_site_labels_ : int
        Number of labels to which the model was adapted; only after :meth:`adapt`.
    calibration_domains_ : ndarray
        Domains on which prediction sets are calibrated.
    promise_ : {"approximate", "approximate, few sites", "guaranteed"}
        Whether the coverage of prediction sets is approximate or guaranteed.
    dropped_ : list of str
        Members without a weight: clearly worse on held-out domains, or not compared because of
        ``time_budget``.
    held_out_ : HeldOut
        Predictions for source rows by members fitted without their domain: those of the ensemble
        without context (``plain``) and with context (``context``, or None), and those of its
        ``members``, with the targets ``y`` and the domain codes ``domain``. They cover at most
        20,000 rows, and are included in saved models.
    {features_seen}

    See Also
    --------
    DomainContext : Values of a row relative to its domain.
    domainwise.selection.InvariantRidgeClassifierCV : The member that is best most often.

    Notes
    -----
    With members :math:`j` and the log loss :math:`L_j` of their probabilities on held-out domains,
    the ensemble predicts :math:`\sum_j a_j p_j(x)` with weights :math:`a_j` that decrease
    exponentially with :math:`L_j`.

    Features are standardized with the means and standard deviations of the source rows, and missing
    values (NaN) are replaced by the mean. Values from a new domain are clipped if they are far
    outside the range of the source domains: farther than any source domain is from the range of
    the others. Without ``sample_domain`` in ``fit``, members are compared on folds of rows.

    Any number of rows can be predicted together. If a domain has more rows than a typical source
    domain, they are divided at random into parts of that size, and each row is predicted in the
    context of six parts in turn, which takes at most seven times as long as without context. With
    fewer rows, context has less weight, and none for a single row. The order of rows is irrelevant.

    Context can be misleading, for example if all rows belong to one class. The rows of a domain
    are therefore predicted one by one, with a warning, if the mean or variance of a feature is
    outside the range of source domains of the same size, or if the shares of predicted classes are
    outside the range of the source domains.

    References
    ----------
    I. Gulrajani and D. Lopez-Paz (2021), "In search of lost domain generalization", ICLR,
    arXiv:2007.01434.

    G. Blanchard, A. A. Deshmukh, U. Dogan, G. Lee and C. Scott (2021), "Domain generalization by
    marginal transfer learning", JMLR 22, arXiv:1711.07910.

    Examples
    --------
    >>> from domainwise import DomainEnsembleClassifier
    >>> from domainwise.datasets import load_heart
    >>> heart = load_heart()  # four hospitals
    >>> model = DomainEnsembleClassifier(["linear", "extra_trees"], random_state=0)
    >>> model = model.fit(heart.data, heart.target, sample_domain=heart.sample_domain)
    >>> low, high = model.expected_range_
    >>> print(f"balanced accuracy at one new hospital: {low:.1f} to {high:.1f}")
    balanced accuracy at one new hospital: 0.5 to 1.0
    >>> model.predict_proba(heart.data[:3]).shape
    (3, 2)
    """

    __metadata_request__predict_proba: ClassVar[dict[str, Any]] = {"sample_domain": True}

    class_weight: ClassWeight = None
    decision: Decision = "auto"

    def _learn_target(self, table: Table) -> tuple[Array, Labels]:
        """Check the classes and the decision, and return class codes and labels."""
        target = check_classes(table.y, len(table.y))
        check_decision(self.decision, target.n_categories)
        self.classes_, n_classes = target.names, target.n_categories
        self._class_counts = counts_by_domain(
            target.codes, table.domain.codes, n_classes, table.weights
        )
        return target.codes, target

    def _with_rule(self, score: HeldOutScore) -> HeldOutScore:
        """Choose the decision rule on held-out domains, and return the score with this rule."""
        self.decide(self.decision, self.scoring or "balanced_accuracy")
        return replace(score, rule=self.decision_rule_)

    def _encode_target(self, y: Array) -> Array:
        """Return class codes; classes that were not seen in fit have the code ``len(classes_)``."""
        class_codes = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        return np.where(self.classes_[class_codes] == y, class_codes, len(self.classes_))

    def predict(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Return the class of each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        sample_domain : array-like of shape (n_rows,), default=None
            The domain of each row, seen in fit or not. The rows of X from the same domain are the
            context of a row. None predicts each row independently.

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        rule, p = self.decision_rule_, self._corrected(X, sample_domain)
        return np.asarray(self.classes_[p.argmax(axis=1) if rule is None else rule.codes(p)])

    def predict_proba(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Return the probability of each class, in the order of ``classes_``.

        Parameters
        ----------
        X, sample_domain
            As in :meth:`predict`.

        Returns
        -------
        p : ndarray of shape (n_rows, n_classes)
        """
        return self._corrected(X, sample_domain)

    def on_target_scale(self, values: Array) -> Array:
        """Return class probabilities unchanged."""
        return values

    def _code_weights(self) -> Any:
        """Return class weights by class code."""
        if not isinstance(self.class_weight, dict):
            return self.class_weight
        pairs = enumerate(self.classes_.tolist())
        return {code: float(self.class_weight.get(name, 1.0)) for code, name in pairs}

    def _held_out_score(self, y: Array, domain_codes: Array, rows: Array) -> HeldOutScore:
        n_domains = int(domain_codes.max()) + 1
        return HeldOutScore(y, self.classes_, domain_codes, n_domains, rows, self.scoring)

    def _domains_for_context(self, target: Labels, domain: Labels) -> Array:
        """Return the codes of the domains on which context is scored; empty if it is not used."""
        if self.context is False or domain.n_categories < 2:
            return np.array([], dtype=np.intp)
        usable_domains = mixed_domains(target.codes, domain.codes, domain.n_categories)
        if 2 * len(usable_domains) >= domain.n_categories and len(usable_domains) > 1:
            return usable_domains
        if self.context is True:
            warn_caller(
                f"context=True is ignored, because only {len(usable_domains)} of "
                f"{domain.n_categories} source domains contain at least two classes with at least "
                "five rows each; in the others, the domain would reveal the class. Use "
                "context='auto' or context=False to avoid this warning."
            )
        return np.array([], dtype=np.intp)


@documented_arguments
class DomainEnsembleRegressor(PredictionIntervals, RegressorMixin, DomainEnsemble):
    r"""Regressor that averages models, weighted by their scores on held-out domains.

    Like :class:`DomainEnsembleClassifier`, but for a continuous target. Parameters are chosen by
    the mean squared error on held-out source domains, which have equal weights. The weights of
    members decrease exponentially with the logarithm of the RMSE. Predictions are bounded by what
    held-out domains show to be safe, and a few absurd targets are moved closer, with a warning.
    Context requires at least two source domains.

    Parameters
    ----------
    members : "auto" or list, default="auto"
        As in :class:`DomainEnsembleClassifier`.
    context : "auto" or bool, default="auto"
        Whether to also fit members that use context. "auto" does so with at least two source
        domains.
    calibration, cv, scoring, n_jobs, random_state, time_budget, verbose
        As in :class:`DomainEnsembleClassifier`.

    Attributes
    ----------
    domains_, members_, weights_, context_weights_, domain_scores_, context_domain_scores_
        As in :class:`DomainEnsembleClassifier`; scores are negative root mean squared errors,
        unless ``scoring`` is set.
    expected_score_, context_expected_score_, calibration_domains_, promise_, dropped_, held_out_
        As in :class:`DomainEnsembleClassifier`.

    See Also
    --------
    DomainEnsembleClassifier : The same for classification.

    Notes
    -----
    With members :math:`j` and their errors :math:`R_j` (RMSE) on held-out domains, the ensemble
    predicts :math:`\sum_j a_j f_j(x)` with weights :math:`a_j` that decrease exponentially with
    :math:`\log R_j`.

    References
    ----------
    I. Gulrajani and D. Lopez-Paz (2021), "In search of lost domain generalization", ICLR,
    arXiv:2007.01434.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise import DomainEnsembleRegressor
    >>> rng = np.random.default_rng(0)
    >>> domain = np.repeat(np.arange(8), 30)
    >>> X = rng.normal(size=(240, 3)) + rng.normal(size=(8, 3))[domain]
    >>> y = X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=240)
    >>> is_source = domain < 6  # the other two domains are unseen
    >>> model = DomainEnsembleRegressor(["linear", "extra_trees"])
    >>> model = model.fit(X[is_source], y[is_source], sample_domain=domain[is_source])
    >>> rmse = np.sqrt(np.mean((model.predict(X[~is_source]) - y[~is_source]) ** 2))
    >>> print(f"RMSE on unseen domains: {rmse:.2f}")
    RMSE on unseen domains: 0.31
    """

    def _learn_target(self, table: Table) -> tuple[Array, Labels]:
        """Return the standardized target; absurd values are moved, with a warning."""
        values = np.asarray(table.y, dtype=np.float64)
        y = fitting.plausible_targets(values, table.domain.codes)
        if not np.array_equal(y, values):
            warn_caller(fitting.absurd_target_message(values, y))
        self._mean = float(np.average(y, weights=table.weights))
        variance = np.average((y - self._mean) ** 2, weights=table.weights)
        self._deviation = float(np.sqrt(variance)) or 1.0
        target = check_target(self._encode_target(y), len(y), "rbf", min_classes=1)
        return target.values[:, 0], target

    def _encode_target(self, y: Array) -> Array:
        return (y - self._mean) / self._deviation

    def predict(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Return the predicted target of each row.

        Parameters
        ----------
        X, sample_domain
            As in :meth:`DomainEnsembleClassifier.predict`.

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        return np.asarray(self._corrected(X, sample_domain)[:, 0])

    def on_target_scale(self, values: Array) -> Array:
        """Convert predictions of the standardized target to the scale of the target."""
        return values * self._deviation + self._mean

    def _code_weights(self) -> None:
        return None

    def _with_rule(self, score: HeldOutScore) -> HeldOutScore:
        return score

    def _held_out_score(self, y: Array, domain_codes: Array, rows: Array) -> HeldOutScore:
        row_args = (domain_codes, int(domain_codes.max()) + 1, rows, self.scoring)
        return HeldOutScore(y, None, *row_args, self._mean, self._deviation)

    def _domains_for_context(self, target: Labels, domain: Labels) -> Array:
        use_context = self.context is not False and domain.n_categories > 1
        return np.arange(domain.n_categories if use_context else 0)
