"""The steps of a fit: search for members, weigh them, and learn how far to trust context."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from domainwise.arrays import Array
from domainwise.calibration.curves import equal_weights
from domainwise.checks import warn_caller
from domainwise.ensemble.batches import TRUST_TRAINING_ROWS, SourceSamples, Trust
from domainwise.ensemble.held_out import PRIOR
from domainwise.ensemble.members import Member, MemberType
from domainwise.ensemble.moments import Moments
from domainwise.ensemble.preparation import Problem

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
    start = time.monotonic()
    types = problem.member_types
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
        budget = problem.time_budget
        if candidates and budget is not None and expected_seconds > budget:
            dropped.append(name)
            continue
        plain = candidates.get(kind.name) if in_context else None
        hints = plain.member.parameters if plain else ()
        member, predictions = kind.search(
            replace(problem.data[in_context], hints=hints),
            problem.fewer_splits if kind.expensive else problem.splits,
            problem.scores[in_context],
            name,
            in_context=in_context,
            n_jobs=problem.n_jobs,
        )
        candidates[name] = Candidate(kind, member, predictions)
        seconds = seconds_by_name[name] = time.monotonic() - member_start
        if problem.verbose:
            print(f"{problem.title}: compared {name} in {seconds:.1f} s", flush=True)
    if dropped:
        warn_caller(
            f"time_budget={problem.time_budget} s is too short to fit all members. These were "
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
    for held_out_domains, batches in samples.halves(problem.seed) if candidates else ():
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
