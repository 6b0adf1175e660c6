"""Feature moments, over all rows or by domain. The moments of batches can be merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from domainwise.base.arrays import Array, is_tensor
from domainwise.base.namespace import as_type_of, cast, group_sums, namespace, to_host


@dataclass(frozen=True)
class Moments:
    """Moments of observed values, as arrays of shape (n_groups, n_features)."""

    count: Any
    mean: Any
    squares: Any  #: sum of squared deviations from the mean

    @classmethod
    def of_rows(cls, X: Any, group_codes: Any, n_groups: int) -> Moments:
        """Compute the moments of float64 rows by group; missing values are NaN."""
        xp = namespace(X)
        is_missing = xp.isnan(X)
        filled_X = xp.where(is_missing, 0.0, X)
        count = group_sums(xp.where(is_missing, 0.0, xp.ones_like(X)), group_codes, n_groups)
        divisor = xp.where(count > 0, count, 1.0)
        mean = group_sums(filled_X, group_codes, n_groups) / divisor
        deviations = xp.where(is_missing, 0.0, filled_X - mean[group_codes])
        # The mean of large numbers has a rounding error, which is corrected here.
        residual_sums = group_sums(deviations, group_codes, n_groups)
        squares = group_sums(deviations**2, group_codes, n_groups) - residual_sums**2 / divisor
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
        arrays = zip(*((m.count, m.mean, m.squares) for m in moments), strict=True)
        return cls(*map(np.concatenate, arrays))

    def by_group(self) -> list[Moments]:
        """Split into the moments of individual groups."""
        arrays_by_group = zip(self.count, self.mean, self.squares, strict=True)
        return [Moments(*(array[None] for array in arrays)) for arrays in arrays_by_group]

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


def rows_moments(X: Any) -> tuple[Moments, FeatureRanges]:
    """Return the moments and ranges of all rows, on the host."""
    xp = namespace(X)
    group_codes = cast(as_type_of(np.zeros(len(X)), X), xp.int64)
    device_moments = Moments.of_rows(cast(X, xp.float64), group_codes, 1)
    arrays = (device_moments.count, device_moments.mean, device_moments.squares)
    moments = Moments(*map(to_host, arrays))
    return moments, FeatureRanges.of_rows(X)


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
