"""MIDA: principal directions whose components depend little on the domain."""

from __future__ import annotations

import numpy as np

from domainwise.checks.warn import warn_caller
from domainwise.labels.factors import LabelSpace
from domainwise.methods.components import Components, from_pairs, norms, unsupervised_count
from domainwise.methods.contract import Gram, RitzPairs, Thin


def mida(
    gram: Gram, labels: LabelSpace, *, n_components: int | None = None, domain_weight: float = 1.0
) -> Components:
    """Maximum independence domain adaptation of Yan et al. (2018), on centred rows.

    The leading eigenvectors of ``K (I - w F F') K``, where ``F F'`` is the centred kernel of the
    domains. At most as many eigenvalues are negative as domains have directions; they say that a
    direction tells domains apart more than rows, and are left out.
    """
    k = unsupervised_count(gram.n_samples, n_components)
    F = KF = start = None
    rounding = 0.0
    if labels.domain is not None and domain_weight:
        F = gram.lift(labels.domain)
        KF = gram.product(F)
        # What is independent of the domains is orthogonal to K F.
        start = gram.hstack([F, KF])
        rounding = 1e-14 * domain_weight * float(norms(gram, KF).max(initial=0.0)) ** 2

    def images(X: Thin, KX: Thin, KKX: Thin) -> tuple[Thin, Thin, Thin]:
        if F is None:
            return X, KKX, X
        return X, KKX - domain_weight * gram.combine(KF, gram.inner(F, KX)), X

    pairs = gram.ritz(images, k, depth=2, start=start)
    positive = pairs.values > max(gram.tolerance * pairs.values.max(initial=0.0), rounding)
    m = int(positive.sum())
    if not m:
        raise ValueError(
            f"domain_weight={domain_weight:g} leaves no direction: every one tells the domains "
            "apart more than the rows; try weights around 1 / n_samples"
        )
    if m < min(k, len(pairs.values)) and n_components is not None:
        warn_caller(
            f"only {m} of {n_components} components are left: the others tell domains apart more "
            "than rows, or have no variance"
        )
    first = np.eye(len(positive))[:, :m]
    X, KX = gram.combine(pairs.X, first), gram.combine(pairs.KX, first)
    return from_pairs(gram, RitzPairs(pairs.values[:m], X, KX, pairs.info))
