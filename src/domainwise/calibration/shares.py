"""Class shares of a domain without labels, and probabilities that take them into account."""

from __future__ import annotations

import numpy as np

from domainwise.arrays import Array, ArrayLike, MaybeArray
from domainwise.checks.inputs import check_sample_domain

MAX_STEPS, TOLERANCE = 1000, 1e-8


def adapt_class_shares(
    probabilities: ArrayLike,
    shares: ArrayLike,
    sample_domain: MaybeArray = None,
    *,
    prior_rows: float = 20.0,
) -> Array:
    r"""Re-estimate class shares in each domain, and adapt probabilities to them.

    If classes look the same in every domain and only their shares differ, the shares of a new one
    can be found from its rows without labels (EM of Saerens, Latinne and Decaestecker).
    Where classes look different there, too, this makes probabilities worse: use it where domains
    left out have gained from it.

    Parameters
    ----------
    probabilities : array-like of shape (n_rows, n_classes)
        For the class shares of the sources.
    shares : array-like of shape (n_classes,)
        Class shares of the sources.
    sample_domain : array-like of shape (n_rows,), default=None
        None takes all rows for one domain.
    prior_rows : float, default=20.0
        As many rows with the shares of the sources are added to each domain.

    Returns
    -------
    adapted : ndarray of shape (n_rows, n_classes)

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.9, 0.1]] * 70 + [[0.1, 0.9]] * 30)  # three quarters, of 90 % each
    >>> adapt_class_shares(p, [0.5, 0.5], prior_rows=0).mean(axis=0).round(3).tolist()
    [0.75, 0.25]
    """
    p, base = np.array(probabilities, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    usable = p.ndim == 2 and bool((p >= 0).all() and (p.sum(axis=1) > 0).all())
    if not usable or base.shape != p.shape[1:] or not (base > 0).all():
        raise ValueError(
            f"shares must hold a positive number for each of the columns of probabilities, which "
            f"has shape {p.shape}; no row of them may be negative, or zero all over"
        )
    if not prior_rows >= 0:
        raise ValueError(f"prior_rows={prior_rows!r} must not be negative")
    base = base / base.sum()
    codes = check_sample_domain(sample_domain, len(p), "delta").codes
    for code in np.unique(codes):
        rows = codes == code
        found = mine = p[rows]
        now = base
        for _ in range(MAX_STEPS):
            found = mine * (now / base)
            found = found / found.sum(axis=1, keepdims=True)
            before, now = now, found.sum(axis=0) + prior_rows * base
            now = now / now.sum()
            if np.abs(now - before).max() < TOLERANCE:
                break
        p[rows] = found
    return p
