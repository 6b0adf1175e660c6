"""Detect matrices and functions that are not kernels, and compute the positive part of a matrix.

All methods centre their kernel, so a symmetric matrix is a kernel if it has no negative eigenvalues
after centring. Distance matrices and negated kernel matrices have negative eigenvalues.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from domainwise.algebra.kernels.functions import Kernel
from domainwise.base.messages import NotAKernelWarning, warn_caller
from domainwise.base.namespace import evenly_spaced, namespace, precision_name, to_host

#: Maximum numbers of evenly spaced rows that are used to check a matrix and a function.
MATRIX_ROWS, FUNCTION_ROWS = 1000, 200
#: Negative eigenvalues and asymmetries up to this share of the norm count as rounding errors.
TOLERANCES = {"float64": 1e-8, "float32": 1e-4}
#: Kernels that are positive semi-definite for all parameters, or that are checked elsewhere.
VALID_KERNELS = ("rbf", "laplacian", "linear", "cosine", "precomputed")


def check_precomputed(K: Any) -> bool:
    """Reject a training matrix that is not square, and warn if it is not a kernel.

    Return whether a sample of its rows and columns is a kernel matrix.
    """
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f'kernel="precomputed" requires a square matrix in fit; got shape {tuple(K.shape)}. '
            "Pass the kernel values of all pairs of training rows."
        )
    row_indices = evenly_spaced(len(K), MATRIX_ROWS)
    K_sample = to_host(K[row_indices][:, row_indices]).astype(np.float64)
    description = 'the matrix passed with kernel="precomputed"'
    return not _warn_if_not_kernel(K_sample, TOLERANCES[precision_name(K)], description)


def check_kernel(kernel: Kernel, rows: Any) -> Kernel:
    """Warn if a function is not a kernel, and symmetrize it if it is not symmetric."""
    if kernel.name in VALID_KERNELS or len(rows) < 2:
        return kernel
    sample_rows = rows[evenly_spaced(len(rows), FUNCTION_ROWS)]
    prepared_rows = kernel.prepare(sample_rows)
    K = to_host(kernel.block(prepared_rows.left, prepared_rows.right)).astype(np.float64)
    function_name = getattr(kernel.function, "__name__", kernel.name)
    description = f"the matrix computed by kernel={function_name}"
    reason = _warn_if_not_kernel(K, TOLERANCES[precision_name(rows)], description)
    return replace(kernel, symmetrised="symmetric" in reason, sound=not reason)


def refuse_unsound(kernel: Kernel, n_rows: int) -> None:
    """Reject a function that is not a kernel, for solvers that do not store its matrix."""
    if not kernel.sound:
        raise ValueError(
            f"the kernel function is not positive semi-definite. With {n_rows} rows, the kernel "
            "matrix is not stored, so its positive part cannot be computed. Pass the matrix with "
            'kernel="precomputed", or use solver="dense" or an estimator with landmarks.'
        )


def positive_part(K: Any) -> tuple[Any, Any]:
    """Return the positive part of the centred matrix, and the eigenvectors that span it.

    The centred kernel values of new rows must be projected onto the same eigenvectors.
    """
    xp = namespace(K)
    eigenvalues, eigenvectors = xp.linalg.eigh(_centred((K + K.T) / 2))
    is_positive = eigenvalues > 1e-10 * abs(eigenvalues).max()
    if not bool(is_positive.any()):
        raise ValueError(
            "the kernel matrix has no positive eigenvalue after centring. If it contains distances "
            "or negated kernel values, pass kernel values instead."
        )
    basis = eigenvectors[:, is_positive]
    return (basis * eigenvalues[is_positive]) @ basis.T, basis


def _warn_if_not_kernel(K: Any, tolerance: float, description: str) -> str:
    """Warn if a matrix is not a kernel, and return the reason, or "" if it is a kernel."""
    limit = tolerance * max(float(np.linalg.norm(K)), np.finfo(np.float64).tiny)
    reasons = []
    if float(np.abs(K - K.T).max()) > limit:
        reasons.append("not symmetric (the mean of the matrix and its transpose is used)")
    try:
        np.linalg.cholesky(_centred((K + K.T) / 2) + limit * np.eye(len(K)))
    except np.linalg.LinAlgError:
        reasons.append(
            "not positive semi-definite (only the positive part is used; check whether you passed "
            "distances or a negated kernel)"
        )
    reason = ", and ".join(reasons)
    if reason:
        warn_caller(f"{description} is not a kernel: it is {reason}", NotAKernelWarning)
    return reason


def _centred(K: Any) -> Any:
    column_means = K.mean(0)
    return K - column_means - (column_means - column_means.mean())[:, None]
