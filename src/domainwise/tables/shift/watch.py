"""ShiftWatch: statistics of a model's source domains, and the same statistics of new rows.

A fitted watch contains no rows, only statistics: counts, means, standard deviations and extremes of
columns, names of categories, and values of kernel means at random points. The number of points is
limited so that a source domain has at most half as many statistics as values, and its rows cannot
be computed from the statistics. Source domains with few rows are pooled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Self, cast

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.validation import check_is_fitted

from domainwise.algebra.backends import refuse_tensors_and_dask
from domainwise.algebra.kernels.functions import resolve_gamma
from domainwise.base.arrays import Array, ArrayLike, Label, MaybeArray, group_sums
from domainwise.base.inputs import check_sample_domain, validate_rows
from domainwise.base.signatures import with_domain_checks
from domainwise.estimators.ensemble.batches import Moments, rows_moments

#: Maximum number of points at which kernel means are computed.
MAX_LANDMARKS = 100
#: Maximum number of source domains with separate statistics; the largest domains are chosen.
MAX_SOURCES = 200
#: Minimum number of rows in a source domain with separate statistics; smaller domains are pooled.
MIN_SOURCE_ROWS = 20
#: Minimum number of rows in a pooled domain whose distance from the rest of the pool is computed.
MIN_POOLED_ROWS = 5
#: Name of the pooled domains in ``sources_``.
POOLED = "other sources"
#: A text column with more categories than this is an identifier; its values are not checked.
MAX_CATEGORIES = 1000
#: New rows are checked by domain if they come from at most this many, otherwise all together.
MAX_DOMAINS = 1000
#: Standardized values are clipped at ±CLIP, so that an outlier does not dominate a mean.
CLIP = 10.0
#: A value is out of range if it is beyond the range by more than this fraction of the width.
MARGIN = 0.1
#: Added to the diagonal of the landmarks' kernel matrix, which may be singular.
JITTER = 1e-6
#: Maximum number of unknown categories listed for a column, and of rows in a block.
MAX_EXAMPLES, BLOCK_ROWS = 5, 20_000
#: Options of ``validate_rows`` that accept text and missing values.
_ANY_VALUES: dict[str, Any] = {"numeric": False, "dtype": None, "ensure_all_finite": False}


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


@dataclass(frozen=True)
class ShiftStatistics:
    """Statistics of rows from one domain; the statistics of several blocks of rows can be added.

    They are sums over rows (see :meth:`ShiftWatch.split_totals`), the range of each numeric column,
    and for each text column, examples of values that occur in no source domain.
    """

    totals: Array
    lowest: Array
    highest: Array
    examples: dict[str, list[str]]

    def __add__(self, other: ShiftStatistics) -> ShiftStatistics:
        """Return the statistics of all rows of both operands."""
        a, b = self.examples, other.examples
        examples = {c: sorted({*a.get(c, ()), *b.get(c, ())})[:MAX_EXAMPLES] for c in a | b}
        lowest = np.fmin(self.lowest, other.lowest)
        highest = np.fmax(self.highest, other.highest)
        return ShiftStatistics(self.totals + other.totals, lowest, highest, examples)


def merge_statistics(blocks: Iterable[dict[Any, ShiftStatistics]]) -> dict[Any, ShiftStatistics]:
    """Add the statistics of blocks of a table, domain by domain; the key None means all rows."""
    sums: dict[Any, ShiftStatistics] = {}
    for block in blocks:
        for domain, statistics in block.items():
            sums[domain] = sums[domain] + statistics if domain in sums else statistics
        if len(sums) > (1 if None in sums else MAX_DOMAINS):
            first, *others = sums.values()
            sums = {None: sum(others, first)}
    return sums


@with_domain_checks
class ShiftWatch(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Store statistics of the source domains in a pipeline; rows are not changed.

    If a pipeline begins with this step, :func:`~domainwise.check_shift` can report how new rows
    differ from the source domains: other units, missing values, unknown categories, or a large
    distance. ``domainwise fit`` adds this step to every model. No row is stored.

    Attributes
    ----------
    columns_ : list of str
        Names of the columns; ``x0``, ``x1`` and so on if X has no column names.
    numeric_, categorical_ : list of int
        Indices of numeric and text columns; other columns, such as dates, are not checked.
    lowest_, highest_, mean_, scale_ : ndarray of shape (n_numeric,)
        Range, mean and standard deviation of numeric columns over all source domains.
    categories_ : list
        Distinct values of each text column; None for a column with more than 1,000.
    landmarks_ : ndarray of shape (n_landmarks, n_numeric)
        Points, drawn from a normal distribution, at which kernel means are computed; at most 100.
    sources_ : list of str
        Names of the sources: domains with at least 20 rows, or the largest 200 of them. Other
        domains are pooled into "other sources", unless they have fewer than 20 rows in total.
    totals_ : ndarray of shape (n_sources, n_totals)
        Counts, and sums of values, squares and kernel features; see :meth:`split_totals`.
    freedom_ : ndarray of shape (n_sources,)
        Effective number of directions in which a source's rows vary in the kernel's feature space.
    n_features_ : ndarray of shape (n_sources,)
        Number of landmarks used for each source: at most a third of its rows, and few enough
        that it has at most half as many statistics as values; 0 for fewer than 20 rows. With 0, the
        distance from the source is not checked.
    pooled_distance_ : float
        Largest distance of a pooled domain from the rest of the pool, corrected for chance.

    See Also
    --------
    check_shift : Compare new rows with the stored statistics.

    Notes
    -----
    The distance of new rows from source domain t is :math:`\|\mu - \mu_t\|`, where the means
    are those of kernel features (maximum mean discrepancy). It is compared with the distances
    between source domains. Other statistics are ranges, means, and shares of values by domain.

    References
    ----------
    S. Rabanser, S. Guennemann and Z. C. Lipton (2019), "Failing loudly: an empirical study of
    methods for detecting dataset shift", NeurIPS, arXiv:1810.11953.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from domainwise import ShiftWatch, check_shift
    >>> celsius = np.random.default_rng(0).uniform(5, 35, size=(200, 1))
    >>> model = make_pipeline(ShiftWatch(), LinearRegression()).fit(celsius, celsius[:, 0])
    >>> check_shift(model, celsius[:50])
    []
    >>> for finding in check_shift(model, celsius[:50] * 1.8 + 32)[:1]:
    ...     print(str(finding)[:60])
    'x0' ranges from 41.15 to 94.85; 50 of 50 values are outside
    """

    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True}

    _uses_target = False
    n_features_: Array
    pooled_distance_: float = 0.0

    def fit(self, X: ArrayLike, y: object = None, sample_domain: MaybeArray = None) -> Self:
        """Collect statistics of the source domains.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Numbers or text; values may be missing.
        y : ignored
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row. With None or continuous descriptors, all rows are one domain.

        Returns
        -------
        self : object
        """
        refuse_tensors_and_dask(self, X, "Convert it to an array first")
        rows = validate_rows(self, X, skip_check_array=hasattr(X, "iloc"), **_ANY_VALUES)
        if not len(rows):
            raise ValueError("X has 0 rows, but at least 1 is required. Pass rows to fit.")
        column_names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        self.columns_ = [name if isinstance(name, str) else f"x{name}" for name in column_names]
        columns = self._select_columns(rows)
        column_kinds = [column_kind(column) for column in columns]
        self.numeric_ = [i for i, kind in enumerate(column_kinds) if kind == "number"]
        self.categorical_ = [i for i, kind in enumerate(column_kinds) if kind == "text"]
        text_columns = [columns[i] for i in self.categorical_]
        categories = [sorted(set(map(str, x[~missing_cells(x)]))) for x in text_columns]
        self.categories_ = [c if len(c) <= MAX_CATEGORIES else None for c in categories]
        numbers = self._numeric_values(columns)
        numbers[~np.isfinite(numbers)] = np.nan
        moments, extremes = rows_moments(numbers)
        self.lowest_, self.highest_ = extremes.lowest, extremes.highest
        self.mean_, deviations = moments.mean[0], np.sqrt(moments.variance[0])
        # Rounding errors can make the deviation of a constant column slightly positive.
        self.scale_ = np.where(deviations > 1e-12 * np.abs(self.mean_), deviations, 1.0)
        domains = check_sample_domain(sample_domain, len(rows))
        source_codes = self._choose_sources(domains, len(rows))
        Z = self._standardize(numbers)
        n_features = self._draw_landmarks(Z, np.bincount(source_codes[source_codes >= 0]))
        self.totals_ = self._sum_groups(columns, source_codes, len(self.sources_), n_features)[0]
        source_rows = (Z[source_codes == d] for d in range(len(self.sources_)))
        self.freedom_ = np.array(list(map(self._compute_freedom, source_rows, n_features)))
        self.n_features_ = n_features
        if self.sources_[-1] == POOLED and domains.codes is not None:
            pooled_codes = np.where(source_codes == len(self.sources_) - 1, domains.codes, -1)
            self.pooled_distance_ = self._pooled_distance(columns, pooled_codes, n_features[-1])
        return self

    def transform(self, X: ArrayLike) -> Any:
        """Return X unchanged, without columns that were not in ``fit``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        X : array-like or data frame of shape (n_samples, n_features)
            The rows, unchanged. Columns of a data frame are selected by name.
        """
        check_is_fitted(self)
        if hasattr(X, "iloc"):  # a new frame, because scikit-learn's wrapper renames its columns
            frame, names = cast("Any", X), getattr(self, "feature_names_in_", None)
            self._select_columns(frame)
            return frame.copy(deep=False) if names is None else frame[list(names)]
        return validate_rows(self, X, reset=False, **_ANY_VALUES)

    def summarize(
        self, X: ArrayLike, sample_domain: MaybeArray = None
    ) -> dict[Label | None, ShiftStatistics]:
        """Compute statistics of new rows by domain; the key None means all rows."""
        check_is_fitted(self)
        rows: Any = X if hasattr(X, "iloc") else validate_rows(self, X, reset=False, **_ANY_VALUES)
        columns = self._select_columns(rows)
        domains = check_sample_domain(sample_domain, len(rows), "delta")
        names = [None] if sample_domain is None else np.asarray(domains.names).tolist()
        domain_codes = np.asarray(domains.codes)
        totals, examples = self._sum_groups(columns, domain_codes, len(names))
        numbers = self._numeric_values(columns)
        extremes = np.full((2, len(names), numbers.shape[1]), np.nan)
        np.fmin.at(extremes[0], domain_codes, numbers)
        np.fmax.at(extremes[1], domain_codes, numbers)
        return dict(zip(names, map(ShiftStatistics, totals, *extremes, examples), strict=True))

    def split_totals(self, totals: Array) -> dict[str, Array]:
        """Split sums over rows into named arrays.

        ``rows`` and ``missing`` are counts, the latter by column, with text columns last.
        For numeric columns, ``beyond`` counts values out of range, and ``level`` and ``spread`` are
        sums of standardized values and of their squares. ``unknown`` counts text values that occur
        in no source domain. ``kernel`` and ``norms`` are sums of kernel features and squared norms.
        """
        n_sums_by_name = self._n_sums_by_name()
        boundaries = np.cumsum(list(n_sums_by_name.values()))[:-1]
        return dict(zip(n_sums_by_name, np.split(totals, boundaries, axis=-1), strict=True))

    def moments(self, totals: Array) -> Moments:
        """Compute moments of standardized numbers from sums over rows."""
        sums = self.split_totals(totals)
        count = sums["rows"] - sums["missing"][..., : len(self.numeric_)]
        mean = sums["level"] / np.maximum(count, 1)
        return Moments(count, mean, np.maximum(sums["spread"] - count * mean**2, 0.0))

    def _n_sums_by_name(self) -> dict[str, int]:
        p, q = len(self.numeric_), len(self.categorical_)
        n_sums = {"rows": 1, "missing": p + q, "beyond": p, "level": p, "spread": p, "unknown": q}
        return n_sums | {"kernel": len(self.landmarks_), "norms": 1}

    def _select_columns(self, X: Any) -> list[Any]:
        """Return the columns of X that were seen in fit, in the same order as in fit."""
        if not hasattr(X, "iloc"):
            return list(np.asarray(X).T)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            if X.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"X has {X.shape[1]} columns, but the source domains have "
                    f"{self.n_features_in_}. Pass the same columns."
                )
            return [X.iloc[:, i] for i in range(X.shape[1])]
        if absent_names := [name for name in names if name not in X.columns]:
            raise ValueError(
                f"X has no column {absent_names[0]!r}, which the source domains have. Add it; "
                "missing values are accepted."
            )
        if repeated_names := [name for name in names if (X.columns == name).sum() > 1]:
            raise ValueError(f"X has several columns {repeated_names[0]!r}. Rename or drop them.")
        return [X[name] for name in names]

    def _numeric_values(self, columns: list[Any]) -> Array:
        numbers = np.full((len(columns[0]), len(self.numeric_)), np.nan)
        for j, i in enumerate(self.numeric_):
            is_present = ~missing_cells(columns[i])
            try:
                numbers[is_present, j] = np.asarray(columns[i][is_present], dtype=np.float64)
            except (TypeError, ValueError):
                raise ValueError(
                    f"column {self.columns_[i]!r} of X contains text, but it contains numbers in "
                    "the source domains. Convert it to numbers."
                ) from None
        return numbers

    def _standardize(self, numbers: Array) -> Array:
        return np.clip((numbers - self.mean_) / self.scale_, -CLIP, CLIP)

    def _choose_sources(self, domains: Any, n_rows: int) -> Array:
        """Set ``sources_``, and return the index of each row's source; -1 means none.

        Domains with few rows, and domains that are not among the largest, are pooled. The
        pool is omitted if it has few rows and other sources exist.
        """
        if domains.codes is None or domains.n_categories == 1:
            self.sources_ = ["all"] if domains.codes is None else [str(domains.names[0])]
            return np.zeros(n_rows, dtype=np.intp)
        domain_sizes = np.bincount(domains.codes)
        largest_codes = np.argsort(-domain_sizes, kind="stable")[:MAX_SOURCES]
        separate_codes = np.sort(largest_codes[domain_sizes[largest_codes] >= MIN_SOURCE_ROWS])
        n_separate, n_pooled_rows = len(separate_codes), n_rows - domain_sizes[separate_codes].sum()
        has_pool = bool(n_pooled_rows >= MIN_SOURCE_ROWS or not n_separate)
        self.sources_ = [str(domains.names[i]) for i in separate_codes] + [POOLED] * has_pool
        source_of_domain = np.full(len(domain_sizes), n_separate if has_pool else -1)
        source_of_domain[separate_codes] = np.arange(n_separate)
        return np.asarray(source_of_domain[domains.codes])

    def _draw_landmarks(self, Z: Array, sizes: Array) -> Array:
        """Set ``gamma_`` and ``landmarks_``, and return the number of landmarks for each source."""
        filled_rows, p = np.nan_to_num(Z), Z.shape[1]
        # Store at most half as many statistics (landmarks, 4 per column and 3 others) as values.
        limits = np.minimum(sizes // 3, sizes * p // 2 - 4 * p - 3)
        n_features = np.where(sizes < MIN_SOURCE_ROWS, 0, limits).clip(0, MAX_LANDMARKS if p else 0)
        is_constant = not p or bool((filled_rows == filled_rows[0]).all())
        self.gamma_ = 1.0 if is_constant else float(resolve_gamma("median", "rbf", filled_rows))
        normal_points = np.random.default_rng(0).standard_normal((int(n_features.max()), p))
        self.landmarks_ = normal_points * filled_rows.std(axis=0)
        return np.asarray(n_features)

    def _kernel_features(self, Z: Array) -> Array:
        """Map rows to the kernel's feature space, projected onto the span of the landmarks.

        The first k features depend only on the first k landmarks.
        """
        if not (len(self.landmarks_) and len(Z)):
            return np.zeros((len(Z), self._n_sums_by_name()["kernel"]))
        kernel_values = rbf_kernel(np.nan_to_num(Z), self.landmarks_, gamma=self.gamma_)
        K = rbf_kernel(self.landmarks_, gamma=self.gamma_)
        factor = cholesky(K + JITTER * np.eye(len(K)), lower=True)
        return np.asarray(solve_triangular(factor, kernel_values.T, lower=True).T)

    def _compute_freedom(self, Z: Array, n_features: int | None = None) -> float:
        """Return tr(C)^2 / tr(C^2) for the covariance C of the features of up to 2,000 rows."""
        features = self._kernel_features(Z[:: -(-len(Z) // 2000)])[:, :n_features]
        C = np.atleast_2d(np.cov(features, rowvar=False, bias=True)) if features.size else 0.0
        trace_of_square = float(np.sum(np.square(C)))
        return float(np.trace(C)) ** 2 / trace_of_square if trace_of_square > 1e-300 else 1.0

    def _pooled_distance(self, columns: list[Any], pooled_codes: Array, n_features: int) -> float:
        """Return the largest distance of a pooled domain from the rest of the pool.

        It is corrected for chance. ``pooled_codes`` are domain codes, or -1 for rows not pooled.
        """
        domain_sizes = np.bincount(pooled_codes[pooled_codes >= 0])
        largest_codes = np.argsort(-domain_sizes, kind="stable")[: 5 * MAX_SOURCES]
        largest_codes = largest_codes[domain_sizes[largest_codes] >= MIN_POOLED_ROWS]
        if not n_features or len(largest_codes) < 2:
            return 0.0
        group_of_domain = np.full(len(domain_sizes) + 1, -1)
        group_of_domain[largest_codes] = np.arange(len(largest_codes))
        totals, _ = self._sum_groups(columns, group_of_domain[pooled_codes], len(largest_codes))
        domain_sums = self.split_totals(totals)["kernel"][:, :n_features]
        pooled_totals, n_pooled = self.split_totals(self.totals_[-1]), domain_sizes.sum()
        sizes, pooled_sum = domain_sizes[largest_codes, None], pooled_totals["kernel"][:n_features]
        variance = pooled_totals["norms"][0] / n_pooled - np.sum((pooled_sum / n_pooled) ** 2)
        mean_differences = domain_sums / sizes - (pooled_sum - domain_sums) / (n_pooled - sizes)
        squared_distances = (mean_differences**2).sum(axis=1, keepdims=True) - variance / sizes
        return float(np.sqrt(np.max(squared_distances).clip(0)))

    def _sum_groups(
        self, columns: list[Any], group_codes: Array, n_groups: int, n_features: Array | None = None
    ) -> tuple[Array, list[dict[str, list[str]]]]:
        """Return sums over the rows of each group, and examples of unknown categories.

        Only the first ``n_features`` kernel features of each group are summed; None sums all.
        """
        numbers = self._numeric_values(columns)
        is_missing, is_unknown = np.zeros((2, len(group_codes), len(self.categorical_)), dtype=bool)
        examples: list[dict[str, list[str]]] = [{} for _ in range(n_groups)]
        for j, (i, categories) in enumerate(zip(self.categorical_, self.categories_, strict=True)):
            is_missing[:, j] = missing_cells(columns[i])
            if categories is None:
                continue
            values = np.asarray(columns[i], dtype=object)
            is_unknown[:, j] = ~is_missing[:, j] & ~np.isin(values.astype(str), categories)
            for g in np.unique(group_codes[is_unknown[:, j]]):
                unknown_values = values[is_unknown[:, j] & (group_codes == g)]
                examples[g][self.columns_[i]] = sorted(set(map(str, unknown_values)))[:MAX_EXAMPLES]
        margins = MARGIN * (self.highest_ - self.lowest_) + 1e-9 * np.abs(self.mean_)
        totals: Any = 0.0
        for start in range(0, len(group_codes), BLOCK_ROWS):
            row_indices = np.flatnonzero(group_codes[start : start + BLOCK_ROWS] >= 0) + start
            x, block_codes = numbers[row_indices], group_codes[row_indices]
            z = self._standardize(x)
            features = self._kernel_features(z)
            if n_features is not None:
                features *= np.arange(features.shape[1]) < n_features[block_codes][:, None]
            summands = [
                np.ones((len(x), 1)),
                np.isnan(x),
                is_missing[row_indices],
                (x < self.lowest_ - margins) | (x > self.highest_ + margins),
                np.nan_to_num(z),
                np.nan_to_num(z) ** 2,
                is_unknown[row_indices],
                features,
                (features**2).sum(axis=1, keepdims=True),
            ]
            totals = totals + group_sums(np.hstack(summands), block_codes, n_groups)
        return np.asarray(totals), examples

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags
