"""Scores of predictions of rows in partitions: one more pass for all candidates (theory 13.4).

Rows stay on their worker; only what a score needs is sent: counts of classes or means, whose size
does not depend on the number of rows, or the values of all held-out rows of a split to one worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import numpy as np

from domainwise.arrays import Array
from domainwise.backends.base import LabelRules
from domainwise.backends.partitions import Layout, Partitions, source_in_errors
from domainwise.estimators.projection import Expansion
from domainwise.gram.dask import graphs
from domainwise.ridge.scores import CandidateScorer, Rows

#: Number of rows whose values are in memory at a time.
BATCH_ROWS = 8192


@dataclass(frozen=True)
class ScorePlan:
    """Everything that a task of the pass needs, with the candidates of each split by kernel."""

    layout: Layout
    label_rules: LabelRules
    scorer: CandidateScorer
    tested: list[Array]  #: domains that each split holds out
    functions: list[list[Expansion]]  #: by split; empty if a split cannot be trained on
    n_points: int  #: number of candidates of all these kernels

    def piece(self, functions: list[Expansion], X: Array, y: Array) -> Any:
        """Compute what the score needs from some rows that a split holds out."""
        values = np.hstack([function(X) for function in functions])
        return self.scorer.piece(np.hsplit(values, self.n_points), y)


@graphs.task
def held_out_pieces(plan: ScorePlan, rows: Any, y: Any, domain: Any, source: str) -> list[Any]:
    """Compute the pieces of one partition, one per split; None if it has no held-out rows."""
    with source_in_errors(source):
        X, y, domain = plan.layout.split(rows, y, domain)
        if not len(X):
            return [None] * len(plan.tested)
        labels: Any = plan.label_rules.check(y, domain, len(X))
        y, domains, joined = Rows(X, *labels).y, labels[1], []
        for functions, tested in zip(plan.functions, plan.tested, strict=True):
            inside = np.flatnonzero(np.isin(domains.names, tested)[domains.codes])
            cuts = np.split(inside, range(BATCH_ROWS, len(inside), BATCH_ROWS))
            usable = functions and len(inside)
            pieces = [plan.piece(functions, X[cut], y[cut]) for cut in cuts if usable]
            joined.append(plan.scorer.joined(pieces) if pieces else None)
        return joined


def join_pieces(scorer: CandidateScorer, parts: list[list[Any]]) -> list[Any]:
    """Join the pieces of neighbouring partitions, split by split."""
    by_split = [[piece for piece in s if piece is not None] for s in zip(*parts, strict=True)]
    return [scorer.joined(pieces) if pieces else None for pieces in by_split]


@graphs.task
def score_pieces(scorer: CandidateScorer, pieces: list[Any]) -> Any:
    """Score the candidates on all rows that a split holds out; None where there are none."""
    (piece,) = join_pieces(scorer, [[piece] for piece in pieces])
    return None if piece is None else scorer.scores(piece)


def held_out_scores(
    kind: Any, functions: list[dict[int, Expansion]], n_points: int, tested: list[Array]
) -> list[Array]:
    """Scores of the ``n_points`` candidates of each kernel, of shape (candidates, splits).

    ``kind`` is the search. ``functions`` are the candidates of each kernel, by the number of the
    split that they were fitted for; ``tested`` are the domains that each split holds out.
    """
    parts: Partitions = kind.partitions
    scorer = kind.scorer
    gathers = type(scorer) is CandidateScorer
    if gathers:
        _check_memory(kind, functions, tested)
    by_kernel: list[Array] = []
    # Values of all rows take much memory: kernels are then scored one after the other.
    for group in [[kernel] for kernel in functions] if gathers else [functions]:
        by_split = [[kernel[i] for kernel in group if i in kernel] for i in range(len(tested))]
        n_columns = n_points * len(group)
        plan = ScorePlan(
            parts.layout, kind.estimator.label_rules, scorer, tested, by_split, n_columns
        )
        sent = graphs.constant(plan, "plan")
        tasks = graphs.calls(
            held_out_pieces, [(sent, *parts.arguments(i)) for i in range(len(parts))]
        )
        if gathers:
            pieces = ([part[i] for part in tasks] for i in range(len(tested)))
            scores = graphs.run([graphs.call(score_pieces, scorer, each) for each in pieces])
        else:
            (pieces,) = graphs.run([graphs.tree(tasks, partial(join_pieces, scorer))])
            scores = [None if piece is None else scorer.scores(piece) for piece in pieces]
        none = np.full(n_columns, np.nan)
        columns = np.column_stack([none if column is None else column for column in scores])
        by_kernel += np.vsplit(columns, len(group))
    return by_kernel


def _check_memory(kind: Any, functions: list[dict[int, Expansion]], tested: list[Array]) -> None:
    """Refuse values of all held-out rows that do not fit the workers."""
    free, client = graphs.memory_per_task(), graphs.current_client()
    if free is None:
        return
    slots = dask.system.CPU_COUNT if client is None else sum(client.nthreads().values())
    n_columns = max(function.dual.shape[1] for kernel in functions for function in kernel.values())
    counts: dict[Any, int] = {}
    for (domain, _), cell in kind.sums.maps[0].items():
        counts[domain] = counts.get(domain, 0) + cell.n_samples
    rows = [sum(counts[domain] for domain in domains.tolist()) for domains in tested]
    # One worker joins the pieces of a split; the pieces of all splits are spread over all workers.
    needed = 8.0 * n_columns * (2 * max(rows) + sum(rows) / slots)
    if needed > free:
        raise MemoryError(
            f"scoring={kind.estimator.scoring!r} needs the values of all held-out rows of a split, "
            f"{max(rows)} rows with {n_columns} columns: a worker needs {needed / 2**30:.1f} GiB "
            f"for them and has {free / 2**30:.1f} GiB per task. Choose fewer alphas or "
            "domain_weights, or a scoring that is a sum over rows, such as None or "
            "balanced_accuracy"
        )
