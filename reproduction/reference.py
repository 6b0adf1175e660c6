r"""The algorithms of the DCM paper as published: dense computations with precomputed kernels.

They are slow and share no code with the estimators. The tests compare the estimators with them, and
``python -m reproduction`` runs them.

Matrices are laid out as in the paper: ``K_x[i, j] = k(x_i, x_j)``, and a kernel between training
points and new points has **one row per training point**, ``K_z[i, j] = k(x_i, z_j)``. Projected
points are returned as rows. Pass uncentred kernels: every function centres them with the training
means, because the paper assumes feature maps with mean zero. ``K_x``, ``K_y`` and ``K_d`` are the
kernel matrices of points, targets and domains, ``epsilon`` is the positive regularization of K_y
and K_d, and ``domain_weight`` is the factor w of the domain term: 1 in the paper, 0 for COIR. In
exact arithmetic, the eigenvalues of Algorithms 1 and 2 are real. If rounding makes one complex
(relative imaginary part above 1e-8), its real part is used, with a RuntimeWarning.

Differences from the paper, where its algorithms cannot be run as printed (theory 10.1):

* Algorithm 1's pencil (pair of matrices) is singular if K_x is centred, and LAPACK's QZ then
  returns spurious leading eigenvalues. The pencil is restricted to the range of K_x.
* Algorithm 2 inverts W_y and W_d, which are singular for delta kernels. Pseudo-inverses are used.
* Step 6 of Algorithm 2 multiplies two matrices whose shapes do not match. The Nyström extension
  to new points, :math:`\tilde B^\top C_x \tilde W_x K_z`, is used instead.

Algorithm 2 differs from Algorithm 1 even if every point is a landmark. It adds :math:`N\epsilon I`
to the right matrix of its pencil. Directions with eigenvalue 1 are thereby ordered by variance.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

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
    """The result of a reference algorithm; matrices have one column per component."""

    eigenvalues: Matrix  #: real parts, largest first
    coefficients: Matrix  #: the paper's B, which projects centred kernel values k to B'k
    projected: Matrix  #: projected training points (the paper's K_x tilde, transposed)
    projected_new: Matrix | None = None  #: projected new points, if ``K_z`` was passed


def leading_eigenpairs(
    eigenvalues: NDArray[Any], eigenvectors: NDArray[Any], n_components: int
) -> tuple[Matrix, Matrix]:
    """Return the eigenpairs with the largest real parts; warn if any of them are complex."""
    order = np.argsort(-eigenvalues.real, kind="stable")[:n_components]
    leading_values = eigenvalues[order]
    n_complex = int((np.abs(np.imag(leading_values)) > 1e-8 * np.abs(leading_values)).sum())
    if n_complex:
        warnings.warn(
            f"{n_complex} of the {len(leading_values)} leading eigenvalues are complex because of "
            "rounding errors. Only their real parts are used.",
            RuntimeWarning,
            stacklevel=2,
        )
    return leading_values.real, eigenvectors[:, order].real


def unit_variance_factors(projected: Matrix) -> Matrix:
    """Return a factor for each centred column that scales it to variance 1; 1 for zero columns."""
    sds = np.sqrt(np.mean(projected**2, axis=0))
    return np.asarray(1.0 / np.where(sds <= 1e-12 * sds.max(), 1.0, sds))


def centre(K: Matrix) -> Matrix:
    """Centre a symmetric kernel matrix: subtract the means of its rows and columns."""
    means = K.mean(axis=0)
    return np.asarray(K - means - means[:, None] + means.mean())


def check_matrix(values: ArrayLike, name: str) -> Matrix:
    """Check that ``values`` is a non-empty matrix without NaN or infinity, and return it."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must be a non-empty 2-D array; got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} contains NaN or infinity. Remove points with missing or infinite features."
        )
    return array


def check_symmetric(values: ArrayLike, name: str, size: int | None = None) -> Matrix:
    """Check that ``values`` is a symmetric matrix, with ``size`` rows if given, and return it."""
    array = check_matrix(values, name)
    expected_size = len(array) if size is None else size
    if array.shape != (expected_size, expected_size):
        raise ValueError(
            f"{name} must have shape {(expected_size, expected_size)}; got {array.shape}. Pass the "
            "kernel values between all pairs of points."
        )
    if not np.allclose(array, array.T, rtol=1e-8, atol=1e-10 * np.abs(array).max()):
        raise ValueError(f"{name} must be symmetric. Pass kernel values, with k(a, b) = k(b, a).")
    return (array + array.T) / 2


def check_positive(value: float, name: str, *, allow_zero: bool = False) -> float:
    """Return ``value``; raise ValueError unless it is finite and positive (or 0, if allowed)."""
    if not np.isfinite(value) or value < 0 or (value == 0 and not allow_zero):
        requirement = "non-negative" if allow_zero else "positive"
        raise ValueError(f"{name} must be a finite {requirement} number; got {value!r}")
    return float(value)


def check_components(n_components: int, maximum: int, maximum_meaning: str) -> None:
    """Raise ValueError unless ``n_components`` is between 1 and ``maximum``."""
    if not 1 <= n_components <= maximum:
        raise ValueError(
            f"n_components must be between 1 and {maximum} ({maximum_meaning}); got {n_components}"
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
    r"""Solve DCM as a dense generalized eigenproblem (the paper's Algorithm 1).

    .. math:: (P_y K_x^2 + K_x) B = (w P_d K_x^2 + K_x) B \Gamma, \qquad
        P_\alpha = K_\alpha (K_\alpha + N \epsilon I)^{-1}

    With :math:`K_x = U \Lambda U^\top` (only eigenvalues above N times machine epsilon times the
    largest one), a column of B is :math:`U \Lambda^{-1} a`, where :math:`(U^\top P_y U \Lambda + I)
    a = \gamma (w U^\top P_d U \Lambda + I) a`. QZ solves this problem. At most rank(K_y) +
    rank(K_d) eigenvalues differ from 1; eigenvectors for eigenvalue 1 are arbitrary. Projected
    training points have unit variance. ``n_components`` is at most the rank of the centred K_x.

    Returns
    -------
    result : ReferenceResult
        Projection and eigenvalues.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.reference import algorithm1
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
    K_eigenvalues, U = scipy.linalg.eigh(centre(K_raw))
    is_nonzero = K_eigenvalues > n_samples * np.finfo(np.float64).eps * K_eigenvalues[-1]
    K_eigenvalues, U = K_eigenvalues[is_nonzero], U[:, is_nonzero]
    check_components(n_components, len(K_eigenvalues), "the rank of the centred K_x")
    identity = np.eye(len(K_eigenvalues))
    left_matrix = (U.T @ P_y @ U) * K_eigenvalues + identity
    right_matrix = weight * (U.T @ P_d @ U) * K_eigenvalues + identity
    eigenvalues, A = scipy.linalg.eig(left_matrix, right_matrix)
    eigenvalues, A = leading_eigenpairs(eigenvalues, A, n_components)
    # K_x B is computed as U A, without rounding errors from dividing by small eigenvalues.
    A = A * unit_variance_factors(U @ A)
    B = U @ (A / K_eigenvalues[:, None])
    return ReferenceResult(eigenvalues, B, U @ A, None if K_z is None else project(K_raw, K_z, B))


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
    r"""Run domain-invariant component analysis, scaled as in its authors' code.

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
    >>> from reproduction.reference import dica_original
    >>> X = np.random.default_rng(0).normal(size=(12, 4))
    >>> result = dica_original(
    ...     X @ X.T, None, np.arange(12) // 4, epsilon=1e-3, lam=1e-3, n_components=2
    ... )
    >>> result.projected.shape
    (12, 2)
    """
    K_raw = check_symmetric(K_x, "K_x")
    n_samples = len(K_raw)
    lam_identity = check_positive(lam, "lam") * np.eye(n_samples)
    check_components(n_components, n_samples - 1, "n_samples - 1")
    K = centre(K_raw)
    left_matrix = K @ K
    if K_y is not None:
        left_matrix = _smoother(check_symmetric(K_y, "K_y", n_samples), epsilon) @ left_matrix
    domains = np.asarray(sample_domain)
    if domains.shape != (n_samples,):
        raise ValueError(
            f"sample_domain has shape {domains.shape}, but K_x has {n_samples} rows. Pass one "
            "domain per row."
        )
    _, domain_codes, domain_sizes = np.unique(domains, return_inverse=True, return_counts=True)
    n_domains, n_g = len(domain_sizes), domain_sizes[domain_codes].astype(np.float64)
    is_same_domain = domain_codes[:, None] == domain_codes
    L = (n_domains * is_same_domain - 1.0) / (n_domains**2 * np.outer(n_g, n_g))
    eigenvalues, B = scipy.linalg.eig(left_matrix, K @ L @ K + K + lam_identity)
    magnitudes = np.abs(eigenvalues)
    is_real = np.abs(eigenvalues.imag) <= 1e-8 * magnitudes
    is_usable = is_real & (eigenvalues.real > 1e-10 * magnitudes.max())
    if is_usable.sum() < n_components:
        warnings.warn(
            f"n_components={n_components}, but DICA has only {is_usable.sum()} real positive "
            "eigenvalues. Only their components are returned; reduce n_components.",
            RuntimeWarning,
            stacklevel=2,
        )
    eigenvalues, B = leading_eigenpairs(eigenvalues[is_usable], B[:, is_usable], n_components)
    B = B / (np.linalg.norm(B, axis=0) * np.sqrt(eigenvalues))
    return ReferenceResult(eigenvalues, B, K @ B, None if K_z is None else project(K_raw, K_z, B))


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
    >>> from reproduction.reference import project
    >>> K = np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> project(K, K, [[1.0], [-1.0]])
    array([[ 2.],
           [-2.]])
    """
    K = check_symmetric(K_x, "K_x")
    K_new = check_matrix(K_z, "K_z")
    B = check_matrix(coefficients, "coefficients")
    for name, matrix in (("K_z", K_new), ("coefficients", B)):
        if len(matrix) != len(K):
            raise ValueError(
                f"{name} has {len(matrix)} rows, but K_x has {len(K)}. Pass one row per training "
                "point."
            )
    row_means = K.mean(axis=1)[:, None]
    return np.asarray((K_new - K_new.mean(axis=0) - row_means + row_means.mean()).T @ B)


def _smoother(K: Matrix, epsilon: float) -> Matrix:
    """Centre K, and return P = K (K + N epsilon I)^-1."""
    K = centre(K)
    K_regularized = K + len(K) * check_positive(epsilon, "epsilon") * np.eye(len(K))
    P: Matrix = scipy.linalg.solve(K_regularized, K, assume_a="sym")
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
    r"""Run FastDCM with the paper's matrices Omega, V and Theta (Algorithm 2, line by line).

    Each C is the uncentred kernel between all points (rows) and landmarks, each W the kernel
    between landmarks, and ``K_z`` the kernel between landmarks (rows) and new points. Targets and
    domains may have their own landmarks. Projected training points have unit variance.
    ``n_components`` is at most the number of columns of ``C_x``.

    The columns of every C are centred, which centres the kernels :math:`C W^+ C^\top`. From the
    matrices :math:`S_{\alpha\beta} = C_\alpha^\top C_\beta`, the paper computes a matrix
    :math:`\Omega`; V contains the eigenvectors of :math:`S_{xx}`, :math:`\Theta` those of
    :math:`V^\top \Omega V V^\top S_{xx} V`, and :math:`\tilde B = C_x V \Theta`. (V cancels; it
    is computed because the paper computes it.) The algorithm solves, for the approximate kernels,

    .. math:: K_x (P_y K_x^2 + K_x) B = \left(K_x (w P_d K_x^2 + K_x) + N \epsilon I\right) B
        \Gamma

    but, unlike :func:`algorithm2_stable`, is inaccurate for small epsilon or ill-conditioned W_x.

    Returns
    -------
    result : ReferenceResult
        Projection and eigenvalues.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.reference import algorithm2
    >>> X = np.random.default_rng(0).normal(size=(12, 4))
    >>> y, d = np.arange(12) % 2, np.arange(12) // 4
    >>> same = lambda a, b: (a[:, None] == b).astype(float)
    >>> s = np.arange(0, 12, 3)
    >>> kernels = [X @ X[s].T, X[s] @ X[s].T, same(y, y[s]), same(y[s], y[s])]
    >>> result = algorithm2(*kernels, same(d, d[s]), same(d[s], d[s]), epsilon=1e-3, n_components=2)
    >>> result.projected.shape
    (12, 2)
    """
    C, W, column_means = _check_landmark_kernel(C_x, W_x, "x")
    n_samples, n_landmarks = C.shape
    check_components(n_components, n_landmarks, "the number of landmarks")
    weight = check_positive(domain_weight, "domain_weight", allow_zero=True)
    ridge = n_samples * check_positive(epsilon, "epsilon")
    W_inverse = _inverse_root(W) @ _inverse_root(W).T
    S = C.T @ C
    WSWS = W_inverse @ S @ W_inverse @ S
    label_terms = {}
    for letter, C_raw, W_raw in (("y", C_y, W_y), ("d", C_d, W_d)):
        D, W_D, _ = _check_landmark_kernel(C_raw, W_raw, letter, n_samples)
        W_D_inverse = _inverse_root(W_D) @ _inverse_root(W_D).T
        middle = W_D_inverse @ np.linalg.inv(D.T @ D @ W_D_inverse + ridge * np.eye(D.shape[1]))
        cross = C.T @ D
        label_terms[letter] = W_inverse @ cross @ middle @ cross.T @ W_inverse @ S @ W_inverse
    right_matrix = weight * label_terms["d"] @ S + WSWS + ridge * np.eye(n_landmarks)
    left_matrix = label_terms["y"] + W_inverse @ S @ W_inverse
    omega = np.linalg.solve(right_matrix, left_matrix)
    _, V = np.linalg.eigh(S)
    eigenvalues, theta = np.linalg.eig(V.T @ omega @ V @ V.T @ S @ V)
    eigenvalues, theta = leading_eigenpairs(eigenvalues, theta, n_components)
    B = C @ (V @ theta)
    return _nystroem_result(eigenvalues, B, C, W_inverse @ (C.T @ B), K_z, column_means)


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
    C, W, column_means = _check_landmark_kernel(C_x, W_x, "x")
    n_samples = len(C)
    weight = check_positive(domain_weight, "domain_weight", allow_zero=True)
    ridge = n_samples * check_positive(epsilon, "epsilon")
    inverse_root = _inverse_root(W)
    check_components(n_components, inverse_root.shape[1], "the rank of W_x")
    phi = C @ inverse_root
    S = phi.T @ phi
    label_terms = {}
    for letter, C_raw, W_raw in (("y", C_y, W_y), ("d", C_d, W_d)):
        D, W_D, _ = _check_landmark_kernel(C_raw, W_raw, letter, n_samples)
        label_features = D @ _inverse_root(W_D)
        gram, cross = label_features.T @ label_features, label_features.T @ phi @ S
        solution = scipy.linalg.solve(gram + ridge * np.eye(len(gram)), cross, assume_a="pos")
        label_terms[letter] = cross.T @ solution
    left_matrix = label_terms["y"] + S @ S
    right_matrix = weight * label_terms["d"] + S @ S + ridge * np.eye(len(S))
    eigenvalues, b = scipy.linalg.eigh(*((M + M.T) / 2 for M in (left_matrix, right_matrix)))
    eigenvalues, b = eigenvalues[::-1][:n_components], b[:, ::-1][:, :n_components]
    B = phi @ (np.linalg.pinv(S, hermitian=True) @ b)
    return _nystroem_result(eigenvalues, B, C, inverse_root @ b, K_z, column_means)


def _nystroem_result(
    eigenvalues: Matrix,
    B: Matrix,
    C: Matrix,
    extension: Matrix,
    K_z: ArrayLike | None,
    column_means: Matrix,
) -> ReferenceResult:
    """Return the result; ``extension``, W_x^+ C_x' B, projects rows of the centred C_x."""
    factors = unit_variance_factors(C @ extension)
    B, extension = B * factors, extension * factors
    projected_new = None
    if K_z is not None:
        K_new = check_matrix(K_z, "K_z")
        if len(K_new) != C.shape[1]:
            raise ValueError(
                f"K_z has {len(K_new)} rows, but C_x has {C.shape[1]} columns. Pass one row per "
                "landmark."
            )
        projected_new = (K_new.T - column_means) @ extension
    return ReferenceResult(eigenvalues, B, C @ extension, projected_new)


def _inverse_root(W: Matrix) -> Matrix:
    """Return R such that R R' is the pseudo-inverse of W."""
    eigenvalues, eigenvectors = scipy.linalg.eigh(W)
    is_nonzero = eigenvalues > len(W) * np.finfo(np.float64).eps * eigenvalues[-1]
    return np.asarray(eigenvectors[:, is_nonzero] / np.sqrt(eigenvalues[is_nonzero]))


def _check_landmark_kernel(
    C: ArrayLike, W: ArrayLike, letter: str, n_samples: int | None = None
) -> tuple[Matrix, Matrix, Matrix]:
    """Check C and W of x, y or d (``letter``); return the centred C, W and column means of C."""
    C_raw = check_matrix(C, f"C_{letter}")
    if n_samples is not None and len(C_raw) != n_samples:
        raise ValueError(
            f"C_{letter} has {len(C_raw)} rows, but C_x has {n_samples}. Pass one row per point."
        )
    column_means: Matrix = C_raw.mean(axis=0)
    return C_raw - column_means, check_symmetric(W, f"W_{letter}", C_raw.shape[1]), column_means
