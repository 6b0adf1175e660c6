"""Fewer rows where there are many: drawn at random or evenly spaced, so that domains count."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from domainwise.arrays import Array
from domainwise.checks.arguments import check_arguments

#: Rows drawn where there are more and ``max_rows`` is "auto".
AUTO_ROWS = 2000


def draw_rows(codes: Array, max_rows: int | str | None, random_state: int) -> Array:
    """Draw rows evenly from the domains: small domains stay whole, large ones are thinned."""
    n = len(codes)
    check_arguments("evaluate", max_rows=max_rows)
    if isinstance(max_rows, str):
        max_rows = AUTO_ROWS
    if max_rows is None or n <= max_rows:
        return np.arange(n)
    counts = np.bincount(codes)
    if max_rows < 2 * len(counts):
        raise ValueError(
            f"max_rows={max_rows} leaves fewer than two rows to each of {len(counts)} domains"
        )
    # Domains are cut off at one size; the few rows that are left go to the largest, one to each.
    sizes = range(max_rows + 1)
    cut = bisect_right(sizes, max_rows, key=lambda size: int(np.minimum(counts, size).sum())) - 1
    share = np.minimum(counts, cut)
    largest = np.argsort(share - counts, kind="stable")
    share[largest[: max_rows - int(share.sum())]] += 1
    rng = np.random.default_rng(random_state)
    rows = [
        rng.choice(np.flatnonzero(codes == code), size, replace=False)
        for code, size in enumerate(share)
    ]
    return np.sort(np.concatenate(rows))


def spaced_rows(codes: Array, most: Array) -> Array:
    """Evenly spaced rows of each domain, domain by domain; ``most`` of each, at most."""
    parts = []
    for code, count in enumerate(most):
        mine = np.flatnonzero(codes == code)
        parts.append(mine[np.linspace(0, len(mine) - 1, min(len(mine), count)).astype(int)])
    return np.concatenate(parts)
