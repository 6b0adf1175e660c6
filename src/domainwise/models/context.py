"""Rows in the context of their whole domain, of which a piece of a table holds a part.

In a first pass each piece says what it knows of its domains, and pieces are merged; the model then
holds what came of it while it predicts, piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.ensemble.context import DomainContext, Held
from domainwise.ensemble.moments import Moments

#: Rows of a domain, drawn at random, from which an ensemble decides whether context is safe there.
GUARD_ROWS = 2000
#: Such rows of all domains together, at most.
MOST_ROWS = 200_000


@dataclass(frozen=True)
class Learnt:
    """What some rows say of their domain: moments, and the rows that drew the smallest numbers."""

    moments: Moments
    drawn: Array
    rows: Array

    def merged(self, other: Learnt) -> Learnt:
        """Of the rows of both."""
        drawn = np.concatenate([self.drawn, other.drawn])
        order = np.argsort(drawn, kind="stable")
        rows = np.concatenate([self.rows, other.rows])[order]
        return Learnt(self.moments.merged(other.moments), drawn[order], rows)

    def first(self, most: int) -> Learnt:
        """Keep at most so many rows."""
        return replace(self, drawn=self.drawn[:most], rows=self.rows[:most].copy())


def find_context(model: Any) -> tuple[Any, DomainContext, list[Any]]:
    """Find what looks at domains in a model: itself, its DomainContext, and the steps before it."""
    owners = [
        (owner, before)
        for owner, before in _owners(model, [])
        if isinstance(owner, DomainContext) or any(m.in_context for m in owner.members_.values())
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


def learn_domains(model: Any, X: Any, domains: Array, seed: int) -> dict[Any, Learnt]:
    """Sum up rows, as the model takes them, by domain; the seed differs from piece to piece."""
    owner, context, before = find_context(model)
    for step in before:
        X = step.transform(X)
    rows = np.asarray(X, dtype=np.float64)
    moments = context.domain_moments(rows, domains)
    drawn = np.random.default_rng(seed).random(len(rows))
    if getattr(owner, "_shares", None) is None:
        drawn = drawn[:0]
    found = {}
    for name, known in moments.items():
        mine = np.flatnonzero(domains[: len(drawn)] == name)
        mine = mine[np.argsort(drawn[mine], kind="stable")]
        found[name] = Learnt(known, drawn[mine], rows[mine]).first(GUARD_ROWS)
    return found


def merged_domains(a: dict[Any, Learnt], b: dict[Any, Learnt]) -> dict[Any, Learnt]:
    """Merge what two pieces of a table say of their domains."""
    merged = a | {name: a[name].merged(b[name]) if name in a else b[name] for name in b}
    most = min(GUARD_ROWS, MOST_ROWS // max(1, len(merged)))
    return {name: learnt.first(most) for name, learnt in merged.items()}


@contextmanager
def holding(model: Any, learnt: dict[Any, Learnt]) -> Iterator[None]:
    """Let a model take domains for what was learnt of them, not for the rows of a piece."""
    owner, context, _ = find_context(model)
    context.held = Held({name: known.moments for name, known in learnt.items()})
    try:
        if any(len(known.rows) for known in learnt.values()):
            rows = np.concatenate([known.rows for known in learnt.values()])
            names = np.repeat(list(learnt), [len(known.rows) for known in learnt.values()])
            context.held = Held(context.held.moments, frozenset(owner.domains_alone(rows, names)))
        yield
    finally:
        del context.held
