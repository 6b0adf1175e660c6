"""Counts, means and spreads of features, for all rows or by domain, which can be merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from domainwise.arrays import Array, is_tensor
from domainwise.arrays.namespace import as_type_of, cast, namespace, to_host


@dataclass(frozen=True)
class Moments:
    """Moments of the observed values of each feature (columns) in each group of rows (rows)."""

    count: Any
    mean: Any
    squares: Any  #: summed squared distances to the mean

    @classmethod
    def of_rows(cls, X: Any, codes: Any, n_groups: int) -> Moments:
        """Moments of float64 rows by group; NaN is a missing value."""
        xp = namespace(X)
        missing = xp.isnan(X)
        filled = xp.where(missing, 0.0, X)
        count = group_sums(xp.where(missing, 0.0, xp.ones_like(X)), codes, n_groups)
        safe = xp.where(count > 0, count, 1.0)
        mean = group_sums(filled, codes, n_groups) / safe
        distance = xp.where(missing, 0.0, filled - mean[codes])
        # The mean of large numbers is rounded; its rounding error is subtracted.
        residual = group_sums(distance, codes, n_groups)
        squares = group_sums(distance**2, codes, n_groups) - residual**2 / safe
        return cls(count, mean + residual / safe, xp.where(squares > 0, squares, 0.0))

    def merged(self, other: Moments) -> Moments:
        """Moments of the rows of both objects together (Chan's update)."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1.0)
        step = other.mean - self.mean
        squares = self.squares + other.squares + step**2 * self.count * share
        return Moments(count, self.mean + step * share, squares)

    @classmethod
    def stacked(cls, parts: Sequence[Moments]) -> Moments:
        """Join the groups of several moments, one after the other."""
        values = zip(*((part.count, part.mean, part.squares) for part in parts), strict=True)
        return cls(*map(np.concatenate, values))

    def by_group(self) -> list[Moments]:
        """Split into moments of one group each."""
        values = zip(self.count, self.mean, self.squares, strict=True)
        return [Moments(*(row[None] for row in group)) for group in values]

    @property
    def variance(self) -> Any:
        """Mean squared distance to the mean; 0 where nothing is observed."""
        return self.squares / namespace(self.count).where(self.count > 0, self.count, 1.0)


@dataclass(frozen=True)
class Levels:
    """Whether each feature has more than two values; others are treated as categories."""

    lowest: Array  #: NaN where nothing is observed
    highest: Array
    many: Array  #: whether there is a value between the lowest and the highest

    @classmethod
    def of_rows(cls, X: Any) -> Levels:
        """Compute the levels of rows, in which values may be missing."""
        xp = namespace(X)
        missing = xp.isnan(X)
        lowest = xp.where(missing, np.inf, X).min(0)
        highest = xp.where(missing, -np.inf, X).max(0)
        if is_tensor(X):
            lowest, highest = lowest.values, highest.values
        many = ((lowest < X) & (highest > X)).any(0)
        low, high = to_host(lowest), to_host(highest)
        nothing = low > high
        return cls(np.where(nothing, np.nan, low), np.where(nothing, np.nan, high), to_host(many))

    def merged(self, other: Levels) -> Levels:
        """Levels of the rows of both objects together."""
        lowest = np.fmin(self.lowest, other.lowest)
        highest = np.fmax(self.highest, other.highest)
        ends = (self.lowest, self.highest, other.lowest, other.highest)
        between = [(lowest < end) & (end < highest) for end in ends]
        return Levels(lowest, highest, np.logical_or.reduce([self.many, other.many, *between]))


def no_moments(X: Any) -> Moments:
    """Moments of one group without rows, on the device of X."""
    nothing = as_type_of(np.zeros((1, X.shape[1])), X)
    return Moments(nothing, nothing, nothing)


def group_sums(values: Any, codes: Any, n_groups: int) -> Any:
    """Sum of the rows of each group."""
    if is_tensor(values):
        return values.new_zeros((n_groups, values.shape[1])).index_add_(0, codes, values)
    n = len(values)
    indicators = csr_matrix((np.ones(n), (codes, np.arange(n))), shape=(n_groups, n))
    return np.asarray(indicators @ values)


def rows_moments(X: Any) -> tuple[Moments, Levels]:
    """Moments of all rows together, on the host, and which features have more than two values."""
    xp = namespace(X)
    codes = cast(as_type_of(np.zeros(len(X)), X), xp.int64)
    on_device = Moments.of_rows(cast(X, xp.float64), codes, 1)
    moments = Moments(*(to_host(v) for v in (on_device.count, on_device.mean, on_device.squares)))
    return moments, Levels.of_rows(X)


def sources_reach(X: Array, codes: Array, n_domains: int) -> Array:
    """Lower and upper limit of each feature in a new domain, of shape (2, n_features).

    They lie as far beyond all sources as the most extreme source lies beyond the others: up to that
    distance, members fitted without this source have been tested.
    """
    order = np.argsort(codes, kind="stable")
    firsts = np.searchsorted(codes[order], np.arange(n_domains))
    highest = [np.sort(np.maximum.reduceat(s * X[order], firsts), axis=0) for s in (-1.0, 1.0)]
    down, up = (2 * ends[-1] - ends[-2:][0] for ends in highest)
    return np.array([-down, up])
