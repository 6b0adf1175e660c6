"""Algorithm 1 and the original DICA: dense non-symmetric eigenproblems of size N."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from domainwise.checks import warn_caller
from domainwise.reference.common import (
    Matrix,
    ReferenceResult,
    centre,
    check_components,
    leading,
    matrix,
    positive,
    square,
    unit_variance,
)


def algorithm1(
    K_x: ArrayLike,
    K_y: ArrayLike,
    K_d: ArrayLike,
    K_z: ArrayLike | None = None,
    *,
    epsilon: float,
    n_components: int,
    domain_weight: float = 1.0,
) -> ReferenceResult:
    r"""DCM by a dense generalized eigenproblem (the paper's Algorithm 1).

    .. math:: (P_y K_x^2 + K_x) B = (w P_d K_x^2 + K_x) B \Gamma, \qquad
        P_\alpha = K_\alpha (K_\alpha + N \epsilon I)^{-1}

    With :math:`K_x = U \Lambda U^\top` (eigenvalues above N eps relative), :math:`\beta = U
    \Lambda^{-1} a` turns it into :math:`(U^\top P_y U \Lambda + I) a = \gamma (w U^\top P_d U
    \Lambda + I) a`, which QZ solves. All but rank(K_y) + rank(K_d) eigenvalues equal 1, and their
    eigenvectors are arbitrary. ``n_components`` is at most the rank of the centred K_x, and the
    projected training points have unit variance.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.reference import algorithm1
    >>> X = np.random.default_rng(0).normal(size=(12, 12))
    >>> y, d = np.arange(12) % 2, np.arange(12) // 4
    >>> same = lambda a: (a[:, None] == a).astype(float)
    >>> result = algorithm1(X @ X.T, same(y), same(d), epsilon=1e-3, n_components=2)
    >>> bool(result.eigenvalues[0] > 1), bool(np.isclose(result.eigenvalues[1], 1))
    (True, True)
    """
    K_raw = square(K_x, "K_x")
    n_samples = len(K_raw)
    P_y = _smoother(square(K_y, "K_y", n_samples), epsilon)
    P_d = _smoother(square(K_d, "K_d", n_samples), epsilon)
    weight = positive(domain_weight, "domain_weight", zero=True)
    values, vectors = scipy.linalg.eigh(centre(K_raw))
    nonzero = values > n_samples * np.finfo(np.float64).eps * values[-1]
    scale, U = values[nonzero], vectors[:, nonzero]
    check_components(n_components, len(scale), "the rank of the centred K_x")
    identity = np.eye(len(scale))
    gammas, W = scipy.linalg.eig(
        (U.T @ P_y @ U) * scale + identity, weight * (U.T @ P_d @ U) * scale + identity
    )
    gammas, W = leading(gammas, W, n_components)
    # K_x B = U W, without the rounding of dividing by small eigenvalues and multiplying again.
    W = W * unit_variance(U @ W)
    B = U @ (W / scale[:, None])
    new = None if K_z is None else project(K_raw, K_z, B)
    return ReferenceResult(gammas, B, U @ W, new)


def dica_original(
    K_x: ArrayLike,
    K_y: ArrayLike | None,
    sample_domain: ArrayLike,
    K_z: ArrayLike | None = None,
    *,
    epsilon: float,
    lam: float,
    n_components: int,
) -> ReferenceResult:
    r"""Domain-invariant component analysis with the scaling of its authors' code.

    .. math:: P_y K^2 \beta = \gamma (K L K + K + \lambda I) \beta

    where :math:`L_{ij}` is :math:`(T - 1)/(T^2 n_g^2)` for two points of the same domain g and
    :math:`-1/(T^2 n_g n_h)` for domains g and h. Each :math:`\beta` is scaled to unit norm and
    divided by :math:`\sqrt\gamma` (K. Muandet, D. Balduzzi, B. Schoelkopf, ICML 2013).

    Without ``K_y`` it is the unsupervised variant, P_y = I. New points are centred with the
    training means, not with those of their batch as in the authors' code. At most rank(P_y)
    eigenvalues are real and positive; where fewer than ``n_components`` are, fewer components are
    returned, with a RuntimeWarning.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.reference import dica_original
    >>> X = np.random.default_rng(0).normal(size=(12, 4))
    >>> result = dica_original(
    ...     X @ X.T, None, np.arange(12) // 4, epsilon=1e-3, lam=1e-3, n_components=2
    ... )
    >>> result.projected.shape
    (12, 2)
    """
    K_raw = square(K_x, "K_x")
    n_samples = len(K_raw)
    positive(lam, "lam")
    check_components(n_components, n_samples - 1, "n_samples - 1")
    K = centre(K_raw)
    left = K @ K
    if K_y is not None:
        left = _smoother(square(K_y, "K_y", n_samples), epsilon) @ left
    L = _distribution_matrix(np.asarray(sample_domain), n_samples)
    gammas, vectors = scipy.linalg.eig(left, K @ L @ K + K + lam * np.eye(n_samples))
    usable = (np.abs(gammas.imag) <= 1e-8 * np.abs(gammas)) & (
        gammas.real > 1e-10 * np.abs(gammas).max()
    )
    if usable.sum() < n_components:
        warn_caller(
            f"n_components={n_components} but DICA has {usable.sum()} real positive eigenvalues;"
            " returning those",
            RuntimeWarning,
        )
    chosen = min(n_components, int(usable.sum()))
    gammas, B = leading(gammas[usable], vectors[:, usable], chosen)
    B = B / (np.linalg.norm(B, axis=0) * np.sqrt(gammas))
    new = None if K_z is None else project(K_raw, K_z, B)
    return ReferenceResult(gammas, B, K @ B, new)


def project(K_x: ArrayLike, K_z: ArrayLike, coefficients: ArrayLike) -> NDArray[np.float64]:
    """Project points by the ``coefficients`` of a result on ``K_x``, one by one.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.reference import project
    >>> K = np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> project(K, K, [[1.0], [-1.0]])
    array([[ 2.],
           [-2.]])
    """
    K = square(K_x, "K_x")
    new = matrix(K_z, "K_z")
    B = matrix(coefficients, "coefficients")
    for name, values in (("K_z", new), ("coefficients", B)):
        if len(values) != len(K):
            raise ValueError(f"{name} has {len(values)} rows but K_x has {len(K)}")
    means = K.mean(axis=1)
    centred = new - new.mean(axis=0) - means[:, None] + means.mean()
    projected: Matrix = centred.T @ B
    return projected


def _smoother(K: Matrix, epsilon: float) -> Matrix:
    """P = K (K + N epsilon I)^-1 with K centred."""
    centred = centre(K)
    shifted = centred + len(K) * positive(epsilon, "epsilon") * np.eye(len(K))
    P: Matrix = scipy.linalg.solve(shifted, centred, assume_a="sym")
    return (P + P.T) / 2


def _distribution_matrix(sample_domain: NDArray[Any], n_samples: int) -> Matrix:
    if sample_domain.shape != (n_samples,):
        raise ValueError(
            f"sample_domain has shape {sample_domain.shape} but K_x has {n_samples} rows"
        )
    _, codes, counts = np.unique(sample_domain, return_inverse=True, return_counts=True)
    n_domains = len(counts)
    size = counts[codes].astype(np.float64)
    same = codes[:, None] == codes[None, :]
    L: Matrix = (n_domains * same - 1.0) / (n_domains**2 * np.outer(size, size))
    return L
