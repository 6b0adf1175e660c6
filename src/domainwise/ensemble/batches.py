"""Batches of any size: random parts of a domain, weights of context, and detection of outliers.

Members in context learn from source domains with a typical number of rows, the *size*, and the mean
of few rows is noisier than that of many. A larger batch is therefore divided at random into parts
of that size, and each row is predicted relative to several of them. In a smaller batch, context has
less weight (theory 14).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from domainwise.arrays import Array
from domainwise.ensemble.moments import Moments

#: Number of parts that each row of a large batch is predicted relative to. Members cost about the
#: same with and without context, so that a prediction costs up to one plus this many times as much.
MOST_PARTS = 6
#: Batches with at least this many times the rows of a source domain are divided.
DIVIDED_FROM = 1.5
#: Candidates for ``half``, the number of further rows that gives half of the trust. The default is
#: used where nothing can be measured.
HALF_TRUST = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0)
DEFAULT_HALF = 20.0
#: Batch sizes at which trust and the limits for outliers are learnt.
SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: Lower bound of variances, relative to those of the sources, before logarithms are taken.
LEAST_VARIANCE = 1e-3
#: Smallest number of rows for which the variances of a domain are judged.
LEAST_ROWS = 8
#: Smallest number of source domains from which a range is computed.
LEAST_DOMAINS = 4
#: Share of new domains, if they are like the sources, that may lie beyond the range.
BEYOND = 0.01
#: Batches of each size drawn from every source domain, and most rows to draw them from.
DRAWS, SHOWN_ROWS = 4, 2000
#: For measuring trust, at most: source domains, rows of each that are predicted for one batch size,
#: and rows that members are fitted to.
TRUST_DOMAINS, TRUST_PREDICTED, TRUST_ROWS = 16, 32, 500

_ODD = np.uint64(0x9E3779B97F4A7C15)


def _scrambled(keys: Array) -> Array:
    """Scramble 64-bit numbers, so that close ones become unrelated."""
    keys = (keys ^ (keys >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
    keys = (keys ^ (keys >> np.uint64(32))) * np.uint64(0xA0761D6478BD642F)
    return keys ^ (keys >> np.uint64(29))


def row_keys(X: Array, seed: int) -> Array:
    """A pseudo-random 64-bit key for each row, from its content: equal rows have equal keys."""
    bits = np.where(np.isnan(X), np.nan, X + 0.0).view(np.uint64)  # one NaN, and one zero
    keys = np.full(len(X), seed, dtype=np.uint64)
    for column in bits.T:
        keys = _scrambled((keys ^ column) + _ODD)
    return keys


def drawn_numbers(keys: Array, number: int = 0) -> Array:
    """Pseudo-random numbers from the keys of rows; copies of a row get different numbers."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    copies = np.arange(len(keys)) - np.searchsorted(ordered, ordered)
    drawn = np.empty_like(keys)
    numbered = np.array([2 * number + 1], dtype=np.uint64) * _ODD
    steps = numbered + copies.astype(np.uint64) * np.uint64(0x5851F42D)
    drawn[order] = _scrambled(ordered + steps)
    return drawn


def drawing_order(keys: Array, number: int = 0) -> Array:
    """A pseudo-random order of rows that does not depend on their order in the input."""
    return np.argsort(drawn_numbers(keys, number), kind="stable")


def part_count(n_rows: int, size: float) -> int:
    """Number of parts of about ``size`` rows; a batch of less than 1.5 times that is one part."""
    return 1 if n_rows < DIVIDED_FROM * size else max(1, int(n_rows / size + 0.5))


@dataclass(frozen=True)
class Part:
    """Some rows of a batch."""

    keys: Array
    moments: Moments  #: of all its rows
    others: Moments  #: of all but the last, which a row from outside the part replaces

    @classmethod
    def of(cls, Z: Array, keys: Array) -> Part:
        """Make a part of rows in the sources' units, which are summed in this order."""
        return cls(keys, _moments(Z), _moments(Z[:-1]))

    def around(self, Z: Array, keys: Array) -> Moments:
        """Moments of the part for each row; a row from outside the part replaces its last row."""
        observed = ~np.isnan(Z)
        alone = Moments(observed.astype(np.float64), np.where(observed, Z, 0.0), np.zeros(Z.shape))
        joined = self.others.merged(alone)
        inside = np.isin(keys, self.keys)[:, None]
        names = ("count", "mean", "squares")
        pairs = ((getattr(self.moments, n), getattr(joined, n)) for n in names)
        return Moments(*(np.where(inside, whole, other) for whole, other in pairs))


@dataclass(frozen=True)
class Batch:
    """Rows of one domain that are predicted together."""

    n_rows: int
    moments: Moments  #: of all rows
    parts: list[Part]  #: rows are predicted relative to these; if empty, to the whole batch

    @classmethod
    def of(
        cls,
        Z: Array,
        keys: Array,
        size: float,
        n_rows: int | None = None,
        moments: Moments | None = None,
    ) -> Batch:
        """Make a batch of rows in the units of the sources.

        If a domain is too large for memory, ``Z`` is a sample of its ``n_rows`` rows, and
        ``moments`` are those of all.
        """
        n = len(Z) if n_rows is None else n_rows
        order = np.argsort(keys, kind="stable")
        if moments is None or n == len(Z):
            moments = _moments(Z[order])
        n_parts = part_count(len(Z), size)
        parts = []
        for number in range(MOST_PARTS if n_parts > 1 else 0):
            division, place = divmod(number, n_parts)
            order = drawing_order(keys, division) if place == 0 else order
            rows = np.array_split(order, n_parts)[place]
            parts.append(Part.of(Z[rows], keys[rows]))
        return cls(n, moments, parts)

    @property
    def n_parts(self) -> int:
        """Number of times that each row is predicted."""
        return max(1, len(self.parts))

    def around(self, number: int, Z: Array, keys: Array) -> Moments:
        """Moments of one part, for each of the given rows."""
        if self.parts:
            return self.parts[number].around(Z, keys)
        moments = self.moments
        values = (moments.count, moments.mean, moments.squares)
        return Moments(*(np.broadcast_to(v, Z.shape) for v in values))


def moments_around(
    batches: Mapping[int, Batch], number: int, Z: Array, keys: Array, codes: Array
) -> Moments:
    """For each row, moments of one part of its batch; rows must be sorted by domain code."""
    present, firsts = np.unique(codes, return_index=True)
    places = np.split(np.arange(len(Z)), firsts[1:])
    pairs = zip(present.tolist(), places, strict=True)
    return Moments.stacked([batches[c].around(number, Z[rows], keys[rows]) for c, rows in pairs])


def _moments(Z: Array) -> Moments:
    return Moments.of_rows(Z, np.zeros(len(Z), dtype=np.intp), 1)


@dataclass(frozen=True)
class Trust:
    """Weight of predictions in context, against row-by-row ones, in batches of n rows.

    ``t(n) / t(size)`` with ``t(n) = (n - 1) / (n - 1 + half)``: 0 for one row, and 1 for batches as
    large as source domains.
    """

    size: float
    half: float = DEFAULT_HALF

    def __call__(self, n_rows: Array | int) -> Array:
        """The weight of context, for each number of rows."""
        if self.size <= 1.0:
            return np.zeros(np.shape(n_rows))
        more = np.clip(n_rows, 1.0, self.size) - 1.0
        whole = self.size - 1.0
        return np.asarray(more * (whole + self.half) / (whole * (more + self.half)))

    @classmethod
    def fitted(
        cls, size: float, n_rows: Array, plain: Array, context: Array, y: Array, weights: Array
    ) -> Trust:
        """Choose ``half`` by the squared error of predictions in batches of ``n_rows`` rows.

        ``plain`` and ``context`` are predicted probabilities or values, ``y`` the true ones.
        """
        errors = []
        for half in HALF_TRUST:
            share = cls(size, half)(n_rows)[:, None]
            mixed = share * context + (1.0 - share) * plain
            errors.append(weights @ ((mixed - y) ** 2).sum(axis=1))
        return cls(size, HALF_TRUST[int(np.argmin(errors))])


class ThinBatch(NamedTuple):
    """Some rows of a source domain, as a batch."""

    rows: Array  #: rows to predict, as indices into ``Thinned.learnt``
    n_rows: int
    moments: Moments  #: of all rows of the batch


@dataclass(frozen=True)
class Thinned:
    """Source domains from which small batches are drawn."""

    Z: Array  #: rows in the units of the sources
    codes: Array  #: domain code of each row
    learnt: Array  #: indices of the rows that members learn from
    scored: Array  #: indices into ``learnt`` of rows that have held-out predictions
    domains: Array  #: codes of the domains to draw from
    size: int  #: number of rows of a source domain

    def halves(self, seed: int) -> Iterator[tuple[Array, list[ThinBatch]]]:
        """Yield half of the domains at a time, with smaller batches of their rows."""
        rng = np.random.default_rng(seed)
        for held in np.array_split(rng.permutation(self.domains)[:TRUST_DOMAINS], 2):
            drawn = [pair for domain in held for pair in self._drawn(domain, rng)]
            if not drawn:
                continue
            sizes = [len(batch) for _, batch in drawn]
            group = np.repeat(np.arange(len(drawn)), sizes)
            Z = self.Z[np.concatenate([batch for _, batch in drawn])]
            moments = Moments.of_rows(Z, group, len(drawn)).by_group()
            batches = zip(drawn, sizes, moments, strict=True)
            yield held, [ThinBatch(rows, size, summary) for (rows, _), size, summary in batches]

    def _drawn(self, domain: int, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
        """Yield rows to predict, and all rows of the batch that they belong to."""
        domain_rows = rng.permutation(np.flatnonzero(self.codes == domain))[:SHOWN_ROWS]
        places = self.scored[self.codes[self.learnt[self.scored]] == domain]
        for size in SIZES:
            if size >= min(self.size, len(domain_rows)) or not len(places):
                return
            n = min(size, len(places), TRUST_PREDICTED // 2)
            times = max(1, min(TRUST_PREDICTED, len(places)) // n)
            for rows in rng.permutation(places)[: n * times].reshape(times, n):
                others = rng.choice(domain_rows, size, replace=False)
                others = others[~np.isin(others, self.learnt[rows])][: size - n]
                yield rows, np.concatenate([self.learnt[rows], others])


@dataclass(frozen=True)
class Outlier:
    """The statistic of a batch that lies farthest outside the range of source domains."""

    statistic: str  #: "mean" or "spread"
    feature: int
    distance: float  #: in standard deviations of source domains with as many rows
    limit: float  #: largest distance inside the range of source domains

    def in_words(self, column: object) -> str:
        """Describe what is unusual; ``column`` is the feature's name.

        >>> Outlier("mean", 3, -8.24, 5.1).in_words("age")
        'the mean of column age is 8.2 standard deviations from that of source domains with as \
many rows, which reach 5.1'
        """
        return (
            f"the {self.statistic} of column {column} is {abs(self.distance):.1f} standard "
            "deviations from that of source domains with as many rows, which reach "
            f"{self.limit:.1f}"
        )


@dataclass(frozen=True)
class SourceRange:
    """Range of the means and variances of features in source domains, by number of rows.

    A statistic s of a batch of n rows is ``z = (s - mean) / sqrt(between + within / n)`` away from
    the source domains. The batch's largest ``|z|`` is compared with a limit: the upper end of the
    range, on a log scale, of source domains thinned to n rows and held out in turn (theory 18).
    """

    features: Array  #: indices of the features that are judged
    mean: Array  #: of shape (2, n_features): average of means, and of log variances, over domains
    between: Array  #: variance of each statistic between domains
    within: Array  #: variance due to one row; a statistic of n rows has this divided by n
    n_domains: int
    sizes: Array
    limits: Array  #: largest distance inside the range, for each size

    @classmethod
    def of_sources(
        cls, Z: Array, codes: Array, n_domains: int, features: Array, seed: int
    ) -> SourceRange | None:
        """Compute the range from scaled rows; None if there are too few domains."""
        if n_domains < LEAST_DOMAINS or not len(features):
            return None
        rng = np.random.default_rng(seed)
        order = np.lexsort([row_keys(Z, seed), codes])  # draws depend on content alone
        rows = np.split(order, np.cumsum(np.bincount(codes, minlength=n_domains))[:-1])
        shown = [rng.permutation(of_domain)[:SHOWN_ROWS] for of_domain in rows]
        Z = Z[:, features]
        statistics, counts = _statistics(Moments.of_rows(Z, codes, n_domains))
        noise = _noise(Z, shown)
        apart = ~np.eye(n_domains, dtype=bool)
        others = [_summary(statistics[:, m], counts[m], noise[:, m]) for m in apart]
        sizes, limits = [], []
        for size in (*SIZES, None):
            enough = [d for d in range(n_domains) if size is None or len(rows[d]) > size]
            if len(enough) < LEAST_DOMAINS:
                continue
            domains = np.repeat(enough, 1 if size is None else DRAWS)
            drawn = [
                rows[d] if size is None else rng.choice(shown[d], size, False) for d in domains
            ]
            group = np.repeat(np.arange(len(domains)), [len(batch) for batch in drawn])
            moments = Moments.of_rows(Z[np.concatenate(drawn)], group, len(domains))
            batches, count = _statistics(moments)
            mean, between, within = (
                np.stack([others[d][i] for d in domains], axis=1) for i in range(3)
            )
            distance = _distances(batches, count, mean, between, within, n_domains - 1)
            logs = np.log(np.maximum(np.abs(distance).max(axis=(0, 2)), 1e-3))
            n = len(enough)
            reach = -stdtrit(n - 1, BEYOND) * logs.std(ddof=1) * np.sqrt(1.0 + 1.0 / n)
            sizes.append(float(np.median([len(r) for r in rows])) if size is None else size)
            limits.append(np.exp(logs.mean() + reach))
        place = np.argsort(sizes, kind="stable")
        ends = (np.array(sizes)[place], np.array(limits)[place])
        summary = _summary(statistics, counts, noise)
        return cls(np.asarray(features), *summary, n_domains, *ends)

    def outlier(self, moments: Moments) -> Outlier | None:
        """The statistic of a batch that is farthest outside the range; None if none is outside."""
        selected = (getattr(moments, n)[:, self.features] for n in ("count", "mean", "squares"))
        statistics, count = (values[..., 0, :] for values in _statistics(Moments(*selected)))
        count = np.minimum(count, self.sizes[-1])  # limits for larger batches are unknown
        summary = (self.mean, self.between, self.within, self.n_domains)
        distance = _distances(statistics, count, *summary)
        size = np.abs(distance)
        kind, place = np.unravel_index(int(size.argmax()), size.shape)
        n = max(float(count.max()), 1.0)
        limit = float(np.interp(np.log(n), np.log(self.sizes), self.limits))
        if size[kind, place] <= limit:
            return None
        name = ("mean", "spread")[kind]
        return Outlier(name, int(self.features[place]), float(distance[kind, place]), limit)


def _summary(statistics: Array, counts: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Mean of each statistic, its variance between domains, and its variance due to one row.

    Statistics and noise, the variance due to one row in each domain, have shape (2, n_domains,
    n_features); counts of observed values have shape (n_domains, n_features).
    """
    within = noise.mean(axis=1)
    chance = (within[:, None] / np.maximum(counts, 1.0)).mean(axis=1)
    between = np.maximum(statistics.var(axis=1, ddof=1) - chance, 0.0)
    return statistics.mean(axis=1), between, within


def _distances(
    statistics: Array, count: Array, mean: Array, between: Array, within: Array, n_domains: int
) -> Array:
    """Distances of a batch's statistics from those of the sources, in standard deviations."""
    variance = (between + within / np.maximum(count, 1.0)) * (1.0 + 1.0 / n_domains)
    distance = (statistics - mean) / np.sqrt(np.maximum(variance, 1e-12))
    judged = np.array([count >= 1.0, count >= LEAST_ROWS])
    return np.asarray(np.where(judged, distance, 0.0))


def _statistics(moments: Moments) -> tuple[Array, Array]:
    """Means and logarithms of variances, of shape (2, n_groups, n_features), and their counts."""
    logs = np.log(np.maximum(moments.variance, LEAST_VARIANCE))
    return np.array([moments.mean, logs]), np.asarray(moments.count)


def _noise(Z: Array, rows: Sequence[Array]) -> Array:
    """Variance due to one row in each domain: of means and, from random halves, log variances."""
    counts = np.array([len(of_domain) for of_domain in rows])
    places = np.concatenate([np.arange(n) >= n // 2 for n in counts])
    group = np.repeat(np.arange(len(rows)), counts)
    Z = Z[np.concatenate(rows)]
    halves = Moments.of_rows(Z, 2 * group + places, 2 * len(rows))
    logs = _statistics(halves)[0][1]
    between_halves = counts[:, None] * (logs[::2] - logs[1::2]) ** 2 / 4.0
    return np.array([Moments.of_rows(Z, group, len(rows)).variance, between_halves])
