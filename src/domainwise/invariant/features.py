"""InvariantFeatures: Nystrom features of the invariant kernel, in one pass over the rows."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from domainwise.checks.arguments import INVARIANCE_CONSTRAINTS
from domainwise.checks.signatures import (
    InvarianceArguments,
    LandmarkArguments,
    arguments,
    with_shared_arguments,
)
from domainwise.estimators.fast_base import LandmarkProjection
from domainwise.invariant.kernel import scaling
from domainwise.labels.factors import label_factor


@with_shared_arguments
@arguments
class InvariantFeatures(LandmarkArguments, InvarianceArguments, LandmarkProjection):
    r"""Nystrom features whose inner products are the invariant kernel.

    The centred features :math:`\Phi` of landmarks give :math:`K \approx \Phi\Phi'`; along the
    singular directions of :math:`\Phi'F`, in which domains differ, they are shortened by
    :math:`(1 + w\sigma^2)^{-1/2}`. A linear machine on them is then a kernel machine with
    :class:`InvariantKernel`, for any number of rows. A drop-in for
    :class:`sklearn.kernel_approximation.Nystroem`.

    Parameters
    ----------
    {landmarks} {kernel} {domain} {invariance} {seed}

    Attributes
    ----------
    landmarks_ : ndarray of shape (M, n_features)
        The linearly independent landmarks, one per feature. Not with Fourier features.
    {frequencies}
    dual_coef_ : ndarray of shape (M, M)
        Coefficients of the landmarks' kernel functions, or of the Fourier features, in each.
    domain_eigenvalues_ : ndarray
        Squared singular values of ``Phi'F``: how much the plain features separate domains.
    n_samples_seen_ : int
        Rows seen so far.
    gamma_ : float
        The kernel's scale.
    domains_ : ndarray or None
        Domain labels seen so far; None for continuous descriptors.
    classes_ : ndarray
        Class labels seen so far, if ``conditional``.
    solver_info_ : dict
        Numbers of landmarks that were requested and that are used.
    {features_seen}

    See Also
    --------
    InvariantKernel : The exact kernel.

    Notes
    -----
    With all rows as landmarks the features reproduce the exact kernel. ``fit`` sees each row once
    and keeps sums per class and domain: time is O(N M p), memory O(M^2 + M C T).

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from domainwise import InvariantFeatures
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> features = InvariantFeatures(n_landmarks=100, domain_weight=0.1)
    >>> Z = features.fit_transform(data.data, sample_domain=data.sample_domain)
    >>> Z.shape[1]
    100
    >>> machine = LinearSVC().fit(Z, data.target)
    """

    # No linear system is solved, so that sums of plain kernel values are precise enough.
    _relative_shift = float("inf")
    _needs_moments = False
    _exact_name = "InvariantKernel"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = INVARIANCE_CONSTRAINTS

    n_landmarks: float | str = field(default="auto", kw_only=False)

    @property
    def _label_epsilon(self) -> float:
        return float(self.domain_epsilon)

    @property
    def _uses_target(self) -> bool:  # type: ignore[override]
        """Only where domains are compared inside its classes."""
        return bool(self.conditional)

    def _check_labels(self, *arguments: Any, **options: Any) -> Any:
        """Check labels; one class is enough."""
        return super()._check_labels(*arguments, **options | {"least_classes": 1})

    def _finish(self) -> None:
        """Shorten the features along the directions in which domains differ."""
        gram, classes, domains, mean = self._finalized()
        space = gram.labels
        factor = np.zeros((space.size, 0))
        if space.domain is not None:
            factor = label_factor(space.domain, space.n_samples, self.domain_epsilon)
        cross = gram.weights(gram.lift(factor))
        weights = scaling(cross, self.domain_weight, gram.tolerance)
        self.domain_eigenvalues_ = np.linalg.svd(cross, compute_uv=False) ** 2
        self.solver_info_: dict[str, Any] = {}
        self._record_map(weights, mean, classes, domains)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = bool(self.conditional)
        return tags
