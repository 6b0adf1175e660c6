"""Base class for ensembles, which fits members, weights them, and averages their predictions."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import field, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from domainwise.algebra.backends import refuse_tensors_and_dask
from domainwise.base.arrays import (
    Array,
    ArrayLike,
    CrossValidator,
    Estimator,
    MaybeArray,
    Scoring,
    Seed,
)
from domainwise.base.inputs import (
    Labels,
    check_class_weight,
    label_array,
    refuse_too_large,
    validate_rows,
)
from domainwise.base.messages import ContextWarning, warn_caller
from domainwise.base.signatures import arguments
from domainwise.estimators.adaptation.adapter import Adaptable
from domainwise.estimators.conformal import PROMISES, calibration_split
from domainwise.estimators.ensemble.batches import (
    TRUST_TRAINING_ROWS,
    Batch,
    Outlier,
    SourceRange,
    SourceSamples,
    Trust,
    context_moments,
    part_count,
    row_keys,
)
from domainwise.estimators.ensemble.context import (
    RELATIVE_FACTOR,
    DomainContext,
    DomainStatistics,
    domain_labels,
)
from domainwise.estimators.ensemble.held_out import (
    PRIOR,
    HeldOutScore,
    ShareRange,
    class_shares,
    joined_splits,
    mix,
)
from domainwise.estimators.ensemble.members import (
    AUTO,
    MEMBER_TYPES,
    Member,
    MemberData,
    MemberType,
    UserMember,
)
from domainwise.estimators.ensemble.moments import Moments, source_limits
from domainwise.estimators.projections.projection import fixed_seed
from domainwise.held_out.calibration.curves import equal_weights
from domainwise.held_out.calibration.quantiles import HasThresholds
from domainwise.held_out.folds import LeaveDomainsOut, domain_folds, draw_rows
from domainwise.held_out.scoring.measures import check_task
from domainwise.held_out.scoring.statistics import expected_score

#: Maximum number of groups of domains that are held out in turn.
MAX_SPLITS = 10
#: Maximum number of rows on which members are compared; domain statistics use all rows.
MAX_ROWS = 20_000
#: Minimum weight at which a member with context is refitted to measure :class:`Trust`.
MIN_WEIGHT = 0.02
#: Prefix of the names of members that use context.
CONTEXT_PREFIX = "context_"
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
        *,
        learn_from: MaybeArray = None,
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
        learn_from : array-like of int or bool, default=None
            Rows to which members are fitted; None for all rows. The other rows are only used for
            feature and domain statistics.

        Returns
        -------
        self : object
        """
        self._validate_params()
        is_regression = not is_classifier(self)
        rows, target = self._check_rows(X, y, y_numeric=is_regression, ensure_min_samples=2)
        if not is_regression:
            check_class_weight(self.class_weight, np.unique(target))
        check_task(self.scoring, not is_regression)
        if self.calibration == "cv":
            self._learn(rows, target, sample_domain, learn_from)
            return self
        domain = domain_labels(sample_domain, rows)
        train, test = calibration_split(target, domain.codes, not is_regression)
        if learn_from is not None:
            is_selected = np.zeros(len(rows), dtype=bool)
            is_selected[_check_learn_from(learn_from, len(rows))] = True
            learn_from = is_selected[train]
        row_domains = domain.names[domain.codes]
        self._learn(rows[train], target[train], row_domains[train], learn_from)
        X_test, y_test = rows[test], self._encode_target(target[test])
        scorer = self._scorer(y_test, domain.take(test), np.arange(len(test)))
        self._quantiles = {"plain": scorer.quantiles(self._predict(X_test, None))}
        if self.uses_context:
            self._quantiles["context"] = scorer.quantiles(self._predict(X_test, row_domains[test]))
        self.calibration_domains_ = domain.names[np.unique(domain.codes[test])]
        return self

    def _fit(self, X: Array, y: Array, target: Labels, sample_domain: Any, learn_from: Any) -> None:
        """Fit and weight the members; ``y`` contains class codes or a standardized target."""
        start = time.monotonic()
        member_types = self._member_types()
        domain = domain_labels(sample_domain, X)
        if self.context is True and domain.n_categories < 2:
            raise ValueError(
                "context=True requires at least two domains. Pass rows from several domains, with "
                "the domain of each row (sample_domain), or use context=False."
            )
        self._seed = fixed_seed(self.random_state)
        self.domains_ = domain.names
        self.domain_context_ = context = DomainContext().fit(X)
        Z = context._standardized(X)
        self._reach = source_limits(np.nan_to_num(Z), domain.codes, domain.n_categories)
        max_rows = max(MAX_ROWS, 2 * domain.n_categories)
        training_rows = draw_rows(domain.codes, max_rows, self._seed)
        if learn_from is not None:
            training_rows = _check_learn_from(learn_from, len(X))
        is_classification = target.codes is not None
        context_domains = self._domains_for_context(target, domain)
        features_by_context = self._features(X, domain if len(context_domains) else None)
        self._source_range = self._trust = None
        self.context_batch_size_ = int(np.median(np.bincount(domain.codes)))
        if len(context_domains):
            range_args = (domain.codes, domain.n_categories, context.relative_features_)
            self._source_range = SourceRange.of_sources(Z, *range_args, self._seed)
        all_domain_codes = np.asarray(domain.codes)
        if is_classification:  # class weights refer to class codes
            target = Labels(target.codes, np.arange(target.n_categories))
        options = {"class_weight": self._code_weights(), "seed": self._seed}
        all_data = {
            in_context: MemberData(features, y, target=target, domain=domain, **options)
            for in_context, features in features_by_context.items()
        }
        y, domain, target = y[training_rows], domain.take(training_rows), target.take(training_rows)
        training_data = {
            in_context: replace(data, X=data.X[training_rows], y=y, target=target, domain=domain)
            for in_context, data in all_data.items()
        }
        cv = self.cv
        if cv is None and domain.n_categories > 1:
            cv = LeaveDomainsOut(max_splits=MAX_SPLITS, random_state=self._seed)
        splits, _ = domain_folds(y, domain.codes, classification=is_classification, cv=cv)
        fewer_splits = joined_splits(splits, y, is_classification) if self.cv is None else splits
        scored_rows = np.unique(np.concatenate([test for _, test in splits]))
        context_rows = scored_rows[np.isin(domain.codes[scored_rows], context_domains)]
        rows_by_context = {False: scored_rows, True: context_rows}
        scorers = {key: self._scorer(y, domain, rows) for key, rows in rows_by_context.items()}
        searches = [(m, m.name, False) for m in member_types]
        if len(context_domains):
            searches += [(m, CONTEXT_PREFIX + m.name, True) for m in member_types if m.in_context]
        self.members_: dict[str, Member] = {}
        self.dropped_: list[str] = []
        predictions: dict[str, Array] = {}
        seconds_by_name: dict[str, float] = {}
        for member_type, name, in_context in searches:
            member_start = time.monotonic()
            # With context there are twice as many features, so a fit takes about twice as long.
            expected_seconds = member_start - start + 2 * seconds_by_name.get(member_type.name, 0.0)
            is_over_budget = self.time_budget is not None and expected_seconds > self.time_budget
            if predictions and is_over_budget:
                self.dropped_.append(name)
                continue
            plain_member = self.members_.get(member_type.name)
            plain_candidates = plain_member.parameters if plain_member else ()
            self.members_[name], predictions[name] = member_type.search(
                replace(training_data[in_context], plain_candidates=plain_candidates),
                fewer_splits if member_type.expensive else splits,
                scorers[in_context],
                name,
                in_context=in_context,
                n_jobs=self.n_jobs,
                all_data=all_data[in_context] if learn_from is None else None,
            )
            seconds = seconds_by_name[name] = time.monotonic() - member_start
            if self.verbose:
                print(f"{type(self).__name__}: fitted {name} in {seconds:.1f} s", flush=True)
        if self.dropped_:
            warn_caller(
                f"time_budget={self.time_budget} s is too short to fit all members. These were "
                f"not fitted: {', '.join(self.dropped_)}. Increase time_budget to fit them."
            )
        self._weight_members(predictions, scorers, context_domains)
        if self.uses_context:
            type_by_name = {CONTEXT_PREFIX + m.name: m for m in member_types}
            row_args = (Z, all_domain_codes, training_rows, context_rows)
            samples = SourceSamples(*row_args, context_domains, self.context_batch_size_)
            self._trust = self._learn_trust(training_data[True], samples, predictions, type_by_name)

    def _member_types(self) -> list[MemberType]:
        """Return a member type for each name or estimator in ``members``."""
        member_types: list[MemberType] = []
        members: Any = AUTO if isinstance(self.members, str) else self.members
        for member in members:
            if isinstance(member, str) and member in MEMBER_TYPES:
                member_types.append(MEMBER_TYPES[member]())
            elif isinstance(member, tuple) and len(member) == 2 and hasattr(member[1], "fit"):
                self._check_member(*member)
                member_types.append(UserMember(str(member[0]), member[1]))
            else:
                raise ValueError(
                    f"members contains {member!r}. Choose from {', '.join(MEMBER_TYPES)}, or pass "
                    "your own estimators as (name, estimator) pairs."
                )
        member_names = [member_type.name for member_type in member_types]
        if not member_names or len(set(member_names)) < len(member_names):
            raise ValueError(
                f"members must list at least one member, and each name once; got {self.members!r}"
            )
        return member_types

    def _check_member(self, name: Any, estimator: Any) -> None:
        """Refuse a regressor among classifiers, and a classifier among regressors."""
        needed_type, wrong_type = ("classifier", "regressor")[:: 1 if is_classifier(self) else -1]
        has_tags = hasattr(estimator, "__sklearn_tags__")
        if has_tags and estimator.__sklearn_tags__().estimator_type == wrong_type:
            raise ValueError(
                f"members contains {name!r}, a {type(estimator).__name__}, which is a "
                f"{wrong_type}. Pass a {needed_type} to {type(self).__name__}."
            )

    def _features(self, X: Array, domain: Labels | None = None) -> dict[bool, Array]:
        """Return standardized rows (key False) and, with domains, also rows in context (key True).

        Missing values are replaced by the mean. Standardized values are clipped to the limits of
        the source domains, because members were not tested beyond them, and linear models would
        extrapolate without bound, for example if a new domain uses a different unit.
        """
        context = self.domain_context_
        Z = context._standardized(X)
        plain_Z = np.clip(np.nan_to_num(Z), *self._reach)
        if domain is None:
            return {False: plain_Z}
        refuse_too_large(X, "X")
        moments = context._moments_of(Z, domain)
        return {False: plain_Z, True: self._in_context(Z, plain_Z, domain.codes, moments)}

    def _in_context(self, Z: Array, plain_Z: Array, group_codes: Array, moments: Moments) -> Array:
        """Return features for members with context; ``moments`` are those of each group."""
        context = self.domain_context_
        mean, variance = context._shrunk_moments(moments, with_domains=True)
        relative_values = context._relative_values(Z, group_codes, mean, variance)
        factors = np.ones(Z.shape[1])
        factors[context.relative_features_] = RELATIVE_FACTOR
        return np.column_stack([factors * plain_Z, relative_values])

    def _weight_members(
        self,
        predictions: dict[str, Array],
        scorers: dict[bool, HeldOutScore],
        context_domains: Array,
    ) -> None:
        """Compute member weights, and the scores of the ensemble on held-out domains.

        ``scorers[True]`` scores members with context, on rows from the ``context_domains``.
        """
        scorer, context_scorer = scorers[False], scorers[True]
        members = self.members_.items()
        plain_predictions = {n: predictions[n] for n, m in members if not m.in_context}
        context_predictions = {n: predictions[n] for n, m in members if m.in_context}
        self.weights_, plain_mix, plain_held_out = scorer.mix_predictions(plain_predictions)
        self.domain_scores_ = scorer.scores(plain_held_out)
        self.expected_score_ = expected_score(self.domain_scores_, self._seed, self.scoring)
        self._shares = self._plain_shares = None
        self._quantiles = {"plain": scorer.quantiles(plain_held_out)}
        self.calibration_domains_ = self.domains_[np.unique(scorer.domain_codes[scorer.rows])]
        self.promise_ = PROMISES[self.calibration]
        self.context_weights_ = self.weights_
        self.context_domain_scores_ = self.domain_scores_
        self.context_expected_score_ = self.expected_score_
        combined_held_out = None
        if context_predictions:
            weights, context_mix, held_out_mix = context_scorer.mix_predictions(context_predictions)
            mixes = {"plain": plain_held_out, "context": held_out_mix}
            mix_weights, _, combined_held_out = context_scorer.mix_predictions(mixes, PRIOR)
            combined_mix = mix_weights["plain"] * plain_mix + mix_weights["context"] * context_mix
            self.context_weights_ = {
                **{n: mix_weights["plain"] * w for n, w in self.weights_.items()},
                **{n: mix_weights["context"] * w for n, w in weights.items()},
            }
            self.context_domain_scores_ = scorer.scores(combined_held_out)
            self.context_expected_score_ = expected_score(
                self.context_domain_scores_, self._seed, self.scoring
            )
            self._quantiles["context"] = scorer.quantiles(combined_held_out)
            if scorer.classes is not None:
                rows = context_scorer.rows
                domain_args = (scorer.domain_codes[rows], context_domains)
                self._shares = ShareRange.of_sources(combined_mix[rows], *domain_args)
                self._plain_shares = ShareRange.of_sources(plain_mix[rows], *domain_args)
        self._reset_adaptation()
        self.held_out_ = scorer.held_out(plain_held_out, combined_held_out, predictions)

    def _learn_trust(
        self,
        data: MemberData,
        samples: SourceSamples,
        predictions: dict[str, Array],
        type_by_name: dict[str, MemberType],
    ) -> Trust:
        """Measure how much weight context should have in small batches.

        For each half of the source domains, members with context are refitted to a sample of the
        rows outside this half. They predict rows from this half in small batches and in whole
        domains. The difference between these predictions is added to the held-out predictions from
        which member weights were computed.
        """
        weights = self.context_weights_
        members = [m for n, m in self.members_.items() if m.in_context and weights[n] > MIN_WEIGHT]
        plain_mix = np.tensordot(
            [*self.weights_.values()], [predictions[n] for n in self.weights_], 1
        )
        context_mix = np.tensordot([*weights.values()], [predictions[n] for n in weights], 1)
        results_by_half = []
        for held_out_domains, batches in samples.halves(self._seed):
            is_held_out = np.isin(data.domain.codes, held_out_domains)
            train = data.sample(np.flatnonzero(~is_held_out), TRUST_TRAINING_ROWS)
            has_one_domain = len(np.unique(data.domain.codes[train])) < 2
            if has_one_domain or (data.n_classes and len(np.unique(data.y[train])) < 2):
                continue
            rows = np.concatenate([batch.rows for batch in batches])
            Z = samples.Z[samples.training_rows[rows]]
            moments = Moments.stacked([batch.moments for batch in batches])
            batch_indices = np.repeat(np.arange(len(batches)), [len(b.rows) for b in batches])
            plain_Z = np.clip(np.nan_to_num(Z), *self._reach)
            batch_features = self._in_context(Z, plain_Z, batch_indices, moments)
            stacked_X, n = np.concatenate([batch_features, data.X[rows]]), len(rows)
            difference = np.zeros((n, plain_mix.shape[1]))
            for member in members:
                outputs = type_by_name[member.name].refit_predict(data, member, train, stacked_X)
                difference += weights[member.name] * (outputs[:n] - outputs[n:])
            batch_sizes = np.repeat([batch.n_rows for batch in batches], np.bincount(batch_indices))
            results_by_half.append((rows, batch_sizes, context_mix[rows] + difference))
        if not results_by_half:
            return Trust(samples.size)
        rows, batch_sizes, batch_mix = map(np.concatenate, zip(*results_by_half, strict=True))
        groups = np.unique([batch_sizes, data.domain.codes[rows]], axis=1, return_inverse=True)[1]
        y = np.eye(data.n_classes)[data.y[rows]] if data.n_classes else data.y[rows][:, None]
        row_weights = equal_weights(groups.ravel(), data.y[rows] if data.n_classes else None)
        return Trust.learn(samples.size, batch_sizes, plain_mix[rows], batch_mix, y, row_weights)

    def _member_outputs(self, features: Array, *, in_context: bool) -> dict[str, Array]:
        """Return the predictions of all members that use context, or of all that do not."""
        members = {name: m for name, m in self.members_.items() if m.in_context == in_context}
        return {name: member.predict(features) for name, member in members.items()}

    def _predict(self, X: Any, sample_domain: Any) -> Array:
        """Return class probabilities, or predictions of the standardized target."""
        check_is_fitted(self)
        return self._predict_checked(self._check_rows(X, reset=False), sample_domain)

    def _predict_checked(self, X: Array, sample_domain: Any) -> Array:
        domain = domain_labels(sample_domain, X)
        if sample_domain is None or not self.uses_context:
            outputs = self._member_outputs(self._features(X)[False], in_context=False)
            return mix(outputs, self.weights_)
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
        refuse_too_large(X, "X")
        domain_codes, keys = np.asarray(domain.codes), row_keys(X, self._seed)
        order = np.lexsort([keys, domain_codes])
        is_first_copy = np.ones(len(X), dtype=bool)
        is_first_copy[1:] = (np.diff(domain_codes[order]) != 0) | (np.diff(keys[order]) != 0)
        inverse_indices = np.empty(len(X), dtype=np.intp)
        inverse_indices[order] = np.cumsum(is_first_copy) - 1
        Z = self.domain_context_._standardized(X)
        batches = self._batches(Z, keys, domain)
        distinct_rows = order[is_first_copy]
        domain_codes, keys, Z, X = (array[distinct_rows] for array in (domain_codes, keys, Z, X))
        features = self._features(X)[False]
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
            X_context = self._in_context(Z[rows], features[rows], np.arange(len(rows)), moments)
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

    def _site_outputs(self, X: Any, X_site: Any) -> Array:
        labeled_rows, site_rows = (self._check_rows(rows, reset=False) for rows in (X, X_site))
        rows = np.concatenate([labeled_rows, site_rows])
        predictions = self._predict_checked(rows, np.zeros(len(rows), dtype=np.intp))
        return self.on_target_scale(predictions)[: len(labeled_rows)]

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
                shares = class_shares(probabilities, domain.codes, domain.n_categories)
                is_outside = share_range.excludes(shares, np.bincount(domain.codes))
                unusual_codes.update(np.flatnonzero(is_outside).tolist())
        return {code: outliers.get(code) for code in sorted(unusual_codes)}

    def _warn_without_context(self, unusual_domains: OutlierByCode, domain: Labels) -> None:
        """Warn about unusual domains, which are predicted without context."""
        domain_names = np.asarray(domain.names)
        column_names = getattr(self, "feature_names_in_", None)
        reasons = []
        for code, outlier in list(unusual_domains.items())[:5]:
            reason = "the shares of predicted classes are outside the range of the source domains"
            if outlier is not None:
                i = outlier.feature
                reason = outlier.describe(i if column_names is None else column_names[i])
            reasons.append(f"{domain_names[code]} ({reason})")
        more_text = f" and {len(unusual_domains) - 5} more" if len(unusual_domains) > 5 else ""
        warn_caller(
            f"Context was not used for these domains: {', '.join(reasons)}{more_text}. Their rows "
            "were predicted one by one. Pass all rows of each domain together, check the units of "
            "the columns, or omit sample_domain.",
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
        y = y if y is None or isinstance(y, str) else label_array(y, "y")
        if getattr(getattr(y, "dtype", None), "kind", "") == "f":
            refuse_too_large(y, "y")
        return validate_rows(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _check_learn_from(learn_from: Any, n_rows: int) -> Array:
    """Check row indices, or a boolean mask of rows, and return row indices."""
    rows = np.asarray(learn_from)
    rows = np.flatnonzero(rows) if rows.dtype == bool and len(rows) == n_rows else rows
    are_indices = rows.ndim == 1 and rows.dtype.kind in "iu" and len(np.unique(rows)) == len(rows)
    if not are_indices or not len(rows) or rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(
            f"learn_from must select at least one row, with a boolean mask of {n_rows} values or "
            f"with row indices from 0 to {n_rows - 1}, each only once; got {learn_from!r}"
        )
    return rows
