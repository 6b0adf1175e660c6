"""FastSCA, FastMDA and FastMIDA: the same methods on Nystrom features."""

from __future__ import annotations

from typing import Any

from domainwise.estimators.arguments import keep_arguments, with_shared_arguments
from domainwise.estimators.family import MIDAMethod, ScatterMethod
from domainwise.estimators.fast_base import FastProjection
from domainwise.methods import scatter


class FastScatterProjection(ScatterMethod, FastProjection):
    """The arguments of FastSCA and FastMDA."""

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: Any = "rbf",
        gamma: float | str = "median",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        between: float = 0.5,
        domain_weight: float = 1.0,
        within_weight: float = 1.0,
        ridge: float = 1e-3,
        n_landmarks: Any = "auto",
        landmarks: Any = "uniform",
        feature_map: str = "nystroem",
        random_state: Any = None,
    ) -> None:
        keep_arguments(self, locals())


@with_shared_arguments
class FastSCA(FastScatterProjection):
    r"""Scatter component analysis on Nystrom features, in one pass over the rows.

    Parameters
    ----------
    {ten_components} {kernel} {scatter} {landmarks} {seed}

    Attributes
    ----------
    {fast_fitted}

    See Also
    --------
    SCA : The exact method, and its definition.

    Examples
    --------
    >>> from domainwise import FastSCA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> model = FastSCA(n_components=3, n_landmarks=200).fit(
    ...     data.data, data.target, sample_domain=data.sample_domain
    ... )
    >>> model.transform(data.data[:2]).shape
    (2, 3)
    """

    _method = staticmethod(scatter.sca)


@with_shared_arguments
class FastMDA(FastScatterProjection):
    r"""Multidomain discriminant analysis on Nystrom features, in one pass over the rows.

    Parameters
    ----------
    {class_components} {kernel} {scatter} {landmarks} {seed}

    Attributes
    ----------
    {fast_fitted}

    See Also
    --------
    MDA : The exact method, and its definition.

    Examples
    --------
    >>> from domainwise import FastMDA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> model = FastMDA(n_landmarks=200).fit(
    ...     data.data, data.target, sample_domain=data.sample_domain
    ... )
    >>> model.transform(data.data[:2]).shape
    (2, 1)
    """

    _method = staticmethod(scatter.mda)


@with_shared_arguments
class FastMIDA(MIDAMethod, FastProjection):
    r"""Maximum independence domain adaptation on Nystrom features, in one pass over the rows.

    ``y`` is accepted and ignored.

    Parameters
    ----------
    {ten_components} {kernel} {domain} {independence} {landmarks} {seed}

    Attributes
    ----------
    {fast_fitted}

    See Also
    --------
    MIDA : The exact method, and its definition.

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

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: Any = "rbf",
        gamma: float | str = "median",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        domain_kernel: Any = "auto",
        domain_gamma: float | str = "median",
        domain_weight: float = 1.0,
        n_landmarks: Any = "auto",
        landmarks: Any = "uniform",
        feature_map: str = "nystroem",
        random_state: Any = None,
    ) -> None:
        keep_arguments(self, locals())
