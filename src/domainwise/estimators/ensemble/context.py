"""DomainContext, which adds to each row its values relative to its domain."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from domainwise.algebra.backends import backend_of, refuse_dask
from domainwise.base import arrays
from domainwise.base.arrays import Array, ArrayLike, Label, MaybeArray
from domainwise.base.inputs import Labels, plain_array, refuse_too_large, validate_rows
from domainwise.base.signatures import batch_record, check_batch, documented_arguments
from domainwise.estimators.ensemble.batches import (
    Batch,
    FeatureRanges,
    Moments,
    no_moments,
    rows_moments,
)

#: Factor by which a feature and its relative value are multiplied.
RELATIVE_FACTOR = 2**-0.5
#: Lower bound for variances before a logarithm is taken.
MIN_VARIANCE = 1e-12


@dataclass(frozen=True)
class DomainStatistics:
    """Statistics of all rows of each domain, with which the rows can be predicted in chunks."""

    moments: dict[Any, Moments]  #: of standardized rows, by domain
    #: Domains that an ensemble predicts without context; None to decide from the predicted rows.
    without_context: frozenset[Any] | None = None
    #: Batches by domain, for ensembles.
    batches: dict[Any, Batch] = field(default_factory=dict)

    def batch(self, domain: Any) -> Batch:
        """Return the batch of all rows of a domain, with parts if they are known."""
        if domain in self.batches:
            return self.batches[domain]
        moments = self.moments[domain]
        return Batch(int(moments.count.max(initial=0.0)), moments, [])


def rounded(values: Any) -> Any:
    """Round to multiples of 2^-36, a step much larger than the rounding errors of sums.

    Without rounding, the order of rows could decide on which side of a tree's threshold a value is.
    """
    return arrays.namespace(values).round(values * 2.0**36) / 2.0**36


def domain_labels(sample_domain: Any, X: Any) -> Labels:
    """Check that there is one domain label for each row of X, and return the labels."""
    has_shape = hasattr(sample_domain, "shape")
    shape = np.shape(sample_domain if has_shape else plain_array(sample_domain, "sample_domain"))
    if len(shape) > 1 and shape[1:] != (1,):
        raise ValueError(f"sample_domain must contain one label per row; got shape {shape}")
    return backend_of(X).check_sample_domain(sample_domain, X, "delta")


@documented_arguments
class DomainContext(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Add to each row its values relative to its domain.

    A value that is high for one sensor may be low for another. ``fit`` computes the mean and the
    standard deviation of the source rows, with which values are standardized. If the :math:`n_d`
    rows of domain :math:`d` have mean :math:`\mu_d` and variance :math:`\sigma_d^2`, the relative
    value is

    .. math:: r = \mathrm{clip}\Big(\frac{x - a \mu_d}{\sqrt{a \sigma_d^2 + 1 - a}}\Big), \qquad
       a = \frac{n_d}{n_d + \kappa}.

    The fewer rows a domain has, the closer its relative values are to the standardized values.
    ``transform`` uses the rows that it receives, from known or new domains, and no targets. Without
    ``sample_domain``, all :math:`a` are 0, and each row is transformed independently of the others.

    Parameters
    ----------
    relative : bool, default=True
        Whether to add the relative values.
    summary : bool, default=False
        Whether to add :math:`a \mu_d` and :math:`\log(a \sigma_d^2 + 1 - a) / 2` of each feature.
        An RBF kernel on the features and these domain statistics is a product of a row kernel and a
        domain kernel, as in marginal transfer learning.
    shrinkage : float, default=20.0
        The :math:`\kappa` above, as a number of rows.
    clip : float, default=6.0
        Relative values are clipped to the range from ``-clip`` to ``clip``.

    Attributes
    ----------
    mean_, scale_ : ndarray of shape (n_features,)
        Mean and standard deviation of the observed source values; 0 and 1 if there are none.
    relative_features_ : ndarray of int
        Indices of the features that have relative values: those with more than two distinct values.
        Constant columns and columns with two values, such as one-hot encoded categories, have none.
    n_samples_seen_ : int
        Number of rows seen by ``fit`` and ``partial_fit``.
    {features_seen}

    Notes
    -----
    The output contains the standardized features, the relative values, and the summary. A feature
    and its relative value are both divided by :math:`\sqrt 2`, so that without domains the
    distances between rows are unchanged.

    Missing values (NaN) are excluded from the mean, variance and number of rows of a domain, for
    each feature separately. The relative value of a missing value is 0.

    The output for a tensor is a tensor.

    Transform rows before you sample them, because the mean of a domain is more accurate if it is
    computed from all of its rows.

    References
    ----------
    G. Blanchard, A. A. Deshmukh, U. Dogan, G. Lee and C. Scott (2021), "Domain generalization by
    marginal transfer learning", JMLR 22, arXiv:1711.07910.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise import DomainContext
    >>> X = np.array([[1.0], [2.0], [3.0], [11.0], [12.0], [13.0]])
    >>> sensor = ["a", "a", "a", "b", "b", "b"]
    >>> context = DomainContext(shrinkage=0.0)
    >>> Z = context.fit_transform(X, sample_domain=sensor)
    >>> np.round(Z * np.sqrt(2), 2)[:, 1]
    array([-1.22,  0.  ,  1.22, -1.22,  0.  ,  1.22])
    """

    # Pipelines and searches pass sample_domain to these methods without set_transform_request.
    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__partial_fit: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__transform: ClassVar[dict[str, Any]] = {"sample_domain": True}

    _uses_target = False

    relative: bool = True
    summary: bool = False
    shrinkage: float = 20.0
    clip: float = 6.0
    _statistics: DomainStatistics | None = field(default=None, init=False)
    #: Properties of the first batch that later batches must share.
    _first_batch: dict[str, str] = field(init=False)
    _moments: Moments = field(init=False)
    _feature_ranges: FeatureRanges = field(init=False)

    def fit(self, X: ArrayLike, y: MaybeArray = None, sample_domain: MaybeArray = None) -> Self:
        """Compute the mean and standard deviation of each feature over the source rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows from all source domains; missing values are NaN.
        y : ignored
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row. It is checked but not used: all rows have the same weight.

        Returns
        -------
        self : object
        """
        return self._learn(X, sample_domain, reset=True)

    def partial_fit(
        self, X: ArrayLike, y: MaybeArray = None, sample_domain: MaybeArray = None
    ) -> Self:
        """Update the means and standard deviations with more rows.

        Parameters
        ----------
        X, y, sample_domain
            As in :meth:`fit`.

        Returns
        -------
        self : object
        """
        return self._learn(X, sample_domain, reset=not hasattr(self, "_moments"))

    def fit_transform(
        self, X: ArrayLike, y: MaybeArray = None, sample_domain: MaybeArray = None
    ) -> Array:
        """Fit, and return the source rows in the context of their domains.

        Parameters
        ----------
        X, y, sample_domain
            As in :meth:`fit`.

        Returns
        -------
        Z : array of shape (n_samples, n_features_out)
        """
        return self.fit(X, y, sample_domain=sample_domain).transform(X, sample_domain=sample_domain)

    def transform(self, X: ArrayLike, sample_domain: MaybeArray = None) -> Array:
        """Transform each row in the context of the rows of X from the same domain.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        sample_domain : array-like of shape (n_rows,), default=None
            The domain of each row, seen in fit or not. None transforms each row independently.

        Returns
        -------
        Z : array of shape (n_rows, n_features_out)
            Array of the same type and precision as X.
        """
        check_is_fitted(self)
        rows: Any = self._check_rows(X, reset=False)
        domain, Z = domain_labels(sample_domain, rows), self._standardized(rows)
        with_domains = sample_domain is not None
        moments = self._moments_of(Z, domain) if with_domains else no_moments(Z)
        transformed_rows = self._in_context(Z, domain.codes, moments, with_domains=with_domains)
        return arrays.cast(transformed_rows, rows.dtype)

    def domain_moments(self, X: ArrayLike, sample_domain: ArrayLike) -> dict[Label, Moments]:
        """Return the moments of each domain's rows; the moments of batches can be merged."""
        check_is_fitted(self)
        X = self._check_rows(X, reset=False)
        domain = domain_labels(sample_domain, X)
        moments = Moments.of_rows(self._standardized(X), domain.codes, domain.n_categories)
        return dict(zip(domain.names.tolist(), moments.by_group(), strict=True))

    def with_statistics(self, statistics: DomainStatistics) -> Self:
        """Return a copy that uses these domain statistics instead of those of X."""
        context = copy(self)
        context._statistics = statistics
        return context

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Return the names of the output columns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features, if X had no column names in fit.

        Returns
        -------
        names : ndarray of str
        """
        names = super().get_feature_names_out(input_features)
        relative_names = names[self.relative_features_]
        suffixes = ["_relative"] * self.relative + ["_mean", "_deviation"] * self.summary
        added_names = (f"{name}{suffix}" for suffix in suffixes for name in relative_names)
        return np.array([*names, *added_names], dtype=object)

    def _learn(
        self, X: Any, sample_domain: Any, *, reset: bool, weights: Array | None = None
    ) -> Self:
        self._validate_params()
        if not reset:
            check_batch(self, self._first_batch, sample_domain)
        X = self._check_rows(X, reset=reset)
        domain_labels(sample_domain, X)
        moments, ranges = rows_moments(X, weights)
        if reset:
            self._first_batch = batch_record(self, sample_domain)
        else:
            moments, ranges = self._moments.merged(moments), self._feature_ranges.merged(ranges)
        self._moments, self._feature_ranges = moments, ranges
        self.n_samples_seen_: int = len(X) if reset else len(X) + self.n_samples_seen_
        self.mean_ = np.where(moments.count[0] > 0, moments.mean[0], 0.0)
        deviation = np.sqrt(moments.variance[0])
        # If the deviation is a rounding error of the mean, the feature is constant.
        is_constant = deviation <= 10 * np.finfo(np.float64).eps * np.abs(self.mean_)
        self.scale_ = np.where(is_constant, 1.0, deviation)
        self.relative_features_ = np.flatnonzero(ranges.many & ~is_constant)
        return self

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        """Check X, in which values may be missing."""
        refuse_dask(self, X, "On a cluster, use FastDCM or InvariantRidgeClassifierCV")
        if arrays.is_tensor(X):
            import torch

            filled_X = torch.nan_to_num(X, nan=0.0, posinf=np.inf, neginf=-np.inf)
            backend_of(X).check_rows(self, filled_X, reset=reset)
            refuse_too_large(filled_X.abs().max().cpu().numpy(), "X")
            return X.detach()
        float_types = (np.float64, np.float32)
        X = validate_rows(self, X, dtype=float_types, reset=reset, ensure_all_finite="allow-nan")
        refuse_too_large(X, "X")
        return X

    def _standardized(self, X: Any) -> Any:
        """Standardize rows with the mean and deviation of the source rows, in float64."""
        X = arrays.cast(X, arrays.namespace(X).float64)
        return (X - arrays.as_type_of(self.mean_, X)) / arrays.as_type_of(self.scale_, X)

    def _moments_of(self, Z: Any, domain: Labels) -> Moments:
        """Return the moments of each domain's standardized rows."""
        if self._statistics is None:
            return Moments.of_rows(Z, domain.codes, domain.n_categories)
        return Moments.stacked([self._statistics.moments[name] for name in domain.names.tolist()])

    def _in_context(self, Z: Any, group_codes: Any, moments: Moments, *, with_domains: bool) -> Any:
        """Return the output columns for standardized rows."""
        xp = arrays.namespace(Z)
        feature_indices = self.relative_features_
        mean, variance = self._shrunk_moments(moments, with_domains=with_domains)
        column_blocks = [Z]
        if self.relative:
            factors = arrays.as_type_of(np.ones(Z.shape[1]), Z)
            factors[feature_indices] = RELATIVE_FACTOR
            column_blocks = [Z * factors, self._relative_values(Z, group_codes, mean, variance)]
        if self.summary:
            log_deviation = xp.log(xp.clip(variance, MIN_VARIANCE, None)) / 2
            for statistic in (mean, log_deviation):
                column_blocks.append(rounded(statistic[group_codes][:, feature_indices]))
        return xp.concatenate(column_blocks, axis=1)

    def _relative_values(self, Z: Any, group_codes: Any, mean: Any, variance: Any) -> Any:
        """Return relative values, computed from the shrunk mean and variance of each domain."""
        xp, feature_indices = arrays.namespace(Z), self.relative_features_
        deviation = xp.sqrt(variance)[group_codes][:, feature_indices]
        difference = (Z - mean[group_codes])[:, feature_indices]
        # Without shrinkage, the deviation is 0 if all values of a domain are equal.
        ratio = difference / xp.where(deviation > 0, deviation, 1.0)
        ratio = xp.where(xp.isnan(ratio), 0.0, xp.clip(ratio, -self.clip, self.clip))
        return RELATIVE_FACTOR * rounded(ratio)

    def _shrunk_moments(self, moments: Moments, *, with_domains: bool) -> tuple[Any, Any]:
        """Return ``a mu`` and ``a sigma^2 + 1 - a`` of each domain, as in the class docstring."""
        xp = arrays.namespace(moments.count)
        denominator = moments.count + self.shrinkage
        a = moments.count / xp.where(denominator > 0, denominator, 1.0) * float(with_domains)
        return a * moments.mean, a * moments.variance + 1.0 - a

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
