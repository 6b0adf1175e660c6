"""Scores that need predictions for rows in partitions, computed in a second pass (theory 13.4).

Rows stay on their workers. Most scores are computed from confusion matrices or means, which are
small. For other scores, the predictions for all held-out rows of a split are sent to one worker.
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

#: Maximum number of rows that are predicted together.
BATCH_ROWS = 8192


@dataclass(frozen=True)
class ScorePlan:
    """Input of all tasks in the second pass."""

    layout: Layout
    label_rules: LabelRules
    scorer: CandidateScorer
    held_out: list[Array]  #: held-out domains of each split
    functions: list[list[Expansion]]  #: by split and kernel; empty if a split cannot be trained on
    n_candidates: int  #: in total, for all kernels

    def piece(self, functions: list[Expansion], X: Array, y: Array) -> Any:
        """Summarize predictions for some held-out rows of a split, as the score requires."""
        values = np.hstack([function(X) for function in functions])
        return self.scorer.piece(np.hsplit(values, self.n_candidates), y)


@graphs.task
def held_out_pieces(plan: ScorePlan, rows: Any, y: Any, domain: Any, source: str) -> list[Any]:
    """Summarize predictions for a partition, by split; None for splits without held-out rows."""
    with source_in_errors(source):
        X, y, domain = plan.layout.split(rows, y, domain)
        if not len(X):
            return [None] * len(plan.held_out)
        labels: Any = plan.label_rules.check(y, domain, len(X))
        y, domains, split_pieces = Rows(X, *labels).y, labels[1], []
        for functions, held_out in zip(plan.functions, plan.held_out, strict=True):
            test_rows = np.flatnonzero(np.isin(domains.names, held_out)[domains.codes])
            batches = np.split(test_rows, range(BATCH_ROWS, len(test_rows), BATCH_ROWS))
            is_scored = functions and len(test_rows)
            pieces = [plan.piece(functions, X[batch], y[batch]) for batch in batches if is_scored]
            split_pieces.append(plan.scorer.join(pieces) if pieces else None)
        return split_pieces


def join_pieces(scorer: CandidateScorer, partitions: list[list[Any]]) -> list[Any]:
    """Join the pieces of neighbouring partitions, by split."""
    by_split = [[piece for piece in s if piece is not None] for s in zip(*partitions, strict=True)]
    return [scorer.join(pieces) if pieces else None for pieces in by_split]


@graphs.task
def score_pieces(scorer: CandidateScorer, pieces: list[Any]) -> Any:
    """Score the candidates on all held-out rows of a split; None if there are none."""
    (piece,) = join_pieces(scorer, [[piece] for piece in pieces])
    return None if piece is None else scorer.scores(piece)


def held_out_scores(
    kind: Any, functions: list[dict[int, Expansion]], n_candidates: int, held_out: list[Array]
) -> list[Array]:
    """Return the scores of all candidates, as an array of shape (candidates, splits) per kernel.

    ``kind`` is the search. ``functions`` are the candidates of each kernel by split, and
    ``n_candidates`` is their number per kernel; ``held_out`` are the domains that splits hold out.
    """
    partitions: Partitions = kind.partitions
    scorer = kind.scorer
    needs_all_values = type(scorer) is CandidateScorer
    if needs_all_values:
        _check_memory(kind, functions, held_out)
    by_kernel: list[Array] = []
    # If the values of all rows are needed, they take much memory: score one kernel at a time.
    for group in [[kernel] for kernel in functions] if needs_all_values else [functions]:
        by_split = [[kernel[i] for kernel in group if i in kernel] for i in range(len(held_out))]
        n_columns = n_candidates * len(group)
        layout, label_rules = partitions.layout, kind.estimator.label_rules
        plan = ScorePlan(layout, label_rules, scorer, held_out, by_split, n_columns)
        constant = graphs.constant(plan, "plan")
        arguments = [(constant, *partitions.arguments(i)) for i in range(len(partitions))]
        tasks = graphs.calls(held_out_pieces, arguments)
        if needs_all_values:
            split_pieces = ([task[i] for task in tasks] for i in range(len(held_out)))
            scores = graphs.run([graphs.call(score_pieces, scorer, p) for p in split_pieces])
        else:
            (pieces,) = graphs.run([graphs.tree(tasks, partial(join_pieces, scorer))])
            scores = [None if piece is None else scorer.scores(piece) for piece in pieces]
        undefined = np.full(n_columns, np.nan)
        table = np.column_stack([undefined if column is None else column for column in scores])
        by_kernel += np.vsplit(table, len(group))
    return by_kernel


def _check_memory(kind: Any, functions: list[dict[int, Expansion]], held_out: list[Array]) -> None:
    """Raise MemoryError if the values of all held-out rows do not fit into a worker's memory."""
    free_bytes, client = graphs.memory_per_task(), graphs.current_client()
    if free_bytes is None:
        return
    n_threads = dask.system.CPU_COUNT if client is None else sum(client.nthreads().values())
    n_columns = max(function.dual.shape[1] for kernel in functions for function in kernel.values())
    counts: dict[Any, int] = {}
    for (domain, _), cell in kind.sums.maps[0].items():
        counts[domain] = counts.get(domain, 0) + cell.n_samples
    split_sizes = [sum(counts[domain] for domain in domains.tolist()) for domains in held_out]
    # A worker joins the pieces of one split; the pieces of all splits are spread over all workers.
    needed_bytes = 8.0 * n_columns * (2 * max(split_sizes) + sum(split_sizes) / n_threads)
    if needed_bytes > free_bytes:
        raise MemoryError(
            f"scoring={kind.estimator.scoring!r} needs the predictions of all candidates for the "
            f"held-out rows of a split ({max(split_sizes)} rows and {n_columns} columns). A worker "
            f"needs {needed_bytes / 2**30:.1f} GiB for them, but has {free_bytes / 2**30:.1f} GiB "
            "per task. Use fewer alphas or domain_weights, or a scorer that needs less memory, "
            "such as scoring='balanced_accuracy' or scoring=None."
        )
