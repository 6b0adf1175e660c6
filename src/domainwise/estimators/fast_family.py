"""FastSCA, FastMDA and FastMIDA: the same methods on Nystrom features."""

from __future__ import annotations

from typing import Any, ClassVar

from domainwise.checks.inputs import (
    COUNT,
    DOMAIN_CONSTRAINTS,
    KERNEL_CONSTRAINTS,
    LANDMARK_CONSTRAINTS,
    NON_NEGATIVE,
    UNIT_INTERVAL,
)
from domainwise.estimators.arguments import with_shared_docs
from domainwise.estimators.family import ScatterMethod
from domainwise.estimators.fast_base import FastProjection
from domainwise.gram import Gram
from domainwise.labels.factors import LabelSpace
from domainwise.methods import mida, scatter
from domainwise.methods.components import Components


class FastScatterProjection(ScatterMethod, FastProjection):
    """The arguments of FastSCA and FastMDA."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        **KERNEL_CONSTRAINTS,
        "between": [UNIT_INTERVAL],
        "domain_weight": [NON_NEGATIVE],
        "within_weight": [NON_NEGATIVE],
        "ridge": [NON_NEGATIVE],
        **LANDMARK_CONSTRAINTS,
    }

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
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.between = between
        self.domain_weight = domain_weight
        self.within_weight = within_weight
        self.ridge = ridge
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.random_state = random_state


@with_shared_docs
class FastSCA(FastScatterProjection):
    r"""Scatter component analysis on Nystrom features, in one pass over the rows.

    Parameters
    ----------
    {ten_components}
    {kernel}
    {scatter}
    {landmarks}
    {seed}

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


@with_shared_docs
class FastMDA(FastScatterProjection):
    r"""Multidomain discriminant analysis on Nystrom features, in one pass over the rows.

    Parameters
    ----------
    {class_components}
    {kernel}
    {scatter}
    {landmarks}
    {seed}

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


@with_shared_docs
class FastMIDA(FastProjection):
    r"""Maximum independence domain adaptation on Nystrom features, in one pass over the rows.

    ``y`` is accepted and ignored.

    Parameters
    ----------
    {ten_components}
    {kernel}
    {domain}
    {independence}
    {landmarks}
    {seed}

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

    _uses_target = False
    _relative_shift = float("inf")  # leading eigenvectors forgive rounding as a ridge does
    #: How closely kernels of continuous descriptors are followed: as FastDCM's with this epsilon.
    epsilon = 1e-5

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        **KERNEL_CONSTRAINTS,
        **DOMAIN_CONSTRAINTS,
        "domain_weight": [NON_NEGATIVE],
        **LANDMARK_CONSTRAINTS,
    }

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
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.domain_kernel = domain_kernel
        self.domain_gamma = domain_gamma
        self.domain_weight = domain_weight
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.random_state = random_state

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        return mida.mida(
            gram, labels, n_components=self.n_components, domain_weight=self.domain_weight
        )
