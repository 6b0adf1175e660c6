"""ShiftWatch: statistics of the source domains in a model, and the same statistics of new rows.

A fitted watch contains statistics only, and no rows: counts, means, deviations and extremes of
columns, categories, and kernel means at random points. There are so few points that a source has at
most half as many statistics as values, and its rows cannot be computed from them. Sources with few
rows are pooled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.validation import check_is_fitted

from domainwise.arrays import Array, ArrayLike, Frame, Label, MaybeArray
from domainwise.backends import refuse_tensors_and_dask
from domainwise.checks.inputs import check_sample_domain, validate_rows
from domainwise.checks.signatures import with_domain_checks
from domainwise.ensemble.moments import Moments, group_sums, rows_moments
from domainwise.kernels.functions import resolve_gamma
from domainwise.tables.statistics import column_kind, missing_cells

#: Points at which kernel means are taken.
LANDMARKS = 100
#: Largest number of source domains with separate statistics: those with the most rows.
MOST_SOURCES = 200
#: Smallest number of rows of a source with separate statistics; smaller sources are pooled.
LEAST_ROWS = 20
#: Smallest number of rows of a pooled source whose distance to the others is estimated.
LEAST_POOLED = 5
POOLED = "other sources"
#: A text column with more categories is taken for an identifier; its values are not checked.
MOST_CATEGORIES = 1000
#: Most domains of new rows that are checked separately; if there are more, rows are pooled.
MOST_DOMAINS = 1000
#: Standardised values are clipped at this size, so that an outlier does not dominate a mean.
CLIP = 10.0
#: A value is out of range if it exceeds the sources' range by this share of the range's width.
MARGIN = 0.1
#: Added to the diagonal of the landmarks' kernel, which may be singular.
JITTER = 1e-6
EXAMPLES = 5
BLOCK_ROWS = 20_000
#: Text and missing values are accepted.
_ANY_ROWS: dict[str, Any] = {"numbers": False, "dtype": None, "ensure_all_finite": False}


@dataclass(frozen=True)
class View:
    """Statistics of some rows of one domain; views of several pieces of a table can be added.

    They are sums over rows (see :meth:`ShiftWatch.parts`), the range of each numeric column, and
    for each text column a few categories that no source has.
    """

    totals: Array
    lowest: Array
    highest: Array
    examples: dict[str, list[str]]

    def __add__(self, other: View) -> View:
        """Return the statistics of the rows of both views."""
        a, b = self.examples, other.examples
        examples = {n: sorted({*a.get(n, ()), *b.get(n, ())})[:EXAMPLES] for n in a | b}
        lowest = np.fmin(self.lowest, other.lowest)
        highest = np.fmax(self.highest, other.highest)
        return View(self.totals + other.totals, lowest, highest, examples)


def joined_views(pieces: Iterable[dict[Any, View]]) -> dict[Any, View]:
    """Add up the views of pieces of a table, domain by domain; None stands for all rows."""
    joined: dict[Any, View] = {}
    for piece in pieces:
        for name, view in piece.items():
            joined[name] = joined[name] + view if name in joined else view
        if len(joined) > (1 if None in joined else MOST_DOMAINS):
            first, *rest = joined.values()
            joined = {None: sum(rest, first)}
    return joined


@with_domain_checks
class ShiftWatch(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Collect statistics of the source domains, and pass rows on unchanged.

    As the first step of a pipeline it lets :func:`~domainwise.check_shift` report how new rows
    differ from the sources: units, missing columns, unknown categories, and the distance from all
    sources. It never changes a row. ``domainwise fit`` puts one into every model. A fitted watch
    contains statistics only, and no training rows.

    Attributes
    ----------
    columns_ : list of str
        Names of the columns; ``x0`` and so on if X has none.
    numeric_, categorical_ : list of int
        Indices of numeric and of text columns; others, such as dates, are not checked.
    lowest_, highest_, mean_, scale_ : ndarray of shape (n_numeric,)
        Range, mean and standard deviation of numeric columns over all sources.
    categories_ : list
        Values of each text column; None if there are more than 1,000.
    landmarks_ : ndarray of shape (n_landmarks, n_numeric)
        Points, drawn from a normal distribution, at which kernel means are taken; at most 100.
    sources_ : list of str
        Domains with at least 20 rows, at most the 200 largest. Rows of the other domains are
        pooled into one source, "other sources", if there are enough of them.
    totals_ : ndarray of shape (n_sources, n_totals)
        Counts, sums, squares and kernel means of each source, as sums over its rows: the size
        does not depend on the number of rows.
    freedom_ : ndarray of shape (n_sources,)
        Effective number of directions in which a source's rows vary in the kernel's space.
    n_features_ : ndarray of shape (n_sources,), or None
        Number of kernel means of each source, at most a third of its rows; None means all.
    pooled_distance_ : float
        The largest distance of a pooled domain from the other pooled domains.

    See Also
    --------
    check_shift : Compares new rows with the stored statistics.

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
    >>> [finding.kind for finding in check_shift(model, celsius[:50] * 1.8 + 32)]
    ['range', 'distance']
    """

    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True}

    # Defaults for a watch that is made from sums, or from a file of format 3. Files of format 3
    # have landmarks that are rows, and a matrix that maps kernel values to features.
    _uses_target = False
    n_features_: Array | None = None
    pooled_distance_: float = 0.0
    _root: Array | None = None

    def fit(self, X: ArrayLike, y: object = None, sample_domain: MaybeArray = None) -> Self:
        """Collect statistics of the sources.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Numbers or text; values may be missing.
        y : ignored
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row. With None or continuous descriptors, all rows are one source.

        Returns
        -------
        self : object
        """
        refuse_tensors_and_dask(self, X, "convert it to an array first")
        rows = validate_rows(self, X, skip_check_array=hasattr(X, "iloc"), **_ANY_ROWS)
        if not len(rows):
            raise ValueError("X has 0 rows; a minimum of 1 is required")
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        self.columns_ = [name if isinstance(name, str) else f"x{name}" for name in names]
        columns = self._columns(rows)
        kinds = [column_kind(column) for column in columns]
        self.numeric_ = [i for i, kind in enumerate(kinds) if kind == "number"]
        self.categorical_ = [i for i, kind in enumerate(kinds) if kind == "text"]
        texts = [columns[i] for i in self.categorical_]
        values = [sorted({str(value) for value in x[~missing_cells(x)]}) for x in texts]
        self.categories_ = [v if len(v) <= MOST_CATEGORIES else None for v in values]
        numbers = self._numbers(columns)
        numbers[~np.isfinite(numbers)] = np.nan
        moments, levels = rows_moments(numbers)
        self.lowest_, self.highest_ = levels.lowest, levels.highest
        self.mean_ = moments.mean[0]
        deviation = np.sqrt(moments.variance[0])
        # A deviation within the rounding error of the mean is that of a constant column.
        self.scale_ = np.where(deviation > 1e-12 * np.abs(self.mean_), deviation, 1.0)
        labels = check_sample_domain(sample_domain, len(rows))
        codes = self._choose_sources(labels, len(rows))
        Z = self._standardised(numbers)
        n_features = self._draw_landmarks(Z, np.bincount(codes[codes >= 0]))
        self.totals_ = self._totals(columns, codes, len(self.sources_), n_features)[0]
        rows_of = (Z[codes == d] for d in range(len(self.sources_)))
        self.freedom_ = np.array(list(map(self._freedom, rows_of, n_features)))
        self.n_features_ = n_features
        if self.sources_[-1] == POOLED and labels.codes is not None:
            pooled = np.where(codes == len(self.sources_) - 1, labels.codes, -1)
            self.pooled_distance_ = self._pooled_distance(columns, pooled, n_features[-1])
        return self

    @classmethod
    def of_summary(cls, columns: dict[str, list[str] | None], **attributes: object) -> ShiftWatch:
        """Make a watch for data frames before any row is read.

        ``columns`` maps names to categories, or to None for numbers; ``attributes`` are ranges,
        scales and landmarks. The caller sets ``sources_``, and ``totals_`` and ``freedom_`` from
        :meth:`summed_up`. Kernel features are the same on every machine.
        """
        watch = cls()
        watch.columns_, watch.n_features_in_ = list(columns), len(columns)
        watch.feature_names_in_ = np.array(watch.columns_, dtype=object)
        watch.numeric_ = [i for i, name in enumerate(columns) if columns[name] is None]
        watch.categorical_ = [i for i, name in enumerate(columns) if columns[name] is not None]
        watch.categories_ = [names for names in columns.values() if names is not None]
        watch.__dict__.update(attributes)
        return watch

    def summed_up(self, X: Frame, codes: Array, n_groups: int) -> tuple[Array, Array]:
        """Compute ``totals_`` and ``freedom_`` of groups of rows; the code -1 means no group."""
        totals = np.zeros((n_groups, self.n_totals))
        for start in range(0, len(codes), 5 * BLOCK_ROWS):
            rows = slice(start, start + 5 * BLOCK_ROWS)
            totals += self._totals(self._columns(X.iloc[rows]), codes[rows], n_groups)[0]
        freedom = np.ones(n_groups)
        for d in range(n_groups):
            rows_of = np.flatnonzero(codes == d)
            sample = X.iloc[rows_of[:: -(-len(rows_of) // 2000)]]
            freedom[d] = self._freedom(self._standardised(self._numbers(self._columns(sample))))
        return totals, freedom

    def transform(self, X: ArrayLike) -> Any:
        """Return X unchanged.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        X : array-like or data frame of shape (n_samples, n_features)
            The rows, unchanged.
        """
        check_is_fitted(self)
        if hasattr(X, "iloc"):  # later steps choose columns by name, in any order
            return X
        return validate_rows(self, X, reset=False, **_ANY_ROWS)

    def look(self, X: ArrayLike, sample_domain: MaybeArray = None) -> dict[Label | None, View]:
        """Collect statistics of new rows by domain; the key None stands for all rows together."""
        check_is_fitted(self)
        rows: Any = X if hasattr(X, "iloc") else validate_rows(self, X, reset=False, **_ANY_ROWS)
        columns = self._columns(rows)
        labels = check_sample_domain(sample_domain, len(rows), "delta")
        names = [None] if sample_domain is None else np.asarray(labels.names).tolist()
        codes = np.asarray(labels.codes)
        totals, examples = self._totals(columns, codes, len(names))
        numbers = self._numbers(columns)
        ends = np.full((2, len(names), numbers.shape[1]), np.nan)
        np.fmin.at(ends[0], codes, numbers)
        np.fmax.at(ends[1], codes, numbers)
        return dict(zip(names, map(View, totals, *ends, examples), strict=True))

    def parts(self, totals: Array) -> dict[str, Array]:
        """Split sums over rows into named parts.

        ``missing`` has counts of numeric, then of categorical columns. For numeric columns,
        ``beyond`` counts values out of range, and ``level`` and ``spread`` are sums and sums of
        squares of standardised values. ``norms`` are squared norms of ``kernel`` features.
        """
        sizes = self._sizes()
        cuts = np.cumsum(list(sizes.values()))[:-1]
        return dict(zip(sizes, np.split(totals, cuts, axis=-1), strict=True))

    def moments(self, totals: Array) -> Moments:
        """Moments of standardised numbers, from sums over rows."""
        parts = self.parts(totals)
        count = parts["rows"] - parts["missing"][..., : len(self.numeric_)]
        mean = parts["level"] / np.maximum(count, 1)
        return Moments(count, mean, np.maximum(parts["spread"] - count * mean**2, 0.0))

    def _sizes(self) -> dict[str, int]:
        p, q = len(self.numeric_), len(self.categorical_)
        r = len(self.landmarks_) if self._root is None else self._root.shape[1]
        sizes = {"rows": 1, "missing": p + q, "beyond": p, "level": p, "spread": p, "unknown": q}
        return sizes | {"kernel": r, "norms": 1}

    @property
    def n_totals(self) -> int:
        """Number of sums over the rows of a source."""
        return sum(self._sizes().values())

    def _columns(self, X: Any) -> list[Any]:
        """List the columns of X that fit has seen, in the order of fit."""
        if not hasattr(X, "iloc"):
            return list(np.asarray(X).T)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            if X.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"X has {X.shape[1]} columns, but the sources have {self.n_features_in_}"
                )
            return [X.iloc[:, i] for i in range(X.shape[1])]
        absent = [name for name in names if name not in X.columns]
        if absent:
            raise ValueError(f"X has no column {absent[0]!r}, which the sources have")
        return [X[name] for name in names]

    def _numbers(self, columns: list[Any]) -> Array:
        numbers = np.full((len(columns[0]), len(self.numeric_)), np.nan)
        for j, i in enumerate(self.numeric_):
            present = ~missing_cells(columns[i])
            try:
                numbers[present, j] = np.asarray(columns[i][present], dtype=np.float64)
            except (TypeError, ValueError):
                raise ValueError(
                    f"column {self.columns_[i]!r} of X holds text where sources have numbers"
                ) from None
        return numbers

    def _standardised(self, numbers: Array) -> Array:
        return np.clip((numbers - self.mean_) / self.scale_, -CLIP, CLIP)

    def _choose_sources(self, labels: Any, n: int) -> Array:
        """Set ``sources_``, and return the code of each row's source; -1 means none.

        Domains with few rows, and domains that are not among the largest, are pooled. They are left
        out if they have few rows in total.
        """
        if labels.codes is None or labels.n_categories == 1:
            self.sources_ = ["all"] if labels.codes is None else [str(labels.names[0])]
            return np.zeros(n, dtype=np.intp)
        counts = np.bincount(labels.codes)
        largest = np.argsort(-counts, kind="stable")[:MOST_SOURCES]
        separate = np.sort(largest[counts[largest] >= LEAST_ROWS])
        n_separate, n_others = len(separate), n - counts[separate].sum()
        pool = bool(n_others >= LEAST_ROWS or not n_separate)
        self.sources_ = [str(labels.names[i]) for i in separate] + [POOLED] * pool
        place = np.full(len(counts), n_separate if pool else -1)
        place[separate] = np.arange(n_separate)
        return np.asarray(place[labels.codes])

    def _draw_landmarks(self, Z: Array, counts: Array) -> Array:
        """Draw landmarks, and return the number of kernel means that each source has."""
        filled, p = np.nan_to_num(Z), Z.shape[1]
        # All numbers about a source are at most half as many as its values.
        bound = np.minimum(counts // 3, counts * p // 2 - 4 * p - 3)
        n_features = np.where(counts < LEAST_ROWS, 0, bound).clip(0, LANDMARKS if p else 0)
        alike = not p or bool((filled == filled[0]).all())
        self.gamma_ = 1.0 if alike else float(resolve_gamma("median", "rbf", filled))
        points = np.random.default_rng(0).standard_normal((int(n_features.max()), p))
        self.landmarks_ = points * filled.std(axis=0)
        return np.asarray(n_features)

    def _features(self, Z: Array) -> Array:
        """Map rows to the kernel's space, projected on the span of the landmarks.

        The first k features depend only on the first k landmarks.
        """
        if not (len(self.landmarks_) and len(Z)):
            return np.zeros((len(Z), self._sizes()["kernel"]))
        values = rbf_kernel(np.nan_to_num(Z), self.landmarks_, gamma=self.gamma_)
        if self._root is not None:
            return np.asarray(values @ self._root)
        K = rbf_kernel(self.landmarks_, gamma=self.gamma_)
        factor = cholesky(K + JITTER * np.eye(len(K)), lower=True)
        return np.asarray(solve_triangular(factor, values.T, lower=True).T)

    def _freedom(self, Z: Array, n_features: int | None = None) -> float:
        """(trace C)^2 / trace C^2 of the covariance C of features, from at most 2,000 rows."""
        features = self._features(Z[:: -(-len(Z) // 2000)])[:, :n_features]
        C = np.atleast_2d(np.cov(features, rowvar=False, bias=True)) if features.size else 0.0
        squares = float(np.sum(np.square(C)))
        return float(np.trace(C)) ** 2 / squares if squares > 1e-300 else 1.0

    def _pooled_distance(self, columns: list[Any], domains: Array, r: int) -> float:
        """The largest distance of a pooled domain from the others, corrected for noise.

        ``domains`` are codes of the domains of pooled rows, and -1 for other rows.
        """
        counts = np.bincount(domains[domains >= 0])
        largest = np.argsort(-counts, kind="stable")[: 5 * MOST_SOURCES]
        largest = largest[counts[largest] >= LEAST_POOLED]
        if not r or len(largest) < 2:
            return 0.0
        group = np.full(len(counts) + 1, -1)
        group[largest] = np.arange(len(largest))
        sums = self.parts(self._totals(columns, group[domains], len(largest))[0])["kernel"][:, :r]
        pooled, n, count = self.parts(self.totals_[-1]), counts.sum(), counts[largest][:, None]
        total = pooled["kernel"][:r]
        variance = pooled["norms"][0] / n - np.sum((total / n) ** 2)
        squared = ((sums / count - (total - sums) / (n - count)) ** 2).sum(axis=1, keepdims=True)
        return float(np.sqrt(np.max(squared - variance / count).clip(0)))

    def _totals(
        self, columns: list[Any], codes: Array, n_groups: int, n_features: Array | None = None
    ) -> tuple[Array, list[dict[str, list[str]]]]:
        """Sums over the rows of each group, and examples of categories that no source has.

        Only the first ``n_features`` kernel features of each group are summed; None sums all.
        """
        numbers = self._numbers(columns)
        absent, unknown = np.zeros((2, len(codes), len(self.categorical_)), dtype=bool)
        examples: list[dict[str, list[str]]] = [{} for _ in range(n_groups)]
        for j, (i, categories) in enumerate(zip(self.categorical_, self.categories_, strict=True)):
            absent[:, j] = missing_cells(columns[i])
            if categories is None:
                continue
            values = np.asarray(columns[i], dtype=object)
            unknown[:, j] = ~absent[:, j] & ~np.isin(values.astype(str), categories)
            for g in np.unique(codes[unknown[:, j]]):
                new = {str(value) for value in values[unknown[:, j] & (codes == g)]}
                examples[g][self.columns_[i]] = sorted(new)[:EXAMPLES]
        margin = MARGIN * (self.highest_ - self.lowest_) + 1e-9 * np.abs(self.mean_)
        total: Any = 0.0
        for start in range(0, len(codes), BLOCK_ROWS):
            rows = np.flatnonzero(codes[start : start + BLOCK_ROWS] >= 0) + start
            x, group = numbers[rows], codes[rows]
            z = self._standardised(x)
            features = self._features(z)
            if n_features is not None:
                features *= np.arange(features.shape[1]) < n_features[group][:, None]
            parts = [
                np.ones((len(x), 1)),
                np.isnan(x),
                absent[rows],
                (x < self.lowest_ - margin) | (x > self.highest_ + margin),
                np.nan_to_num(z),
                np.nan_to_num(z) ** 2,
                unknown[rows],
                features,
                (features**2).sum(axis=1, keepdims=True),
            ]
            total = total + group_sums(np.hstack(parts), group, n_groups)
        return np.asarray(total), examples

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags
