"""Approximations of kernels: choice of landmarks (theory 9.3), and random Fourier features."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import pi, sqrt
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.cluster import kmeans_plusplus

from domainwise.algebra.kernels.functions import Kernel, Prepared
from domainwise.base import arrays
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


def check_landmarks(landmarks: Array, X: Any) -> Array:
    """Check landmarks passed by the user, and convert them to the dtype of X."""
    if landmarks.ndim != 2 or landmarks.shape[1] != X.shape[1] or not len(landmarks):
        raise ValueError(
            f"landmarks must have shape (n_landmarks, {X.shape[1]}); got {landmarks.shape}"
        )
    landmarks = landmarks.astype(arrays.precision_name(X))
    if not np.isfinite(landmarks).all():
        raise ValueError("landmarks contain NaN or infinite values. Pass finite values.")
    return landmarks


def choose_landmarks(
    rule: str, X: Any, m: int, domains: Array | None, kernel: Kernel, rng: np.random.Generator
) -> Array:
    """Return the indices of at most m rows; neither rows nor their order depend on that of X.

    The rule "stratified" uses ``domains``, the domain of each row; "leverage" uses ``kernel``.
    """
    n, order = len(X), np.argsort(arrays.to_host(arrays.content_keys(X)), kind="stable")
    if m == n:
        return order
    if rule == "stratified" and domains is not None:
        # Take a random row from each domain in turn until m rows are selected.
        sorted_domains = domains[order]
        starts = np.unique(sorted_domains, return_index=True)[1]
        rows_by_domain = [
            rng.permutation(np.flatnonzero(sorted_domains == sorted_domains[start]))
            for start in np.sort(starts)
        ]
        turns = np.concatenate([np.arange(len(indices)) for indices in rows_by_domain])
        indices = np.concatenate(rows_by_domain)[np.argsort(turns, kind="stable")[:m]]
    elif rule in ("uniform", "stratified"):
        indices = rng.choice(n, m, replace=False)
    else:
        sample_indices = np.sort(rng.choice(n, min(n, max(SUBSAMPLE_ROWS, m)), replace=False))
        rows = arrays.to_host(X[order[sample_indices]])
        if rule == "kmeans++":
            seed = int(rng.integers(2**31 - 1))
            indices = sample_indices[np.unique(kmeans_plusplus(rows, m, random_state=seed)[1])]
        else:
            scores = _leverage_scores(rows, kernel)
            indices = rng.choice(sample_indices, m, replace=False, p=scores / scores.sum())
    return np.asarray(order[np.sort(indices)])


def _leverage_scores(rows: Array, kernel: Kernel) -> Array:
    """Return the ridge leverage scores of rows, all positive."""
    eigenvalues, U = np.linalg.eigh(kernel.matrix(rows).astype(np.float64))
    eigenvalues = np.maximum(eigenvalues, 0.0)
    weights = eigenvalues / (eigenvalues + len(rows) * LEVERAGE_RIDGE)
    return np.maximum(U**2 @ weights, np.finfo(float).tiny)


FOURIER_KERNELS = ("rbf", "laplacian")


@dataclass(frozen=True)
class FourierMap:
    """A map to M features ``sqrt(2 / M) cos(w'x + b)``, whose inner products approximate a kernel.

    Frequencies w are drawn from the kernel's spectral distribution: normal for
    ``exp(-gamma |x - y|^2)``, Cauchy in each coordinate for ``exp(-gamma |x - y|_1)``. Each
    frequency is used for two features, a cosine and a sine, which is more precise than two
    frequencies with random phases. If M is odd, the last feature has a random phase.

    :meth:`prepare` and :meth:`block` have the interface of
    :class:`~domainwise.algebra.kernels.functions.Kernel`, with ``points`` instead of a second set
    of rows.

    >>> import numpy as np
    >>> fourier = FourierMap("rbf", gamma=0.5, n_columns=1, n_features=10_000)
    >>> Phi = fourier.transform(np.array([[0.0], [2.0]]))
    >>> bool(abs(Phi[0] @ Phi[1] - np.exp(-2.0)) < 0.02)
    True
    """

    kernel: str  #: one of ``FOURIER_KERNELS``
    gamma: float
    n_columns: int  #: number of columns of X
    n_features: int  #: M, the number of Fourier features
    seed: int = 0
    #: One row for each of the M features: its frequency, followed by its phase.
    points: Array = field(init=False, repr=False, compare=False)

    # Attributes that a Kernel also has.
    name: ClassVar[str] = "fourier"
    constant: ClassVar[float] = 0.0
    is_product: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.kernel not in FOURIER_KERNELS:
            raise ValueError(
                f"kernel={self.kernel!r} has no random Fourier features. Use one of the kernels "
                f'{", ".join(FOURIER_KERNELS)}, or feature_map="nystroem".'
            )
        # RandomState draws the same numbers in all versions of NumPy, so that computers that share
        # only the seed compute the same features.
        rng = np.random.RandomState(self.seed)
        shape = ((self.n_features + 1) // 2, self.n_columns)
        if self.kernel == "rbf":
            frequencies = sqrt(2.0 * self.gamma) * rng.standard_normal(shape)
        else:
            frequencies = self.gamma * rng.standard_cauchy(shape)
        phases = np.tile([0.0, -pi / 2], len(frequencies))
        points = np.column_stack([np.repeat(frequencies, 2, axis=0), phases])[: self.n_features]
        if self.n_features % 2:
            points[-1, -1] = rng.uniform(0.0, 2.0 * pi)
        object.__setattr__(self, "points", points)

    def transform(self, X: Any) -> Any:
        """Return the features of the rows of X, an array or a tensor, in the precision of X."""
        rows = self.prepare(X).left
        return arrays.cast(self.block(rows, arrays.as_type_of(self.points, rows)), X.dtype)

    def prepare(self, X: Any) -> Prepared:
        """Return X with a column of ones, for :meth:`block`, and X itself, both in float64.

        Cauchy frequencies can be so large that angles would be imprecise in float32.
        """
        xp = arrays.namespace(X)
        X = arrays.cast(X, xp.float64)
        return Prepared(xp.hstack([X, xp.ones_like(X[:, :1])]), X)

    def block(self, left: Any, right: Any, out: Any = None, *, compiled: bool = False) -> Any:
        """Return the features of prepared rows (``left``), one for each point (``right``)."""
        xp = arrays.namespace(left)
        out = None if out is None or out.dtype != left.dtype else out
        features = xp.matmul(left, right.T, out=out)  # so far, the angles w'x + b
        xp.cos(features, out=features)
        features *= sqrt(2.0 / self.n_features)
        return features


#: A family of functions of a row, one for each landmark or point.
Basis = Kernel | FourierMap
