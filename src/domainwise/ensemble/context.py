"""DomainContext: adds to each row its values relative to its own domain."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from domainwise.arrays import Array, ArrayLike, Label, MaybeArray, is_dask, is_tensor
from domainwise.arrays.namespace import as_type_of, cast, namespace
from domainwise.backends import backend_of
from domainwise.checks.inputs import Labels, plain_array, refuse_too_large, validate_rows
from domainwise.checks.signatures import arguments, batch_record, check_batch, with_shared_arguments
from domainwise.ensemble.batches import Batch
from domainwise.ensemble.moments import Levels, Moments, no_moments, rows_moments

#: Factor by which a feature and its relative value are both multiplied.
RELATIVE_SHARE = 2**-0.5
#: Lower bound of a domain's variance before its logarithm is taken.
LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class DomainStatistics:
    """Statistics of whole domains, for predicting only some of their rows at a time."""

    moments: dict[Any, Moments]  #: by domain, in the sources' units
    #: Domains that an ensemble predicts row by row; None decides by the rows that are predicted.
    without_context: frozenset[Any] | None = None
    #: Batches by domain, for ensembles.
    batches: dict[Any, Batch] = field(default_factory=dict)

    def batch(self, domain: Any) -> Batch:
        """Return the batch of all rows of a domain, with its parts if they are known."""
        if domain in self.batches:
            return self.batches[domain]
        moments = self.moments[domain]
        return Batch(int(moments.count.max(initial=0.0)), moments, [])


def rounded(values: Any) -> Any:
    """Round to multiples of 2^-36, which are far larger than rounding errors of sums.

    Otherwise the order of rows could decide on which side of a tree's threshold a row falls.
    """
    return namespace(values).round(values * 2.0**36) / 2.0**36


def domain_labels(sample_domain: Any, X: Any) -> Labels:
    """Check that there is one domain label for each row of X, and return the labels."""
    arrays = hasattr(sample_domain, "shape")
    shape = np.shape(sample_domain if arrays else plain_array(sample_domain, "sample_domain"))
    if len(shape) > 1 and shape[1:] != (1,):
        raise ValueError(
            f"sample_domain must hold one label for each row, got an array of shape {shape}"
        )
    return backend_of(X).check_sample_domain(sample_domain, X, "delta")


@with_shared_arguments
@arguments
class DomainContext(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Add to each row its values relative to its own domain.

    A reading that is high for one sensor may be low for another. ``fit`` learns the sources' mean
    and standard deviation, by which values are standardised. If the :math:`n_d` rows of domain
    :math:`d` have mean :math:`\mu_d` and variance :math:`\sigma_d^2`, the relative value is

    .. math:: r = \mathrm{clip}\Big(\frac{x - a \mu_d}{\sqrt{a \sigma_d^2 + 1 - a}}\Big), \qquad
       a = \frac{n_d}{n_d + \kappa}:

    the fewer rows a domain has, the more its rows are compared with the sources instead.
    ``transform`` uses the rows that it receives, of known or new domains, and no targets. Without
    ``sample_domain`` all :math:`a` are 0, and each row is transformed independently of the others.

    Parameters
    ----------
    relative : bool, default=True
        Add the relative values.
    summary : bool, default=False
        Add statistics of the domain: :math:`a \mu_d` and :math:`\log(a \sigma_d^2 + 1 - a) / 2` of
        each feature. An RBF kernel on these and the plain features is a product of a kernel of
        rows and one of domains, as in marginal transfer learning.
    shrinkage : float, default=20.0
        The :math:`\kappa` above, in rows.
    clip : float, default=6.0
        Relative values are clipped to the range from ``-clip`` to ``clip``.

    Attributes
    ----------
    mean_, scale_ : ndarray of shape (n_features,)
        Mean and standard deviation of the sources' observed values; 0 and 1 if there are none.
    relative_features_ : ndarray of int
        Indices of features that get relative values: those with more than two distinct values.
        Constants, and columns of two values such as one-hot encoded categories, get none.
    n_samples_seen_ : int
        Rows seen by ``fit`` and ``partial_fit``.
    {features_seen}

    Notes
    -----
    The output holds the plain features in the sources' units, the relative values, and the
    summary. A feature and its relative value are both divided by :math:`\sqrt 2`, so that without
    domains the distances between rows are unchanged.

    Missing values (NaN) are excluded from a domain's mean, variance and number of rows, feature by
    feature. A relative value is 0 where the value is missing.

    Tensors give tensors. Dask collections give Dask collections: the domains' statistics are
    computed in a pass over all partitions, and rows are transformed lazily.

    Transform before you subsample rows: a domain's mean is more accurate from all of its rows.

    References
    ----------
    G. Blanchard, A. A. Deshmukh, U. Dogan, G. Lee, C. Scott (2021), Domain generalization by
    marginal transfer learning, JMLR 22.

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

    # sample_domain reaches these through pipelines and searches without set_transform_request.
    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__partial_fit: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__transform: ClassVar[dict[str, Any]] = {"sample_domain": True}

    _uses_target = False

    relative: bool = True
    summary: bool = False
    shrinkage: float = 20.0
    clip: float = 6.0
    _statistics: DomainStatistics | None = field(default=None, init=False)
    #: Properties that later batches must share with the first one; None in older model files.
    _first_batch: dict[str, str] | None = field(default=None, init=False)
    _moments: Moments = field(init=False)
    _levels: Levels = field(init=False)

    def fit(self, X: ArrayLike, y: MaybeArray = None, sample_domain: MaybeArray = None) -> Self:
        """Learn the mean and standard deviation of each feature over the source rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all source domains; NaN where a value is missing.
        y : ignored
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row. It is only checked: all rows have the same weight.

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
            Of the same array type and precision as X.
        """
        check_is_fitted(self)
        if is_dask(X):
            from domainwise.ensemble.context_dask import transform_partitions

            return transform_partitions(self, X, sample_domain)
        rows: Any = self._rows(X, reset=False)
        domain, Z = domain_labels(sample_domain, rows), self._standardised(rows)
        with_domains = sample_domain is not None
        moments = self._moments_of(Z, domain) if with_domains else no_moments(Z)
        values = self._in_context(Z, domain.codes, moments, with_domains=with_domains)
        return cast(values, rows.dtype)

    def domain_moments(self, X: ArrayLike, sample_domain: ArrayLike) -> dict[Label, Moments]:
        """Moments of each domain's rows, in the sources' units; those of batches can be merged."""
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        domain = domain_labels(sample_domain, X)
        moments = Moments.of_rows(self._standardised(X), domain.codes, domain.n_categories)
        return dict(zip(domain.names.tolist(), moments.by_group(), strict=True))

    def with_statistics(self, statistics: DomainStatistics) -> Self:
        """Return a copy that uses these statistics of domains instead of those of the rows in X."""
        context = copy(self)
        context._statistics = statistics
        return context

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Names of the columns of the output.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features, if X had none in fit.

        Returns
        -------
        names : ndarray of str
        """
        names = super().get_feature_names_out(input_features)
        chosen = names[self.relative_features_]
        endings = ["_relative"] * self.relative + ["_mean", "_deviation"] * self.summary
        return np.array([*names, *(f"{n}{end}" for end in endings for n in chosen)], dtype=object)

    def _learn(self, X: Any, sample_domain: Any, *, reset: bool) -> Self:
        self._validate_params()
        if not reset:
            check_batch(self, self._first_batch, sample_domain)
        if is_dask(X):
            from domainwise.ensemble.context_dask import source_moments

            n, moments, levels = source_moments(self, X, sample_domain, reset=reset)
        else:
            X = self._rows(X, reset=reset)
            domain_labels(sample_domain, X)
            n, moments, levels = len(X), *rows_moments(X)
        if reset:
            self._first_batch = batch_record(self, sample_domain)
        else:
            moments, levels = self._moments.merged(moments), self._levels.merged(levels)
        self._moments, self._levels = moments, levels
        self.n_samples_seen_: int = n if reset else n + self.n_samples_seen_
        self.mean_ = np.where(moments.count[0] > 0, moments.mean[0], 0.0)
        deviation = np.sqrt(moments.variance[0])
        # A deviation within the rounding error of the mean is that of a constant.
        constant = deviation <= 10 * np.finfo(np.float64).eps * np.abs(self.mean_)
        self.scale_ = np.where(constant, 1.0, deviation)
        self.relative_features_ = np.flatnonzero(levels.many & ~constant)
        return self

    def _rows(self, X: Any, *, reset: bool) -> Any:
        """Check X, in which values may be missing."""
        if is_tensor(X):
            import torch

            filled = torch.nan_to_num(X, nan=0.0, posinf=np.inf, neginf=-np.inf)
            backend_of(X).check_rows(self, filled, reset=reset)
            refuse_too_large(filled.abs().max().cpu().numpy(), "X")
            return X.detach()
        floats = (np.float64, np.float32)
        X = validate_rows(self, X, dtype=floats, reset=reset, ensure_all_finite="allow-nan")
        refuse_too_large(X, "X")
        return X

    def _standardised(self, X: Any) -> Any:
        """Rows in the units of the sources, in float64."""
        X = cast(X, namespace(X).float64)
        return (X - as_type_of(self.mean_, X)) / as_type_of(self.scale_, X)

    def _moments_of(self, Z: Any, domain: Labels) -> Moments:
        """Moments of each domain, of rows in the units of the sources."""
        if self._statistics is None:
            return Moments.of_rows(Z, domain.codes, domain.n_categories)
        return Moments.stacked([self._statistics.moments[name] for name in domain.names.tolist()])

    def _in_context(self, Z: Any, codes: Any, moments: Moments, *, with_domains: bool) -> Any:
        """Columns of the output for rows in the units of the sources."""
        xp = namespace(Z)
        chosen = self.relative_features_
        mean, variance = self._shrunk(moments, with_domains=with_domains)
        parts = [Z]
        if self.relative:
            share = as_type_of(np.ones(Z.shape[1]), Z)
            share[chosen] = RELATIVE_SHARE
            parts = [Z * share, self._relative(Z, codes, mean, variance)]
        if self.summary:
            logarithm = xp.log(xp.clip(variance, LEAST_VARIANCE, None)) / 2
            parts += [rounded(values[codes][:, chosen]) for values in (mean, logarithm)]
        return xp.concatenate(parts, axis=1)

    def _relative(self, Z: Any, codes: Any, mean: Any, variance: Any) -> Any:
        """Relative values, from the shrunk mean and variance of each domain."""
        xp, chosen = namespace(Z), self.relative_features_
        spread = xp.sqrt(variance)[codes][:, chosen]
        distance = (Z - mean[codes])[:, chosen]
        # Without shrinkage, a domain with one distinct value has no spread: its ratio is 0.
        ratio = distance / xp.where(spread > 0, spread, 1.0)
        ratio = xp.where(xp.isnan(ratio), 0.0, xp.clip(ratio, -self.clip, self.clip))
        return RELATIVE_SHARE * rounded(ratio)

    def _shrunk(self, moments: Moments, *, with_domains: bool) -> tuple[Any, Any]:
        """``a mu`` and ``a sigma^2 + 1 - a`` of each domain and feature."""
        xp = namespace(moments.count)
        total = moments.count + self.shrinkage
        trust = moments.count / xp.where(total > 0, total, 1.0) * float(with_domains)
        return trust * moments.mean, trust * moments.variance + 1.0 - trust

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
