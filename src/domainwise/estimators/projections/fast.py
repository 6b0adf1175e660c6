"""FastDCM and the other Fast estimators: the projections on Nystrom features."""

from __future__ import annotations

from domainwise.algebra.methods import scatter
from domainwise.base.signatures import (
    LabelLandmarkArguments,
    LandmarkArguments,
    arguments,
    with_shared_arguments,
)
from domainwise.estimators.projections import exact
from domainwise.estimators.projections.fast_base import FastProjection

__all__ = ["FastCOIR", "FastDCM", "FastDICA", "FastKPCA", "FastMDA", "FastMIDA", "FastSCA"]


@with_shared_arguments
@arguments
class FastDCM(LabelLandmarkArguments, exact.DCMMethod, FastProjection):
    r"""Domain-based covariance minimization on Nystrom features, in one pass over the rows.

    DCM with the Gram matrix replaced by ``k(X, landmarks) k(landmarks, landmarks)^-1 k(landmarks,
    X)``. Time is linear in the number of rows, and memory does not depend on it. If every row is a
    landmark, the result equals that of :class:`DCM`.

    Parameters
    ----------
    {n_components} {kernel} {target} {domain} {epsilon} {ridge} {domain_weight} {landmarks}
    {target_landmarks} {seed}

    {fast_sections}

    References
    ----------
    A. Wu, "Domain generalization via domain-based covariance minimization".
    {fast_example}
    """


@with_shared_arguments
@arguments
class FastCOIR(LabelLandmarkArguments, exact.COIRMethod, FastProjection):
    r"""Covariance operator inverse regression on Nystrom features, in one pass over the rows.

    ``sample_domain`` is accepted and ignored, so that methods can be swapped in a pipeline.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon} {ridge} {landmarks} {target_landmarks} {seed}

    {fast_sections} {fast_example}
    """


@with_shared_arguments
@arguments
class FastDICA(LabelLandmarkArguments, exact.DICAMethod, FastProjection):
    r"""Domain-invariant component analysis on Nystrom features, in one pass over the rows.

    Without ``y``, this is unsupervised DICA.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon}
    lam : float, default=1e-3
        The regularization :math:`\lambda` in :class:`DICA`, not multiplied by the number of rows.
    {landmarks} {target_landmarks} {seed}

    {fast_sections} {fast_example}
    """


@with_shared_arguments
@arguments
class FastKPCA(LandmarkArguments, exact.KPCAMethod, FastProjection):
    r"""Kernel principal component analysis on Nystrom features, in one pass over the rows.

    ``y`` and ``sample_domain`` are accepted and ignored, so that methods can be swapped in a
    pipeline.

    Parameters
    ----------
    {n_components} {kernel} {landmarks} {seed}

    {fast_sections} {fast_example}
    """

    _relative_shift = float("inf")  # float32 suffices for leading eigenvectors


@with_shared_arguments
@arguments
class FastSCA(LandmarkArguments, exact.ScatterMethod, FastProjection):
    r"""Scatter component analysis on Nystrom features, in one pass over the rows.

    Parameters
    ----------
    {ten_components} {kernel} {scatter} {landmarks} {seed}

    {fast_sections} {fast_example}
    """

    _method = staticmethod(scatter.sca)


@with_shared_arguments
@arguments
class FastMDA(LandmarkArguments, exact.ScatterMethod, FastProjection):
    r"""Multidomain discriminant analysis on Nystrom features, in one pass over the rows.

    Parameters
    ----------
    {class_components} {kernel} {scatter} {landmarks} {seed}

    {fast_sections} {fast_example}
    """

    _method = staticmethod(scatter.mda)


@with_shared_arguments
@arguments
class FastMIDA(LandmarkArguments, exact.MIDAMethod, FastProjection):
    r"""Maximum independence domain adaptation on Nystrom features, in one pass over the rows.

    ``y`` is accepted and ignored.

    Parameters
    ----------
    {ten_components} {kernel} {domain} {independence} {landmarks} {seed}

    {fast_sections}

    Examples
    --------
    >>> from domainwise import FastMIDA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> model = FastMIDA(n_components=2, n_landmarks=200, domain_weight=1e-3)
    >>> model.fit(data.data, sample_domain=data.sample_domain).transform(data.data[:2]).shape
    (2, 2)
    """

    _relative_shift = float("inf")  # float32 suffices for leading eigenvectors
