"""InvariantRidgeCV and InvariantRidgeClassifierCV: the average of the kernels that held up best."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight

from domainwise.arrays import Array
from domainwise.checks.inputs import (
    CLASS_WEIGHT,
    SEARCH_CONSTRAINTS,
    check_classes,
    check_sample_domain,
    check_target,
)
from domainwise.estimators.arguments import with_shared_docs
from domainwise.invariant.kernel import check_rows
from domainwise.selection.ridge_rules import ClassRule, NumberRule, class_codes
from domainwise.selection.ridge_search import AUTO_WEIGHTS, InvariantRidge, Rows


@with_shared_docs
class InvariantRidgeClassifierCV(ClassifierMixin, InvariantRidge):
    r"""Classifier that averages the invariant kernels which held up best on domains left out.

    Kernel ridge regression of class indicators, :math:`\sum_i s_i |y_i - f(x_i)|^2 + \alpha
    (|f|^2 + w f'P_d f)`: functions that tell domains apart cost more. Every kernel, gamma, domain
    weight and alpha of the grid is scored by leaving source domains out. Of each kernel and weight
    the best alpha is kept, and the functions of the ``n_average`` best are averaged: scores on a
    few domains are too noisy to bet on a single winner. Nothing needs to be tuned.

    Parameters
    ----------
    {ridge_search}
    conditionals : sequence of bool, default=(False, True)
        Whether domains are compared as they are, inside each class, or both.
    {ridge_rest}
    class_weight : dict or "balanced", default=None
        Weights of the classes' errors, as in :class:`sklearn.svm.SVC`.

    Attributes
    ----------
    classes_ : ndarray
        Class labels.
    {ridge_fitted}

    See Also
    --------
    InvariantRidgeCV : The same for a continuous target.
    InvariantSVC : A support vector machine with one invariant kernel.

    Examples
    --------
    >>> from domainwise import InvariantRidgeClassifierCV
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(n_domains=5, random_state=0)
    >>> model = InvariantRidgeClassifierCV().fit(
    ...     data.data, data.target, sample_domain=data.sample_domain
    ... )
    >>> len(model.members_), model.predict(data.data[:3]).shape
    (10, (3,))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **InvariantRidge._parameter_constraints,
        "conditionals": SEARCH_CONSTRAINTS["conditionals"],
        "class_weight": CLASS_WEIGHT,
    }

    def __init__(
        self,
        *,
        kernels: Any = ("rbf", "laplacian"),
        gammas: Any = "auto",
        alphas: Any = "auto",
        domain_weights: Any = AUTO_WEIGHTS,
        conditionals: Any = (False, True),
        n_average: int = 10,
        n_landmarks: Any = "auto",
        landmarks: Any = "kmeans++",
        domain_kernel: Any = "auto",
        domain_gamma: float | str = "median",
        domain_epsilon: float = 1e-3,
        class_weight: Any = None,
        cv: Any = None,
        scoring: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.kernels = kernels
        self.gammas = gammas
        self.alphas = alphas
        self.domain_weights = domain_weights
        self.conditionals = conditionals
        self.n_average = n_average
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.domain_kernel = domain_kernel
        self.domain_gamma = domain_gamma
        self.domain_epsilon = domain_epsilon
        self.class_weight = class_weight
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
        """Search on domains left out, then fit the members to all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Classes.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row.

        Returns
        -------
        self : object
        """
        self._validate_params()
        X, y = check_rows(self, X, y)
        target = check_classes(y, len(X))
        assert target.codes is not None
        assert target.names is not None
        self.classes_ = target.names
        domain = check_sample_domain(sample_domain, len(X), self.domain_kernel)
        if isinstance(self.class_weight, dict):
            compute_class_weight(self.class_weight, classes=target.names, y=target.names)
        Y = class_codes(len(target.names))[target.codes]
        rows = Rows(X, Y, target.names[target.codes], target, domain)
        self._search(rows, tuple(self.conditionals))
        return self

    def _rule(self) -> ClassRule:
        return ClassRule(self.classes_)

    def decision_function(self, X: Any) -> Array:
        """Return one value for two classes, positive for the second; one for each of more."""
        values = self._values(X)
        return self._rule().decision_function(values)

    def predict(self, X: Any) -> Array:
        """Return the class of each row."""
        values = self._values(X)
        return self._rule().predict(values)


@with_shared_docs
class InvariantRidgeCV(RegressorMixin, InvariantRidge):
    r"""Regression that averages the invariant kernels which held up best on domains left out.

    Kernel ridge regression, :math:`\sum_i |y_i - f(x_i)|^2 + \alpha (|f|^2 + w f'P_d f)`: functions
    that tell domains apart cost more. Every kernel, gamma, domain weight and alpha of the grid is
    scored by leaving source domains out. Of each kernel and weight the best alpha is kept, and the
    functions of the ``n_average`` best are averaged.

    Parameters
    ----------
    {ridge_search}
    {ridge_rest}

    Attributes
    ----------
    {ridge_fitted}

    See Also
    --------
    InvariantRidgeClassifierCV : The same for classes.

    Examples
    --------
    >>> from domainwise import InvariantRidgeCV
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(n_domains=5, random_state=0)
    >>> X, y = data.data[:, 1:], data.data[:, 0]
    >>> model = InvariantRidgeCV().fit(X, y, sample_domain=data.sample_domain)
    >>> model.predict(X[:3]).shape
    (3,)
    """

    def __init__(
        self,
        *,
        kernels: Any = ("rbf", "laplacian"),
        gammas: Any = "auto",
        alphas: Any = "auto",
        domain_weights: Any = AUTO_WEIGHTS,
        n_average: int = 10,
        n_landmarks: Any = "auto",
        landmarks: Any = "kmeans++",
        domain_kernel: Any = "auto",
        domain_gamma: float | str = "median",
        domain_epsilon: float = 1e-3,
        cv: Any = None,
        scoring: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.kernels = kernels
        self.gammas = gammas
        self.alphas = alphas
        self.domain_weights = domain_weights
        self.n_average = n_average
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.domain_kernel = domain_kernel
        self.domain_gamma = domain_gamma
        self.domain_epsilon = domain_epsilon
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
        """Search on domains left out, then fit the members to all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Continuous targets.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row.

        Returns
        -------
        self : object
        """
        self._validate_params()
        X, y = check_rows(self, X, y, y_numeric=True, multi_output=True)
        target = check_target(y, len(X), "rbf", least_classes=1)
        assert target.values is not None
        domain = check_sample_domain(sample_domain, len(X), self.domain_kernel)
        self._flat = np.ndim(y) == 1
        y = target.values[:, 0] if self._flat else target.values
        self._search(Rows(X, target.values, y, target, domain), (False,))
        return self

    def _rule(self) -> NumberRule:
        return NumberRule()

    def predict(self, X: Any) -> Array:
        """Return the predicted target of each row."""
        values = self._values(X)
        return values[:, 0] if self._flat else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
