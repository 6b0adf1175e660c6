"""DomainEnsembleClassifier and DomainEnsembleRegressor."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight

from domainwise.arrays import Array, ArrayLike, ClassWeight, MaybeArray
from domainwise.calibration.quantiles import PredictionIntervals, PredictionSets
from domainwise.checks import warn_caller
from domainwise.checks.inputs import Labels, check_classes, check_target, warn_about_shares
from domainwise.checks.signatures import arguments, with_shared_arguments
from domainwise.ensemble.base import DomainEnsemble
from domainwise.ensemble.context import domain_labels
from domainwise.ensemble.held_out import HeldOutScore, mixed_domains


@with_shared_arguments
@arguments
class DomainEnsembleClassifier(PredictionSets, ClassifierMixin, DomainEnsemble):
    """Classifier that averages different kinds of models, weighted by held-out domains.

    No kind of machine is best on all tables, and scores on a few domains are too noisy to tell
    which is best on this one. Kernel ridge regression and support vector machines with invariant
    kernels, extremely randomised trees, gradient boosting and logistic regression each choose
    their parameters by the log loss on held-out source domains, in which domains, and
    classes inside them, count the same. Then their probabilities are averaged, with weights that
    fall off quickly with the balanced accuracy on these domains.

    Where rows of a new domain come together, ``predict(X, sample_domain=...)`` uses further
    members, which see each row relative to its own domain, too (:class:`DomainContext`). Context
    assumes that the rows look like the whole domain. ``predict(X)`` takes rows one by one.

    Parameters
    ----------
    members : "auto" or list, default="auto"
        Names of kinds (``linear``, ``boosting``, ``extra_trees``, ``invariant_ridge``,
        ``invariant_svm``; "auto" is all of these), ``lightgbm`` and ``catboost`` with the extra
        ``boosting``, which cannot be saved to model files, and pairs ``(name, estimator)``.
    context : "auto" or bool, default="auto"
        Whether to fit members for rows with their domain as well. "auto" does so with two source
        domains or more, at least half of which hold two classes with five rows each: where classes
        occur in only one domain, the properties of a domain reveal the class.
    class_weight : dict or "balanced", default=None
        What errors in each class cost. None lets every row count the same, and a domain with other
        class shares than the sources is then predicted badly: ``fit`` warns where these differ
        strongly between source domains.
    calibration : {"cv", "split"}, default="cv"
        What prediction sets rest on. "cv" takes what members fitted without a domain say about it:
        the coverage is *approximate*. "split" keeps half of the domains apart for it: the coverage
        is *guaranteed*, on average over new domains that are drawn as these were.
    cv : int, splitter or iterable, default=None
        None holds out one domain at a time, several together where there are more than ten (for
        trees and boosting, more than five).
        Splitters get the domains as ``groups``.
    scoring : str or callable, default=None
        A scikit-learn scorer by which parameters are chosen instead, and which is shown in
        ``domain_scores_``. Weights of members do not depend on it.
    n_jobs : int, default=None
        Searches at a time.
    random_state : int, RandomState instance or None, default=None
        Seed of the trees. None is a fixed seed: refitting repeats every bit.
    time_budget : float, default=None
        Seconds after which no further member is fitted. A warning names the omitted members.
    verbose : int, default=0
        Whether to print a line for each member.

    Attributes
    ----------
    classes_ : ndarray
        Class labels.
    domains_ : ndarray
        Domain labels seen in fit.
    members_ : dict
        Fitted members by name; ``context_`` stands before those that see rows in context.
    weights_, context_weights_ : dict of float
        What members count for rows one by one, and for rows with their domain.
    domain_scores_, context_domain_scores_ : ndarray of shape (n_domains,)
        Score on each source domain by members fitted without it, and weights that the other
        domains give: balanced accuracy, or ``scoring``. Parameters of members were chosen with it.
    expected_score_, context_expected_score_ : tuple of float
        Mean of these over domains, and an approximate 95 % interval of it (bootstrap over domains).
        With context it is the score for batches that are whole domains.
    context_batch_size_ : int
        Rows of a source domain (median), to which scores with context refer.
    expected_range_, context_expected_range_ : tuple of float or None
        Range in which the score of *one* new domain falls with a probability of 90 %. None with
        fewer than four domains.
    label_gain_, context_label_gain_ : structured array
        Expected score with ``n_labels`` (0, 5, 10, 20, 50) labels of a new site: ``score``, and the
        ends ``low`` and ``high`` of an approximate 95 % interval of its mean over sites. NaN where
        no source domain has twice as many rows.
    label_gain_domains_ : ndarray of int
        Number of source domains behind each of these.
    n_site_labels_ : int
        Number of labels that the model was adapted to; only after :meth:`adapt`.
    calibration_domains_ : ndarray
        Domains that prediction sets rest on.
    promise_ : {"approximate", "guaranteed"}
        What prediction sets promise.
    dropped_ : list of str
        Members that ``time_budget`` left no time for.
    held_out_ : HeldOut
        Predictions for source rows by members fitted without their domain: of the ensemble for
        rows one by one (``plain``) and with their domain (``context``, or None), of its
        ``members``, with the targets ``y`` and the codes ``domain``. At most 20,000 rows; a saved
        model holds them.
    {features_seen}

    See Also
    --------
    DomainContext : A row relative to its own domain.
    domainwise.selection.InvariantRidgeClassifierCV : The member that is best alone, most often.

    Notes
    -----
    Features are standardised with the sources' means and deviations; missing values (NaN) become
    the mean. A value of a new domain is cut where it is farther beyond those of all sources than
    the outermost source is beyond the others. Without ``sample_domain`` in ``fit`` members are
    chosen on folds of rows.

    Batches may have any number of rows. One larger than source domains is predicted relative to
    random parts of it that are as large as these, at no more than eight times the cost of rows one
    by one. In a smaller one context counts less, and nothing if it has one row. The order of rows
    does not matter.

    If the mean or the spread of a feature lies outside those of source domains with as many rows,
    or shares of predicted classes outside those of the sources, the rows of a domain are predicted
    one by one, with a warning: what a domain is like may then mislead, as it does where a batch
    holds only one class.

    Examples
    --------
    >>> from domainwise import DomainEnsembleClassifier
    >>> from domainwise.datasets import load_heart
    >>> heart = load_heart()  # four hospitals
    >>> model = DomainEnsembleClassifier(["linear", "extra_trees"], random_state=0)
    >>> model = model.fit(heart.data, heart.target, sample_domain=heart.sample_domain)
    >>> low, high = model.expected_range_
    >>> print(f"accuracy at one new hospital: {low:.1f} to {high:.1f}")
    accuracy at one new hospital: 0.6 to 0.9
    >>> model.predict_proba(heart.data[:3]).shape
    (3, 2)
    """

    __metadata_request__predict_proba: ClassVar[dict[str, Any]] = {"sample_domain": True}

    class_weight: ClassWeight = None

    def _learn(self, X: Array, y: Any, sample_domain: Any, learn_from: Any) -> None:
        target = check_classes(y, len(X))
        self.classes_ = target.names
        if self.scoring is None:
            warn_about_shares(self.class_weight, target, domain_labels(sample_domain, X))
        self._fit(X, target.codes, target, sample_domain, learn_from)

    @property
    def names_likeliest(self) -> bool:
        """Whether :meth:`predict` names the class of the largest probability, as it does here."""
        return type(self).predict is DomainEnsembleClassifier.predict

    def _known(self, y: Array) -> Array:
        """Codes of classes; one more than there are for a class that nothing was learnt about."""
        place = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        return np.where(self.classes_[place] == y, place, len(self.classes_))

    def predict(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Return the class of each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        sample_domain : array-like of shape (n_rows,), default=None
            The domain of each row, seen in fit or not: each is put in relation to the rows of its
            domain that are in X. None takes rows one by one.

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        codes = self._corrected(X, sample_domain).argmax(axis=1)
        return np.asarray(self.classes_[codes])

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
        """Class probabilities, unchanged."""
        return values

    def _code_weights(self) -> Any:
        """Class weights by code."""
        if not isinstance(self.class_weight, dict):
            return self.class_weight
        names = self.classes_.tolist()
        return {code: float(self.class_weight.get(name, 1.0)) for code, name in enumerate(names)}

    def _score(self, codes: Array, places: Labels, rows: Array) -> HeldOutScore:
        balanced = self.class_weight == "balanced"
        weights = compute_sample_weight(None if balanced else self._code_weights(), codes)
        counted = (places.codes, len(self.domains_), rows, weights)
        return HeldOutScore(codes, self.classes_, *counted, balanced, self.scoring)

    def _domains_for_context(self, target: Labels, domain: Labels) -> Array:
        """Domains by which members in context are judged; none where there should be none."""
        if self.context is False or domain.n_categories < 2:
            return np.array([], dtype=np.intp)
        usable = mixed_domains(target.codes, domain.codes, domain.n_categories)
        if 2 * len(usable) >= domain.n_categories and len(usable) > 1:
            return usable
        if self.context is True:
            warn_caller(
                f"context=True is not used: {len(usable)} of {domain.n_categories} source domains "
                "hold two classes with at least five rows each, and in the others the domain "
                "determines the class. Use context='auto' or False to silence this warning"
            )
        return np.array([], dtype=np.intp)


@with_shared_arguments
@arguments
class DomainEnsembleRegressor(PredictionIntervals, RegressorMixin, DomainEnsemble):
    """Regressor that averages different kinds of models, weighted by held-out domains.

    As :class:`DomainEnsembleClassifier`, for a continuous target: parameters are chosen by the
    squared error on held-out source domains, which count the same, and weights of members fall off
    with the logarithm of its root. Context is used with two source domains or more.

    Parameters
    ----------
    members : "auto" or list, default="auto"
        Names of kinds (``linear``, ``boosting``, ``extra_trees``, ``invariant_ridge``,
        ``invariant_svm``; "auto" is all of these), ``lightgbm`` and ``catboost`` with the extra
        ``boosting``, which cannot be saved to model files, and pairs ``(name, estimator)``.
    context : "auto" or bool, default="auto"
        Whether to fit members for rows with their domain as well. "auto" does so with two source
        domains or more.
    calibration, cv, scoring, n_jobs, random_state, time_budget, verbose
        As in :class:`DomainEnsembleClassifier`.

    Attributes
    ----------
    domains_, members_, weights_, context_weights_, domain_scores_, context_domain_scores_
        As in :class:`DomainEnsembleClassifier`; scores are negative root mean squared errors,
        unless there is a ``scoring``.
    expected_score_, context_expected_score_, calibration_domains_, promise_, dropped_, held_out_
        As there.

    See Also
    --------
    DomainEnsembleClassifier : The same for classes.

    Examples
    --------
    >>> from domainwise import DomainEnsembleRegressor
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(n_domains=5, n_per_domain=40, random_state=0)
    >>> X, y = data.data[:, 1:], data.data[:, 0]
    >>> model = DomainEnsembleRegressor(["linear", "extra_trees"])
    >>> model.fit(X, y, sample_domain=data.sample_domain).predict(X[:3]).shape
    (3,)
    """

    def _learn(self, X: Array, y: Any, sample_domain: Any, learn_from: Any) -> None:
        y = np.asarray(y, dtype=np.float64)
        self._mean, self._deviation = float(y.mean()), float(y.std()) or 1.0
        target = check_target(self._known(y), len(X), "rbf", least_classes=1)
        self._fit(X, target.values[:, 0], target, sample_domain, learn_from)

    def _known(self, y: Array) -> Array:
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
        """Outputs of members, which are fitted to a standardised target, on the target's scale."""
        return values * self._deviation + self._mean

    def _code_weights(self) -> None:
        return None

    def _score(self, y: Array, places: Labels, rows: Array) -> HeldOutScore:
        counted = (places.codes, len(self.domains_), rows, np.ones(len(y)))
        return HeldOutScore(y, None, *counted, False, self.scoring, self._mean, self._deviation)

    def _domains_for_context(self, target: Labels, domain: Labels) -> Array:
        wanted = self.context is not False and domain.n_categories > 1
        return np.arange(domain.n_categories if wanted else 0)
