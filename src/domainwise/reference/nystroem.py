"""Algorithm 2 (FastDCM) as printed, and the same problem in a stable form."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from domainwise.reference.common import (
    Matrix,
    ReferenceResult,
    check_components,
    leading,
    matrix,
    positive,
    square,
    unit_variance,
)


def algorithm2(
    C_x: ArrayLike,
    W_x: ArrayLike,
    C_y: ArrayLike,
    W_y: ArrayLike,
    C_d: ArrayLike,
    W_d: ArrayLike,
    K_z: ArrayLike | None = None,
    *,
    epsilon: float,
    n_components: int,
    domain_weight: float = 1.0,
) -> ReferenceResult:
    r"""FastDCM through Omega, V and Theta (the paper's Algorithm 2, line by line).

    The columns of every C are centred, so that the approximate kernels :math:`C W^+ C^\top` are.
    With :math:`S_{\alpha\beta} = C_\alpha^\top C_\beta`, eq. (omega) gives an M x M matrix
    :math:`\Omega`; V holds the eigenvectors of :math:`S_{xx}`, :math:`\Theta` those of
    :math:`V^\top \Omega V V^\top S_{xx} V`, and :math:`\tilde B = C_x V \Theta`. (V cancels: it
    is kept because the paper has it.) It solves, for the approximate kernels,

    .. math:: K_x (P_y K_x^2 + K_x) B = \left(K_x (w P_d K_x^2 + K_x) + N \epsilon I\right) B
        \Gamma

    but loses its accuracy for small epsilon and badly conditioned W_x;
    :func:`algorithm2_stable` does not.

    A C holds uncentred kernels between all points (rows) and landmarks, of which targets and
    domains may have their own, a W those among the landmarks, and ``K_z`` those between landmarks
    (rows) and new points. ``n_components`` is at most the number of landmarks, and the projected
    training points have unit variance.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.reference import algorithm2
    >>> X = np.random.default_rng(0).normal(size=(12, 4))
    >>> y, d = np.arange(12) % 2, np.arange(12) // 4
    >>> same = lambda a, b: (a[:, None] == b).astype(float)
    >>> s = np.arange(0, 12, 3)
    >>> kernels = [X @ X[s].T, X[s] @ X[s].T, same(y, y[s]), same(y[s], y[s])]
    >>> result = algorithm2(*kernels, same(d, d[s]), same(d[s], d[s]), epsilon=1e-3, n_components=2)
    >>> result.projected.shape
    (12, 2)
    """
    C, W, column_means = _landmark_kernel(C_x, W_x, "x")
    n_samples, n_landmarks = C.shape
    check_components(n_components, n_landmarks, "the number of landmarks")
    weight = positive(domain_weight, "domain_weight", zero=True)
    ridge = n_samples * positive(epsilon, "epsilon")
    W_inverse = _root_inverse(W) @ _root_inverse(W).T
    S = C.T @ C
    WSWS = W_inverse @ S @ W_inverse @ S
    dependence = {}
    for letter, C_other, W_other in (("y", C_y, W_y), ("d", C_d, W_d)):
        D, W_D, _ = _landmark_kernel(C_other, W_other, letter, n_samples)
        W_tilde = _root_inverse(W_D) @ _root_inverse(W_D).T
        middle = W_tilde @ np.linalg.inv(D.T @ D @ W_tilde + ridge * np.eye(D.shape[1]))
        cross = C.T @ D
        dependence[letter] = W_inverse @ cross @ middle @ cross.T @ W_inverse @ S @ W_inverse
    right = weight * dependence["d"] @ S + WSWS + ridge * np.eye(n_landmarks)
    left = dependence["y"] + W_inverse @ S @ W_inverse
    omega = np.linalg.solve(right, left)
    _, V = np.linalg.eigh(S)
    gammas, theta = np.linalg.eig(V.T @ omega @ V @ V.T @ S @ V)
    gammas, theta = leading(gammas, theta, n_components)
    B = C @ (V @ theta)
    extension = W_inverse @ (C.T @ B)
    return _nystroem_result(gammas, B, C, extension, K_z, column_means)


def algorithm2_stable(
    C_x: ArrayLike,
    W_x: ArrayLike,
    C_y: ArrayLike,
    W_y: ArrayLike,
    C_d: ArrayLike,
    W_d: ArrayLike,
    K_z: ArrayLike | None = None,
    *,
    epsilon: float,
    n_components: int,
    domain_weight: float = 1.0,
) -> ReferenceResult:
    r"""Solve the problem of :func:`algorithm2` as a symmetric-definite one.

    With :math:`\Phi = C_x W_x^{-1/2}` (columns centred), :math:`S = \Phi^\top \Phi` and
    :math:`A_\alpha = \Phi^\top P_\alpha \Phi`,

    .. math:: (S A_y S + S^2) b = \gamma (w S A_d S + S^2 + N \epsilon I) b

    has the eigenvalues of Algorithm 2; the training points project to :math:`\Phi b` and the
    coefficients are :math:`\Phi S^+ b`. Eigenvalues of W_x below M eps relative are dropped, and
    ``n_components`` is at most its rank. The projections do not go through the coefficients, which
    alone suffer where S is badly conditioned.
    """
    C, W, column_means = _landmark_kernel(C_x, W_x, "x")
    n_samples = len(C)
    weight = positive(domain_weight, "domain_weight", zero=True)
    ridge = n_samples * positive(epsilon, "epsilon")
    root = _root_inverse(W)
    check_components(n_components, root.shape[1], "the rank of W_x")
    phi = C @ root
    S = phi.T @ phi
    dependence = {}
    for letter, C_other, W_other in (("y", C_y, W_y), ("d", C_d, W_d)):
        D, W_D, _ = _landmark_kernel(C_other, W_other, letter, n_samples)
        features = D @ _root_inverse(W_D)
        gram = features.T @ features + ridge * np.eye(features.shape[1])
        cross = features.T @ phi @ S
        dependence[letter] = cross.T @ scipy.linalg.solve(gram, cross, assume_a="pos")
    left = dependence["y"] + S @ S
    right = weight * dependence["d"] + S @ S + ridge * np.eye(len(S))
    gammas, b = scipy.linalg.eigh((left + left.T) / 2, (right + right.T) / 2)
    gammas, b = gammas[::-1][:n_components], b[:, ::-1][:, :n_components]
    B = phi @ (np.linalg.pinv(S, hermitian=True) @ b)
    return _nystroem_result(gammas, B, C, root @ b, K_z, column_means)


def _nystroem_result(
    gammas: Matrix,
    B: Matrix,
    C: Matrix,
    extension: Matrix,
    K_z: ArrayLike | None,
    column_means: Matrix,
) -> ReferenceResult:
    """Project rows of centred landmark kernels by ``extension``, the paper's W_x C_x' B."""
    scale = unit_variance(C @ extension)
    B, extension = B * scale, extension * scale
    new = None
    if K_z is not None:
        values = matrix(K_z, "K_z")
        if len(values) != C.shape[1]:
            raise ValueError(f"K_z has {len(values)} rows but C_x has {C.shape[1]} columns")
        new = (values.T - column_means) @ extension
    return ReferenceResult(gammas, B, C @ extension, new)


def _root_inverse(W: Matrix) -> Matrix:
    """R with R R' the pseudo-inverse of W."""
    values, vectors = scipy.linalg.eigh(W)
    nonzero = values > len(W) * np.finfo(np.float64).eps * values[-1]
    root: Matrix = vectors[:, nonzero] / np.sqrt(values[nonzero])
    return root


def _landmark_kernel(
    C: ArrayLike, W: ArrayLike, letter: str, n_samples: int | None = None
) -> tuple[Matrix, Matrix, Matrix]:
    columns = matrix(C, f"C_{letter}")
    if n_samples is not None and len(columns) != n_samples:
        raise ValueError(f"C_{letter} has {len(columns)} rows but C_x has {n_samples}")
    means: Matrix = columns.mean(axis=0)
    return columns - means, square(W, f"W_{letter}", columns.shape[1]), means
