"""Column statistics for preprocessing, plots, and checks for shift and for data errors.

For rows in memory, :func:`columns_of` lists columns, and :func:`quantiles_by_domain` and
:func:`describe_column` describe them by domain. Means and variances are computed by
:class:`~domainwise.estimators.ensemble.moments.Moments`.

For rows in chunks, the :class:`Statistics` of two chunks can be merged; :class:`Preprocessing` is
computed from them. Medians come from a sketch (2,000 weighted values) with rank errors up to 1 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.stats import rankdata

from domainwise.base.arrays import Array
from domainwise.estimators.ensemble.moments import Moments
from domainwise.tables.cells import MAX_CATEGORIES, as_labels
from domainwise.tables.errors import TableError, import_pandas
from domainwise.tables.schema import Schema, make_preprocessor

#: Probabilities of the quantiles in :func:`describe_column`.
PROBABILITIES = (0.1, 0.25, 0.5, 0.75, 0.9)
#: Interquartile range of a standard normal variable, and 1 / its median absolute deviation (MAD).
NORMAL_IQR, MAD_FACTOR = 1.349, 1.4826
#: A domain with fewer values in a column may differ from the others by chance.
MIN_VALUES = 10
#: Maximum number of listed categories. Those with fewer than ``MIN_CATEGORY_ROWS`` rows are merged.
MAX_CATEGORIES_SHOWN, MIN_CATEGORY_ROWS = 4, 5
#: Number of values in a sketch. A merge shifts a rank by at most 1 / (2 * SKETCH_SIZE) of the rows.
SKETCH_SIZE = 2000


def missing_cells(column: Any) -> Array:
    """Return a mask of the missing cells in an array or in a data frame column."""
    if hasattr(column, "isna"):
        return np.asarray(column.isna(), dtype=bool)
    column = np.asarray(column)
    if column.dtype.kind == "O":
        return np.array([value is None or value != value for value in column], dtype=bool)
    return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), dtype=bool)


def column_kind(column: Any) -> str:
    """Return the type of a column's cells: "number", "text" or "other", such as dates.

    >>> column_kind(np.array([1, None, 2.5], dtype=object))
    'number'
    """
    if column.dtype.kind not in "OUST":
        return "number" if column.dtype.kind in "biuf" else "other"
    types = {type(value) for value in column[~missing_cells(column)]}
    return "number" if types and all(issubclass(t, Real) for t in types) else "text"


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
    describe = _describe_numbers if is_number else _describe_text
    statistics, distances, areas = describe(values[is_observed], observed_codes, n_domains)
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


Sketch = tuple[Array, Array]  #: Sorted values, and the number of rows that each represents.


def make_sketch(values: Array, weights: Array, size: int = SKETCH_SIZE) -> Sketch:
    """Sort weighted values; if there are more than ``size``, select ``size`` with equal weights."""
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    if len(values) <= size:
        return values, weights
    mid_ranks, total_weight = np.cumsum(weights) - weights / 2, float(weights.sum())
    ranks = (np.arange(size) + 0.5) * (total_weight / size)
    indices = np.searchsorted(mid_ranks, ranks).clip(max=len(values) - 1)
    return values[indices], np.full(size, total_weight / size)


def merge_sketches(sketches: Sequence[Sketch]) -> Sketch:
    """Merge several sketches into one sketch of all rows."""
    values, weights = (np.concatenate(arrays) for arrays in zip(*sketches, strict=True))
    return make_sketch(values, weights)


def quantile(sketch: Sketch, probability: float) -> float:
    """Return a quantile of the rows that a sketch represents; 0 for a sketch without values."""
    values, weights = sketch
    index = np.searchsorted(np.cumsum(weights), probability * weights.sum())
    return float(values[min(index, len(values) - 1)]) if len(values) else 0.0


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing parameters; ``mean`` and ``variance`` include imputed values."""

    n_rows: int
    medians: Array
    mean: Array
    variance: Array
    categories: list[list[str]]
    frequent: list[str | None]  #: the most frequent category of each column; None without values

    def preprocessor(self, schema: Schema) -> Any:
        """Return a preprocessor with these parameters, equal to one fitted to all rows."""
        pandas = import_pandas()
        # scikit-learn cannot create a fitted transformer from known statistics, and transform needs
        # private attributes that only fit sets. So the preprocessor is fitted to made-up rows with
        # all categories, and public attributes of the imputers and the scaler are set afterwards.
        n = max([1, *map(len, self.categories)])
        columns: dict[str, Any] = dict.fromkeys(schema.numbers, np.arange(float(n)))
        for name, categories in zip(schema.categorical, self.categories, strict=True):
            category_cells: list[Any] = list(categories) or [np.nan]
            columns[name] = pandas.Series(category_cells * n, dtype=object)[:n]
        preprocessor = make_preprocessor(schema).fit(pandas.DataFrame(columns, index=range(n)))
        steps = preprocessor.named_transformers_
        if schema.numbers:
            imputer, scaler = steps["numeric"][0], steps["numeric"][1]
            imputer.statistics_ = self.medians
            scaler.mean_, scaler.var_ = self.mean, self.variance
            scaler.scale_ = np.where(scaler.var_ > 0, np.sqrt(scaler.var_), 1.0)
            scaler.n_samples_seen_ = np.int64(self.n_rows)
        if schema.categorical:
            fill_values = [np.nan if name is None else name for name in self.frequent]
            steps["categorical"][0].statistics_ = np.array(fill_values, dtype=object)
        return preprocessor


@dataclass(frozen=True)
class Statistics:
    """Statistics of a table chunk: numbers, categories, classes and domains."""

    n_left_out: int  #: number of rows without a target or domain
    numbers: Moments
    sketches: list[Sketch]
    categories: list[Counter[str]]
    classes: Counter[str]
    domains: Counter[str]

    def merged(self, other: Statistics) -> Statistics:
        """Return the statistics of all rows in both chunks."""
        return Statistics(
            self.n_left_out + other.n_left_out,
            self.numbers.merged(other.numbers),
            [merge_sketches(pair) for pair in zip(self.sketches, other.sketches, strict=True)],
            [a + b for a, b in zip(self.categories, other.categories, strict=True)],
            self.classes + other.classes,
            self.domains + other.domains,
        )

    def medians(self) -> Array:
        """Return the median of each numeric column; 0 for a column without values."""
        return np.array([quantile(sketch, 0.5) for sketch in self.sketches])

    def preprocessing(self, schema: Schema) -> Preprocessing:
        """Return the preprocessing parameters for these rows."""
        categories, modes = [], []
        for column, counts in zip(schema.categorical, self.categories, strict=True):
            if len(counts) > max(MAX_CATEGORIES, counts.total() // 2):
                raise TableError(
                    f"column {column!r} has {len(counts)} distinct values in {counts.total()} "
                    "rows, so it looks like an identifier. Drop it"
                )
            categories.append(sorted(counts))
            modes.append(min(counts, key=lambda text: (-counts[text], text), default=None))
        p = len(schema.numbers)
        n_values, means, squares = (np.asarray(m)[0, :p] for m in vars(self.numbers).values())
        n, medians = self.domains.total(), self.medians()[:p]
        n_missing = n - n_values
        all_means = (n_values * means + n_missing * medians) / n  # after imputation
        increases = n_values * (means - all_means) ** 2 + n_missing * (medians - all_means) ** 2
        return Preprocessing(n, medians, all_means, (squares + increases) / n, categories, modes)


def labels_by_text(texts: Iterable[str]) -> dict[str, Any]:
    """Map labels that were read as text to integers if all are whole numbers, otherwise to text."""
    column = import_pandas().Series(sorted(texts), dtype=object)
    return dict(zip(column, as_labels(column).tolist(), strict=True))
