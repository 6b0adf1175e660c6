"""Column statistics by domain, for plots and for checks of a table.

:func:`columns_of` lists the columns of a table, and :func:`quantiles_by_domain` and
:func:`describe_column` describe them by domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from domainwise.base.arrays import Array
from domainwise.tables.shift.watch import missing_cells

#: Probabilities of the quantiles in :func:`describe_column`.
PROBABILITIES = (0.1, 0.25, 0.5, 0.75, 0.9)
#: Interquartile range of a standard normal variable, and 1 / its median absolute deviation (MAD).
NORMAL_IQR, MAD_FACTOR = 1.349, 1.4826
#: A domain with fewer values in a column may differ from the others by chance.
MIN_VALUES = 10
#: Maximum number of listed categories. Those with fewer than ``MIN_CATEGORY_ROWS`` rows are merged.
MAX_CATEGORIES_SHOWN, MIN_CATEGORY_ROWS = 4, 5


def columns_of(X: Any) -> list[tuple[str, Array]]:
    """Return each column's name and values; missing values are NaN in float64, None in objects."""
    if not hasattr(X, "columns"):
        return [(f"x{i}", np.asarray(column, np.float64)) for i, column in enumerate(X.T)]
    columns = []
    for name in X.columns:
        column = X[name]
        if column.dtype.kind in "biuf":
            values = column.to_numpy(np.float64)
        else:
            values = column.astype(object).where(column.notna(), None).to_numpy()
        columns.append((str(name), values))
    return columns


def quantiles_by_domain(
    values: Array, domain_codes: Array, n_domains: int, probabilities: Sequence[float]
) -> Array:
    """Return quantiles of the finite values in each domain; NaN for a domain without values.

    ``values`` has shape (n_rows,) or (n_rows, n_columns), and the result
    (n_probabilities, n_domains) or (n_probabilities, n_domains, n_columns).

    >>> quantiles_by_domain(np.array([1.0, 3.0, 5.0, np.nan]), np.array([0, 0, 1, 1]), 2, [0.5])
    array([[2., 5.]])
    """
    columns = values[:, None] if values.ndim == 1 else values
    quantiles = np.full((len(probabilities), n_domains, columns.shape[1]), np.nan)
    for d in range(n_domains):
        for j, column in enumerate(columns[domain_codes == d].T):
            finite_values = column[np.isfinite(column)]
            if len(finite_values):
                quantiles[:, d, j] = np.quantile(finite_values, probabilities)
    return quantiles.reshape(len(probabilities), n_domains, *values.shape[1:])


def describe_column(
    name: str, values: Array, domain_codes: Array, n_domains: int
) -> dict[str, Any]:
    """Describe a column from :func:`columns_of` by domain, for JSON.

    A column with two different numbers is described as text; the larger number is first.

    Returns ``name``, ``kind`` ("number" or "text") and the share of ``missing`` values by domain;
    for numbers ``quantiles`` (10, 25, 50, 75 and 90 %, None for a domain without values) and the
    ``deviation`` within domains, for text ``categories`` and their ``shares``; the largest
    ``distance`` of a domain from all others, with the index of this domain (``distance_at``); and
    the largest area under the ROC curve (``tells``) with which the column separates a domain from
    all others, with the index of this domain (``tells_at``).
    """
    is_number = values.dtype.kind == "f"
    is_observed = np.isfinite(values) if is_number else ~missing_cells(values)
    n_rows = np.bincount(domain_codes, minlength=n_domains)
    observed_codes = domain_codes[is_observed]
    n_observed = np.bincount(observed_codes, minlength=n_domains)
    observed = values[is_observed]
    names = [f"{level:g}" for level in np.unique(observed)] if is_number else []
    if is_binary := len(names) == 2:  # shares say more about such a column than quantiles
        observed, is_number = np.where(observed == observed.max(), *names[::-1]), False
    describe = _describe_numbers if is_number else _describe_text
    statistics, distances, areas = describe(observed, observed_codes, n_domains)
    if is_binary and statistics["categories"] == names:  # the share of 1 is first, not that of 0
        statistics["categories"] = names[::-1]
        statistics["shares"] = [shares and shares[::-1] for shares in statistics["shares"]]
    missing_shares, n_missing = 1 - n_observed / n_rows, n_rows - n_observed
    other_missing_shares = (n_missing.sum() - n_missing) / (len(domain_codes) - n_rows)
    # Domains with few values are compared only if all domains have few values.
    has_few_values = n_observed < (MIN_VALUES if (n_observed >= MIN_VALUES).any() else 1)
    missing_areas = 0.5 + np.abs(missing_shares - other_missing_shares) / 2
    areas = np.maximum(np.where(has_few_values, 0.5, areas), missing_areas)
    distances = np.where(has_few_values, 0.0, distances)
    farthest_domain, most_distinct_domain = int(np.argmax(distances)), int(np.argmax(areas))
    return {
        "name": name,
        "kind": "number" if is_number else "text",
        "missing": missing_shares.tolist(),
        **statistics,
        "distance": float(distances[farthest_domain]),
        "distance_at": farthest_domain,
        "tells": float(areas[most_distinct_domain]),
        "tells_at": most_distinct_domain,
    }


def _describe_numbers(x: Array, domain_codes: Array, n: int) -> tuple[dict[str, Any], Array, Array]:
    """Return statistics of numbers ``x``, and each domain's distance and ROC area vs. the others.

    The deviation within domains is the median absolute deviation, multiplied by ``MAD_FACTOR``. If
    it is 0, the root mean square deviation is used, or the deviation over all domains, or 1.
    """
    quantiles = quantiles_by_domain(x, domain_codes, n, PROBABILITIES).T
    counts = np.bincount(domain_codes, minlength=n)
    scale, distances = 1.0, np.zeros(n)
    if len(x):
        deviations = np.abs(x - quantiles[domain_codes, 2])
        scale = MAD_FACTOR * float(np.median(deviations)) or float(np.sqrt(np.mean(deviations**2)))
        scale = scale or float(np.std(x)) or 1.0
    rank_sums = np.bincount(domain_codes, rankdata(x), minlength=n)
    with np.errstate(invalid="ignore", divide="ignore"):
        areas = (rank_sums - counts * (counts + 1) / 2) / (counts * (len(x) - counts))
    for d in np.flatnonzero((counts > 0) & (counts < len(x))):
        distances[d] = abs(quantiles[d, 2] - np.median(x[domain_codes != d])) / scale
    domain_quantiles = [quantiles[d].tolist() if counts[d] else None for d in range(n)]
    areas = np.nan_to_num(np.maximum(areas, 1 - areas), nan=0.5)
    return {"quantiles": domain_quantiles, "deviation": scale}, distances, areas


def _describe_text(x: Array, domain_codes: Array, n: int) -> tuple[dict[str, Any], Array, Array]:
    """Return statistics of categories ``x``, and distances and ROC areas as for numbers.

    The area is largest if categories are sorted by the ratio of their shares in the domain and in
    all other domains.
    """
    names = [str(value) for value in x]
    name_counts = Counter(names).most_common()
    frequent_names = [name for name, count in name_counts if count >= MIN_CATEGORY_ROWS]
    code_by_name = {name: i for i, name in enumerate(frequent_names)}
    rare_code = len(frequent_names)  # for all rare categories
    category_codes = np.array([code_by_name.get(name, rare_code) for name in names], dtype=np.intp)
    counts = np.zeros((n, rare_code + 1))  # by domain and category
    np.add.at(counts, (domain_codes, category_codes), 1.0)
    n_rows, other_counts = counts.sum(axis=1), counts.sum(axis=0) - counts
    shares = counts / np.maximum(n_rows, 1)[:, None]
    other_shares = other_counts / np.maximum(other_counts.sum(axis=1), 1)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        order = np.argsort(np.nan_to_num(-shares / (shares + other_shares)), axis=1, kind="stable")
    true_rates, false_rates = (
        np.pad(np.cumsum(np.take_along_axis(rates, order, axis=1), axis=1), ((0, 0), (1, 0)))
        for rates in (shares, other_shares)
    )
    is_comparable = (true_rates[:, -1] > 0) & (false_rates[:, -1] > 0)
    areas = np.where(is_comparable, np.trapezoid(true_rates, false_rates, axis=1), 0.5)
    categories = frequent_names[:MAX_CATEGORIES_SHOWN]
    domain_shares = [shares[d, : len(categories)].tolist() if n_rows[d] else None for d in range(n)]
    distances = np.abs(shares - other_shares).sum(axis=1) / 2
    return {"categories": categories, "shares": domain_shares}, distances, areas
