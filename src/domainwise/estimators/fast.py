"""FastDCM, FastCOIR, FastDICA and FastKPCA: the same methods on Nystrom features."""

from __future__ import annotations

from typing import Any, ClassVar

from domainwise.checks.inputs import (
    COUNT,
    DOMAIN_CONSTRAINTS,
    KERNEL_CONSTRAINTS,
    LANDMARK_CONSTRAINTS,
    NON_NEGATIVE,
    NON_NEGATIVE_OR_INF,
    POSITIVE,
    TARGET_CONSTRAINTS,
)
from domainwise.estimators.arguments import with_shared_docs
from domainwise.estimators.fast_base import FastProjection
from domainwise.gram import Gram
from domainwise.labels.factors import LabelSpace
from domainwise.methods import pencils
from domainwise.methods.components import Components


@with_shared_docs
class FastDCM(FastProjection):
    r"""Domain-based covariance minimization on Nystrom features, in one pass over the rows.

    DCM with the Gram matrix replaced by ``k(X, landmarks) k(landmarks, landmarks)^-1 k(landmarks,
    X)``. Time is linear in the number of rows and memory does not depend on it; with every row as
    a landmark the result is that of :class:`DCM`.

    Parameters
    ----------
    {n_components}
    {kernel}
    {target}
    {domain}
    {epsilon}
    {ridge}
    {domain_weight}
    {landmarks}
    {target_landmarks}
    {seed}

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        **KERNEL_CONSTRAINTS,
        **TARGET_CONSTRAINTS,
        **DOMAIN_CONSTRAINTS,
        "epsilon": [NON_NEGATIVE],
        "ridge": [NON_NEGATIVE_OR_INF],
        "domain_weight": [NON_NEGATIVE],
        "conditional": ["boolean"],
        **LANDMARK_CONSTRAINTS,
        "target_landmarks": ["array-like", tuple, None],
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
        target_kernel: Any = "auto",
        target_gamma: float | str = "median",
        domain_kernel: Any = "auto",
        domain_gamma: float | str = "median",
        epsilon: float = 1e-3,
        ridge: float = 1e-3,
        domain_weight: float = 1.0,
        conditional: bool = False,
        n_landmarks: Any = "auto",
        landmarks: Any = "uniform",
        target_landmarks: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.target_kernel = target_kernel
        self.target_gamma = target_gamma
        self.domain_kernel = domain_kernel
        self.domain_gamma = domain_gamma
        self.epsilon = epsilon
        self.ridge = ridge
        self.domain_weight = domain_weight
        self.conditional = conditional
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.target_landmarks = target_landmarks
        self.random_state = random_state

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        return pencils.dcm(
            gram,
            labels,
            n_components=self.n_components,
            continuous=continuous,
            epsilon=self.epsilon,
            ridge=self.ridge,
            domain_weight=self.domain_weight,
        )


@with_shared_docs
class FastCOIR(FastProjection):
    r"""Covariance operator inverse regression on Nystrom features, in one pass over the rows.

    ``sample_domain`` is accepted and ignored, so that methods can be swapped in a pipeline.

    Parameters
    ----------
    {n_components}
    {kernel}
    {target}
    {epsilon}
    {ridge}
    {landmarks}
    {target_landmarks}
    {seed}

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

    _uses_domain = False
    _needs_target = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        **KERNEL_CONSTRAINTS,
        **TARGET_CONSTRAINTS,
        "epsilon": [NON_NEGATIVE],
        "ridge": [NON_NEGATIVE_OR_INF],
        **LANDMARK_CONSTRAINTS,
        "target_landmarks": ["array-like", tuple, None],
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
        target_kernel: Any = "auto",
        target_gamma: float | str = "median",
        epsilon: float = 1e-3,
        ridge: float = 1e-3,
        n_landmarks: Any = "auto",
        landmarks: Any = "uniform",
        target_landmarks: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.target_kernel = target_kernel
        self.target_gamma = target_gamma
        self.epsilon = epsilon
        self.ridge = ridge
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.target_landmarks = target_landmarks
        self.random_state = random_state

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        return pencils.dcm(
            gram,
            labels,
            n_components=self.n_components,
            continuous=continuous,
            epsilon=self.epsilon,
            ridge=self.ridge,
            domain_weight=0.0,
        )


@with_shared_docs
class FastDICA(FastProjection):
    r"""Domain-invariant component analysis on Nystrom features, in one pass over the rows.

    Without ``y`` it is the unsupervised form.

    Parameters
    ----------
    {n_components}
    {kernel}
    {target}
    {epsilon}
    lam : float, default=1e-3
        Regularisation of the right side, not multiplied by the number of rows.
    {landmarks}
    {target_landmarks}
    {seed}

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        **KERNEL_CONSTRAINTS,
        **TARGET_CONSTRAINTS,
        "epsilon": [NON_NEGATIVE],
        "lam": [POSITIVE],
        **LANDMARK_CONSTRAINTS,
        "target_landmarks": ["array-like", tuple, None],
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
        target_kernel: Any = "auto",
        target_gamma: float | str = "median",
        epsilon: float = 1e-3,
        lam: float = 1e-3,
        n_landmarks: Any = "auto",
        landmarks: Any = "uniform",
        target_landmarks: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.target_kernel = target_kernel
        self.target_gamma = target_gamma
        self.epsilon = epsilon
        self.lam = lam
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.target_landmarks = target_landmarks
        self.random_state = random_state

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        return pencils.dica(
            gram,
            labels,
            n_components=self.n_components,
            continuous=continuous,
            epsilon=self.epsilon,
            lam=self.lam,
        )


@with_shared_docs
class FastKPCA(FastProjection):
    r"""Kernel principal component analysis on Nystrom features, in one pass over the rows.

    ``y`` and ``sample_domain`` are accepted and ignored, so that methods can be swapped in a
    pipeline.

    Parameters
    ----------
    {n_components}
    {kernel}
    {landmarks}
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

    _uses_target = False
    _uses_domain = False
    _relative_shift = float("inf")  # leading eigenvectors forgive rounding as a ridge does

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [COUNT, None],
        **KERNEL_CONSTRAINTS,
        **LANDMARK_CONSTRAINTS,
        "target_landmarks": ["array-like", tuple, None],
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
        n_landmarks: Any = "auto",
        landmarks: Any = "uniform",
        target_landmarks: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.target_landmarks = target_landmarks
        self.random_state = random_state

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        return pencils.kpca(gram, n_components=self.n_components)
