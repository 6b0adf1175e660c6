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

    No type of model is best on all data sets, and scores on a few domains are too noisy to tell
    which one is best. Kernel ridge regression and support vector machines with invariant
    kernels, extremely randomised trees, gradient boosting and logistic regression each choose
    their parameters by the log loss on held-out source domains, in which domains, and
    classes inside them, have equal weights. Then their probabilities are averaged, with weights
    that grow exponentially with the balanced accuracy on these domains.

    If several rows of a new domain are predicted together, ``predict(X, sample_domain=...)`` also
    uses members that see each row relative to its own domain (:class:`DomainContext`). This assumes
    that the rows are representative of the domain. ``predict(X)`` predicts each row independently.

    Parameters
    ----------
    members : "auto" or list, default="auto"
        Names of kinds (``linear``, ``boosting``, ``extra_trees``, ``invariant_ridge``,
        ``invariant_svm``; "auto" is all of these), ``lightgbm`` and ``catboost`` with the extra
        ``boosting``, which cannot be saved to model files, and pairs ``(name, estimator)``.
    context : "auto" or bool, default="auto"
        Whether to fit members that see rows in context, too. "auto" does so with two source
        domains or more, at least half of which hold two classes with five rows each: where classes
        occur in only one domain, the properties of a domain reveal the class.
    class_weight : dict or "balanced", default=None
        Cost of errors in each class. None gives all rows equal weights; a domain whose class
        shares differ from those of the sources is then predicted badly, and ``fit`` warns if
        they differ strongly between source domains.
    calibration : {"cv", "split"}, default="cv"
        How prediction sets are calibrated. "cv" uses predictions for each domain by members fitted
        without it: the coverage is *approximate*. "split" reserves half of the domains: the
        coverage is *guaranteed*, on average over new domains that are drawn as these were.
    cv : int, splitter or iterable, default=None
        None holds out one domain at a time, or several together if there are more than ten (for
        trees, boosting and support vector machines, more than five).
        Splitters get the domains as ``groups``.
    scoring : str or callable, default=None
        A scikit-learn scorer, by which parameters are then chosen and ``domain_scores_`` are
        computed. Weights of members do not depend on it.
    n_jobs : int, default=None
        Number of parallel jobs in the search of each member.
    random_state : int, RandomState instance or None, default=None
        Seed of all random draws. None uses a fixed seed, so that a refit gives the same result.
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
        Fitted members by name; names of members that see rows in context start with ``context_``.
    weights_, context_weights_ : dict of float
        Weights of members in row-by-row predictions, and in predictions with context.
    domain_scores_, context_domain_scores_ : ndarray of shape (n_domains,)
        Score on each source domain of members fitted without it, with weights from the other
        domains: balanced accuracy, or ``scoring``. Members' parameters were chosen on all domains.
    expected_score_, context_expected_score_ : tuple of float
        Mean score over domains, and an approximate 95 % interval of it (bootstrap over domains).
        With context it is the score for batches that are whole domains.
    context_batch_size_ : int
        Median number of rows of a source domain, to which scores with context refer.
    expected_range_, context_expected_range_ : tuple of float or None
        Range in which the score of *one* new domain falls with a probability of 90 %. None with
        fewer than four domains.
    label_gain_, context_label_gain_ : structured array
        Expected score with ``n_labels`` (0, 5, 10, 20, 50) labels of a new site: ``score``, and the
        ends ``low`` and ``high`` of an approximate 95 % interval of its mean over sites. NaN where
        no source domain has twice as many rows.
    label_gain_domains_ : ndarray of int
        Number of source domains from which each row of ``label_gain_`` is computed.
    n_site_labels_ : int
        Number of labels that the model was adapted to; only after :meth:`adapt`.
    calibration_domains_ : ndarray
        Domains on which prediction sets are calibrated.
    promise_ : {"approximate", "guaranteed"}
        Whether the coverage of prediction sets is approximate or guaranteed.
    dropped_ : list of str
        Members that were not fitted because ``time_budget`` was exceeded.
    held_out_ : HeldOut
        Predictions for source rows by members fitted without their domain: of the ensemble row by
        row (``plain``) and with context (``context``, or None), and of its ``members``, with the
        targets ``y`` and the domain codes ``domain``. At most 20,000 rows, which are part of a
        saved model.
    {features_seen}

    See Also
    --------
    DomainContext : A row relative to its own domain.
    domainwise.selection.InvariantRidgeClassifierCV : The member that is most often the best one.

    Notes
    -----
    Features are standardised with the sources' means and deviations; missing values (NaN) become
    the mean. Values of a new domain are clipped if they lie farther beyond those of all sources
    than the most extreme source lies beyond the others. Without ``sample_domain`` in ``fit``,
    members are compared on folds of rows.

    Batches may have any number of rows. Rows of a batch larger than source domains are predicted
    relative to random parts of it that are as large as source domains, at no more than eight times
    the cost of row-by-row predictions. In a smaller batch context has less weight, and none if it
    has one row. The order of rows does not matter.

    If the mean or spread of a feature lies outside the range of source domains with as many rows,
    or shares of predicted classes outside the range of the sources, the rows of a domain are
    predicted one by one, with a warning: context may then mislead, for example if a batch holds
    only one class.

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
        """Whether :meth:`predict` returns the likeliest class; False if a subclass overrides it."""
        return type(self).predict is DomainEnsembleClassifier.predict

    def _known(self, y: Array) -> Array:
        """Class codes; a class that was not seen in fit gets the code ``len(classes_)``."""
        place = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        return np.where(self.classes_[place] == y, place, len(self.classes_))

    def predict(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Return the class of each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        sample_domain : array-like of shape (n_rows,), default=None
            The domain of each row, seen in fit or not: rows of X from the same domain are the
            context of a row. None predicts each row independently.

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
        """Domains on which members in context are judged; empty if there are no such members."""
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

    Like :class:`DomainEnsembleClassifier`, for a continuous target: parameters are chosen by the
    squared error on held-out source domains with equal weights, and weights of members decrease
    exponentially with the logarithm of its root. Context needs two source domains or more.

    Parameters
    ----------
    members : "auto" or list, default="auto"
        Names of kinds (``linear``, ``boosting``, ``extra_trees``, ``invariant_ridge``,
        ``invariant_svm``; "auto" is all of these), ``lightgbm`` and ``catboost`` with the extra
        ``boosting``, which cannot be saved to model files, and pairs ``(name, estimator)``.
    context : "auto" or bool, default="auto"
        Whether to fit members that see rows in context, too. "auto" does so with two source
        domains or more.
    calibration, cv, scoring, n_jobs, random_state, time_budget, verbose
        As in :class:`DomainEnsembleClassifier`.

    Attributes
    ----------
    domains_, members_, weights_, context_weights_, domain_scores_, context_domain_scores_
        As in :class:`DomainEnsembleClassifier`; scores are negative root mean squared errors,
        unless ``scoring`` is set.
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
        target = check_target(self._known(y), len(X), "rbf", min_classes=1)
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
        """Convert predictions of the standardised target to the scale of the target."""
        return values * self._deviation + self._mean

    def _code_weights(self) -> None:
        return None

    def _score(self, y: Array, places: Labels, rows: Array) -> HeldOutScore:
        counted = (places.codes, len(self.domains_), rows, np.ones(len(y)))
        return HeldOutScore(y, None, *counted, False, self.scoring, self._mean, self._deviation)

    def _domains_for_context(self, target: Labels, domain: Labels) -> Array:
        wanted = self.context is not False and domain.n_categories > 1
        return np.arange(domain.n_categories if wanted else 0)
