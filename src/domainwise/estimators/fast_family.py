"""FastSCA, FastMDA and FastMIDA: the same methods on Nystrom features."""

from __future__ import annotations

from domainwise.checks.signatures import (
    LandmarkArguments,
    arguments,
    with_shared_arguments,
)
from domainwise.estimators.family import MIDAMethod, ScatterMethod
from domainwise.estimators.fast_base import FastProjection
from domainwise.methods import scatter


@with_shared_arguments
@arguments
class FastSCA(LandmarkArguments, ScatterMethod, FastProjection):
    r"""Scatter component analysis on Nystrom features, in one pass over the rows.

    Parameters
    ----------
    {ten_components} {kernel} {scatter} {landmarks} {seed}

    {fast_sections}

    {fast_example}
    """

    _method = staticmethod(scatter.sca)


@with_shared_arguments
@arguments
class FastMDA(LandmarkArguments, ScatterMethod, FastProjection):
    r"""Multidomain discriminant analysis on Nystrom features, in one pass over the rows.

    Parameters
    ----------
    {class_components} {kernel} {scatter} {landmarks} {seed}

    {fast_sections}

    {fast_example}
    """

    _method = staticmethod(scatter.mda)


@with_shared_arguments
@arguments
class FastMIDA(LandmarkArguments, MIDAMethod, FastProjection):
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

    _relative_shift = float("inf")  # leading eigenvectors forgive rounding as a ridge does
