"""The number of landmarks, and rules for choosing them (theory 9.3)."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from sklearn.cluster import kmeans_plusplus

from domainwise.algebra.kernels.functions import Kernel
from domainwise.base.arrays import Array

#: ``n_landmarks="auto"`` means ``AUTO_FACTOR * sqrt(N)``, between MIN_AUTO and MAX_AUTO.
AUTO_FACTOR, MIN_AUTO, MAX_AUTO = 5, 100, 2000
#: ``"kmeans++"`` and ``"leverage"`` choose from at most this number of rows, drawn uniformly.
SUBSAMPLE_ROWS = 5000
#: Leverage scores of the N sampled rows are ``diag(K (K + N s I)^-1)`` with this s.
LEVERAGE_RIDGE = 1e-3


def landmark_count(n_landmarks: int | float | str, n_rows: int, *, among_rows: bool = True) -> int:
    """Return the number of landmarks, given a number, a fraction of the rows, or ``"auto"``.

    With ``among_rows=False``, landmarks are not rows of X, so they can outnumber the rows.

    >>> landmark_count("auto", 10_000)
    500
    >>> landmark_count(0.2, 50)
    10
    """
    if isinstance(n_landmarks, str):
        return min(n_rows, MAX_AUTO, max(MIN_AUTO, int(np.ceil(AUTO_FACTOR * np.sqrt(n_rows)))))
    if isinstance(n_landmarks, Integral):
        if among_rows and n_landmarks > n_rows:
            raise ValueError(
                f"n_landmarks={n_landmarks} is more than the number of rows, {n_rows}. Pass a "
                "smaller number, a fraction of the rows, or an array of landmarks."
            )
        return int(n_landmarks)
    return max(1, int(np.ceil(float(n_landmarks) * n_rows)))


def check_landmarks(landmarks: Array, X: Array) -> Array:
    """Check landmarks passed by the user, and convert them to the dtype of X."""
    if landmarks.ndim != 2 or landmarks.shape[1] != X.shape[1] or not len(landmarks):
        raise ValueError(
            f"landmarks must have shape (n_landmarks, {X.shape[1]}); got {landmarks.shape}"
        )
    landmarks = landmarks.astype(X.dtype)
    if not np.isfinite(landmarks).all():
        raise ValueError("landmarks contain NaN or infinite values. Pass finite values.")
    return landmarks


def choose_landmarks(
    rule: str, X: Array, m: int, domains: Array | None, kernel: Kernel, rng: np.random.Generator
) -> Array:
    """Return the indices of at most m rows, in ascending order.

    The rule "stratified" uses ``domains``, the domain of each row; "leverage" uses ``kernel``.
    """
    n = len(X)
    if m == n:
        return np.arange(n)
    if rule == "stratified" and domains is not None:
        # Take a random row from each domain in turn until m rows are selected.
        rows_by_domain = [rng.permutation(np.flatnonzero(domains == d)) for d in np.unique(domains)]
        turns = np.concatenate([np.arange(len(indices)) for indices in rows_by_domain])
        indices = np.concatenate(rows_by_domain)[np.argsort(turns, kind="stable")[:m]]
    elif rule in ("uniform", "stratified"):
        indices = rng.choice(n, m, replace=False)
    else:
        sample_indices = np.sort(rng.choice(n, min(n, max(SUBSAMPLE_ROWS, m)), replace=False))
        rows = np.asarray(X[sample_indices])
        if rule == "kmeans++":
            seed = int(rng.integers(2**31 - 1))
            indices = sample_indices[np.unique(kmeans_plusplus(rows, m, random_state=seed)[1])]
        else:
            scores = _leverage_scores(rows, kernel)
            indices = rng.choice(sample_indices, m, replace=False, p=scores / scores.sum())
    return np.sort(indices)


def _leverage_scores(rows: Array, kernel: Kernel) -> Array:
    """Return the ridge leverage scores of rows, all positive."""
    eigenvalues, U = np.linalg.eigh(kernel.matrix(rows).astype(np.float64))
    eigenvalues = np.maximum(eigenvalues, 0.0)
    weights = eigenvalues / (eigenvalues + len(rows) * LEVERAGE_RIDGE)
    return np.maximum(U**2 @ weights, np.finfo(float).tiny)
