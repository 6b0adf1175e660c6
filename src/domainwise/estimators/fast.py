"""FastDCM, FastCOIR, FastDICA and FastKPCA: the same methods on Nystrom features."""

from __future__ import annotations

from domainwise.estimators.arguments import (
    LabelLandmarkArguments,
    arguments,
    with_shared_arguments,
)
from domainwise.estimators.exact import COIRMethod, DCMMethod, DICAMethod, KPCAMethod
from domainwise.estimators.fast_base import FastProjection


@with_shared_arguments
@arguments
class FastDCM(LabelLandmarkArguments, DCMMethod, FastProjection):
    r"""Domain-based covariance minimization on Nystrom features, in one pass over the rows.

    DCM with the Gram matrix replaced by ``k(X, landmarks) k(landmarks, landmarks)^-1 k(landmarks,
    X)``. Time is linear in the number of rows and memory does not depend on it; with every row as
    a landmark the result is that of :class:`DCM`.

    Parameters
    ----------
    {n_components} {kernel} {target} {domain} {epsilon} {ridge} {domain_weight} {landmarks}
    {target_landmarks} {seed}

    Attributes
    ----------
    {fast_fitted}

    See Also
    --------
    DCM : The exact method.

    Examples
    --------
    >>> from domainwise import FastDCM
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> model = FastDCM(n_landmarks=200).fit(
    ...     data.data, data.target, sample_domain=data.sample_domain
    ... )
    >>> model.transform(data.data[:3]).shape
    (3, 1)
    """


@with_shared_arguments
@arguments
class FastCOIR(LabelLandmarkArguments, COIRMethod, FastProjection):
    r"""Covariance operator inverse regression on Nystrom features, in one pass over the rows.

    ``sample_domain`` is accepted and ignored, so that methods can be swapped in a pipeline.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon} {ridge} {landmarks} {target_landmarks} {seed}

    Attributes
    ----------
    {fast_fitted}

    See Also
    --------
    COIR : The exact method.

    Examples
    --------
    >>> from domainwise import FastCOIR
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> model = FastCOIR(n_landmarks=200).fit(data.data, data.target)
    >>> model.transform(data.data[:3]).shape
    (3, 1)
    """


@with_shared_arguments
@arguments
class FastDICA(LabelLandmarkArguments, DICAMethod, FastProjection):
    r"""Domain-invariant component analysis on Nystrom features, in one pass over the rows.

    Without ``y`` it is the unsupervised form.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon}
    lam : float, default=1e-3
        Regularisation of the right side, not multiplied by the number of rows.
    {landmarks} {target_landmarks} {seed}

    Attributes
    ----------
    {fast_fitted}

    See Also
    --------
    DICA : The exact method.

    Examples
    --------
    >>> from domainwise import FastDICA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> model = FastDICA(n_landmarks=200).fit(
    ...     data.data, data.target, sample_domain=data.sample_domain
    ... )
    >>> model.eigenvalues_.shape
    (1,)
    """


@with_shared_arguments
@arguments
class FastKPCA(LabelLandmarkArguments, KPCAMethod, FastProjection):
    r"""Kernel principal component analysis on Nystrom features, in one pass over the rows.

    ``y`` and ``sample_domain`` are accepted and ignored, so that methods can be swapped in a
    pipeline.

    Parameters
    ----------
    {n_components} {kernel} {landmarks}
    target_landmarks : None
        Takes no effect: there is no target.
    {seed}

    Attributes
    ----------
    {fast_fitted}

    See Also
    --------
    KPCA : The exact method.

    Examples
    --------
    >>> from domainwise import FastKPCA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> model = FastKPCA(n_landmarks=200).fit(data.data)
    >>> model.transform(data.data).shape[1]
    10
    """

    _relative_shift = float("inf")  # leading eigenvectors forgive rounding as a ridge does
