r"""The paper's algorithms as published, with dense computations on precomputed kernel matrices.

They are slow and share no code with the estimators. The tests compare the estimators with them, and
``domainwise reproduce`` runs them.

Matrices are laid out as in the paper: ``K_x[i, j] = k(x_i, x_j)``, and a kernel between training
points and new points has the **training points as rows**, ``K_z[i, j] = k(x_i, z_j)``. Projected
points are returned as rows. Pass uncentred kernels: every function centres them with the training
means, because the paper assumes feature maps with mean zero. ``K_x``, ``K_y`` and ``K_d`` are the
kernel matrices of points, targets and domains, ``epsilon`` is the positive regularization of the
label kernels, and ``domain_weight`` is the factor w of the domain term: 1 in the paper, 0 for COIR.
Eigenvalues are real in exact arithmetic. If rounding makes an eigenvalue complex (relative
imaginary part above 1e-8), its real part is used, with a RuntimeWarning.

Differences from the paper, where its text cannot be run as printed (theory 10.1):

* Algorithm 1's pencil (pair of matrices) is singular if K_x is centred, and LAPACK's QZ then
  returns spurious leading eigenvalues. The pencil is restricted to the range of K_x.
* Algorithm 2 inverts W_y and W_d, which are singular for delta kernels. Pseudo-inverses are used.
* Step 6 of Algorithm 2 multiplies two matrices whose shapes do not match. The Nyström extension
  to new points, :math:`\tilde B^\top C_x \tilde W_x K_z`, is used instead.

Algorithm 2 differs from Algorithm 1 even if every point is a landmark. It adds :math:`N\epsilon I`
to the right matrix of its pencil, which orders directions with eigenvalue 1 by variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from domainwise.checks import warn_caller

__all__ = [
    "ReferenceResult",
    "algorithm1",
    "algorithm2",
    "algorithm2_stable",
    "dica_original",
    "project",
]

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class ReferenceResult:
    """The result of a reference algorithm, with one column per component."""

    eigenvalues: Matrix  #: real parts, largest first
    coefficients: Matrix  #: the paper's B: centred kernel values k are projected to B'k
    projected: Matrix  #: projected training points: the paper's K_x tilde, transposed
    projected_new: Matrix | None = None  #: projected new points, if ``K_z`` was passed


def leading_eigenpairs(
    gammas: NDArray[Any], vectors: NDArray[Any], n_components: int
) -> tuple[Matrix, Matrix]:
    """Return the eigenpairs with the largest real parts; warn if any of them is complex."""
    order = np.argsort(-gammas.real, kind="stable")[:n_components]
    leading_values = gammas[order]
    n_complex = int((np.abs(np.imag(leading_values)) > 1e-8 * np.abs(leading_values)).sum())
    if n_complex:
        warn_caller(
            f"{n_complex} of the {len(leading_values)} leading eigenvalues are complex because of "
            "rounding errors. Only their real parts are used.",
            RuntimeWarning,
        )
    return leading_values.real, vectors[:, order].real


def unit_variance_factors(projected: Matrix) -> Matrix:
    """Return factors that scale centred columns to variance 1; zero columns have factor 1."""
    deviations = np.sqrt(np.mean(projected**2, axis=0))
    return np.asarray(1.0 / np.where(deviations <= 1e-12 * deviations.max(), 1.0, deviations))


def centre(K: Matrix) -> Matrix:
    """Centre a symmetric kernel matrix: subtract the means of its rows and columns."""
    means = K.mean(axis=0)
    return np.asarray(K - means - means[:, None] + means.mean())


def check_matrix(values: ArrayLike, name: str) -> Matrix:
    """Return ``values`` as a matrix; raise ValueError if it is empty or not finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must be a non-empty 2-D array; got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} contains NaN or infinity. Remove points with missing or infinite features."
        )
    return array


def check_symmetric(values: ArrayLike, name: str, size: int | None = None) -> Matrix:
    """Return ``values`` as a matrix; raise ValueError unless it is symmetric with this size."""
    array = check_matrix(values, name)
    expected_size = len(array) if size is None else size
    if array.shape != (expected_size, expected_size):
        raise ValueError(
            f"{name} must have shape {(expected_size, expected_size)}; got {array.shape}. Pass the "
            "kernel values between all pairs of points."
        )
    if not np.allclose(array, array.T, rtol=1e-8, atol=1e-10 * np.abs(array).max()):
        raise ValueError(f"{name} must be symmetric. Pass a symmetric kernel matrix.")
    return (array + array.T) / 2


def check_positive(value: float, name: str, *, allow_zero: bool = False) -> float:
    """Return a number; raise ValueError unless it is finite and positive (or 0, if allowed)."""
    if not np.isfinite(value) or value < 0 or (value == 0 and not allow_zero):
        requirement = "non-negative" if allow_zero else "positive"
        raise ValueError(f"{name} must be a finite {requirement} number; got {value!r}")
    return float(value)


def check_components(n_components: int, maximum: int, meaning: str) -> None:
    """Raise ValueError unless ``n_components`` is between 1 and ``maximum``."""
    if not 1 <= n_components <= maximum:
        raise ValueError(
            f"n_components must be between 1 and {maximum} ({meaning}); got {n_components}"
        )


# Dense eigenproblems of size N --------------------------------------------------------------------


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

    With :math:`K_x = U \Lambda U^\top` (eigenvalues above N times machine epsilon times the largest
    one), a column of B is :math:`U \Lambda^{-1} a`, where :math:`(U^\top P_y U \Lambda + I) a =
    \gamma (w U^\top P_d U \Lambda + I) a`. QZ solves this problem. All but rank(K_y) + rank(K_d)
    eigenvalues equal 1, and their eigenvectors are arbitrary. ``n_components`` is at most the rank
    of the centred K_x, and the projected training points have unit variance.

    Returns
    -------
    result : ReferenceResult
        Projection and eigenvalues.

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
    K_raw = check_symmetric(K_x, "K_x")
    n_samples = len(K_raw)
    P_y = _smoother(check_symmetric(K_y, "K_y", n_samples), epsilon)
    P_d = _smoother(check_symmetric(K_d, "K_d", n_samples), epsilon)
    weight = check_positive(domain_weight, "domain_weight", allow_zero=True)
    eigenvalues, eigenvectors = scipy.linalg.eigh(centre(K_raw))
    is_nonzero = eigenvalues > n_samples * np.finfo(np.float64).eps * eigenvalues[-1]
    eigenvalues, U = eigenvalues[is_nonzero], eigenvectors[:, is_nonzero]
    check_components(n_components, len(eigenvalues), "the rank of the centred K_x")
    identity = np.eye(len(eigenvalues))
    gammas, A = scipy.linalg.eig(
        (U.T @ P_y @ U) * eigenvalues + identity, weight * (U.T @ P_d @ U) * eigenvalues + identity
    )
    gammas, A = leading_eigenpairs(gammas, A, n_components)
    # K_x B is computed as U A, without rounding errors from dividing by small eigenvalues.
    A = A * unit_variance_factors(U @ A)
    B = U @ (A / eigenvalues[:, None])
    return ReferenceResult(gammas, B, U @ A, None if K_z is None else project(K_raw, K_z, B))


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

    where :math:`L_{ij}` is :math:`(T - 1)/(T^2 n_g^2)` for two points in the same domain g and
    :math:`-1/(T^2 n_g n_h)` for points in different domains g and h. There are T domains, and
    :math:`n_g` points in domain g. Each :math:`\beta` is scaled to unit norm and divided by
    :math:`\sqrt\gamma` (K. Muandet, D. Balduzzi, B. Schoelkopf, ICML 2013).

    Without ``K_y``, this is the unsupervised variant, P_y = I. New points are centred with the
    training means; the authors' code uses the means of the new points instead. At most rank(P_y)
    eigenvalues are real and positive, so fewer components may be returned, with a RuntimeWarning.

    Returns
    -------
    result : ReferenceResult
        Projection and eigenvalues.

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
    K_raw = check_symmetric(K_x, "K_x")
    n_samples = len(K_raw)
    regularization = check_positive(lam, "lam") * np.eye(n_samples)
    check_components(n_components, n_samples - 1, "n_samples - 1")
    K = centre(K_raw)
    left = K @ K
    if K_y is not None:
        left = _smoother(check_symmetric(K_y, "K_y", n_samples), epsilon) @ left
    domains = np.asarray(sample_domain)
    if domains.shape != (n_samples,):
        raise ValueError(
            f"sample_domain has shape {domains.shape}, but K_x has {n_samples} rows. Pass one "
            "domain per row."
        )
    _, domain_codes, counts = np.unique(domains, return_inverse=True, return_counts=True)
    n_domains, sizes = len(counts), counts[domain_codes].astype(np.float64)
    is_same_domain = domain_codes[:, None] == domain_codes
    L = (n_domains * is_same_domain - 1.0) / (n_domains**2 * np.outer(sizes, sizes))
    gammas, vectors = scipy.linalg.eig(left, K @ L @ K + K + regularization)
    magnitudes = np.abs(gammas)
    is_real = np.abs(gammas.imag) <= 1e-8 * magnitudes
    is_usable = is_real & (gammas.real > 1e-10 * magnitudes.max())
    if is_usable.sum() < n_components:
        warn_caller(
            f"n_components={n_components}, but DICA has only {is_usable.sum()} real positive "
            "eigenvalues. Only their components are returned; reduce n_components.",
            RuntimeWarning,
        )
    gammas, B = leading_eigenpairs(gammas[is_usable], vectors[:, is_usable], n_components)
    B = B / (np.linalg.norm(B, axis=0) * np.sqrt(gammas))
    return ReferenceResult(gammas, B, K @ B, None if K_z is None else project(K_raw, K_z, B))


def project(K_x: ArrayLike, K_z: ArrayLike, coefficients: ArrayLike) -> NDArray[np.float64]:
    """Project new points with the ``coefficients`` that were computed from ``K_x``.

    The projection of a point does not depend on the other new points.

    Returns
    -------
    Z : ndarray of shape (n_samples, n_components)
        Components of the new points.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.reference import project
    >>> K = np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> project(K, K, [[1.0], [-1.0]])
    array([[ 2.],
           [-2.]])
    """
    K = check_symmetric(K_x, "K_x")
    K_new = check_matrix(K_z, "K_z")
    B = check_matrix(coefficients, "coefficients")
    for name, values in (("K_z", K_new), ("coefficients", B)):
        if len(values) != len(K):
            raise ValueError(
                f"{name} has {len(values)} rows but K_x has {len(K)}. Pass one row per training "
                "point."
            )
    means = K.mean(axis=1)
    return np.asarray((K_new - K_new.mean(axis=0) - means[:, None] + means.mean()).T @ B)


def _smoother(K: Matrix, epsilon: float) -> Matrix:
    """Return P = K (K + N epsilon I)^-1 for the centred K."""
    centred = centre(K)
    regularized = centred + len(K) * check_positive(epsilon, "epsilon") * np.eye(len(K))
    P: Matrix = scipy.linalg.solve(regularized, centred, assume_a="sym")
    return (P + P.T) / 2


# FastDCM ------------------------------------------------------------------------------------------


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
    r"""FastDCM with the paper's matrices Omega, V and Theta (Algorithm 2, line by line).

    Each C is the uncentred kernel between all points (rows) and landmarks, each W the kernel
    between landmarks, and ``K_z`` the kernel between landmarks (rows) and new points. Targets and
    domains may have their own landmarks. ``n_components`` is at most the number of landmarks of
    points, and the projected training points have unit variance.

    The columns of every C are centred, which centres the kernels :math:`C W^+ C^\top`. From the
    matrices :math:`S_{\alpha\beta} = C_\alpha^\top C_\beta`, the paper computes a matrix
    :math:`\Omega`; V contains the eigenvectors of :math:`S_{xx}`, :math:`\Theta` those of
    :math:`V^\top \Omega V V^\top S_{xx} V`, and :math:`\tilde B = C_x V \Theta`. (V cancels; it
    is computed because the paper computes it.) The algorithm solves, for the approximate kernels,

    .. math:: K_x (P_y K_x^2 + K_x) B = \left(K_x (w P_d K_x^2 + K_x) + N \epsilon I\right) B
        \Gamma

    but, unlike :func:`algorithm2_stable`, is inaccurate if epsilon is small or W_x ill-conditioned.

    Returns
    -------
    result : ReferenceResult
        Projection and eigenvalues.

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
    weight = check_positive(domain_weight, "domain_weight", allow_zero=True)
    ridge = n_samples * check_positive(epsilon, "epsilon")
    W_inverse = _root_inverse(W) @ _root_inverse(W).T
    S = C.T @ C
    WSWS = W_inverse @ S @ W_inverse @ S
    dependence = {}
    for letter, C_other, W_other in (("y", C_y, W_y), ("d", C_d, W_d)):
        D, W_D, _ = _landmark_kernel(C_other, W_other, letter, n_samples)
        W_D_inverse = _root_inverse(W_D) @ _root_inverse(W_D).T
        middle = W_D_inverse @ np.linalg.inv(D.T @ D @ W_D_inverse + ridge * np.eye(D.shape[1]))
        cross = C.T @ D
        dependence[letter] = W_inverse @ cross @ middle @ cross.T @ W_inverse @ S @ W_inverse
    right = weight * dependence["d"] @ S + WSWS + ridge * np.eye(n_landmarks)
    left = dependence["y"] + W_inverse @ S @ W_inverse
    omega = np.linalg.solve(right, left)
    _, V = np.linalg.eigh(S)
    gammas, theta = np.linalg.eig(V.T @ omega @ V @ V.T @ S @ V)
    gammas, theta = leading_eigenpairs(gammas, theta, n_components)
    B = C @ (V @ theta)
    return _nystroem_result(gammas, B, C, W_inverse @ (C.T @ B), K_z, column_means)


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
    r"""Solve the eigenproblem of :func:`algorithm2` in a symmetric-definite form.

    With :math:`\Phi = C_x W_x^{-1/2}` (columns centred), :math:`S = \Phi^\top \Phi` and
    :math:`A_\alpha = \Phi^\top P_\alpha \Phi`,

    .. math:: (S A_y S + S^2) b = \gamma (w S A_d S + S^2 + N \epsilon I) b

    has the eigenvalues of Algorithm 2. The training points are projected to :math:`\Phi b`, and the
    coefficients are :math:`\Phi S^+ b`. Eigenvalues of W_x that are zero up to rounding are
    dropped, and ``n_components`` is at most the rank of W_x. Projections are not computed from the
    coefficients, so only the coefficients are inaccurate if S is ill-conditioned.

    Returns
    -------
    result : ReferenceResult
        Projection and eigenvalues.
    """
    C, W, column_means = _landmark_kernel(C_x, W_x, "x")
    n_samples = len(C)
    weight = check_positive(domain_weight, "domain_weight", allow_zero=True)
    ridge = n_samples * check_positive(epsilon, "epsilon")
    root_inverse = _root_inverse(W)
    check_components(n_components, root_inverse.shape[1], "the rank of W_x")
    phi = C @ root_inverse
    S = phi.T @ phi
    dependence = {}
    for letter, C_other, W_other in (("y", C_y, W_y), ("d", C_d, W_d)):
        D, W_D, _ = _landmark_kernel(C_other, W_other, letter, n_samples)
        features = D @ _root_inverse(W_D)
        regularized = features.T @ features + ridge * np.eye(features.shape[1])
        cross = features.T @ phi @ S
        dependence[letter] = cross.T @ scipy.linalg.solve(regularized, cross, assume_a="pos")
    left = dependence["y"] + S @ S
    right = weight * dependence["d"] + S @ S + ridge * np.eye(len(S))
    gammas, b = scipy.linalg.eigh((left + left.T) / 2, (right + right.T) / 2)
    gammas, b = gammas[::-1][:n_components], b[:, ::-1][:, :n_components]
    B = phi @ (np.linalg.pinv(S, hermitian=True) @ b)
    return _nystroem_result(gammas, B, C, root_inverse @ b, K_z, column_means)


def _nystroem_result(
    gammas: Matrix,
    B: Matrix,
    C: Matrix,
    extension: Matrix,
    K_z: ArrayLike | None,
    column_means: Matrix,
) -> ReferenceResult:
    """Project rows of the centred landmark kernel with ``extension``, W_x^+ C_x' B."""
    scale = unit_variance_factors(C @ extension)
    B, extension = B * scale, extension * scale
    projected_new = None
    if K_z is not None:
        K_new = check_matrix(K_z, "K_z")
        if len(K_new) != C.shape[1]:
            raise ValueError(
                f"K_z has {len(K_new)} rows but C_x has {C.shape[1]} columns. Pass one row per "
                "landmark."
            )
        projected_new = (K_new.T - column_means) @ extension
    return ReferenceResult(gammas, B, C @ extension, projected_new)


def _root_inverse(W: Matrix) -> Matrix:
    """Return R such that R R' is the pseudo-inverse of W."""
    eigenvalues, eigenvectors = scipy.linalg.eigh(W)
    is_nonzero = eigenvalues > len(W) * np.finfo(np.float64).eps * eigenvalues[-1]
    return np.asarray(eigenvectors[:, is_nonzero] / np.sqrt(eigenvalues[is_nonzero]))


def _landmark_kernel(
    C: ArrayLike, W: ArrayLike, letter: str, n_samples: int | None = None
) -> tuple[Matrix, Matrix, Matrix]:
    """Check C and W of points (x), targets (y) or domains (d); return centred C, W, means of C."""
    values = check_matrix(C, f"C_{letter}")
    if n_samples is not None and len(values) != n_samples:
        raise ValueError(
            f"C_{letter} has {len(values)} rows but C_x has {n_samples}. Pass one row per point."
        )
    means: Matrix = values.mean(axis=0)
    return values - means, check_symmetric(W, f"W_{letter}", values.shape[1]), means
