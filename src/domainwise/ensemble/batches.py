"""Batches of any size: random parts of a domain, trust by the number of rows, and a guard.

Members in context learn from source domains of about so many rows, their *size*, and the mean of
few rows is noisier than that of many. A larger batch is therefore divided at random into parts of
that size, and each row is predicted relative to several of them. In a smaller batch, context counts
less (theory 14).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from domainwise.arrays import Array
from domainwise.ensemble.moments import Moments

#: Parts that each row of a large batch is predicted relative to. A member in context costs about
#: as much as without, so that a prediction costs at most this many times more, and once more.
MOST_PARTS = 6
#: Rows of a batch in units of those of source domains from which on it is divided.
DIVIDED_FROM = 1.5
#: Numbers of rows for half of the trust, of which one is chosen; the middle is used where nothing
#: can be measured.
HALF_TRUST = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0)
DEFAULT_HALF = 20.0
#: Batch sizes at which trust and the guard are learnt.
SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: A variance, in units of the sources' own, below which its logarithm says nothing more.
LEAST_VARIANCE = 1e-3
#: Rows of a domain below which its variances are not judged.
LEAST_ROWS = 8
#: Source domains with fewer have no range, for the guard.
LEAST_DOMAINS = 4
#: Share of new domains, like the sources, that may lie beyond the range.
BEYOND = 0.01
#: Batches of each size that are drawn of every source domain, and rows that show their spread.
DRAWS, SHOWN_ROWS = 4, 2000
#: Source domains on which trust is measured, rows of each that are predicted in batches of one
#: size, and rows that members learn from for it.
TRUST_DOMAINS, TRUST_PREDICTED, TRUST_ROWS = 16, 32, 500

_ODD = np.uint64(0x9E3779B97F4A7C15)


def _scrambled(keys: Array) -> Array:
    """Scramble 64-bit numbers, so that close ones become unrelated."""
    keys = (keys ^ (keys >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
    keys = (keys ^ (keys >> np.uint64(32))) * np.uint64(0xA0761D6478BD642F)
    return keys ^ (keys >> np.uint64(29))


def row_keys(X: Array, seed: int) -> Array:
    """A random number of 64 bits for each row, from its content: the same rows have the same."""
    bits = np.where(np.isnan(X), np.nan, X + 0.0).view(np.uint64)  # one NaN, and one zero
    keys = np.full(len(X), seed, dtype=np.uint64)
    for column in bits.T:
        keys = _scrambled((keys ^ column) + _ODD)
    return keys


def drawn_numbers(keys: Array, number: int = 0) -> Array:
    """Random numbers by which rows are drawn: from their keys, and of copies one each."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    copies = np.arange(len(keys)) - np.searchsorted(ordered, ordered)
    drawn = np.empty_like(keys)
    numbered = np.array([2 * number + 1], dtype=np.uint64) * _ODD
    steps = numbered + copies.astype(np.uint64) * np.uint64(0x5851F42D)
    drawn[order] = _scrambled(ordered + steps)
    return drawn


def drawing_order(keys: Array, number: int = 0) -> Array:
    """A random order of rows that does not depend on the order in which they are given."""
    return np.argsort(drawn_numbers(keys, number), kind="stable")


def part_count(n_rows: int, size: float) -> int:
    """Number of parts of about ``size`` rows; a batch of less than 1.5 times that is one part."""
    return 1 if n_rows < DIVIDED_FROM * size else max(1, int(n_rows / size + 0.5))


@dataclass(frozen=True)
class Part:
    """Some rows of a batch."""

    keys: Array
    moments: Moments  #: of all its rows
    others: Moments  #: of all but the last: a row that is not of this part takes its place

    @classmethod
    def of(cls, Z: Array, keys: Array) -> Part:
        """Of rows in the units of the sources, in the order in which they are summed."""
        return cls(keys, _moments(Z), _moments(Z[:-1]))

    def around(self, Z: Array, keys: Array) -> Moments:
        """Moments of the part for each row, which is in it, or takes the place of the last."""
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
    parts: list[Part]  #: those that rows are predicted relative to; none if that is the whole batch

    @classmethod
    def of(
        cls,
        Z: Array,
        keys: Array,
        size: float,
        n_rows: int | None = None,
        moments: Moments | None = None,
    ) -> Batch:
        """Of rows in the units of the sources.

        Of a domain too large to hold, rows are some of ``n_rows``, and ``moments`` those of all.
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
        """How often its rows are predicted."""
        return max(1, len(self.parts))

    def around(self, number: int, Z: Array, keys: Array) -> Moments:
        """Moments of a part for each of some rows."""
        if self.parts:
            return self.parts[number].around(Z, keys)
        moments = self.moments
        values = (moments.count, moments.mean, moments.squares)
        return Moments(*(np.broadcast_to(v, Z.shape) for v in values))


def moments_around(
    batches: Mapping[int, Batch], number: int, Z: Array, keys: Array, codes: Array
) -> Moments:
    """Moments of a part of its batch for each row; rows are sorted by the code of their domain."""
    present, firsts = np.unique(codes, return_index=True)
    places = np.split(np.arange(len(Z)), firsts[1:])
    pairs = zip(present.tolist(), places, strict=True)
    return Moments.stacked([batches[c].around(number, Z[rows], keys[rows]) for c, rows in pairs])


def _moments(Z: Array) -> Moments:
    return Moments.of_rows(Z, np.zeros(len(Z), dtype=np.intp), 1)


@dataclass(frozen=True)
class Trust:
    """How much context counts in batches of n rows, beside predictions row by row.

    ``t(n) / t(size)`` with ``t(n) = (n - 1) / (n - 1 + half)``: 0 for one row, and 1 for batches as
    large as source domains.
    """

    size: float
    half: float = DEFAULT_HALF

    def __call__(self, n_rows: Array | int) -> Array:
        """The share of context, for each number of rows."""
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

        ``plain`` and ``context`` are probabilities or values by row, ``y`` what they should be.
        """
        errors = []
        for half in HALF_TRUST:
            share = cls(size, half)(n_rows)[:, None]
            mixed = share * context + (1.0 - share) * plain
            errors.append(weights @ ((mixed - y) ** 2).sum(axis=1))
        return cls(size, HALF_TRUST[int(np.argmin(errors))])


class ThinBatch(NamedTuple):
    """Some rows of a source domain, as a batch."""

    rows: Array  #: places of those to predict, among the rows that members learn from
    n_rows: int
    moments: Moments  #: of all of them


@dataclass(frozen=True)
class Thinned:
    """Source domains, of which small batches are drawn."""

    Z: Array  #: rows in the units of the sources
    codes: Array  #: of their domains
    learnt: Array  #: places of the rows that members learn from
    scored: Array  #: places among these of rows that have held-out predictions
    domains: Array  #: those that are used
    size: int  #: rows of a source domain

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
    """The statistic of a batch that lies farthest outside those of source domains."""

    statistic: str  #: "mean" or "spread"
    feature: int
    distance: float  #: in standard deviations of source domains with as many rows
    limit: float  #: what source domains reach

    def in_words(self, column: object) -> str:
        """What is unusual, of a column by its name.

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
    """What means and variances of features are in source domains, given the number of rows.

    A statistic s of a batch of n rows is ``z = (s - mean) / sqrt(between + within / n)`` away from
    those of source domains. Its largest ``|z|`` is compared with that of source domains, thinned
    to n rows and held out in turn: the upper end of their range, on the logarithm (theory 18).
    """

    features: Array  #: those that are judged
    mean: Array  #: of shape (2, n_features): of means, and of logarithms of variances
    between: Array  #: variance between domains, of each
    within: Array  #: variance of one row: divided by n that of a domain's statistic
    n_domains: int
    sizes: Array
    limits: Array  #: of the largest distance, for each size

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
    """Mean and variance between domains of each statistic, and the variance of one row.

    Statistics and noise, the variance of one row in each domain, have shape (2, n_domains,
    n_features), and the counts behind them (n_domains, n_features).
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
    """Variance of one row in each domain, for means and, from random halves, log variances."""
    counts = np.array([len(of_domain) for of_domain in rows])
    places = np.concatenate([np.arange(n) >= n // 2 for n in counts])
    group = np.repeat(np.arange(len(rows)), counts)
    Z = Z[np.concatenate(rows)]
    halves = Moments.of_rows(Z, 2 * group + places, 2 * len(rows))
    logs = _statistics(halves)[0][1]
    between_halves = counts[:, None] * (logs[::2] - logs[1::2]) ** 2 / 4.0
    return np.array([Moments.of_rows(Z, group, len(rows)).variance, between_halves])
