"""SCA and MDA: scatters of class and domain means, and the scatter inside classes, weighed.

Both have the right side ``R = A + K M K`` with ``A = c K^2 + K + delta I`` and M in label space;
``c = within_weight / N`` and ``delta = N ridge``. Everything that grows with N is ``A^-1 K Q`` for
a basis Q of label space; the rest is small (theory 5.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import svd

from domainwise.arrays import Array
from domainwise.labels.factors import LabelSpace, joint_basis, label_factor
from domainwise.labels.scatters import Scatters, mda_scatters, sca_scatters
from domainwise.methods import components
from domainwise.methods.contract import Gram, Matrix
from domainwise.methods.quadratic import Inverse, Quadratic


@dataclass
class _Problem:
    """The label side of a pencil in a basis Q of label space, and the quadratic A.

    ``left`` is J with the left side ``K Q J J' Q' K``, ``right`` is M of the right side.
    """

    Q: Matrix
    KQ: Matrix
    left: Array
    right: Array
    A: Quadratic

    @classmethod
    def of(
        cls,
        gram: Gram,
        scatters: Scatters,
        domain_weight: float,
        within_weight: float,
        ridge: float,
    ) -> _Problem:
        within_parts = [scatters.within_added, scatters.within_removed]
        parts = [scatters.between]
        parts += [scatters.domain] if domain_weight else []
        parts += [np.hstack(within_parts)] if within_weight else []
        basis = joint_basis(*(label_factor(part, 1, 0.0) for part in parts))
        all_parts = (scatters.between, scatters.domain, *within_parts)
        left, domain, added, removed = (basis.T @ part for part in all_parts)
        within = added @ added.T - removed @ removed.T
        right = domain_weight * domain @ domain.T + within_weight * within
        n = gram.n_samples
        Q = gram.lift(basis)
        KQ = gram.product(Q)
        if not gram.inner(KQ, KQ).any():
            raise ValueError(components.CONSTANT)
        return cls(Q, KQ, left, right, Quadratic(gram, within_weight / n, n * ridge))


def mda(
    gram: Gram,
    labels: LabelSpace,
    *,
    n_components: int | None = None,
    between: float = 0.5,
    domain_weight: float = 1.0,
    within_weight: float = 1.0,
    ridge: float = 1e-3,
) -> components.Components:
    """Multidomain discriminant analysis of Hu et al. (2019)."""
    problem = _Problem.of(gram, mda_scatters(labels, between), domain_weight, within_weight, ridge)
    return _from_labels(gram, problem, n_components)


def sca(
    gram: Gram,
    labels: LabelSpace,
    *,
    n_components: int | None = None,
    between: float = 0.5,
    domain_weight: float = 1.0,
    within_weight: float = 1.0,
    ridge: float = 1e-3,
) -> components.Components:
    """Scatter component analysis of Ghifary et al. (2017).

    With ``between`` below 1 the left side has a ``K^2`` of its own, and label space is not enough.
    """
    k = components.unsupervised_count(gram.n_samples, n_components)
    problem = _Problem.of(gram, sca_scatters(labels), domain_weight, within_weight, ridge)
    if between == 1:
        return _from_labels(gram, problem, k)
    Q, KQ, A = problem.Q, problem.KQ, problem.A
    left, right = between * problem.left @ problem.left.T, problem.right
    share = (1.0 - between) / gram.n_samples

    def images(X: Matrix, KX: Matrix, KKX: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        inside = gram.inner(Q, KX)
        return (
            X,
            gram.combine(KQ, left @ inside) + share * KKX,
            gram.combine(KQ, right @ inside) + A.image(X, KX, KKX),
        )

    pairs = gram.ritz(images, k, depth=2, start=KQ, precondition=A.precondition)
    result = components.from_pairs(gram, pairs)
    result.info["label_rank"] = len(right)
    return result


def _from_labels(gram: Gram, problem: _Problem, n_components: int | None) -> components.Components:
    """Solve a problem whose left side lives in label space: ``b = A^-1 K Q a``."""
    Q, KQ, A = problem.Q, problem.KQ, problem.A
    inverse = A.inverse_of_image(Q, KQ)
    S = A.form(inverse, KQ)
    values, a = label_pairs(S, problem.left, problem.right, gram.tolerance)
    m, extra = components.component_count(values, len(values), n_components, False)
    a = a[:, :m]
    b = Inverse(gram.combine(inverse.Y, a), gram.combine(inverse.KY, a), inverse.info)
    if inverse.rough:  # the products of all of Y are good enough, the vectors are not
        b = A.by_conjugate_gradients(gram.combine(KQ, a), b)
    info: dict[str, Any] = {**b.info, "label_rank": len(S)}
    result = components.Components(b.Y, b.KY, values[:m], len(values), info)
    G = gram.inner(Q, KQ) if extra else S
    return components.with_extras(gram, result, Q, KQ, G, extra, eigenvalue=0.0)


def label_pairs(S: Array, J: Array, M: Array, tolerance: float) -> tuple[Array, Array]:
    """Positive eigenvalues of ``J' S (I + M S)^-1 J``, descending, and ``(I + M S)^-1 J z``.

    With ``S = Q'K A^-1 K Q = L L'`` they are the squared singular values of ``(I + L'M L)^-1/2
    L'J``, which is symmetric although M is indefinite: the right side of the pencil is positive
    definite. Those below ``tolerance``, relatively, are rounding.
    """
    d, U = np.linalg.eigh((S + S.T) / 2)
    L = U * np.sqrt(np.maximum(d, 0.0))
    core = np.eye(len(S)) + L.T @ M @ L
    w, V = np.linalg.eigh((core + core.T) / 2)
    root = V / np.sqrt(np.maximum(w, len(w) * np.finfo(float).eps * np.abs(w).max()))
    left, size, right = svd(root.T @ (L.T @ J), full_matrices=False)
    keep = size**2 > tolerance * size[0] ** 2
    z = right[keep].T
    return size[keep] ** 2, J @ z - M @ (L @ (root @ (left[:, keep] * size[keep])))
