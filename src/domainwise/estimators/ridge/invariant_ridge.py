"""InvariantRidgeCV and InvariantRidgeClassifierCV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from domainwise.algebra.backends import Backend
from domainwise.base import arrays
from domainwise.base.arrays import Array, ArrayLike, ClassWeight, Decision, MaybeArray
from domainwise.base.inputs import Labels, check_class_weight, check_classes, plain_array
from domainwise.base.signatures import documented_arguments
from domainwise.estimators.adaptation.corrections import within_estimators
from domainwise.estimators.ridge.base import InvariantRidge
from domainwise.estimators.ridge.scores import ClassRule, Rows
from domainwise.held_out.calibration.curves import class_columns, fit_domain_curve
from domainwise.held_out.calibration.decisions import Decisions, rule_for
from domainwise.held_out.scoring.predictions import HeldOut


def _has_curve(model: Any) -> bool:
    """Return whether probabilities are available; their calibration needs rows, not only sums."""
    return "_sums" not in vars(model) and vars(model).get("curve_", True) is not None


@documented_arguments
class InvariantRidgeClassifierCV(Decisions, ClassifierMixin, InvariantRidge):
    r"""Classifier that averages invariant kernel models with the best scores on held-out domains.

    Kernel ridge regression of class indicators minimizes :math:`\sum_i s_i |y_i - f(x_i)|^2 +
    \alpha (|f|^2 + w f'P_d f)`. The last term penalizes differences between domains: :math:`P_d`
    projects onto domain means, and :math:`w` is the domain weight. Each combination of kernel,
    gamma, weight and alpha is scored on held-out source domains. The best alpha for each kernel,
    gamma and weight is selected, and the ``n_average`` best functions are averaged, because scores
    on a few domains are too noisy to select a single one. No argument needs tuning.

    Parameters
    ----------
    {ridge_search}
    {ridge_options}
    conditionals : sequence of bool, default=(False, True)
        Whether domains are compared over all rows (False), within each class (True), or both.
    class_weight : dict or "balanced", default=None
        Row weights :math:`s_i` by class, as in :class:`sklearn.svm.SVC`. A dict contains weights
        by class label; classes that are not in it have weight 1. "balanced" is
        ``n_samples / (n_classes * n_samples_of_the_class)``. Probabilities and decisions are
        corrected for the weights.
    {decision}

    Attributes
    ----------
    classes_ : ndarray
        Class labels.
    {decided}
    curve_ : Curve or None
        Calibration curve that converts values into probabilities. None after ``partial_fit`` and
        after a fit to a Dask collection, which store no rows; ``predict_proba`` is then missing,
        and ``decision`` is applied to estimates of probabilities that are not calibrated.
    {ridge_fitted}

    See Also
    --------
    InvariantRidgeCV : The same for a continuous target.
    InvariantSVC : A support vector machine with one invariant kernel.

    Notes
    -----
    Each candidate minimizes :math:`\sum_i s_i |y_i - f(x_i)|^2 + \alpha (\|f\|^2 + w f'P_d f)`.
    Among candidates, the mean squared error on held-out domains is minimized; domains have equal
    weights.

    References
    ----------
    A. Wu (2021), "Domain generalization via domain-based covariance minimization",
    arXiv:2110.06298.

    I. Gulrajani and D. Lopez-Paz (2021), "In search of lost domain generalization", ICLR,
    arXiv:2007.01434.

    Examples
    --------
    >>> from domainwise import InvariantRidgeClassifierCV
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> X, y, domain = data.data, data.target, data.sample_domain
    >>> is_source = domain < 7  # the other three domains are unseen
    >>> model = InvariantRidgeClassifierCV()
    >>> model = model.fit(X[is_source], y[is_source], sample_domain=domain[is_source])
    >>> low, high = model.expected_range_
    >>> print(f"balanced accuracy on one unseen domain: {low:.2f} to {high:.2f}")
    balanced accuracy on one unseen domain: 0.65 to 0.75
    """

    conditionals: Sequence[bool] = (False, True)
    class_weight: ClassWeight = None
    decision: Decision = "auto"
    target_kernel = "delta"

    def partial_fit(
        self,
        X: ArrayLike,
        y: MaybeArray = None,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
        *,
        classes: MaybeArray = None,
    ) -> Self:
        """Add a batch of rows, as in :meth:`InvariantRidgeCV.partial_fit`.

        Parameters
        ----------
        X, y, sample_domain, sample_weight
            As in :meth:`fit`, in memory or on a device. New classes may occur in any batch.
        classes : array-like, default=None
            All possible classes; any other class in a batch raises an error. None allows any class.

        Returns
        -------
        self : object
        """
        if classes is not None:
            labels = arrays.to_host(y) if arrays.is_tensor(y) else plain_array(y)
            if unknown_classes := np.setdiff1d(labels, classes).tolist():
                raise ValueError(
                    f"y contains {unknown_classes[0]!r}, which is not in classes={classes!r}. Add "
                    "it to classes, or omit classes."
                )
        return super().partial_fit(X, y, sample_domain, sample_weight)

    def _check_target(self, backend: Backend, y: Any, rows: Any, min_classes: int) -> Labels:
        if arrays.is_tensor(rows):
            target = backend.check_target(y, rows, "delta", min_classes=min_classes)
        else:
            target = check_classes(y, len(rows), min_classes=min_classes)
        if min_classes > 1:
            check_class_weight(self.class_weight, target.names)
        return target

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the decision values: one for two classes, otherwise one for each class.

        Parameters
        ----------
        X : array-like, tensor or Dask collection of shape (n_rows, n_features)

        Returns
        -------
        scores : ndarray of shape (n_rows,) or (n_rows, n_classes)
            With two classes, one value per row, positive for the second class.
        """
        return self._apply("_decisions", X)

    @available_if(_has_curve)
    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probability of each class, in the order of ``classes_``.

        A slope and a bias for each class convert values into probabilities with the class
        frequencies of the source domains. They are fitted to held-out source domains, which have
        equal weights. The predicted class also depends on ``decision``.

        Parameters
        ----------
        X : array-like, tensor or Dask collection of shape (n_rows, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)
            Rows sum to 1; columns are in the order of ``classes_``.
        """
        return self._apply("_corrected_outputs", X)

    def _uncorrected_outputs(self, X: Any) -> Any:
        values = self._values(X)
        return arrays.to_device_of(
            self.curve_.probabilities(class_columns(arrays.to_host(values))), values
        )

    def _record_held_out(self, held_out: tuple[Rows, Array, Array] | None) -> None:
        self.held_out_ = None
        if held_out is not None:
            rows, values, indices = held_out
            values = class_columns(values)
            class_codes, domain_codes = (arrays.to_host(codes)[indices] for codes in rows.codes())
            weights = None if rows.weights is None else rows.weights[indices]
            self.curve_ = fit_domain_curve(values, class_codes, domain_codes, weights)
            outputs = class_codes, domain_codes, self.curve_.probabilities(values)
            self.held_out_ = HeldOut.from_rows(*outputs, weights=weights)
        self.decide(self.decision, self.scoring)

    def _scored_rule(self) -> ClassRule:
        """Return the rule for values, which also predicts if there is no calibration curve."""
        rule = vars(self).get("decision_rule_")
        if rule is None and hasattr(self, "_class_counts"):
            rule = rule_for(self.decision, self._class_counts, self.scoring)
        return ClassRule(self.classes_, rule, self.class_weights)

    @property
    def class_weights(self) -> Array:
        """Weight of each class in the fit."""
        penalties = self._make_penalties([], [], self.classes_)
        weights = penalties.class_weights(dict(enumerate(self._class_counts.sum(axis=0).tolist())))
        return np.array(list(weights.values()))

    def _decisions(self, X: Any) -> Any:
        if not hasattr(self, "corrections_"):
            return self._scored_rule().decision_function(self._values(X))
        probabilities = self._corrected_outputs(X)
        decisions = np.log(np.maximum(arrays.to_host(probabilities), 1e-300))
        if decisions.shape[1] == 2:
            decisions = decisions[:, 1] - decisions[:, 0]
        return arrays.to_device_of(decisions, probabilities)

    def _predict_rows(self, X: Any) -> Any:
        rule = self.decision_rule_
        if hasattr(self, "corrections_") or (rule is not None and self.curve_ is not None):
            outputs = self._corrected_outputs(X)
            p = arrays.to_host(outputs)
            y_pred = self.classes_[p.argmax(axis=1) if rule is None else rule.codes(p)]
        else:
            outputs = self._values(X)
            y_pred = self._scored_rule().predict(arrays.to_host(outputs))
        return arrays.to_device_of(y_pred, outputs) if y_pred.dtype.kind in "biuf" else y_pred


@documented_arguments
class InvariantRidgeCV(RegressorMixin, InvariantRidge):
    r"""Regressor that averages invariant kernel models with the best scores on held-out domains.

    Kernel ridge regression minimizes :math:`\sum_i |y_i - f(x_i)|^2 + \alpha (|f|^2 + w f'P_d f)`.
    The last term penalizes differences between domains: :math:`P_d` projects onto domain means, and
    :math:`w` is the domain weight. Each combination of kernel, gamma, weight and alpha is scored on
    held-out domains. The ``n_average`` best functions, each with its best alpha, are averaged.

    Parameters
    ----------
    {ridge_search} {ridge_options}

    Attributes
    ----------
    {ridge_fitted}

    See Also
    --------
    InvariantRidgeClassifierCV : The same for classification.

    Notes
    -----
    Each candidate minimizes :math:`\sum_i |y_i - f(x_i)|^2 + \alpha (\|f\|^2 + w f'P_d f)`. Among
    candidates, the mean squared error on held-out domains is minimized; domains have equal
    weights.

    References
    ----------
    A. Wu (2021), "Domain generalization via domain-based covariance minimization",
    arXiv:2110.06298.

    I. Gulrajani and D. Lopez-Paz (2021), "In search of lost domain generalization", ICLR,
    arXiv:2007.01434.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise import InvariantRidgeCV
    >>> rng = np.random.default_rng(0)
    >>> domain = np.repeat(np.arange(8), 30)
    >>> X = rng.normal(size=(240, 3)) + rng.normal(size=(8, 3))[domain]
    >>> y = X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=240)
    >>> is_source = domain < 6  # the other two domains are unseen
    >>> model = InvariantRidgeCV()
    >>> model = model.fit(X[is_source], y[is_source], sample_domain=domain[is_source])
    >>> rmse = np.sqrt(np.mean((model.predict(X[~is_source]) - y[~is_source]) ** 2))
    >>> print(f"RMSE on unseen domains: {rmse:.2f}")
    RMSE on unseen domains: 0.32
    """

    target_kernel = "rbf"

    def _check_target(self, backend: Backend, y: Any, rows: Any, min_classes: int) -> Labels:
        self._flat = len(np.shape(y)) == 1
        return backend.check_target(y, rows, "rbf", min_classes=1)

    def _record_held_out(self, held_out: tuple[Rows, Array, Array] | None) -> None:
        self.held_out_ = None
        if held_out is not None:
            rows, values, indices = held_out
            domain_codes = arrays.to_host(rows.codes()[1])[indices]
            weights = None if rows.weights is None else rows.weights[indices]
            self.held_out_ = HeldOut.from_rows(
                rows.y[indices], domain_codes, values, weights=weights
            )
            if values.shape[1] == 1:
                stored = indices[HeldOut.stored_rows(domain_codes)]
                ridge = within_estimators(len(stored))[:1]  # boosting costs more than this fit
                self._learn_within(arrays.to_host(rows.X)[stored], ridge)

    def _uncorrected_outputs(self, X: Any) -> Any:
        return self._values(X)

    def _predict_rows(self, X: Any) -> Any:
        outputs = self._corrected_outputs(X)
        return outputs[:, 0] if self._flat else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
