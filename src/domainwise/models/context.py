"""Rows in the context of their whole domain, of which a piece of a table holds a part.

In a first pass statistics of the domains are computed for each piece, and merged. In a second pass
a copy of the model that has them predicts piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.ensemble.context import DomainContext, DomainStatistics
from domainwise.ensemble.moments import Moments

#: Rows of a domain, drawn at random, from which an ensemble decides whether context is safe there.
GUARD_ROWS = 2000
#: Such rows of all domains together, at most.
MOST_ROWS = 200_000


@dataclass(frozen=True)
class Statistics:
    """Statistics of some rows of a domain: moments, and the rows that drew the smallest numbers."""

    moments: Moments
    drawn: Array
    rows: Array

    def merged(self, other: Statistics) -> Statistics:
        """Of the rows of both."""
        drawn = np.concatenate([self.drawn, other.drawn])
        order = np.argsort(drawn, kind="stable")
        rows = np.concatenate([self.rows, other.rows])[order]
        return Statistics(self.moments.merged(other.moments), drawn[order], rows)

    def first(self, most: int) -> Statistics:
        """Keep at most so many rows."""
        return replace(self, drawn=self.drawn[:most], rows=self.rows[:most].copy())


def find_context(model: Any) -> tuple[Any, DomainContext, list[Any]]:
    """Find the part of a model that uses context, its DomainContext, and the steps before it."""
    owners = [
        (owner, before)
        for owner, before in _owners(model, [])
        if isinstance(owner, DomainContext) or owner.uses_context
    ]
    if len(owners) != 1:
        raise ValueError(
            "context: this model predicts rows one by one, whatever else is known of their domain"
            if not owners
            else "context: several parts of this model look at domains; use one DomainContext"
        )
    owner, before = owners[0]
    return owner, getattr(owner, "domain_context_", owner), before


def _owners(model: Any, before: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    if isinstance(model, DomainContext) or hasattr(model, "domain_context_"):
        yield model, before
    for i, (_, step) in enumerate(getattr(model, "steps", ())):
        yield from _owners(step, [*before, *(earlier for _, earlier in model.steps[:i])])
    if hasattr(model, "estimator_"):
        yield from _owners(model.estimator_, before)


def domain_statistics(model: Any, X: Any, domains: Array, seed: int) -> dict[Any, Statistics]:
    """Statistics of rows, as the model takes them, by domain; every piece has its own seed."""
    owner, context, before = find_context(model)
    for step in before:
        X = step.transform(X)
    rows = np.asarray(X, dtype=np.float64)
    moments = context.domain_moments(rows, domains)
    drawn = np.random.default_rng(seed).random(len(rows))
    if not getattr(owner, "guards_context", False):
        drawn = drawn[:0]
    statistics = {}
    for name, known in moments.items():
        mine = np.flatnonzero(domains[: len(drawn)] == name)
        mine = mine[np.argsort(drawn[mine], kind="stable")]
        statistics[name] = Statistics(known, drawn[mine], rows[mine]).first(GUARD_ROWS)
    return statistics


def merged_domains(a: dict[Any, Statistics], b: dict[Any, Statistics]) -> dict[Any, Statistics]:
    """Merge the statistics of two pieces of a table."""
    merged = a | {name: a[name].merged(b[name]) if name in a else b[name] for name in b}
    most = min(GUARD_ROWS, MOST_ROWS // max(1, len(merged)))
    return {name: each.first(most) for name, each in merged.items()}


def with_statistics(model: Any, statistics: dict[Any, Statistics]) -> Any:
    """Return a copy of a model that takes statistics of domains from here, not from rows of X.

    It shares all that was fitted with the model, which is not changed: others may use it meanwhile.
    """
    owner, _, _ = find_context(model)
    known = DomainStatistics({name: each.moments for name, each in statistics.items()})
    if any(len(each.rows) for each in statistics.values()):
        rows = np.concatenate([each.rows for each in statistics.values()])
        names = np.repeat(list(statistics), [len(each.rows) for each in statistics.values()])
        alone = owner.with_statistics(known).domains_without_context(rows, names)
        known = replace(known, without_context=frozenset(alone))
    return _exchanged(model, owner, owner.with_statistics(known))


def _exchanged(model: Any, part: Any, other: Any) -> Any:
    """Return a copy of a model in which one part of it is another."""
    if model is part:
        return other
    changed = copy(model)
    if hasattr(model, "steps"):
        changed.steps = [(name, _exchanged(step, part, other)) for name, step in model.steps]
    if "estimator_" in vars(model):
        changed.estimator_ = _exchanged(model.estimator_, part, other)
    return changed
