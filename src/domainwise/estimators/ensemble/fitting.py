"""The steps of an ensemble's fit: prepare the rows, search for members, weigh them, learn trust.

Rows and domains are first put into an order that depends only on their content, so that neither the
names of domains nor the order of rows change a result.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from domainwise.base.arrays import Array
from domainwise.base.inputs import Labels
from domainwise.base.messages import warn_caller
from domainwise.estimators.ensemble.batches import (
    TRUST_TRAINING_ROWS,
    Moments,
    SourceSamples,
    Trust,
    row_keys,
    source_limits,
)
from domainwise.estimators.ensemble.context import RELATIVE_FACTOR, DomainContext
from domainwise.estimators.ensemble.held_out import PRIOR, HeldOutScore, joined_splits
from domainwise.estimators.ensemble.members import Member, MemberData, MemberType
from domainwise.held_out.calibration.curves import equal_weights
from domainwise.held_out.folds import LeaveDomainsOut, Split, domain_folds, draw_rows
from domainwise.held_out.search.grids import ensemble_sizes

#: Maximum number of groups of domains that are held out in turn.
MAX_SPLITS = 10
#: Maximum number of rows on which members are compared; domain statistics use all rows.
MAX_ROWS = 20_000
#: A target is absurd if it is this many times farther from the median than the next one. At most
#: this share of the targets is absurd.
ABSURD_RATIO, ABSURD_SHARE = 3.0, 0.01


@dataclass(frozen=True)
class Table:
    """Source rows in an order that depends only on their content."""

    X: Array
    y: Array  #: classes or numbers
    domain: Labels
    positions: Array  #: position of each domain among the sorted names of the domains
    rows: Array  #: index of each row in the input
    weights: Array | None = None  #: the weight of each row; None without weights
    cv: Any = None  #: splitter, or splits of these rows in the order of the input

    @classmethod
    def from_rows(cls, X: Array, y: Array, domain: Labels, weights: Array | None = None) -> Table:
        """Sort domains by the sum of the keys of their rows, and then rows by their keys."""
        y_values = np.unique(y, return_inverse=True)[1] if y.dtype.kind not in "fiu" else y
        keys = row_keys(np.column_stack([X, y_values.astype(np.float64)]), 0)
        # The target decides only between domains with the same features.
        domain_keys = np.zeros((2, domain.n_categories), dtype=np.uint64)
        np.add.at(domain_keys[0], domain.codes, keys)
        np.add.at(domain_keys[1], domain.codes, row_keys(X, 0))
        positions = np.lexsort(domain_keys)
        new_codes = np.argsort(positions)[domain.codes]
        order = np.lexsort([keys if weights is None else weights, keys, new_codes])
        new_domain = Labels(new_codes[order], domain.names[positions])
        weights = None if weights is None else weights[order]
        return cls(X[order], y[order], new_domain, positions, order, weights)

    def take(self, rows: Array) -> Table:
        """Return some of the rows; domains without rows are removed."""
        present, codes = np.unique(self.domain.codes[rows], return_inverse=True)
        positions = np.argsort(np.argsort(self.positions[present]))
        domain = Labels(codes, self.domain.names[present])
        weights = None if self.weights is None else self.weights[rows]
        arrays: Any = {"X": self.X[rows], "y": self.y[rows], "rows": self.rows[rows]}
        return replace(self, domain=domain, positions=positions, weights=weights, **arrays)

    def by_name(self, values: Array) -> Array:
        """Return values of the domains in the order of their names."""
        return values[np.argsort(self.positions)]


@dataclass(frozen=True)
class Features:
    """The features of members, without and with context."""

    context: DomainContext
    limits: Array  #: lower and upper limits of standardized features

    @classmethod
    def of_sources(cls, table: Table) -> Features:
        """Learn means, deviations and limits from the source rows."""
        context = DomainContext()._learn(table.X, None, reset=True, weights=table.weights)
        Z, domain = np.nan_to_num(context._standardized(table.X)), table.domain
        return cls(context, source_limits(Z, domain.codes, domain.n_categories))

    def plain(self, Z: Array) -> Array:
        """Return features without context, for standardized rows.

        Missing values are replaced by the mean. Values are clipped to the limits of the source
        domains, because members were not tested beyond them, and linear models would extrapolate
        without bound, for example if a new domain uses a different unit.
        """
        return np.clip(np.nan_to_num(Z), *self.limits)

    def in_context(self, Z: Array, plain_Z: Array, group_codes: Array, moments: Moments) -> Array:
        """Return features for members with context; ``moments`` are those of each group."""
        mean, variance = self.context._shrunk_moments(moments, with_domains=True)
        relative_values = self.context._relative_values(Z, group_codes, mean, variance)
        factors = np.ones(Z.shape[1])
        factors[self.context.relative_features_] = RELATIVE_FACTOR
        return np.column_stack([factors * plain_Z, relative_values])


@dataclass(frozen=True)
class Problem:
    """Everything that the search for members, their weights and the trust in context needs."""

    model: Any  #: the ensemble, with its arguments
    features: Features
    Z: Array  #: all standardized rows
    domain: Labels  #: domains of all rows
    training_rows: Array  #: rows on which members are compared, as indices into all rows
    data: dict[bool, MemberData]  #: these rows, without (False) and with context (True)
    final_data: dict[bool, MemberData]  #: rows to which the chosen candidates are fitted
    splits: list[Split]
    fewer_splits: list[Split]  #: for members that are slow to fit
    scores: dict[bool, HeldOutScore]  #: with context, only for domains that allow it
    context_domains: Array  #: codes of the domains on which context is scored
    batch_size: int  #: typical number of rows in a source domain


def prepare(model: Any, table: Table, y: Array, target: Labels) -> Problem:
    """Prepare the fit of an ensemble; ``y`` contains class codes or a standardized target."""
    domain, seed, features = table.domain, model._seed, Features.of_sources(table)
    Z = features.context._standardized(table.X)
    context_domains = model._domains_for_context(target, domain)
    X = {False: features.plain(Z)}
    if len(context_domains):
        moments = features.context._moments_of(Z, domain)
        X[True] = features.in_context(Z, X[False], domain.codes, moments)
    if target.codes is not None:  # class weights refer to class codes
        target = Labels(target.codes, np.arange(target.n_categories))
    rows = draw_rows(domain.codes, max(MAX_ROWS, 2 * domain.n_categories), seed)
    options: Any = {"target": target, "domain": domain, "weights": table.weights, "seed": seed}
    options |= {"class_weight": model._code_weights(), "sizes": ensemble_sizes(len(y))}
    final_data = {in_context: MemberData(X[in_context], y, **options) for in_context in X}
    data = {in_context: final_data[in_context].at(rows) for in_context in X}
    splits = held_out_splits(table.cv, data[False], table.rows[rows], seed)
    y, codes, weights = data[False].y, data[False].domain.codes, data[False].weights
    fewer_splits = splits
    if table.cv is None:
        fewer_splits = joined_splits(splits, y, target.codes is not None)
    scored = np.unique(np.concatenate([test for _, test in splits]))
    score = replace(model._held_out_score(y, codes, scored), weights=weights)
    context_score = replace(score, rows=scored[np.isin(codes[scored], context_domains)])
    batch_size = int(np.median(np.bincount(domain.codes)))
    scores = {False: score, True: context_score}
    data_args = (features, Z, domain, rows, data, final_data, splits, fewer_splits)
    return Problem(model, *data_args, scores, context_domains, batch_size)


def held_out_splits(cv: Any, data: MemberData, rows: Array, seed: int) -> list[Split]:
    """Return the splits on which candidates are compared; ``rows`` are indices in the input.

    A user's splitter sees the rows in the order of the input.
    """
    is_classification = bool(data.n_classes)
    if cv is None:
        if data.domain.n_categories > 1:
            cv = LeaveDomainsOut(max_splits=MAX_SPLITS, random_state=seed)
        codes = data.domain.codes  # in an order that does not depend on names
        options: Any = {"classification": is_classification, "cv": cv, "X": codes[:, None]}
        return domain_folds(data.y, codes, **options)[0]
    order = np.argsort(rows)
    codes = data.domain.names[data.domain.codes[order]]
    options = {"classification": is_classification, "cv": cv, "X": data.X[order]}
    splits, _ = domain_folds(data.y[order], codes, **options)
    return [(np.sort(order[train]), np.sort(order[test])) for train, test in splits]


def plausible_targets(y: Array, domain_codes: Array) -> Array:
    """Return the target with absurd values moved to the largest distance of the others.

    A few values are absurd if they are much farther from the median than all others, and if this
    is not typical of their domain.
    """
    center = np.median(y)
    distances = np.abs(y - center)
    sorted_distances = np.sort(distances)
    n_suspects = max(1, int(ABSURD_SHARE * len(y)))
    ends = sorted_distances[-n_suspects - 1 :]
    if len(y) < 10 or np.quantile(distances, 0.9) == 0.0:
        return y
    gaps = np.flatnonzero(ends[1:] > ABSURD_RATIO * ends[:-1])
    if not len(gaps):
        return y
    limit = ends[gaps[0]]
    typical = np.array([np.median(distances[domain_codes == c]) for c in np.unique(domain_codes)])
    typical_distances = typical[np.unique(domain_codes, return_inverse=True)[1]]
    is_absurd = (distances > limit) & (typical_distances <= limit)
    return np.where(is_absurd, np.clip(y, center - limit, center + limit), y)


def absurd_target_message(y: Array, plausible_y: Array) -> str:
    """Describe the targets that were moved."""
    moved = np.flatnonzero(y != plausible_y)
    i = moved[np.abs(y[moved]).argmax()]
    return (
        f"{len(moved)} of {len(y)} targets are much farther from the median than all others, such "
        f"as {y[i]:.4g}. They are replaced by the nearest plausible value ({plausible_y[i]:.4g}). "
        "Check them, and remove the rows if they are wrong."
    )


#: Minimum weight at which a member with context is refitted to measure :class:`Trust`.
MIN_WEIGHT = 0.02
#: Prefix of the names of members that use context.
CONTEXT_PREFIX = "context_"


@dataclass(frozen=True)
class Candidate:
    """A member with chosen candidates, and its predictions for held-out rows."""

    kind: MemberType
    member: Member  #: without fitted estimators
    predictions: Array


@dataclass(frozen=True)
class Search:
    """Members that were searched for."""

    problem: Problem
    candidates: dict[str, Candidate]  #: by name
    dropped: list[str]  #: names of members for which there was no time

    def predictions(self, in_context: bool) -> dict[str, Array]:
        """Return the held-out predictions of the members with or without context."""
        items = self.candidates.items()
        return {n: c.predictions for n, c in items if c.member.in_context == in_context}


@dataclass(frozen=True)
class Weighting:
    """Weights of members, and weighted predictions for held-out rows."""

    search: Search
    weights: dict[str, float]  #: of members without context; clearly worse members are left out
    context_weights: dict[str, float]  #: of all members, for rows predicted with their domain
    plain_mix: Array  #: predictions without context
    context_mix: Array  #: predictions with context
    #: The same, but with weights for a domain that are computed without this domain.
    plain: Array
    context: Array | None

    @property
    def names(self) -> list[str]:
        """Names of the members that have a weight."""
        return [n for n in self.search.candidates if n in self.weights | self.context_weights]


def search_members(problem: Problem) -> Search:
    """Choose candidates of each member type on held-out domains, while time remains."""
    start, model = time.monotonic(), problem.model
    types, budget = model._member_types(problem.data[False].sizes), model.time_budget
    searches = [(t, t.name, False) for t in types]
    if len(problem.context_domains):
        searches += [(t, CONTEXT_PREFIX + t.name, True) for t in types if t.in_context]
    candidates: dict[str, Candidate] = {}
    dropped: list[str] = []
    seconds_by_name: dict[str, float] = {}
    for kind, name, in_context in searches:
        member_start = time.monotonic()
        # With context there are twice as many features, so a fit takes about twice as long.
        expected_seconds = member_start - start + 2 * seconds_by_name.get(kind.name, 0.0)
        if candidates and budget is not None and expected_seconds > budget:
            dropped.append(name)
            continue
        plain = candidates.get(kind.name) if in_context else None
        hints = plain.member.parameters if plain else ()
        data = replace(problem.data[in_context], hints=hints)
        splits = problem.fewer_splits if kind.expensive else problem.splits
        options: Any = {"in_context": in_context, "n_jobs": model.n_jobs}
        member, predictions = kind.search(data, splits, problem.scores[in_context], name, **options)
        candidates[name] = Candidate(kind, member, predictions)
        seconds = seconds_by_name[name] = time.monotonic() - member_start
        if model.verbose:
            print(f"{type(model).__name__}: compared {name} in {seconds:.1f} s", flush=True)
    if dropped:
        warn_caller(
            f"time_budget={budget} s is too short to fit all members. These were "
            f"not fitted: {', '.join(dropped)}. Increase time_budget to fit them."
        )
    return Search(problem, candidates, dropped)


def weigh_members(search: Search) -> Weighting:
    """Compute the weights of members, and the predictions of the ensemble for held-out rows.

    Members with context are compared on the domains that allow it.
    """
    scores = search.problem.scores
    weights, plain_mix, plain = scores[False].mix_predictions(search.predictions(False))
    context_predictions = search.predictions(True)
    if not context_predictions:
        weights = positive(weights)
        return Weighting(search, weights, weights, plain_mix, plain_mix, plain, None)
    context_weights, context_mix, held_out_mix = scores[True].mix_predictions(context_predictions)
    mixes = {"plain": plain, "context": held_out_mix}
    shares, _, combined = scores[True].mix_predictions(mixes, PRIOR)
    combined_mix = shares["plain"] * plain_mix + shares["context"] * context_mix
    combined_weights = {
        **{n: shares["plain"] * w for n, w in weights.items()},
        **{n: shares["context"] * w for n, w in context_weights.items()},
    }
    weights, combined_weights = positive(weights), positive(combined_weights)
    return Weighting(search, weights, combined_weights, plain_mix, combined_mix, plain, combined)


def positive(weights: dict[str, float]) -> dict[str, float]:
    """Return the weights that are not 0."""
    return {name: weight for name, weight in weights.items() if weight > 0.0}


def fit_members(weighting: Weighting) -> dict[str, Member]:
    """Fit the chosen candidates of the members that have a weight to all rows."""
    data = weighting.search.problem.final_data
    fitted = {}
    for name in weighting.names:
        candidate = weighting.search.candidates[name]
        fitted[name] = candidate.kind.fit_member(candidate.member, data)
    return fitted


def learn_trust(weighting: Weighting) -> Trust | None:
    """Measure how much weight context should have in small batches; None without context.

    For each half of the source domains, members with context are refitted to a sample of the rows
    outside this half. They predict rows from this half in small batches and in whole domains. The
    difference between these predictions is added to the held-out predictions from which member
    weights were computed.
    """
    search, weights = weighting.search, weighting.context_weights
    problem = search.problem
    if weighting.context is None:
        return None
    row_args = (problem.Z, problem.domain.codes, problem.training_rows, problem.scores[True].rows)
    samples = SourceSamples(*row_args, problem.context_domains, problem.batch_size)
    data = problem.data[True]
    candidates = [
        (search.candidates[n], weight)
        for n, weight in weights.items()
        if search.candidates[n].member.in_context and weight > MIN_WEIGHT
    ]
    results_by_half = []
    for held_out_domains, batches in samples.halves(problem.model._seed) if candidates else ():
        is_held_out = np.isin(data.domain.codes, held_out_domains)
        train = data.sample(np.flatnonzero(~is_held_out), TRUST_TRAINING_ROWS)
        has_one_domain = len(np.unique(data.domain.codes[train])) < 2
        if has_one_domain or (data.n_classes and len(np.unique(data.y[train])) < 2):
            continue
        rows = np.concatenate([batch.rows for batch in batches])
        Z = problem.Z[problem.training_rows[rows]]
        moments = Moments.stacked([batch.moments for batch in batches])
        batch_indices = np.repeat(np.arange(len(batches)), [len(b.rows) for b in batches])
        features = problem.features
        batch_features = features.in_context(Z, features.plain(Z), batch_indices, moments)
        stacked_X, n = np.concatenate([batch_features, data.X[rows]]), len(rows)
        difference = np.zeros((n, weighting.plain_mix.shape[1]))
        for candidate, weight in candidates:
            outputs = candidate.kind.refit_predict(data, candidate.member, train, stacked_X)
            difference += weight * (outputs[:n] - outputs[n:])
        batch_sizes = np.repeat([batch.n_rows for batch in batches], np.bincount(batch_indices))
        results_by_half.append((rows, batch_sizes, weighting.context_mix[rows] + difference))
    if not results_by_half:
        return Trust(samples.size)
    rows, batch_sizes, batch_mix = map(np.concatenate, zip(*results_by_half, strict=True))
    groups = np.unique([batch_sizes, data.domain.codes[rows]], axis=1, return_inverse=True)[1]
    y = np.eye(data.n_classes)[data.y[rows]] if data.n_classes else data.y[rows][:, None]
    plain_mix = weighting.plain_mix[rows]
    row_weights = equal_weights(groups.ravel())
    return Trust.learn(samples.size, batch_sizes, plain_mix, batch_mix, y, row_weights)
