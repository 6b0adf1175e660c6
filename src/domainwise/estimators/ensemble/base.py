"""Base class for ensembles, which fits members, weights them, and averages their predictions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import field, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from domainwise.algebra.backends import refuse_tensors_and_dask
from domainwise.base import inputs
from domainwise.base.arrays import (
    Array,
    ArrayLike,
    CrossValidator,
    Estimator,
    MaybeArray,
    Scoring,
    Seed,
)
from domainwise.base.inputs import Labels
from domainwise.base.messages import ContextWarning, listed, warn_caller
from domainwise.base.signatures import arguments
from domainwise.estimators.adaptation.adapter import Adaptable
from domainwise.estimators.adaptation.corrections import domain_quantiles
from domainwise.estimators.conformal import calibration_split
from domainwise.estimators.ensemble import fitting
from domainwise.estimators.ensemble.batches import (
    Batch,
    Moments,
    Outlier,
    SourceRange,
    Trust,
    context_moments,
    part_count,
    row_keys,
)
from domainwise.estimators.ensemble.context import DomainStatistics, domain_labels
from domainwise.estimators.ensemble.fitting import Features, Table, Weighting
from domainwise.estimators.ensemble.held_out import ShareRange, class_shares, mix
from domainwise.estimators.ensemble.members import MEMBER_TYPES, MemberType, UserMember
from domainwise.estimators.projections.projection import fixed_seed
from domainwise.held_out.calibration.decisions import source_shares
from domainwise.held_out.calibration.quantiles import HasThresholds, promise
from domainwise.held_out.folds import without_rows
from domainwise.held_out.scoring.measures import check_task
from domainwise.held_out.scoring.predictions import HeldOut
from domainwise.held_out.scoring.statistics import expected_score
from domainwise.held_out.search.grids import EnsembleSizes

OutlierByCode = dict[int, Outlier | None]  #: outlying statistic, or None, by domain code


@arguments
class DomainEnsemble(HasThresholds, Adaptable, BaseEstimator):
    """Base class for the ensembles for classification and regression."""

    members: str | Sequence[str | tuple[str, Estimator]] = field(default="auto", kw_only=False)
    context: bool | str = "auto"
    calibration: str = "cv"
    cv: CrossValidator = None
    scoring: Scoring = None
    n_jobs: int | None = None
    random_state: Seed = None
    time_budget: float | None = None
    verbose: int = 0

    #: Ranges of the shares of predicted classes on source domains, with and without context.
    _shares: ShareRange | None = field(default=None, init=False)
    _plain_shares: ShareRange | None = field(default=None, init=False)
    #: Range of domain statistics, and weight of context by batch size; None if unknown.
    _source_range: SourceRange | None = field(default=None, init=False)
    _trust: Trust | None = field(default=None, init=False)

    __metadata_request__fit: ClassVar[dict[str, Any]] = {"sample_domain": True}
    __metadata_request__predict: ClassVar[dict[str, Any]] = {"sample_domain": True}

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Self:
        """Fit members, and weight them by their scores on held-out domains.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows from all source domains; missing values are NaN.
        y : array-like of shape (n_samples,)
            Targets.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row.
        {row_weights}

        Returns
        -------
        self : object
        """
        self._validate_params()
        table = self._table(X, y, sample_domain, sample_weight)
        held_back = None
        if self.calibration == "split":
            codes = table.domain.codes
            train, test = calibration_split(codes[:, None], table.y, codes, is_classifier(self))
            table, held_back = table.take(train), table.take(test)
        self._seed = fixed_seed(self.random_state)
        problem = fitting.prepare(self, table, *self._learn_target(table))
        weighting = fitting.weigh_members(fitting.search_members(problem))
        self._store(table, weighting)
        self.members_ = fitting.fit_members(weighting)
        self._trust = fitting.learn_trust(weighting)
        if held_back is not None:
            self._calibrate(held_back)
        return self

    def _table(self, X: Any, y: Any, sample_domain: Any, sample_weight: Any) -> Table:
        """Check rows, targets, domains and settings."""
        is_classification = is_classifier(self)
        rows, target = self._check_rows(X, y, y_numeric=not is_classification, ensure_min_samples=2)
        labels = target, sample_domain
        weights, rows, target, sample_domain = inputs.rows_with_weight(sample_weight, rows, *labels)
        if is_classification:
            inputs.check_class_weight(self.class_weight, np.unique(target))
        check_task(self.scoring, is_classification)
        domain = domain_labels(sample_domain, rows)
        if self.context is True and domain.n_categories < 2:
            raise ValueError(
                "context=True requires at least two domains. Pass rows from several domains, with "
                "the domain of each row (sample_domain), or use context=False."
            )
        table = Table.from_rows(rows, target, domain, weights)
        return replace(table, cv=without_rows(self.cv, sample_weight))

    def _store(self, table: Table, weighting: Weighting) -> None:
        """Set the attributes that follow from the predictions for held-out rows."""
        problem = weighting.search.problem
        features, score = problem.features, problem.scores[False]
        self.domain_context_, self._reach = features.context, features.limits
        self.domains_ = table.by_name(table.domain.names)
        self.context_batch_size_ = problem.batch_size
        self.dropped_ = [n for n in weighting.search.candidates if n not in weighting.names]
        self.dropped_ += weighting.search.dropped
        self.weights_, self.context_weights_ = weighting.weights, weighting.context_weights
        self._reset_adaptation()
        members = {n: weighting.search.candidates[n].predictions for n in weighting.names}
        order = np.argsort(table.rows[problem.training_rows[score.rows]])
        codes = table.positions[score.domain_codes]
        named_score = replace(score, rows=score.rows[order], domain_codes=codes)
        self.held_out_ = named_score.held_out(weighting.plain, weighting.context, members)
        if not is_classifier(self):
            rows = HeldOut.stored_rows(codes, named_score.rows)
            self._learn_within(problem.data[False].X[rows])
        score = self._with_rule(score)
        mixes = [mix for mix in (weighting.plain, weighting.context) if mix is not None]
        quantiles = [domain_quantiles(score.source_outputs(mix)) for mix in mixes]
        self._quantiles = dict(zip(("plain", "context"), quantiles, strict=False))
        scores = [table.by_name(score.scores(mix)) for mix in mixes]
        expected_scores = [expected_score(values, self._seed, self.scoring) for values in scores]
        self.domain_scores_, self.context_domain_scores_ = scores[0], scores[-1]
        self.expected_score_, self.context_expected_score_ = expected_scores[0], expected_scores[-1]
        scored_domains = np.unique(score.domain_codes[score.rows])
        self.calibration_domains_ = self.domains_[np.sort(table.positions[scored_domains])]
        self.promise_ = promise(self.calibration, len(self.calibration_domains_))
        self._shares = self._plain_shares = self._source_range = None
        if weighting.context is not None:
            domain_args = (table.domain.codes, table.domain.n_categories)
            columns = features.context.relative_features_
            self._source_range = SourceRange.of_sources(
                problem.Z, *domain_args, columns, self._seed
            )
            if score.classes is not None:
                rows = problem.scores[True].rows
                share_args = (score.domain_codes[rows], problem.context_domains)
                scored_mixes = (weighting.context_mix[rows], weighting.plain_mix[rows])
                relative = [mix / self._source_shares for mix in scored_mixes]
                self._shares = ShareRange.of_sources(relative[0], *share_args)
                self._plain_shares = ShareRange.of_sources(relative[1], *share_args)

    def _calibrate(self, table: Table) -> None:
        """Calibrate prediction sets on domains that were not used for anything else."""
        y, codes = self._encode_target(table.y), table.domain.codes
        score = replace(self._held_out_score(y, codes, np.arange(len(y))), weights=table.weights)
        for mode in self._quantiles:
            domains = None if mode == "plain" else table.domain.names[codes]
            predictions = self._predict(table.X, domains)
            if is_classifier(self):  # classes that were not seen in fit have the last code
                predictions = np.column_stack([predictions, np.zeros(len(y))])
            outputs = score.source_outputs(predictions)
            self._quantiles[mode] = domain_quantiles(outputs, guaranteed=True)
        self.calibration_domains_ = table.by_name(table.domain.names)

    def _member_types(self, sizes: EnsembleSizes) -> list[MemberType]:
        """Return a member type for each name or estimator in ``members``."""
        members: Any = sizes.members if isinstance(self.members, str) else self.members
        member_types = [self._member_type(member) for member in members]
        names = {member_type.name for member_type in member_types}
        if not names or len(names) < len(member_types):
            raise ValueError(
                f"members must list at least one member, and each name once; got {self.members!r}"
            )
        return member_types

    def _member_type(self, member: Any) -> MemberType:
        """Return the type of a named member, or of a pair of a name and an estimator."""
        if isinstance(member, str) and member in MEMBER_TYPES:
            return MEMBER_TYPES[member]()
        is_pair = isinstance(member, tuple) and len(member) == 2
        name, estimator = member if is_pair else ("", None)
        if not hasattr(estimator, "fit") or isinstance(estimator, type):
            raise ValueError(
                f"members contains {member!r}. Choose from {', '.join(MEMBER_TYPES)}, or pass your "
                "own estimators as (name, estimator) pairs."
            )
        needed_type, wrong_type = ("classifier", "regressor")[:: 1 if is_classifier(self) else -1]
        get_tags: Any = getattr(estimator, "__sklearn_tags__", None)
        if get_tags is not None and get_tags().estimator_type == wrong_type:
            raise ValueError(
                f"members contains {name!r}, a {type(estimator).__name__}, which is a "
                f"{wrong_type}. Pass a {needed_type} to {type(self).__name__}."
            )
        return UserMember(str(name), estimator)

    def _member_outputs(self, features: Array, *, in_context: bool) -> dict[str, Array]:
        """Return the predictions of all members that use context, or of all that do not."""
        members = {name: m for name, m in self.members_.items() if m.in_context == in_context}
        return {name: member.predict(features) for name, member in members.items()}

    @property
    def _features(self) -> Features:
        return Features(self.domain_context_, self._reach)

    def _predict(self, X: Any, sample_domain: Any) -> Array:
        """Return class probabilities, or predictions of the standardized target."""
        check_is_fitted(self)
        return self._predict_checked(self._check_rows(X, reset=False), sample_domain)

    def _predict_checked(self, X: Array, sample_domain: Any) -> Array:
        domain = domain_labels(sample_domain, X)
        if sample_domain is None or not self.uses_context:
            features = self._features.plain(self.domain_context_._standardized(X))
            return mix(self._member_outputs(features, in_context=False), self.weights_)
        plain_predictions, predictions, unusual_domains = self._predict_in_batches(X, domain)
        if unusual_domains:
            self._warn_without_context(unusual_domains, domain)
            is_unusual = np.isin(np.asarray(domain.codes), list(unusual_domains))
            predictions[is_unusual] = plain_predictions[is_unusual]
        return predictions

    def _predict_in_batches(self, X: Array, domain: Labels) -> tuple[Array, Array, OutlierByCode]:
        """Predict rows without context, and in the context of their batches.

        Return both predictions, and the outlying statistic (or None) of each unusual domain, by
        domain code. Context should not be used for these domains. Distinct rows are predicted
        once, sorted by domain and content, so that results do not depend on the order of rows.
        """
        inputs.refuse_too_large(X, "X")
        domain_codes, keys = np.asarray(domain.codes), row_keys(X, self._seed)
        order = np.lexsort([keys, domain_codes])
        is_first_copy = np.ones(len(X), dtype=bool)
        is_first_copy[1:] = (np.diff(domain_codes[order]) != 0) | (np.diff(keys[order]) != 0)
        inverse_indices = np.empty(len(X), dtype=np.intp)
        inverse_indices[order] = np.cumsum(is_first_copy) - 1
        Z = self.domain_context_._standardized(X)
        batches = self._batches(Z, keys, domain)
        distinct_rows = order[is_first_copy]
        domain_codes, keys, Z = (array[distinct_rows] for array in (domain_codes, keys, Z))
        features = self._features.plain(Z)
        outputs = self._member_outputs(features, in_context=False)
        plain_predictions = mix(outputs, self.weights_)
        outliers, source_range = {}, self._source_range
        trust = np.zeros(domain.n_categories)
        for code, batch in batches.items():
            outlier = None if source_range is None else source_range.outlier(batch.moments)
            outliers[code] = outlier
            if outlier is None:
                trust[code] = 1.0 if self._trust is None else self._trust(batch.n_rows)
        context_rows = np.flatnonzero(trust[domain_codes] > 0.0)
        predictions = plain_predictions.copy()
        plain_sum = mix(outputs, self.context_weights_)[context_rows]
        context_sum = np.zeros(plain_sum.shape)
        context_codes = domain_codes[context_rows]
        n_contexts = np.array([batches[c].n_contexts for c in context_codes.tolist()], dtype=int)
        for part_index in range(n_contexts.max(initial=0)):
            indices = np.flatnonzero(n_contexts > part_index)
            rows = context_rows[indices]
            moments = context_moments(batches, part_index, Z[rows], keys[rows], domain_codes[rows])
            groups = np.arange(len(rows))
            X_context = self._features.in_context(Z[rows], features[rows], groups, moments)
            context_outputs = self._member_outputs(X_context, in_context=True)
            context_sum[indices] += mix(context_outputs, self.context_weights_)
        context_predictions = context_sum / n_contexts[:, None] + plain_sum
        t = trust[context_codes][:, None]
        weighted_sum = t * context_predictions + (1.0 - t) * plain_predictions[context_rows]
        predictions[context_rows] = np.where(t < 1.0, weighted_sum, context_predictions)
        row_predictions = (plain_predictions[inverse_indices], predictions[inverse_indices])
        return *row_predictions, self._unusual_domains(*row_predictions, domain, outliers)

    def _batches(self, Z: Array, keys: Array, domain: Labels) -> dict[int, Batch]:
        """Return batches by domain code; a single row needs none if its context has no weight."""
        statistics = self.domain_context_._statistics
        if statistics is not None:
            pairs = enumerate(np.asarray(domain.names).tolist())
            return {code: statistics.batch(name) for code, name in pairs}
        domain_codes = np.asarray(domain.codes)
        domain_sizes = np.bincount(domain_codes, minlength=domain.n_categories)
        order = np.lexsort([keys, domain_codes])
        moments = Moments.of_rows(Z[order], domain_codes[order], domain.n_categories).by_group()
        batches = {}
        for code, rows in enumerate(np.split(order, np.cumsum(domain_sizes)[:-1])):
            if part_count(len(rows), self._batch_size) > 1:
                batches[code] = Batch.from_rows(Z[rows], keys[rows], self._batch_size)
            elif len(rows) > 1 or self._trust is None:
                batches[code] = Batch(len(rows), moments[code], [])
        return batches

    @property
    def _batch_size(self) -> float:
        """Typical number of rows in a source domain; larger batches are divided into parts."""
        return np.inf if self._trust is None else self._trust.size

    def batch_of(self, X: Array, n_rows: int, moments: Moments) -> Batch:
        """Create a domain's batch from a sample of its rows and the moments of all its rows."""
        Z, keys = self.domain_context_._standardized(X), row_keys(X, self._seed)
        return Batch.from_rows(Z, keys, self._batch_size, n_rows, moments)

    def _outputs(self, X: Any, sample_domain: Any) -> Array:
        return self.on_target_scale(self._predict(X, sample_domain))

    def _within_rows(self, X: Any) -> Array:
        rows = self._check_rows(X, reset=False)
        return self._features.plain(self.domain_context_._standardized(rows))

    def _site_outputs(self, X: Any, X_site: Any) -> Array:
        labeled_rows, site_rows = (self._check_rows(rows, reset=False) for rows in (X, X_site))
        rows = np.concatenate([labeled_rows, site_rows])
        predictions = self._predict_checked(rows, np.zeros(len(rows), dtype=np.intp))
        return self.on_target_scale(predictions)[: len(labeled_rows)]

    @property
    def _source_shares(self) -> Array:
        """Class frequencies of the source domains."""
        return source_shares(self._class_counts)

    @property
    def feature_limits(self) -> Array:
        """Lower and upper limits to which standardized features are clipped."""
        return self._reach

    @property
    def uses_context(self) -> bool:
        """Whether any member uses context."""
        return any(member.in_context for member in self.members_.values())

    def _unusual_domains(
        self, plain_predictions: Array, predictions: Array, domain: Labels, outliers: OutlierByCode
    ) -> OutlierByCode:
        """Return the domains to predict without context, with their outlying statistics or None.

        With context, a batch of a single class looks like any other batch, so the class shares of
        predictions without context are checked as well.
        """
        statistics = self.domain_context_._statistics
        unusual_codes = {code for code, outlier in outliers.items() if outlier is not None}
        if statistics is not None and statistics.without_context is not None:
            pairs = enumerate(np.asarray(domain.names).tolist())
            unusual_codes |= {code for code, name in pairs if name in statistics.without_context}
            return {code: outliers.get(code) for code in sorted(unusual_codes)}
        checks = ((predictions, self._shares), (plain_predictions, self._plain_shares))
        for probabilities, share_range in checks:
            if share_range is not None:
                relative = probabilities / self._source_shares
                shares = class_shares(relative, domain.codes, domain.n_categories)
                is_outside = share_range.excludes(shares, np.bincount(domain.codes))
                unusual_codes.update(np.flatnonzero(is_outside).tolist())
        return {code: outliers.get(code) for code in sorted(unusual_codes)}

    def _warn_without_context(self, unusual_domains: OutlierByCode, domain: Labels) -> None:
        """Warn about unusual domains, which are predicted without context."""
        columns = getattr(self, "feature_names_in_", range(self.n_features_in_))
        other_shares = "the shares of predicted classes are outside the range of the source domains"
        reasons = {
            code: other_shares if outlier is None else outlier.describe(columns[outlier.feature])
            for code, outlier in unusual_domains.items()
        }
        names = [f"{domain.names[code]} ({reason})" for code, reason in reasons.items()]
        warn_caller(
            f"Context was not used for these domains: {listed(names, 5, ', ')}. Their rows were "
            "predicted one by one. Pass all rows of each domain together, check the units of the "
            "columns, or omit sample_domain.",
            ContextWarning,
        )

    def domains_without_context(self, X: ArrayLike, sample_domain: ArrayLike) -> list[Hashable]:
        """Return the domains for which context would be misleading and is therefore not used."""
        check_is_fitted(self)
        rows = self._check_rows(X, reset=False)
        domain = domain_labels(sample_domain, rows)
        if not self.uses_context:
            return []
        return np.asarray(domain.names)[list(self._predict_in_batches(rows, domain)[2])].tolist()

    def with_statistics(self, statistics: DomainStatistics) -> Self:
        """Return a copy that uses these domain statistics instead of those of X."""
        ensemble = copy(self)
        ensemble.domain_context_ = self.domain_context_.with_statistics(statistics)
        return ensemble

    def settled(self) -> Self:
        """Return an unfitted ensemble of each member's best model, for a fit without a search."""
        check_is_fitted(self)
        models = {n: m.estimators[0] for n, m in self.members_.items() if not m.in_context}
        pairs = ((n, m.settled() if hasattr(m, "settled") else clone(m)) for n, m in models.items())
        return clone(self).set_params(members=list(pairs), context=False, cv=2)

    def _check_rows(self, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        refuse_tensors_and_dask(self, X, "Convert it to an array first")
        y = y if y is None or isinstance(y, str) else inputs.label_array(y, "y")
        if getattr(getattr(y, "dtype", None), "kind", "") == "f":
            inputs.refuse_too_large(y, "y")
        return inputs.validate_rows(
            self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", **options
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
