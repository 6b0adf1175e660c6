"""ShiftWatch: what a model keeps of its sources, and what it sees of new rows beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.validation import check_is_fitted

from domainwise.arrays import Array, ArrayLike, Frame, Label, MaybeArray
from domainwise.backends import refuse_elsewhere
from domainwise.checks.inputs import check_sample_domain, validate_rows
from domainwise.ensemble.moments import group_sums, rows_moments
from domainwise.kernels.functions import Kernel, resolve_gamma
from domainwise.kernels.landmarks import choose_landmarks

LANDMARKS = 100
#: Source domains that are kept one by one: those with the most rows.
MOST_SOURCES = 200
#: Categories of a column beyond which it names rows, and new ones are no news.
MOST_CATEGORIES = 1000
#: Domains of new rows that are looked at one by one; if there are more, all are taken together.
MOST_DOMAINS = 1000
#: Standardised values beyond this are cut to it: a single wild cell must not move a mean.
CLIP = 10.0
#: A value is beyond the sources' range if it leaves it by this share of its width.
MARGIN = 0.1
EXAMPLES = 5
BLOCK_ROWS = 20_000
#: Text and missing values are fine.
_ANY_ROWS: dict[str, Any] = {"numbers": False, "dtype": None, "ensure_all_finite": False}


@dataclass(frozen=True)
class View:
    """What was seen of some rows of one domain; views of several pieces add up.

    Sums over rows (see :meth:`ShiftWatch.parts`), the range of each column of numbers, and by
    column a few categories that no source had.
    """

    totals: Array
    lowest: Array
    highest: Array
    examples: dict[str, list[str]]

    def __add__(self, other: View) -> View:
        """Of the rows of both."""
        examples = {}
        for name in self.examples | other.examples:
            both = {*self.examples.get(name, ()), *other.examples.get(name, ())}
            examples[name] = sorted(both)[:EXAMPLES]
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


class ShiftWatch(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Keep a summary of the source domains, and pass rows on as they are.

    As the first step of a pipeline it lets :func:`~domainwise.check_shift` say what is strange
    about new rows: units, missing columns, unknown categories, and how far they lie from all
    sources. It never changes a row. ``domainwise fit`` puts one into every model.

    Attributes
    ----------
    columns_ : list of str
        Names of the columns; ``x0`` and so on where X has none.
    numeric_, categorical_ : list of int
        Columns of numbers, and of text; others, such as dates, are not watched.
    lowest_, highest_, mean_, scale_ : ndarray of shape (n_numeric,)
        Range, mean and deviation of numbers in all sources.
    categories_ : list
        Values of each column of text; None where there are more than a thousand.
    landmarks_ : ndarray of shape (n_landmarks, n_numeric)
        Standardised rows, at most 100, that kernel means are taken at.
    sources_ : list of str
        Domains, at most the 200 largest.
    totals_ : ndarray of shape (n_sources, n_totals)
        Counts, centres, spreads and kernel means of each source, as sums over its rows: the size
        of all this does not depend on the number of rows.
    freedom_ : ndarray of shape (n_sources,)
        Number of directions in which a source's rows spread in the kernel's space.

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

    def fit(self, X: ArrayLike, y: object = None, sample_domain: MaybeArray = None) -> Self:
        """Sum up the sources.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Numbers or text; values may be missing.
        y : ignored
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row. None, and continuous descriptors, make one source.

        Returns
        -------
        self : object
        """
        refuse_elsewhere(self, X, "convert it to an array first")
        rows = validate_rows(self, X, skip_check_array=hasattr(X, "iloc"), **_ANY_ROWS)
        if not len(rows):
            raise ValueError("X has 0 rows; a minimum of 1 is required")
        given = getattr(self, "feature_names_in_", range(self.n_features_in_))
        self.columns_ = [name if isinstance(name, str) else f"x{name}" for name in given]
        columns = self._columns(rows)
        kinds = [_kind(column) for column in columns]
        self.numeric_ = [i for i, kind in enumerate(kinds) if kind == "number"]
        self.categorical_ = [i for i, kind in enumerate(kinds) if kind == "text"]
        self.categories_ = [_known(columns[i]) for i in self.categorical_]
        numbers = self._numbers(columns)
        numbers[~np.isfinite(numbers)] = np.nan
        moments, levels = rows_moments(numbers)
        self.lowest_, self.highest_ = levels.lowest, levels.highest
        self.mean_ = moments.mean[0]
        deviation = np.sqrt(moments.variance[0])
        # A deviation that is rounding of the mean is that of a constant.
        self.scale_ = np.where(deviation > 1e-12 * np.abs(self.mean_), deviation, 1.0)
        codes = self._keep_sources(check_sample_domain(sample_domain, len(rows)), len(rows))
        Z = self._standardised(numbers)
        self._place_landmarks(Z, codes)
        self.totals_ = self._totals(columns, codes, len(self.sources_))[0]
        self.freedom_ = np.array([self._freedom(Z[codes == d]) for d in range(len(self.sources_))])
        return self

    @classmethod
    def of_summary(cls, columns: dict[str, list[str] | None], **told: object) -> ShiftWatch:
        """A watch of data frames that is made before any row is seen.

        ``columns`` have categories, or None for numbers; ``told`` are the attributes about ranges,
        scales and landmarks. The sources are to come: ``sources_``, and what :meth:`summed_up`
        tells of each. Kernel features are the same wherever it is made, down to their signs.
        """
        watch = cls()
        watch.columns_, watch.n_features_in_ = list(columns), len(columns)
        watch.feature_names_in_ = np.array(watch.columns_, dtype=object)
        known = list(enumerate(columns.values()))
        watch.numeric_ = [i for i, categories in known if categories is None]
        watch.categorical_ = [i for i, categories in known if categories is not None]
        watch.categories_ = [categories for _, categories in known if categories is not None]
        watch.__dict__.update(told)
        root, vectors = _inverse_root(watch.landmarks_, watch.gamma_)
        watch._root = root @ vectors.T
        return watch

    def summed_up(self, X: Frame, codes: Array, n_groups: int) -> tuple[Array, Array]:
        """``totals_`` and ``freedom_`` of groups of rows, -1 for rows of none."""
        totals = np.zeros((n_groups, self.n_totals))
        for start in range(0, len(codes), 5 * BLOCK_ROWS):
            rows = slice(start, start + 5 * BLOCK_ROWS)
            totals += self._totals(self._columns(X.iloc[rows]), codes[rows], n_groups)[0]
        freedom = np.ones(n_groups)
        for d in range(n_groups):
            own = np.flatnonzero(codes == d)
            some = X.iloc[own[:: -(-len(own) // 2000)]]
            freedom[d] = self._freedom(self._standardised(self._numbers(self._columns(some))))
        return totals, freedom

    def transform(self, X: ArrayLike) -> Any:
        """Return X as it is.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        if hasattr(X, "iloc"):  # later steps choose columns by name, in any order
            return X
        return validate_rows(self, X, reset=False, **_ANY_ROWS)

    def look(self, X: ArrayLike, sample_domain: MaybeArray = None) -> dict[Label | None, View]:
        """Sum up new rows beside the sources, by domain, or together under None."""
        check_is_fitted(self)
        rows: Any = X
        if not hasattr(X, "iloc"):
            rows = validate_rows(self, X, reset=False, **_ANY_ROWS)
        columns = self._columns(rows)
        labels = check_sample_domain(sample_domain, len(rows), "delta")
        names = [None] if sample_domain is None else np.asarray(labels.names).tolist()
        codes = np.asarray(labels.codes)
        totals, examples = self._totals(columns, codes, len(names))
        numbers = self._numbers(columns)
        ends = np.full((2, len(names), numbers.shape[1]), np.nan)
        np.fmin.at(ends[0], codes, numbers)
        np.fmax.at(ends[1], codes, numbers)
        parts = zip(names, totals, *ends, examples, strict=True)
        return {name: View(*rest) for name, *rest in parts}

    def parts(self, totals: Array) -> dict[str, Array]:
        """Take sums over rows apart by what they are of.

        ``missing`` is by numeric, then categorical column; of the former are values ``beyond`` the
        sources' range, and sums (``level``) and squares (``spread``) of standardised values.
        ``kernel`` features have squared ``norms``.
        """
        sizes = self._sizes()
        cuts = np.cumsum(list(sizes.values()))[:-1]
        return dict(zip(sizes, np.split(totals, cuts, axis=-1), strict=True))

    def _sizes(self) -> dict[str, int]:
        p, q, r = len(self.numeric_), len(self.categorical_), self._root.shape[1]
        sizes = {"rows": 1, "missing": p + q, "beyond": p, "level": p, "spread": p, "unknown": q}
        return sizes | {"kernel": r, "norms": 1}

    @property
    def n_totals(self) -> int:
        """Number of sums that are kept of a source."""
        return sum(self._sizes().values())

    def _columns(self, X: Any) -> list[Any]:
        """The columns of fit, one by one."""
        if not hasattr(X, "iloc"):
            return list(np.asarray(X).T)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            if X.shape[1] != self.n_features_in_:
                raise ValueError(f"X has {X.shape[1]} columns, the sources {self.n_features_in_}")
            return [X.iloc[:, i] for i in range(X.shape[1])]
        absent = [name for name in names if name not in X.columns]
        if absent:
            raise ValueError(f"X has no column {absent[0]!r}, which the sources have")
        return [X[name] for name in names]

    def _numbers(self, columns: list[Any]) -> Array:
        numbers = np.empty((len(columns[0]), len(self.numeric_)))
        for place, i in enumerate(self.numeric_):
            column, missing = columns[i], _missing(columns[i])
            try:
                numbers[missing, place] = np.nan
                numbers[~missing, place] = np.asarray(column[~missing], dtype=np.float64)
            except (TypeError, ValueError):
                raise ValueError(
                    f"column {self.columns_[i]!r} of X holds text where sources have numbers"
                ) from None
        return numbers

    def _standardised(self, numbers: Array) -> Array:
        return np.clip((numbers - self.mean_) / self.scale_, -CLIP, CLIP)

    def _keep_sources(self, labels: Any, n: int) -> Array:
        """Name the sources, and return the place of each row's; -1 where it is not kept."""
        if labels.codes is None or labels.n_categories == 1:
            self.sources_ = ["all"] if labels.codes is None else [str(labels.names[0])]
            return np.zeros(n, dtype=np.intp)
        counts = np.bincount(labels.codes)
        kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_SOURCES])
        place = np.full(len(counts), -1)
        place[kept] = np.arange(len(kept))
        self.sources_ = [str(labels.names[i]) for i in kept]
        return np.asarray(place[labels.codes])

    def _place_landmarks(self, Z: Array, codes: Array) -> None:
        """Choose landmarks, and the map from kernel values at these to features of the kernel."""
        filled = np.nan_to_num(Z)
        if not Z.shape[1]:
            self.gamma_, self.landmarks_, self._root = 1.0, np.zeros((0, 0)), np.zeros((0, 0))
            return
        rng = np.random.default_rng(0)
        m = min(LANDMARKS, len(Z))
        alike = bool((filled == filled[0]).all())
        self.gamma_ = 1.0 if alike else float(resolve_gamma("median", "rbf", filled))
        kernel = Kernel("rbf", self.gamma_)
        self.landmarks_ = filled[choose_landmarks("stratified", filled, m, codes, kernel, rng)]
        self._root = _inverse_root(self.landmarks_, self.gamma_)[0]

    def _features(self, Z: Array) -> Array:
        """Rows in the kernel's space, as far as landmarks span it."""
        if not len(self.landmarks_):
            return np.zeros((len(Z), 0))
        filled = np.nan_to_num(Z)
        return np.asarray(rbf_kernel(filled, self.landmarks_, gamma=self.gamma_) @ self._root)

    def _freedom(self, Z: Array) -> float:
        """(trace C)^2 / trace C^2 of the covariance C of kernel features, from 2,000 rows."""
        features = self._features(Z[:: -(-len(Z) // 2000)])
        C = np.atleast_2d(np.cov(features, rowvar=False, bias=True)) if features.size else 0.0
        squares = float(np.sum(np.square(C)))
        return float(np.trace(C)) ** 2 / squares if squares > 1e-300 else 1.0

    def _totals(
        self, columns: list[Any], codes: Array, n_groups: int
    ) -> tuple[Array, list[dict[str, list[str]]]]:
        """Sums over the rows of each group, and examples of categories that no source had."""
        numbers = self._numbers(columns)
        texts = [columns[i] for i in self.categorical_]
        absent = np.column_stack([_missing(t) for t in texts] or [np.zeros((len(codes), 0), bool)])
        unknown = np.zeros_like(absent)
        examples: list[dict[str, list[str]]] = [{} for _ in range(n_groups)]
        for j, (text, known) in enumerate(zip(texts, self.categories_, strict=True)):
            if known is None:
                continue
            values = np.asarray(text, dtype=object)
            unknown[:, j] = ~absent[:, j] & ~np.isin(values.astype(str), known)
            for g in np.unique(codes[unknown[:, j]]):
                strange = {str(value) for value in values[unknown[:, j] & (codes == g)]}
                examples[g][self.columns_[self.categorical_[j]]] = sorted(strange)[:EXAMPLES]
        margin = MARGIN * (self.highest_ - self.lowest_) + 1e-9 * np.abs(self.mean_)
        total: Any = 0.0
        for start in range(0, len(codes), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            x, group = numbers[rows], codes[rows]
            z = self._standardised(x)
            features = self._features(z)
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
            kept = group >= 0
            total = total + group_sums(np.hstack(parts)[kept], group[kept], n_groups)
        return np.asarray(total), examples

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def _inverse_root(landmarks: Array, gamma: float) -> tuple[Array, Array]:
    """Eigenvectors of the landmarks' kernel over roots of their eigenvalues, and as they are."""
    if not len(landmarks):
        return np.zeros((0, 0)), np.zeros((0, 0))
    values, vectors = np.linalg.eigh(rbf_kernel(landmarks, gamma=gamma))
    some = values > 1e-6 * values[-1]
    return vectors[:, some] / np.sqrt(values[some]), vectors[:, some]


def _missing(column: Any) -> Array:
    if hasattr(column, "isna"):
        return np.asarray(column.isna(), dtype=bool)
    column = np.asarray(column)
    if column.dtype.kind == "O":
        return np.array([value is None or value != value for value in column], dtype=bool)
    return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), dtype=bool)


def _kind(column: Any) -> str:
    """What cells are: "number", "text" or "other"."""
    if column.dtype.kind not in "OUST":
        return "number" if column.dtype.kind in "biuf" else "other"
    types = {type(value) for value in column[~_missing(column)]}
    return "number" if types and all(issubclass(t, Real) for t in types) else "text"


def _known(column: Any) -> list[str] | None:
    values = {str(value) for value in column[~_missing(column)]}
    return sorted(values) if len(values) <= MOST_CATEGORIES else None
