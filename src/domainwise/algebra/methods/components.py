"""Solutions of the methods: the number, scale and signs of their components (theory 11.3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from domainwise.algebra.labels import LabelSpace
from domainwise.algebra.methods.contract import Gram, Matrix, RitzPairs
from domainwise.base.arrays import Array
from domainwise.base.messages import warn_caller

#: Components of a continuous target are used if their eigenvalue exceeds this fraction of the
#: first eigenvalue (theory 4).
CONTINUOUS_CUT = 1e-2
#: Default number of components of an unsupervised method.
UNSUPERVISED_COMPONENTS = 10
#: Error messages; the second one follows the name of a method.
CONSTANT_PROJECTION = (
    "the projection is constant: all rows of X are equal for this kernel. Check gamma and the "
    "scale of the features."
)
NEEDS_DOMAIN_LABELS = (
    "compares domain means, so sample_domain must contain labels; got continuous descriptors. Pass "
    "one domain label per row."
)


@dataclass
class Components:
    """The components that a method computes."""

    dual: Matrix  #: coefficients; a row x is projected to ``k(x)'dual``, centred
    values: Matrix  #: projected training rows, ``K dual``
    eigenvalues: Array
    n_informative: int  #: number of directions that separate targets, whether used or not
    info: dict[str, Any] = field(default_factory=dict)  #: entries of ``solver_info_``
    floor: float | Array = 0.0  #: components with a smaller standard deviation are rounding errors


def standardize(
    gram: Gram, components: Components, labels: LabelSpace, *, warn: bool = True
) -> Components:
    """Scale components to unit variance, fix their signs, and drop those without variance.

    ``warn=False`` suppresses the warning about dropped components, for ``n_components=None``.
    """
    deviations = norms(gram, components.values) / np.sqrt(gram.n_samples)
    is_varying = deviations > components.floor
    if not is_varying.any():
        raise ValueError(CONSTANT_PROJECTION)
    if warn and not is_varying.all():
        warn_caller(
            f"{int((~is_varying).sum())} of {len(is_varying)} components were dropped, because "
            "they have no variance: the rank of the kernel matrix is too low. Reduce n_components."
        )
    scaling = np.eye(len(deviations))[:, is_varying] / deviations[is_varying]
    dual, values = gram.combine(components.dual, scaling), gram.combine(components.values, scaling)
    anchor_values = gram.anchors(dual, values)
    largest_rows = np.abs(anchor_values).argmax(axis=0)
    signs = np.sign(anchor_values[largest_rows, np.arange(anchor_values.shape[1])])
    if (direction := labels.sign_direction) is not None and direction.any():
        direction = direction[:, None] / (np.linalg.norm(direction) * np.sqrt(gram.n_samples))
        correlations = gram.inner(gram.lift(direction), values)[0]
        signs = np.where(np.abs(correlations) >= 1e-6, np.sign(correlations), signs)
    sign_flips = np.diag(np.where(signs == 0, 1.0, signs))
    dual, values = gram.combine(dual, sign_flips), gram.combine(values, sign_flips)
    eigenvalues = components.eigenvalues[is_varying]
    return replace(components, dual=dual, values=values, eigenvalues=eigenvalues)


def norms(gram: Gram, V: Matrix) -> Array:
    """Return the norm of each column of a thin matrix."""
    return np.sqrt(np.maximum(np.diagonal(gram.inner(V, V)), 0.0))


def relative_floor(gram: Gram, values: Matrix) -> float:
    """Return the standard deviation below which a component is a rounding error."""
    max_deviation = norms(gram, values).max(initial=0.0) / np.sqrt(gram.n_samples)
    return float(1e-2 * gram.tolerance * max_deviation)


def from_pairs(gram: Gram, pairs: RitzPairs) -> Components:
    """Return components whose dual coefficients are the eigenvectors."""
    warn_unconverged(pairs)
    n_informative = int((pairs.values > gram.tolerance * pairs.values.max(initial=0.0)).sum())
    floor = relative_floor(gram, pairs.KX)
    return Components(pairs.X, pairs.KX, pairs.values, n_informative, pairs.info, floor)


def with_extras(
    gram: Gram,
    components: Components,
    Q: Matrix,
    KQ: Matrix,
    G: Array,
    n_extra: int,
    extra_eigenvalue: float = 1.0,
) -> Components:
    """Append leading principal directions that neither target nor domain explains (theory 4).

    Q is a basis of the label directions, KQ is ``K Q``, and G is ``Q'K Q``.
    """
    if not n_extra:
        return components
    m = len(components.eigenvalues)
    warn_caller(
        f"only {m} of {m + n_extra} components are informative about the target; the others are "
        "principal directions that neither target nor domain explains. Reduce n_components to "
        "omit them."
    )
    d, U = np.linalg.eigh((G + G.T) / 2)
    is_nonzero = d > gram.tolerance * max(float(d[-1]), 0.0)
    G_pinv = (U[:, is_nonzero] / d[is_nonzero]) @ U[:, is_nonzero].T
    pairs = gram.leading(n_extra, (Q, KQ, G_pinv))
    warn_unconverged(pairs)
    # For an eigenvector e, the coefficients are b = (I - Q G^+ Q'K) e, and the projections K b are
    # the product of the deflated kernel, K - K Q G^+ Q'K, with e.
    weights = G_pinv @ gram.inner(Q, pairs.KX)
    dual = pairs.X - gram.combine(Q, weights)
    values = pairs.KX - gram.combine(KQ, weights)
    # Rounding errors are relative to the principal directions or, if there are none, to the images
    # of the label directions, which have the same scale.
    scale = max(pairs.values.max(initial=0.0), norms(gram, KQ).max(initial=0.0))
    floor = 1e-2 * gram.tolerance * scale / np.sqrt(gram.n_samples)
    n_appended = len(pairs.values)
    return replace(
        components,
        dual=gram.hstack([components.dual, dual]),
        values=gram.hstack([components.values, values]),
        eigenvalues=np.concatenate([components.eigenvalues, np.full(n_appended, extra_eigenvalue)]),
        floor=np.concatenate([np.full(m, components.floor), np.full(n_appended, floor)]),
    )


def component_count(
    eigenvalues: Array, n_informative: int, n_components: int | None, continuous: bool
) -> tuple[int, int]:
    """Return the numbers of eigenvectors and of extra principal directions to use (theory 4)."""
    if not n_informative:
        warn_caller(
            "the target cannot be separated from the domain: every direction that separates "
            "targets separates domains at least as well. Check that each class, or each range of "
            "the target, occurs in several domains."
        )
    if n_components is None:
        threshold = CONTINUOUS_CUT * eigenvalues[0] if continuous and n_informative else -np.inf
        return max(1, int((eigenvalues > threshold).sum())), 0
    m = min(n_components, max(n_informative, 1))
    return m, n_components - m


def unsupervised_count(gram: Gram, n_components: int | None) -> int:
    """Return ``n_components``, or the default of unsupervised methods (at most N - 1)."""
    return min(UNSUPERVISED_COMPONENTS, gram.n_rows - 1) if n_components is None else n_components


def warn_stopped(residual: float, n_iterations: int, tol: float) -> None:
    """Warn that conjugate gradients stopped before convergence."""
    warn_caller(
        f"conjugate gradients stopped at a relative residual of {residual:.1e} after "
        f"{n_iterations} iterations, before convergence (tol={tol:g}). Increase max_iter, tol or "
        "the ridge.",
        ConvergenceWarning,
    )


def warn_unconverged(pairs: RitzPairs) -> None:
    """Warn if an eigensolver stopped before convergence."""
    if not pairs.info.get("converged", True):
        warn_caller(
            f"the eigensolver stopped at a residual of {pairs.info['residual']:.1e} after "
            f"{pairs.info['n_iterations']} iterations, before convergence. Increase max_iter or "
            "tol.",
            ConvergenceWarning,
        )
