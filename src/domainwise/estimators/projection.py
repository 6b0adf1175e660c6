"""What exact and Nystrom estimators share: checking labels, resolving the kernel, projecting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from domainwise.arrays import Array
from domainwise.backends.base import backend_of
from domainwise.backends.devices import move, portable, restored
from domainwise.checks.inputs import Labels
from domainwise.gram import Gram
from domainwise.kernels.functions import Kernel
from domainwise.labels.factors import LabelSpace
from domainwise.methods.components import Components


class Projection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A kernel projection ``x -> k(x, rows)' dual_coef_ - offset``.

    A subclass defines its arguments, how it is fitted, and ``_solve``, which calls its method on
    a Gram operator.
    """

    # sample_domain reaches fit through pipelines and searches without set_fit_request.
    __metadata_request__fit = {"sample_domain": True}

    n_components: int | None
    kernel: Any
    random_state: Any
    classes_: Array

    #: Whether the method has a use for targets and for domains.
    _uses_target = True
    _uses_domain = True
    _needs_target = False
    _needs_classes = False

    def _check_conditional(self, conditionals: Sequence[bool], domain: Labels) -> None:
        """Refuse domains that the family cannot compare inside classes; the exact one can."""

    def _label_weight(self, role: str) -> float:
        """How much a label kernel counts in the problem: the target's once."""
        return float(getattr(self, "domain_weight", 1.0)) if role == "domain" else 1.0

    def fit(self, X: Any, y: Any = None, sample_domain: Any = None) -> Self:
        """Learn the projection from source domains.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all source domains; for ``kernel="precomputed"`` their kernel matrix.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Classes or continuous targets.
        sample_domain : array-like of shape (n_samples,) or (n_samples, q), default=None
            The domain of each row: labels, or continuous descriptors. None means one domain.

        Returns
        -------
        self : object
        """
        self._validate_params()
        with backend_of(X).memory_advice(X):
            self._fit(X, y, sample_domain)
        return self

    def transform(self, X: Any) -> Array:
        """Project rows, those of unseen domains included.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            For ``kernel="precomputed"``, kernel values between new rows and training rows.

        Returns
        -------
        Z : ndarray of shape (n_rows, n_components)
            In the precision of X.
        """
        check_is_fitted(self, "dual_coef_")
        backend = backend_of(X)
        with backend.memory_advice(X):
            X = backend.check_rows(self, X, reset=False)
            backend.check_model(self.dual_coef_, X)
            return backend.map_rows(self, X)

    def _project(self, X: Any) -> Any:
        """Project checked rows that are at hand."""
        backend = backend_of(X)
        if self._kernel.name == "precomputed":
            Z = X @ self.dual_coef_
        else:
            Z = backend.project(self._kernel, X, self._support, self.dual_coef_)
        return backend.cast(Z - self._offset, X)

    def to(self, device: Any) -> Self:
        """Move a fitted model to a torch device, in place.

        Parameters
        ----------
        device : torch.device or str
            Such as ``"cuda"``, ``"cuda:1"`` or ``"cpu"``; ``"numpy"`` turns the fitted tensors into
            arrays, so that the model projects arrays and needs torch no more.

        Returns
        -------
        self : object
        """
        check_is_fitted(self, "dual_coef_")
        move(self, device)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return portable(super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(restored(state))

    def _fit(self, X: Any, y: Any, sample_domain: Any) -> None:
        raise AssertionError("a subclass fits here")

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        raise AssertionError("a subclass calls its method here")

    @property
    def _support(self) -> Array:
        """Rows whose kernel functions span the projection."""
        raise AssertionError("a subclass names its rows here")

    def _check_labels(
        self, y: Any, sample_domain: Any, X: Any, *, least_classes: int = 2
    ) -> tuple[Labels | None, Labels]:
        if y is None and self._needs_target:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        backend = backend_of(X)
        target = None
        if y is not None and self._uses_target:
            kernel = getattr(self, "target_kernel", "auto")
            target = backend.check_target(y, X, kernel, least_classes=least_classes)
            if self._needs_classes and target.codes is None:
                raise ValueError(
                    f"{type(self).__name__} compares the means of classes, so that y has to hold "
                    "class labels; got continuous values"
                )
        kernel = getattr(self, "domain_kernel", "auto")
        domain = backend.check_sample_domain(sample_domain, X, kernel)
        if getattr(self, "conditional", False) and (target is None or target.codes is None):
            given = "y is missing" if target is None else "y is continuous"
            raise ValueError(f"conditional=True measures domains inside classes, but {given}")
        return target, domain

    def _resolve_kernel(self, X: Any) -> Kernel:
        p: Any = self
        return backend_of(X).make_kernel(
            p.kernel,
            X,
            gamma=p.gamma,
            degree=p.degree,
            coef0=p.coef0,
            kernel_params=p.kernel_params,
        )

    def _record(
        self, kernel: Kernel, gram: Gram, found: Components, classes: Any, domains: Any
    ) -> None:
        """Store what every fitted projection tells about itself."""
        self._kernel = kernel
        self.eigenvalues_ = backend_of(self.dual_coef_).small(found.eigenvalues, self.dual_coef_)
        self.n_informative_ = found.n_informative
        self.gamma_ = kernel.gamma
        self.domains_ = domains
        self.solver_info_ = {"operator": type(gram).__name__, **gram.info, **found.info}
        if hasattr(self, "classes_"):
            del self.classes_
        if classes is not None:
            self.classes_ = classes

    @property
    def _n_features_out(self) -> int:
        return int(self.dual_coef_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.target_tags.required = self._needs_target
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def fixed_seed(random_state: Any) -> int:
    """Seed of a random_state; None stands for a fixed one, so that refitting repeats the bits."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)
