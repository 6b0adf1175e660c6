"""Leading eigenpairs by block Krylov subspaces: products only, each shared by a whole block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from domainwise.methods.components import norms
from domainwise.methods.contract import Gram, Images, RitzPairs, Thin, project_pencil

#: Blocks after which a residual that has not halved is as low as it gets.
STALL = 8


def krylov_pairs(
    gram: Gram,
    images: Images,
    k: int,
    start: Thin,
    *,
    depth: int = 1,
    tol: float = 1e-8,
    max_iter: int = 200,
    max_columns: int = 400,
    grow: int | None = None,
    precondition: Callable[[Thin], Thin] | None = None,
) -> RitzPairs:
    """Find the k leading eigenpairs of a problem made of products with K.

    A subspace begins with ``start``, of at least k columns, and grows by the residuals of its
    leading Ritz pairs (at depth 2 without a preconditioner: by their images), of ``grow`` or as
    many as it began with, ``max_iter`` blocks at most; when it has more than ``max_columns``
    columns it is replaced by its leading Ritz vectors. ``tol`` is relative to the size of the
    problem's left side, and ``precondition`` a rough inverse of its right side.
    """
    block = min(grow or start.shape[1], start.shape[1])
    empty = gram.combine(start, np.zeros((start.shape[1], 0)))
    X, KX, KKX = empty, empty, empty if depth == 2 else None
    new = _orthonormal(gram, start, empty)
    info: dict[str, Any] = {}
    history: list[float] = []
    iteration = 0
    while True:
        iteration += 1
        if new.shape[1]:
            image = gram.product(new)
            X, KX = gram.hstack([X, new]), gram.hstack([KX, image])
            if depth == 2:
                KKX = gram.hstack([KKX, gram.product(image)])
        values, C, AX, BX = project_pencil(gram, images, X, KX, KKX)
        width = min(block, C.shape[1])
        wanted = min(k, width)
        lead = C[:, :width]
        left, right = gram.combine(AX, lead), gram.combine(BX, lead * values[:width])
        residual, preimage = left - right, gram.combine(KX, lead)
        # Relative to the largest pair: a small eigenvalue is known no better than that.
        size = norms(gram, left).max(initial=np.finfo(float).tiny)
        error = norms(gram, residual) / size
        info.update(n_iterations=iteration, residual=float(error[:wanted].max(initial=0.0)))
        info["converged"] = info["residual"] <= tol
        history.append(info["residual"])
        stalled = len(history) > STALL and history[-1] > 0.5 * min(history[:-STALL])
        if info["converged"] or stalled or not new.shape[1] or iteration >= max_iter:
            lead = C[:, :wanted]
            return RitzPairs(values[:wanted], gram.combine(X, lead), gram.combine(KX, lead), info)
        if X.shape[1] + block > max(max_columns, 3 * block):
            kept = C[:, : 2 * block]
            d, U = np.linalg.eigh(kept.T @ gram.inner(X, X) @ kept)
            keep = d > 1e-12 * d[-1]
            kept = kept @ (U[:, keep] / np.sqrt(d[keep]))
            X, KX = gram.combine(X, kept), gram.combine(KX, kept)
            KKX = gram.combine(KKX, kept) if depth == 2 else None
        # Through K twice a residual is too smooth to bring anything new; its preimage is not.
        step = residual if depth == 1 else preimage
        new = _orthonormal(gram, step if precondition is None else precondition(residual), X)


def _orthonormal(gram: Gram, V: Thin, against: Thin) -> Thin:
    """Orthonormal basis of V's part outside the columns of ``against``; rounding is left out."""
    sizes = norms(gram, V)
    V = gram.combine(V, np.diag(np.where(sizes > 0, 1.0 / np.where(sizes > 0, sizes, 1.0), 0.0)))
    for _ in range(2):
        if against.shape[1]:
            V = V - gram.combine(against, gram.inner(against, V))
        d, U = np.linalg.eigh(gram.inner(V, V))
        keep = d > 1e-14 * max(float(d[-1]), 1e-8)
        V = gram.combine(V, U[:, keep] / np.sqrt(d[keep]))
        if not keep.any():
            break
    return V
