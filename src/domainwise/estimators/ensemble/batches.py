"""Batches (rows of one domain that are predicted together): parts, weight of context, outliers.

Members with context are fitted to source domains, whose typical number of rows is called *size*
here. The mean of fewer rows is noisier, and that of more rows is less noisy. A larger batch is
therefore divided at random into parts of this size, several of which serve in turn as the context
of a row. In a smaller batch, context has less weight (theory 14.1 and 14.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from domainwise.base.arrays import (
    Array,
    as_type_of,
    cast,
    group_sums,
    is_tensor,
    namespace,
    to_host,
)


@dataclass(frozen=True)
class Moments:
    """Moments of observed values, as arrays of shape (n_groups, n_features)."""

    count: Any
    mean: Any
    squares: Any  #: sum of squared deviations from the mean

    def __iter__(self) -> Iterator[Any]:
        yield from (self.count, self.mean, self.squares)

    @classmethod
    def of_rows(
        cls, X: Any, group_codes: Any, n_groups: int, weights: Array | None = None
    ) -> Moments:
        """Compute the moments of float64 rows by group; missing values are NaN."""
        xp, groups = namespace(X), (group_codes, n_groups)
        is_missing = xp.isnan(X)
        counted = xp.where(is_missing, 0.0, xp.ones_like(X))
        counted = counted if weights is None else counted * as_type_of(weights, X)[:, None]
        filled_X = xp.where(is_missing, 0.0, X)
        count = group_sums(counted, *groups)
        divisor = xp.where(count > 0, count, 1.0)
        mean = group_sums(counted * filled_X, *groups) / divisor
        deviations = filled_X - mean[group_codes]
        # The mean of large numbers has a rounding error, which is corrected here.
        residual_sums = group_sums(counted * deviations, *groups)
        squares = group_sums(counted * deviations**2, *groups) - residual_sums**2 / divisor
        return cls(count, mean + residual_sums / divisor, xp.where(squares > 0, squares, 0.0))

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together (Chan's update)."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1.0)
        difference = other.mean - self.mean
        squares = self.squares + other.squares + difference**2 * self.count * share
        return Moments(count, self.mean + difference * share, squares)

    @classmethod
    def stacked(cls, moments: Sequence[Moments]) -> Moments:
        """Concatenate the groups of several :class:`Moments` objects."""
        return cls(*map(np.concatenate, zip(*moments, strict=True)))

    def by_group(self) -> list[Moments]:
        """Split into the moments of individual groups."""
        return [Moments(*(array[None] for array in arrays)) for arrays in zip(*self, strict=True)]

    @property
    def variance(self) -> Any:
        """Variance of each feature; 0 if no value is observed."""
        return self.squares / namespace(self.count).where(self.count > 0, self.count, 1.0)


@dataclass(frozen=True)
class FeatureRanges:
    """Range of each feature, and whether it has more than two distinct values."""

    lowest: Array  #: NaN if no value is observed
    highest: Array
    many: Array  #: whether a value lies between the lowest and the highest

    @classmethod
    def of_rows(cls, X: Any) -> FeatureRanges:
        """Compute the ranges of rows; missing values are NaN."""
        xp = namespace(X)
        is_missing = xp.isnan(X)
        lowest = xp.where(is_missing, np.inf, X).min(0)
        highest = xp.where(is_missing, -np.inf, X).max(0)
        if is_tensor(X):
            lowest, highest = lowest.values, highest.values
        many = ((lowest < X) & (highest > X)).any(0)
        lowest, highest, many = to_host(lowest), to_host(highest), to_host(many)
        is_empty = lowest > highest
        return cls(np.where(is_empty, np.nan, lowest), np.where(is_empty, np.nan, highest), many)

    def merged(self, other: FeatureRanges) -> FeatureRanges:
        """Return the ranges of both sets of rows together."""
        lowest = np.fmin(self.lowest, other.lowest)
        highest = np.fmax(self.highest, other.highest)
        bounds = (self.lowest, self.highest, other.lowest, other.highest)
        is_between = [(lowest < bound) & (bound < highest) for bound in bounds]
        return FeatureRanges(
            lowest, highest, np.logical_or.reduce([self.many, other.many, *is_between])
        )


def no_moments(X: Any) -> Moments:
    """Return the moments of one group without rows, on the device of X."""
    zeros = as_type_of(np.zeros((1, X.shape[1])), X)
    return Moments(zeros, zeros, zeros)


def rows_moments(X: Any, weights: Array | None = None) -> tuple[Moments, FeatureRanges]:
    """Return the moments and ranges of all rows, on the host."""
    xp = namespace(X)
    group_codes = cast(as_type_of(np.zeros(len(X)), X), xp.int64)
    moments = Moments.of_rows(cast(X, xp.float64), group_codes, 1, weights)
    return Moments(*map(to_host, moments)), FeatureRanges.of_rows(X)


def source_limits(X: Array, domain_codes: Array, n_domains: int) -> Array:
    """Return limits for the features of new domains, of shape (2, n_features).

    A limit is as far beyond the values of all source domains as the most extreme source domain is
    beyond the others. Members that are fitted without that domain are tested up to this distance.
    """
    order = np.argsort(domain_codes, kind="stable")
    first_rows = np.searchsorted(domain_codes[order], np.arange(n_domains))
    signs = (-1.0, 1.0)  # the lower limit of X is the negated upper limit of -X
    maxima = [np.sort(np.maximum.reduceat(sign * X[order], first_rows), axis=0) for sign in signs]
    return np.array([s * (2 * m[-1] - m[-2:][0]) for s, m in zip(signs, maxima, strict=True)])


#: Number of parts that serve in turn as the context of a row in a large batch. A prediction takes
#: up to 1 + N_CONTEXTS times as long as one without context.
N_CONTEXTS = 6
#: A batch is divided if it is at least this many times as large as a typical source domain.
MIN_SIZE_RATIO = 1.5
#: Candidates for ``half`` of :class:`Trust`, and the default if it cannot be measured.
HALF_CANDIDATES = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0)
DEFAULT_HALF = 20.0
#: Batch sizes for which trust and the limits for outliers are measured.
BATCH_SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: Lower bound for variances before logarithms are taken; the variance of all source rows is 1.
MIN_VARIANCE = 1e-3
#: Minimum number of observed values needed to check the variance of a feature.
MIN_VARIANCE_ROWS = 8
#: Minimum number of source domains from which a range is computed.
MIN_DOMAINS = 4
#: Expected share of domains outside the range, among domains that resemble the source domains.
OUTLIER_RATE = 0.01
#: Number of batches of each size drawn from a source domain, and maximum number of its rows to use.
DRAWS, MAX_DRAWN_ROWS = 4, 2000
#: Limits when trust is measured: number of source domains, number of predicted rows per domain and
#: batch size, and number of rows to which members are fitted.
TRUST_DOMAINS, TRUST_PREDICTED_ROWS, TRUST_TRAINING_ROWS = 16, 32, 500

_HASH_INCREMENT = np.uint64(0x9E3779B97F4A7C15)


def _scramble(keys: Array) -> Array:
    """Scramble 64-bit numbers, so that similar numbers become unrelated."""
    keys = (keys ^ (keys >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
    keys = (keys ^ (keys >> np.uint64(32))) * np.uint64(0xA0761D6478BD642F)
    return keys ^ (keys >> np.uint64(29))


def row_keys(X: Array, seed: int) -> Array:
    """Return a pseudo-random 64-bit key for each row; equal rows have equal keys."""
    # All NaN values, and both zeros, get the same bit pattern.
    bit_patterns = np.where(np.isnan(X), np.nan, X + 0.0).view(np.uint64)
    keys = np.full(len(X), seed, dtype=np.uint64)
    for column in bit_patterns.T:
        keys = _scramble((keys ^ column) + _HASH_INCREMENT)
    return keys


def random_numbers(keys: Array, stream: int = 0) -> Array:
    """Return a pseudo-random number per key; it differs between streams, and between equal keys."""
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    copy_indices = np.arange(len(keys)) - np.searchsorted(sorted_keys, sorted_keys)
    numbers = np.empty_like(keys)
    stream_offset = np.array([2 * stream + 1], dtype=np.uint64) * _HASH_INCREMENT
    offsets = stream_offset + copy_indices.astype(np.uint64) * np.uint64(0x5851F42D)
    numbers[order] = _scramble(sorted_keys + offsets)
    return numbers


def random_order(keys: Array, stream: int = 0) -> Array:
    """Return a pseudo-random order of rows that does not depend on their order in the input."""
    return np.argsort(random_numbers(keys, stream), kind="stable")


def part_count(n_rows: int, size: float) -> int:
    """Return the number of parts of about ``size`` rows into which a batch is divided."""
    return 1 if n_rows < MIN_SIZE_RATIO * size else max(1, int(n_rows / size + 0.5))


@dataclass(frozen=True)
class Part:
    """One of the random parts of a batch."""

    keys: Array  #: one per row, from :func:`row_keys`
    moments: Moments  #: of all rows
    moments_without_last: Moments  #: of all rows except the last one

    @classmethod
    def from_rows(cls, Z: Array, keys: Array) -> Part:
        """Make a part from standardized rows and their keys."""
        return cls(keys, _moments(Z), _moments(Z[:-1]))

    def context_moments(self, Z: Array, keys: Array) -> Moments:
        """Return the moments of this part as the context of each row.

        A row that is not in the part replaces the last row of the part.
        """
        is_observed, zeros = ~np.isnan(Z), np.zeros(Z.shape)
        row_moments = Moments(is_observed.astype(float), np.where(is_observed, Z, 0.0), zeros)
        moments_with_row = self.moments_without_last.merged(row_moments)
        is_in_part = np.isin(keys, self.keys)[:, None]
        pairs = zip(self.moments, moments_with_row, strict=True)
        return Moments(*(np.where(is_in_part, *pair) for pair in pairs))


@dataclass(frozen=True)
class Batch:
    """Rows of one domain that are predicted together."""

    n_rows: int
    moments: Moments  #: of all rows
    parts: list[Part]  #: the contexts of its rows; if empty, the whole batch is their context

    @classmethod
    def from_rows(
        cls,
        Z: Array,
        keys: Array,
        size: float,
        n_rows: int | None = None,
        moments: Moments | None = None,
    ) -> Batch:
        """Make a batch from standardized rows.

        If a domain is too large for memory, ``Z`` is a sample of its ``n_rows`` rows, and
        ``moments`` are those of all rows.
        """
        n_total = len(Z) if n_rows is None else n_rows
        order = np.argsort(keys, kind="stable")
        if moments is None or n_total == len(Z):
            moments = _moments(Z[order])
        n_parts = part_count(len(Z), size)
        parts = []
        for part_number in range(N_CONTEXTS if n_parts > 1 else 0):
            division, part_index = divmod(part_number, n_parts)
            order = random_order(keys, division) if part_index == 0 else order
            rows = np.array_split(order, n_parts)[part_index]
            parts.append(Part.from_rows(Z[rows], keys[rows]))
        return cls(n_total, moments, parts)

    @property
    def n_contexts(self) -> int:
        """Number of contexts in which each row is predicted."""
        return max(1, len(self.parts))

    def context_moments(self, part_index: int, Z: Array, keys: Array) -> Moments:
        """Return, for each row, the moments of the part with this index."""
        if self.parts:
            return self.parts[part_index].context_moments(Z, keys)
        return Moments(*(np.broadcast_to(array, Z.shape) for array in self.moments))


def context_moments(
    batches: Mapping[int, Batch], part_index: int, Z: Array, keys: Array, domain_codes: Array
) -> Moments:
    """Return, for each row, the moments of a part of its batch; rows must be sorted by domain."""
    present_codes, first_rows = np.unique(domain_codes, return_index=True)
    rows_by_domain = np.split(np.arange(len(Z)), first_rows[1:])
    pairs = zip(present_codes.tolist(), rows_by_domain, strict=True)
    moments = [batches[c].context_moments(part_index, Z[rows], keys[rows]) for c, rows in pairs]
    return Moments.stacked(moments)


def _moments(Z: Array) -> Moments:
    return Moments.of_rows(Z, np.zeros(len(Z), dtype=np.intp), 1)


@dataclass(frozen=True)
class Trust:
    """Weight of predictions with context in a batch of n rows.

    It is ``t(n) / t(size)`` with ``t(n) = (n - 1) / (n - 1 + half)``: 0 for a single row, and 1 for
    a batch as large as a typical source domain. For ``n = 1 + half``, ``t(n)`` is 1/2.
    """

    size: float
    half: float = DEFAULT_HALF

    def __call__(self, n_rows: Array | int) -> Array:
        """Return the weight of context for each number of rows."""
        if self.size <= 1.0:
            return np.zeros(np.shape(n_rows))
        n_others = np.clip(n_rows, 1.0, self.size) - 1.0
        max_others, half = self.size - 1.0, self.half
        return np.asarray(n_others * (max_others + half) / (max_others * (n_others + half)))

    @classmethod
    def learn(
        cls, size: float, n_rows: Array, plain: Array, context: Array, y: Array, weights: Array
    ) -> Trust:
        """Choose ``half`` by the squared error of predictions in batches of ``n_rows`` rows.

        ``plain`` and ``context`` are predictions without and with context; ``y`` are the targets.
        """
        errors = []
        for half in HALF_CANDIDATES:
            trust = cls(size, half)(n_rows)[:, None]
            mixture = trust * context + (1.0 - trust) * plain
            errors.append(weights @ ((mixture - y) ** 2).sum(axis=1))
        return cls(size, HALF_CANDIDATES[int(np.argmin(errors))])


class SmallBatch(NamedTuple):
    """A random sample of rows from a source domain, some of which are predicted."""

    rows: Array  #: rows to predict, as indices into ``SourceSamples.training_rows``
    n_rows: int  #: number of rows in the batch, predicted or not
    moments: Moments  #: of all rows of the batch


@dataclass(frozen=True)
class SourceSamples:
    """Source domains from which small batches are drawn."""

    Z: Array  #: standardized rows
    domain_codes: Array  #: domain code of each row
    training_rows: Array  #: indices of the rows to which members are fitted
    scored_rows: Array  #: indices into ``training_rows`` of rows with held-out predictions
    domains: Array  #: codes of the domains to draw from
    size: int  #: typical number of rows in a source domain

    def halves(self, seed: int) -> Iterator[tuple[Array, list[SmallBatch]]]:
        """Yield each half of the domains, as codes, and small batches drawn from it."""
        rng = np.random.default_rng(seed)
        for half_domains in np.array_split(rng.permutation(self.domains)[:TRUST_DOMAINS], 2):
            draws = [draw for code in half_domains for draw in self._draws(code, rng)]
            if not draws:
                continue
            sizes = [len(batch_rows) for _, batch_rows in draws]
            batch_indices = np.repeat(np.arange(len(draws)), sizes)
            Z = self.Z[np.concatenate([batch_rows for _, batch_rows in draws])]
            moments = Moments.of_rows(Z, batch_indices, len(draws)).by_group()
            triples = zip(draws, sizes, moments, strict=True)
            yield half_domains, [SmallBatch(rows, size, m) for (rows, _), size, m in triples]

    def _draws(self, domain_code: int, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
        """Yield a batch's rows to predict (indices into ``training_rows``), and all its rows."""
        domain_rows = np.flatnonzero(self.domain_codes == domain_code)
        domain_rows = rng.permutation(domain_rows)[:MAX_DRAWN_ROWS]
        scored_rows = self.scored_rows
        scored_rows = scored_rows[self.domain_codes[self.training_rows[scored_rows]] == domain_code]
        for size in BATCH_SIZES:
            if size >= min(self.size, len(domain_rows)) or not len(scored_rows):
                return
            n = min(size, len(scored_rows), TRUST_PREDICTED_ROWS // 2)  # predicted rows in a batch
            n_batches = max(1, min(TRUST_PREDICTED_ROWS, len(scored_rows)) // n)
            for rows in rng.permutation(scored_rows)[: n * n_batches].reshape(n_batches, n):
                other_rows = rng.choice(domain_rows, size, replace=False)
                other_rows = other_rows[~np.isin(other_rows, self.training_rows[rows])][: size - n]
                yield rows, np.concatenate([self.training_rows[rows], other_rows])


@dataclass(frozen=True)
class Outlier:
    """The statistic of a batch that is farthest outside the range of source domains."""

    statistic: str  #: "mean" or "spread"
    feature: int
    z_score: float  #: relative to source domains with the same number of rows
    limit: float  #: maximum absolute z-score inside the range of source domains

    def describe(self, column: object) -> str:
        """Describe the outlier; ``column`` is the name of the feature.

        >>> Outlier("mean", 3, -8.24, 5.1).describe("age")
        'the mean of column age is 8.2 standard deviations from that of source domains with the \
same number of rows; the limit is 5.1'
        """
        return (
            f"the {self.statistic} of column {column} is {abs(self.z_score):.1f} standard "
            "deviations from that of source domains with the same number of rows; the limit is "
            f"{self.limit:.1f}"
        )


@dataclass(frozen=True)
class SourceRange:
    """Range of the means and variances of features in source domains, by number of rows.

    The z-score of a statistic s of a batch of n rows, relative to T source domains, is
    ``z = (s - mean) / sqrt((between + within / n) * (1 + 1 / T))``. The largest ``|z|`` is compared
    with a limit that is computed from samples of n rows from held-out source domains (theory 14.3).
    """

    features: Array  #: indices of the features that are checked
    mean: Array  #: of shape (2, n_features): average of means, and of log variances, over domains
    between: Array  #: variance of each statistic between domains
    within: Array  #: sampling variance of each statistic for one row; divided by n for n rows
    n_domains: int
    sizes: Array  #: numbers of rows for which limits were computed
    limits: Array  #: maximum absolute z-score inside the range, for each size

    @classmethod
    def of_sources(
        cls, Z: Array, domain_codes: Array, n_domains: int, features: Array, seed: int
    ) -> SourceRange | None:
        """Compute the range from standardized rows; None with too few domains or no features."""
        if n_domains < MIN_DOMAINS or not len(features):
            return None
        rng = np.random.default_rng(seed)
        order = np.lexsort([row_keys(Z, seed), domain_codes])  # independent of the order of rows
        domain_sizes = np.bincount(domain_codes, minlength=n_domains)
        rows_by_domain = np.split(order, np.cumsum(domain_sizes)[:-1])
        samples = [rng.permutation(rows)[:MAX_DRAWN_ROWS] for rows in rows_by_domain]
        Z = Z[:, features]
        statistics, counts = _statistics(Moments.of_rows(Z, domain_codes, n_domains))
        noise = _noise_variances(Z, samples)
        masks = ~np.eye(n_domains, dtype=bool)  # all domains except one
        summaries = [_summary(statistics[:, mask], counts[mask], noise[:, mask]) for mask in masks]
        sizes, limits = [], []
        for size in (*BATCH_SIZES, None):  # None for whole domains
            large_domains = np.flatnonzero(domain_sizes > (0 if size is None else size))
            if len(large_domains) < MIN_DOMAINS:
                continue
            batch_domains = np.repeat(large_domains, 1 if size is None else DRAWS)
            batches = [
                rows_by_domain[d] if size is None else rng.choice(samples[d], size, False)
                for d in batch_domains
            ]
            batch_indices = np.repeat(np.arange(len(batches)), [len(rows) for rows in batches])
            moments = Moments.of_rows(Z[np.concatenate(batches)], batch_indices, len(batches))
            mean, between, within = (
                np.stack([summaries[d][i] for d in batch_domains], axis=1) for i in range(3)
            )
            z = _z_scores(*_statistics(moments), mean, between, within, n_domains - 1)
            log_maxima = np.log(np.maximum(np.abs(z).max(axis=(0, 2)), 1e-3))
            n = len(large_domains)  # the limit is an upper prediction bound (Student's t)
            deviation = log_maxima.std(ddof=1) * np.sqrt(1.0 + 1.0 / n)
            limits.append(np.exp(log_maxima.mean() - stdtrit(n - 1, OUTLIER_RATE) * deviation))
            sizes.append(float(np.median(domain_sizes)) if size is None else size)
        size_order = np.argsort(sizes, kind="stable")
        sizes_and_limits = (np.array(sizes)[size_order], np.array(limits)[size_order])
        summary = _summary(statistics, counts, noise)
        return cls(np.asarray(features), *summary, n_domains, *sizes_and_limits)

    def outlier(self, moments: Moments) -> Outlier | None:
        """Return the statistic that is farthest outside the range; None if all are inside."""
        checked = Moments(*(array[:, self.features] for array in moments))
        statistics, counts = (array[..., 0, :] for array in _statistics(checked))
        counts = np.minimum(counts, self.sizes[-1])  # limits for larger batches are unknown
        summary = (self.mean, self.between, self.within, self.n_domains)
        z = _z_scores(statistics, counts, *summary)
        i, j = np.unravel_index(int(np.abs(z).argmax()), z.shape)
        n_rows = max(float(counts.max()), 1.0)
        limit = float(np.interp(np.log(n_rows), np.log(self.sizes), self.limits))
        z_score = float(z[i, j])
        if abs(z_score) <= limit:
            return None
        return Outlier(("mean", "spread")[i], int(self.features[j]), z_score, limit)


def _summary(statistics: Array, counts: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Return the mean of each statistic, its variance between domains, and its sampling variance.

    Statistics and ``noise`` (from :func:`_noise_variances`) have shape (2, n_domains, n_features),
    and counts of observed values have shape (n_domains, n_features).
    """
    within = noise.mean(axis=1)
    sampling_variance = (within[:, None] / np.maximum(counts, 1.0)).mean(axis=1)
    between = np.maximum(statistics.var(axis=1, ddof=1) - sampling_variance, 0.0)
    return statistics.mean(axis=1), between, within


def _z_scores(
    statistics: Array, counts: Array, mean: Array, between: Array, within: Array, n_domains: int
) -> Array:
    """Return z-scores of statistics relative to source domains; 0 if there are too few values."""
    variance = (between + within / np.maximum(counts, 1.0)) * (1.0 + 1.0 / n_domains)
    z = (statistics - mean) / np.sqrt(np.maximum(variance, 1e-12))
    is_checked = np.array([counts >= 1.0, counts >= MIN_VARIANCE_ROWS])
    return np.asarray(np.where(is_checked, z, 0.0))


def _statistics(moments: Moments) -> tuple[Array, Array]:
    """Return means and log variances, of shape (2, n_groups, n_features), and counts of values."""
    log_variances = np.log(np.maximum(moments.variance, MIN_VARIANCE))
    return np.array([moments.mean, log_variances]), np.asarray(moments.count)


def _noise_variances(Z: Array, rows_by_domain: Sequence[Array]) -> Array:
    """Return the sampling variance, for one row, of the mean and log variance in each domain.

    For log variances, it is computed from the difference between random halves of a domain.
    """
    sizes = np.array([len(domain_rows) for domain_rows in rows_by_domain])
    is_second_half = np.concatenate([np.arange(n) >= n // 2 for n in sizes])
    domain_codes = np.repeat(np.arange(len(sizes)), sizes)
    Z = Z[np.concatenate(rows_by_domain)]
    half_moments = Moments.of_rows(Z, 2 * domain_codes + is_second_half, 2 * len(sizes))
    log_variances = _statistics(half_moments)[0][1]
    log_variance_noise = sizes[:, None] * (log_variances[::2] - log_variances[1::2]) ** 2 / 4.0
    return np.array([Moments.of_rows(Z, domain_codes, len(sizes)).variance, log_variance_noise])
