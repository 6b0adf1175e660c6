"""The low-rank correction that makes a kernel invariant, as pure functions (theory 12.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import svd

from domainwise.arrays import Array
from domainwise.checks.inputs import Labels
from domainwise.labels import factors


def domain_factor(
    estimator: Any, n_samples: int, domain: Labels, target: Labels | None, weight: float
) -> Array:
    """Rows (N, r) of the factor F of ``P_d = F F'``, by the domain kernel of an estimator.

    Domains are compared inside the classes of ``target`` if there is one. A single domain has no
    columns; continuous descriptors are followed as closely as ``weight`` asks for.
    """
    feature = factors.Feature(domain.codes, domain.n_categories)
    if domain.values is not None:
        feature = factors.continuous_feature(
            domain.values,
            "rbf" if estimator.domain_kernel == "auto" else estimator.domain_kernel,
            estimator.domain_gamma,
            n_samples * factors.residual_trace(estimator.domain_epsilon, weight),
            name="the domain kernel",
        )
    elif domain.n_categories < 2:
        return np.zeros((n_samples, 0))
    classes = None if target is None else factors.Feature(target.codes, target.n_categories)
    labels = factors.label_rows(n_samples, classes, feature, conditional=target is not None)
    assert labels.space.domain is not None
    return labels.rows(
        factors.label_factor(labels.space.domain, n_samples, estimator.domain_epsilon)
    )


def correction(inner: Array, weight: float, tolerance: float) -> tuple[Array, Array]:
    """Directions A with ``k_w(x, x') = k(x, x') - k(x)'F A A' F'k(x')``, and the spectrum.

    ``inner`` is ``F'KF``; its eigenvalues, in descending order, say how far the kernel tells
    domains apart. An infinite weight forbids that, but for those below ``tolerance`` of the first.

    >>> A, _ = correction(np.array([[3.0]]), weight=1.0, tolerance=1e-10)
    >>> float((A @ A.T).squeeze())
    0.25
    """
    values, U = np.linalg.eigh((inner + inner.T) / 2)
    values, U = np.maximum(values[::-1], 0.0), U[:, ::-1]
    largest = float(values[0]) if len(values) else 0.0
    if np.isinf(weight):
        keep = values > tolerance * largest
        return U[:, keep] / np.sqrt(values[keep]), values
    # What is rounding of the largest would be blown up by a huge weight.
    keep = values > len(values) * np.finfo(float).eps * largest
    kept = values[keep]
    return U[:, keep] * np.sqrt(weight / (1.0 + weight * kept)), values


def scaling(cross: Array, weight: float, tolerance: float) -> Array:
    """Map R of centred features Phi with ``k_w = Phi R R' Phi'``.

    The left singular directions of ``cross``, ``Phi'F``, are shortened by ``(1 + w sigma^2)^-1/2``.
    """
    V, sigma, _ = svd(cross, full_matrices=False)
    squared = sigma**2
    if np.isinf(weight):
        length = np.where(squared > tolerance * squared.max(initial=0.0), 0.0, 1.0)
    else:
        length = 1.0 / np.sqrt(1.0 + weight * squared)
    return np.asarray(np.eye(len(cross)) + (V * (length - 1.0)) @ V.T)
