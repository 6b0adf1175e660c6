"""The base of both ensembles: fitting and weighting members, and predicting by them."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from domainwise.adaptation.adapter import Adaptable
from domainwise.arrays import (
    Array,
    ArrayLike,
    CrossValidator,
    Estimator,
    MaybeArray,
    Scoring,
    Seed,
)
from domainwise.backends import refuse_elsewhere
from domainwise.calibration.conformal import PROMISES, calibration_split
from domainwise.checks import warn_caller
from domainwise.checks.inputs import (
    Labels,
    check_class_weight,
    label_array,
    refuse_too_large,
    validate_rows,
)
from domainwise.checks.signatures import arguments
from domainwise.ensemble.context import (
    RELATIVE_SHARE,
    DomainContext,
    DomainStatistics,
    domain_labels,
)
from domainwise.ensemble.held_out import PRIOR, HeldOutScore, ShareRange, class_shares
from domainwise.ensemble.members import AUTO, MEMBER_TYPES, Member, MemberData, MemberType, Own
from domainwise.ensemble.moments import sources_reach
from domainwise.estimators.projection import fixed_seed
from domainwise.scoring.measures import check_task
from domainwise.scoring.predictions import HeldOut
from domainwise.scoring.statistics import expected_score
from domainwise.splits.folds import LeaveDomainsOut, domain_folds, draw_rows

#: Groups of domains that are left out in turn, at most.
MAX_SPLITS = 10
#: Rows that members learn from, at most; all rows tell what their domains are like.
MAX_ROWS = 20_000
#: What stands before the name of a member that sees rows in context.
IN_CONTEXT = "context_"


@arguments
class DomainEnsemble(Adaptable, BaseEstimator):
    """What both ensembles do; each adds what classes, or numbers, need."""

    members: str | Sequence[str | tuple[str, Estimator]] = field(default="auto", kw_only=False)
    context: bool | str = "auto"
    calibration: str = "cv"
    cv: CrossValidator = None
    scoring: Scoring = None
    n_jobs: int | None = None
    random_state: Seed = None
    time_budget: float | None = None
    verbose: int = 0

    #: Shares of predicted classes on source domains, in context and row by row.
    _shares: ShareRange | None = field(default=None, init=False)
    _plain_shares: ShareRange | None = field(default=None, init=False)

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
        """Fit members, and weight them by domains left out.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all source domains; NaN where a value is missing.
        y : array-like of shape (n_samples,)
            Targets.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each row.
        learn_from : array-like of int or bool, default=None
            Rows that members learn from, where that should not be all of them. The others tell
            what their domains are like.

        Returns
        -------
        self : object
        """
        self._validate_params()
        numeric = not is_classifier(self)
        rows, target = self._check_rows(X, y, y_numeric=numeric, ensure_min_samples=2)
        if not numeric:
            check_class_weight(self.class_weight, np.unique(target))
        check_task(self.scoring, not numeric)
        if self.calibration == "cv":
            self._learn(rows, target, sample_domain, learn_from)
            return self
        domain = domain_labels(sample_domain, rows)
        learn, held = calibration_split(target, domain.codes, not numeric)
        if learn_from is not None:
            chosen = np.zeros(len(rows), dtype=bool)
            chosen[_places(learn_from, len(rows))] = True
            learn_from = chosen[learn]
        labels = domain.names[domain.codes]
        self._learn(rows[learn], target[learn], labels[learn], learn_from)
        everything = domain.take(held)
        score = self._score(self._known(target[held]), everything, np.arange(len(held)))
        self._quantiles = {"plain": score.quantiles(self._predict(rows[held], None))}
        if self.uses_context:
            self._quantiles["context"] = score.quantiles(self._predict(rows[held], labels[held]))
        self.calibration_domains_ = domain.names[np.unique(domain.codes[held])]
        return self

    def _fit(self, X: Array, y: Array, target: Labels, sample_domain: Any, learn_from: Any) -> None:
        """Fit to codes of classes or to values of unit variance, of all rows of X."""
        started = time.monotonic()
        types = self._member_types()
        domain = domain_labels(sample_domain, X)
        if self.context is True and domain.n_categories < 2:
            raise ValueError("context=True needs two domains, or more, in sample_domain")
        self._seed = fixed_seed(self.random_state)
        self.domains_ = domain.names
        self.domain_context_ = DomainContext().fit(X)
        plain = np.nan_to_num(self.domain_context_._standardised(X))
        self._reach = sources_reach(plain, domain.codes, domain.n_categories)
        if learn_from is None:
            rows = draw_rows(domain.codes, max(MAX_ROWS, 2 * domain.n_categories), self._seed)
        else:
            rows = _places(learn_from, len(X))
        classification = target.codes is not None
        mixed = self._domains_for_context(target, domain)
        features = self._features(X, domain if len(mixed) else None)
        y, domain, target = y[rows], domain.take(rows), target.take(rows)
        if classification:  # class weights are by code
            target = Labels(target.codes, np.arange(target.n_categories))
        cv = self.cv
        if cv is None and domain.n_categories > 1:
            cv = LeaveDomainsOut(max_splits=MAX_SPLITS, random_state=self._seed)
        splits, _ = domain_folds(y, domain.codes, classification=classification, cv=cv)
        tested = np.unique(np.concatenate([test for _, test in splits]))
        inside = tested[np.isin(domain.codes[tested], mixed)]
        scores = {False: self._score(y, domain, tested), True: self._score(y, domain, inside)}
        members = [(member, member.name, False) for member in types]
        if len(mixed):
            members += [(m, IN_CONTEXT + m.name, True) for m in types if m.in_context]
        self.members_: dict[str, Member] = {}
        self.dropped_: list[str] = []
        predicted: dict[str, Array] = {}
        seconds: dict[str, float] = {}
        for member, name, in_context in members:
            begun = time.monotonic()
            # Twice the features take about twice as long.
            ahead = 2 * seconds.get(member.name, 0.0)
            late = self.time_budget is not None and begun - started + ahead > self.time_budget
            if predicted and late:
                self.dropped_.append(name)
                continue
            data = MemberData(
                features[in_context][rows],
                y,
                target=target,
                domain=domain,
                class_weight=self._code_weights(),
                seed=self._seed,
            )
            self.members_[name], predicted[name] = member.search(
                data, splits, scores[in_context], name, in_context=in_context, n_jobs=self.n_jobs
            )
            seconds[name] = time.monotonic() - begun
            if self.verbose:
                print(f"{type(self).__name__}: {name} in {seconds[name]:.1f} s", flush=True)
        if self.dropped_:
            warn_caller(
                f"time_budget={self.time_budget} s is over: left out {', '.join(self.dropped_)}"
            )
        self._weigh(predicted, scores[False], scores[True], mixed)

    def _member_types(self) -> list[MemberType]:
        """Types of members by name, and the user's own estimators."""
        asked: list[Any] = list(AUTO if isinstance(self.members, str) else self.members)
        types: list[MemberType] = []
        for member in asked:
            if isinstance(member, str) and member in MEMBER_TYPES:
                types.append(MEMBER_TYPES[member]())
            elif isinstance(member, tuple) and len(member) == 2 and hasattr(member[1], "fit"):
                self._check_member(*member)
                types.append(Own(str(member[0]), member[1]))
            else:
                raise ValueError(
                    f"members holds {member!r}; use some of {', '.join(MEMBER_TYPES)}, or pairs of "
                    "a name and an estimator"
                )
        names = [member.name for member in types]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"members={self.members!r} must hold at least one name, each once")
        return types

    def _check_member(self, name: Any, estimator: Any) -> None:
        """Refuse a regressor among classifiers, and a classifier among regressors."""
        right, wrong = ("classifier", "regressor")[:: 1 if is_classifier(self) else -1]
        known = hasattr(estimator, "__sklearn_tags__")
        if known and estimator.__sklearn_tags__().estimator_type == wrong:
            raise ValueError(
                f"members holds {name!r}, a {type(estimator).__name__}, which is a {wrong}; "
                f"{type(self).__name__} needs a {right}"
            )

    def _features(self, X: Array, domain: Labels | None = None) -> dict[bool, Array]:
        """Rows in the sources' units, and in context as well where domains are given.

        Missing values become the mean. Plain values beyond the sources' reach become its end:
        nothing was tried there, and a line goes on for ever, say where a new domain measures in
        another unit.
        """
        context = self.domain_context_
        Z = context._standardised(X)
        plain = np.clip(np.nan_to_num(Z), *self._reach)
        if domain is None:
            return {False: plain}
        refuse_too_large(X, "X")
        shrunk = context._shrunk(context._moments_of(Z, domain), given=True)
        relative = context._relative(Z, domain.codes, *shrunk)
        share = np.ones(Z.shape[1])
        share[context.relative_features_] = RELATIVE_SHARE
        return {False: plain, True: np.column_stack([share * plain, relative])}

    def _weigh(
        self, predicted: dict[str, Array], score: HeldOutScore, inside: HeldOutScore, mixed: Array
    ) -> None:
        """Compute weights of members, and how good the ensemble is on held-out domains.

        ``inside`` scores the rows of the ``mixed`` domains, by which members in context are judged.
        """
        plain = {n: p for n, p in predicted.items() if not self.members_[n].in_context}
        context = {n: p for n, p in predicted.items() if self.members_[n].in_context}
        self.weights_, mix, without = score.mixed(plain)
        self.domain_scores_ = score.scores(without)
        self.expected_score_ = expected_score(self.domain_scores_, self._seed)
        self._shares = self._plain_shares = None
        self._quantiles = {"plain": score.quantiles(without)}
        self.calibration_domains_ = self.domains_[np.unique(score.domains[score.rows])]
        self.promise_ = PROMISES[self.calibration]
        self.context_weights_ = self.weights_
        self.context_domain_scores_ = self.domain_scores_
        self.context_expected_score_ = self.expected_score_
        without_context = None
        if context:
            weights, mix_context, parts = inside.mixed(context)
            shares, _, without_context = inside.mixed({"plain": without, "context": parts}, PRIOR)
            both = shares["plain"] * mix + shares["context"] * mix_context
            self.context_weights_ = {
                **{name: shares["plain"] * weight for name, weight in self.weights_.items()},
                **{name: shares["context"] * weight for name, weight in weights.items()},
            }
            self.context_domain_scores_ = score.scores(without_context)
            self.context_expected_score_ = expected_score(self.context_domain_scores_, self._seed)
            self._quantiles["context"] = score.quantiles(without_context)
            if score.classes is not None:
                rows, domains = inside.rows, score.domains[inside.rows]
                self._shares = ShareRange.of_sources(both[rows], domains, mixed)
                self._plain_shares = ShareRange.of_sources(mix[rows], domains, mixed)
        self._forget_site()
        self.held_out_: HeldOut | None = score.held_out(without, without_context, predicted)

    def _mixes(self, X: Array, domain: Labels | None) -> tuple[Array, Array | None]:
        """Average the members for rows one by one and, where domains are given, in context."""
        features = self._features(X, domain if self.uses_context else None)
        predicted = {
            name: member.predict(features[member.in_context])
            for name, member in self.members_.items()
            if member.in_context in features
        }

        def mix(weights: dict[str, float]) -> Array:
            return np.asarray(sum(weight * predicted[n] for n, weight in weights.items()))

        return mix(self.weights_), mix(self.context_weights_) if True in features else None

    def _predict(self, X: Any, sample_domain: Any) -> Array:
        """Probabilities, or values of unit variance."""
        check_is_fitted(self)
        return self._predict_checked(self._check_rows(X, reset=False), sample_domain)

    def _predict_checked(self, X: Array, sample_domain: Any) -> Array:
        domain = domain_labels(sample_domain, X)
        plain, mixed = self._mixes(X, None if sample_domain is None else domain)
        if mixed is None:
            return plain
        alone = self._without_context(plain, mixed, domain)
        if len(alone):
            named = ", ".join(str(name) for name in domain.names[alone[:5]])
            warn_caller(
                f"domains without context: {named}{' ...' if len(alone) > 5 else ''}. Shares of "
                "predicted classes lie outside those of the source domains, so that rows are "
                "predicted one by one"
            )
            rows = np.isin(np.asarray(domain.codes), alone)
            mixed[rows] = plain[rows]
        return mixed

    def _outputs(self, X: Any, sample_domain: Any) -> Array:
        return self._in_unit(self._predict(X, sample_domain))

    def _site_outputs(self, X: Any, X_site: Any) -> Array:
        rows = [self._check_rows(part, reset=False) for part in (X, X_site)]
        domain = np.zeros(sum(map(len, rows)), dtype=np.intp)
        return self._in_unit(self._predict_checked(np.concatenate(rows), domain))[: len(rows[0])]

    @property
    def uses_context(self) -> bool:
        """Whether there are members that see rows in context."""
        return any(member.in_context for member in self.members_.values())

    @property
    def guards_context(self) -> bool:
        """Whether some domains may be predicted row by row although context is given."""
        return self._shares is not None

    def _without_context(self, plain: Array, mixed: Array, domain: Labels) -> Array:
        """Codes of domains whose rows are better predicted one by one.

        In context a batch of one class looks like any other; predictions row by row show it.
        """
        known = self.domain_context_._statistics
        if known is not None and known.without_context is not None:
            return np.flatnonzero(np.isin(np.asarray(domain.names), list(known.without_context)))
        if self._shares is None:
            return np.zeros(0, dtype=np.intp)
        outside = np.zeros(domain.n_categories, dtype=bool)
        for predicted, known_shares in ((mixed, self._shares), (plain, self._plain_shares)):
            if known_shares is not None:
                shares = class_shares(predicted, domain.codes, domain.n_categories)
                outside |= known_shares.left_by(shares, np.bincount(domain.codes))
        return np.flatnonzero(outside)

    def domains_without_context(self, X: ArrayLike, sample_domain: ArrayLike) -> list[Hashable]:
        """Domains that ``predict`` takes row by row, because context would mislead it there."""
        check_is_fitted(self)
        rows = self._check_rows(X, reset=False)
        domain = domain_labels(sample_domain, rows)
        plain, mixed = self._mixes(rows, domain)
        if mixed is None:
            return []
        return np.asarray(domain.names)[self._without_context(plain, mixed, domain)].tolist()

    def with_statistics(self, statistics: DomainStatistics) -> Self:
        """Return a copy that takes the statistics of domains from here, not from the rows in X."""
        known = copy(self)
        known.domain_context_ = self.domain_context_.with_statistics(statistics)
        return known

    def settled(self) -> Self:
        """An ensemble of the best of each member, not fitted, that searches no more."""
        check_is_fitted(self)
        best = {n: m.estimators[0] for n, m in self.members_.items() if not m.in_context}
        chosen = [(n, m.settled() if hasattr(m, "settled") else clone(m)) for n, m in best.items()]
        return clone(self).set_params(members=chosen, context=False, cv=2)

    def _check_rows(self, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        refuse_elsewhere(self, X, "convert it to an array first")
        y = y if y is None or isinstance(y, str) else label_array(y, "y")
        if getattr(getattr(y, "dtype", None), "kind", "") == "f":
            refuse_too_large(y, "y")
        return validate_rows(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _places(learn_from: Any, n: int) -> Array:
    """Places of some rows, each once."""
    rows = np.asarray(learn_from)
    rows = np.flatnonzero(rows) if rows.dtype == bool and len(rows) == n else rows
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise ValueError("learn_from must hold places of rows, or a truth value for each row")
    if rows.min() < 0 or rows.max() >= n or len(np.unique(rows)) < len(rows):
        raise ValueError(f"learn_from must hold places from 0 to {n - 1}, each once")
    return rows
