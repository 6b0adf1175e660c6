"""DCM, DICA, kernel PCA and MIDA as functions of a Gram operator (theory 2 to 5).

A method returns :class:`~domainwise.algebra.methods.components.Components`: dual coefficients, the
projected training rows, and the eigenvalues of its problem. Scale and sign are fixed afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import eig, svd

from domainwise.algebra.labels import LabelSpace, joint_basis, label_factor
from domainwise.algebra.methods.components import (
    CONSTANT_PROJECTION,
    NEEDS_DOMAIN_LABELS,
    Components,
    component_count,
    from_pairs,
    norms,
    relative_floor,
    unsupervised_count,
    warn_unconverged,
    with_extras,
)
from domainwise.algebra.methods.contract import Gram, Images, Matrix, RitzPairs
from domainwise.base.arrays import Array
from domainwise.base.messages import warn_caller


def dcm(
    gram: Gram,
    labels: LabelSpace,
    *,
    n_components: int | None = None,
    continuous: bool = False,
    epsilon: float = 1e-3,
    ridge: float = 1e-3,
    domain_weight: float = 1.0,
) -> Components:
    """Domain-based covariance minimization; COIR if ``domain_weight=0`` or there is one domain.

    Without a target, the unsupervised problem is solved. With a ``continuous`` target,
    ``n_components=None`` means all components above ``CONTINUOUS_CUT``.
    """
    n = gram.n_samples
    F_d = np.zeros((labels.size, 0))
    if labels.domain is not None and domain_weight != 0:
        F_d = label_factor(labels.domain, n, epsilon)
    if labels.target is None:
        return _unsupervised_dcm(gram, F_d, n_components, epsilon, ridge, domain_weight)
    F_y = label_factor(labels.target, n, epsilon)
    basis = joint_basis(F_y, F_d)
    Q, KQ = gram.lifted_product(basis)
    G = gram.inner(Q, KQ)
    mu, a, n_informative = dcm_scores(
        G, basis.T @ F_y, basis.T @ F_d, domain_weight, gram.tolerance
    )
    m, n_extra = component_count(mu, n_informative, n_components, continuous)
    V, KV, info = gram.combine(Q, a[:, :m]), gram.combine(KQ, a[:, :m]), {"label_rank": len(G)}
    components = _from_scores(gram, V, KV, ridge, 1.0 + mu[:m], n_informative, info)
    return with_extras(gram, components, Q, KQ, G, n_extra)


def dcm_scores(
    G: Array, Y: Array, D: Array, weight: float, tolerance: float
) -> tuple[Array, Array, int]:
    """Solve ``(I + P_y K) v = gamma (I + w P_d K) v`` in the basis Q (theory 2).

    G is ``Q'KQ``, Y and D are ``Q'F_y`` and ``Q'F_d``. Returns mu = gamma - 1 in descending order,
    the coefficients a of the scores v = Q a, and the number of scores that separate targets. A mu
    below ``tolerance`` times the largest one is treated as a rounding error.
    """
    d, U = np.linalg.eigh((G + G.T) / 2)
    root_d = np.sqrt(np.maximum(d, 0.0))
    L = U * root_d
    LY, LD = L.T @ Y, L.T @ D
    target_term = LY @ LY.T
    # The right side of the eigenproblem, I + w LD LD', is factored by an SVD of LD: for a badly
    # scaled kernel, the sum itself would lose I to rounding. With the inverse square root of the
    # right side, W = I + shrinkage V', the eigenvalues of W (w LD LD') W are below 1.
    V, singular_values, _ = svd(LD, full_matrices=False)
    penalty = weight * singular_values**2
    shrinkage = V * (1.0 / np.sqrt(1.0 + penalty) - 1.0)
    whitened_LY = LY + shrinkage @ (V.T @ LY)
    mu, Z = np.linalg.eigh(whitened_LY @ whitened_LY.T - (V * (penalty / (1.0 + penalty))) @ V.T)
    mu, Z = mu[::-1], Z[:, ::-1]
    Z = Z + shrinkage @ (V.T @ Z)
    # Where the terms of target and domain cancel, mu is a rounding error.
    rounding_error = 64 * np.finfo(float).eps * float(np.abs(target_term).max(initial=0.0))
    threshold = max(tolerance * float(np.abs(mu).max(initial=0.0)), rounding_error)
    n_informative = int((mu > threshold).sum())
    if n_informative:
        mu, LZ = mu[:n_informative], L @ Z[:, :n_informative]
        a = (Y @ (Y.T @ LZ) - weight * D @ (D.T @ LZ) * (1.0 + mu)) / mu
        return mu, a, n_informative
    # No direction separates targets better than domains. Directions outside the range of the
    # kernel have mu = 0 and would come first; they are excluded.
    is_in_range = d > tolerance * max(float(d.max(initial=0.0)), 0.0)
    if not is_in_range.any():
        raise ValueError(CONSTANT_PROJECTION)
    if not is_in_range.all():
        U, G = U[:, is_in_range], np.diag(d[is_in_range])
        mu, a, n_informative = dcm_scores(G, U.T @ Y, U.T @ D, weight, tolerance)
        return mu, U @ a, n_informative
    # Of the directions z = L'a with the largest mu, use the one most related to the target.
    Z_leading = Z[:, mu >= mu[0] - max(threshold, 1e-8 * abs(mu[0]))]
    z = Z_leading @ np.linalg.eigh(Z_leading.T @ target_term @ Z_leading)[1][:, -1:]
    return mu[:1], U @ (z / root_d[:, None]), 0


def _unsupervised_dcm(
    gram: Gram, F_d: Array, n_components: int | None, epsilon: float, ridge: float, weight: float
) -> Components:
    """Solve ``(I + c K) v = gamma (I + w P_d K) v``, where K_y = I gives c = 1 / (1 + N eps).

    The unknown is mu = gamma - 1, because gamma is 1 up to rounding if kernel values are small.
    """
    n = gram.n_samples
    c = 1.0 / (1.0 + n * epsilon)
    F = gram.lift(F_d)

    def images(V: Matrix, KV: Matrix, _: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        domain_term = weight * gram.combine(F, gram.inner(F, KV))
        return KV, c * KV - domain_term, V + domain_term

    k = unsupervised_count(gram, n_components)
    pairs = gram.ritz(images, k, start=F if F_d.shape[1] else None)
    # Where the terms c KV and domain_term cancel, mu is a rounding error.
    rounding_errors = gram.tolerance * c * norms(gram, pairs.KX)
    is_usable = np.abs(pairs.values) * norms(gram, pairs.X) > rounding_errors
    pairs = _refined_pairs(gram, images, pairs, is_usable)
    warn_unconverged(pairs)
    n_informative, values = int((is_usable & (pairs.values > 0)).sum()), 1.0 + pairs.values
    components = _from_scores(gram, pairs.X, pairs.KX, ridge, values, n_informative, pairs.info)
    return replace(components, floor=relative_floor(gram, components.values))


def _refined_pairs(gram: Gram, images: Images, pairs: RitzPairs, is_usable: Array) -> RitzPairs:
    """Replace each eigenvector v by ``v + (A v - mu B v) / mu``, and compute the residual.

    The problem is symmetric in the inner product of K, which ignores the null space of K, so the
    projections of Ritz vectors onto that space are rounding errors. The update corrects them.
    """
    mu = pairs.values
    inverse_mu = np.diag(np.divide(1.0, mu, out=np.zeros_like(mu), where=is_usable))

    def compute_update(X: Matrix, KX: Matrix) -> Matrix:
        _, AX, BX = images(X, KX, None)
        return gram.combine(AX - gram.combine(BX, np.diag(mu)), inverse_mu)

    X = pairs.X + compute_update(pairs.X, pairs.KX)
    KX = gram.product(X)
    X_norms = norms(gram, X)
    relative_residuals = norms(gram, compute_update(X, KX)) / np.where(X_norms > 0, X_norms, 1.0)
    residual = float(relative_residuals.max(initial=0.0))
    info = {**pairs.info, "residual": residual}
    info["converged"] = pairs.info["converged"] or residual <= 10 * gram.tolerance
    return RitzPairs(mu, X, KX, info)


def dica(
    gram: Gram,
    labels: LabelSpace,
    *,
    n_components: int | None = None,
    continuous: bool = False,
    epsilon: float = 1e-3,
    lam: float = 1e-3,
) -> Components:
    """Domain-invariant component analysis of Muandet et al. (2013), by a small eigenproblem.

    With ``P_y = F F'``, ``R = K L K + K + lam I`` and ``L = Z Z'`` (Z: centred domain means), the
    non-zero eigenvalues are those of ``F'K^2 R^-1 F``. By the Woodbury identity, they can be
    computed from ``(K + lam I)^-1 [F, Z]``.
    """
    if labels.domain is not None and labels.domain_means is None:
        raise ValueError(f"DICA {NEEDS_DOMAIN_LABELS}")
    # Centre the domain means, with equal weights, and divide by the square root of their number.
    Z_label = np.zeros((labels.size, 0)) if labels.domain_means is None else labels.domain_means
    if Z_label.shape[1]:
        Z_label = (Z_label - Z_label.mean(axis=1, keepdims=True)) / np.sqrt(Z_label.shape[1])
    if labels.target is None:
        return _unsupervised_dica(gram, Z_label, n_components, lam)
    F_label = label_factor(labels.target, gram.n_samples, epsilon)
    r = F_label.shape[1]
    FZ, KFZ = gram.lifted_product(np.hstack([F_label, Z_label]))
    solution = gram.solve(FZ, lam)
    Z, Y_F = FZ[:, r:], solution.X[:, :r]  # Y_F is (K + lam I)^-1 F
    KF, KZ = KFZ[:, :r], KFZ[:, r:]
    W, KY_F = solution.image[:, r:], solution.image[:, :r]
    KW = KZ - lam * W  # W is (K + lam I)^-1 K Z
    if (norms(gram, KW) < 1e-4 * norms(gram, KZ)).any():
        KW = gram.product(W)  # the terms cancel if kernel values are small
    core = np.eye(Z_label.shape[1]) + gram.inner(Z, KW)
    S = np.linalg.solve(core, gram.inner(Z, KY_F))
    X = Y_F - gram.combine(W, S)  # R^-1 F
    KX = KY_F - gram.combine(KW, S)
    eigenvalues, C = real_positive_pairs(gram.inner(KF, KX), gram.tolerance)
    m, n_extra = component_count(eigenvalues, len(eigenvalues), n_components, continuous)
    X, KX = gram.combine(X, C[:, :m]), gram.combine(KX, C[:, :m])
    components = Components(X, KX, eigenvalues[:m], len(eigenvalues), dict(solution.info))
    if not n_extra:
        return components
    # With epsilon 0, label_factor returns orthogonal, non-zero columns with the same span.
    basis = joint_basis(F_label, label_factor(Z_label, 1, 0.0))
    Q, KQ = gram.lifted_product(basis)
    return with_extras(gram, components, Q, KQ, gram.inner(Q, KQ), n_extra, extra_eigenvalue=0.0)


def _unsupervised_dica(
    gram: Gram, Z_label: Array, n_components: int | None, lam: float
) -> Components:
    """Solve ``K^2 b = gamma (K L K + K + lam I) b``, where ``L = Z Z'``."""
    k = unsupervised_count(gram, n_components)
    Z, KZ = gram.lifted_product(Z_label) if Z_label.shape[1] else (None, None)

    def images(X: Matrix, KX: Matrix, KKX: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        BX = KX + lam * X
        if Z is not None:
            BX = BX + gram.combine(KZ, gram.inner(Z, KX))
        return X, KKX, BX

    return from_pairs(gram, gram.ritz(images, k, depth=2, start=Z))


def kpca(gram: Gram, labels: LabelSpace, *, n_components: int | None = None) -> Components:
    """Kernel principal component analysis: the leading eigenpairs of the centred kernel matrix."""
    return from_pairs(gram, gram.leading(unsupervised_count(gram, n_components)))


def real_positive_pairs(M: Array, tolerance: float) -> tuple[Array, Array]:
    """Return the real positive eigenpairs of a matrix in descending order (theory 5.2)."""
    values, C = eig(M)
    is_nonzero = np.abs(values) > tolerance * float(np.abs(values).max(initial=0.0))
    is_usable = is_nonzero & (np.abs(values.imag) <= 1e-8 * np.abs(values)) & (values.real > 0)
    if n_dropped := int((is_nonzero & ~is_usable).sum()):
        warn_caller(
            f"DICA dropped {n_dropped} complex or negative eigenvalue{'s' * (n_dropped > 1)}. A "
            "badly scaled kernel can cause this: check gamma and the scale of X."
        )
    if not is_usable.any():
        raise ValueError(
            "DICA has no real positive eigenvalue for this kernel: the features do not separate "
            "the targets, or lam is too small for the kernel's scale. Scale X, or increase lam."
        )
    order = np.flatnonzero(is_usable)[np.argsort(-values[is_usable].real, kind="stable")]
    return values[order].real, C[:, order].real


def _from_scores(
    gram: Gram,
    V: Matrix,
    KV: Matrix,
    ridge: float,
    eigenvalues: Array,
    n_informative: int,
    info: dict[str, Any],
) -> Components:
    """Return components with coefficients ``(K + N ridge I)^-1 V``, or V if ridge is infinite."""
    if not np.isinf(ridge):
        solution = gram.solve(V, gram.n_samples * ridge)
        V, KV, info = solution.X, solution.image, solution.info | info
    return Components(V, KV, eigenvalues, n_informative, info)


def mida(
    gram: Gram, labels: LabelSpace, *, n_components: int | None = None, domain_weight: float = 1.0
) -> Components:
    """Maximum independence domain adaptation of Yan et al. (2018), on centred rows.

    Returns the leading eigenvectors of ``K (I - w F F') K``, where ``F F'`` is the centred kernel
    of the domains. Eigenvectors with a negative eigenvalue (at most as many as F has columns) are
    dropped: for them, the penalty on differences between domains exceeds the variance of the rows.
    """
    k = unsupervised_count(gram, n_components)
    F = KF = start = None
    rounding_error = 0.0
    if labels.domain is not None and domain_weight:
        F, KF = gram.lifted_product(labels.domain)
        # The search space must contain K F, to which domain-independent directions are orthogonal.
        start = gram.hstack([F, KF])
        rounding_error = 1e-14 * domain_weight * float(norms(gram, KF).max(initial=0.0)) ** 2

    def images(X: Matrix, KX: Matrix, KKX: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        if F is None:
            return X, KKX, X
        return X, KKX - domain_weight * gram.combine(KF, gram.inner(F, KX)), X

    pairs = gram.ritz(images, k, depth=2, start=start)
    is_positive = pairs.values > max(gram.tolerance * pairs.values.max(initial=0.0), rounding_error)
    m = int(is_positive.sum())
    if not m:
        raise ValueError(
            f"domain_weight={domain_weight:g} is too large: in all directions, the penalty on "
            "differences between domains exceeds the variance of the rows. Try a domain_weight "
            "around 1 / n_samples."
        )
    if m < min(k, len(pairs.values)) and n_components is not None:
        warn_caller(
            f"only {m} of {n_components} components are returned: the others have no variance, or "
            "their variance is smaller than the penalty on differences between domains. Reduce "
            "domain_weight to get more components."
        )
    pairs = RitzPairs(pairs.values[:m], pairs.X[:, :m], pairs.KX[:, :m], pairs.info)
    return from_pairs(gram, pairs)
