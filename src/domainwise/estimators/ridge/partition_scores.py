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

from domainwise.algebra.backends.base import LabelRules
from domainwise.algebra.backends.dask import Layout, Partitions, source_in_errors
from domainwise.algebra.gram.dask import graphs
from domainwise.base.arrays import Array
from domainwise.estimators.projections.projection import Expansion
from domainwise.estimators.ridge.scores import CandidateScorer, Rows

#: Maximum number of rows that are predicted together.
BATCH_ROWS = 8192


@dataclass(frozen=True)
class ScorePlan:
    """The input that all tasks of the second pass share."""

    layout: Layout
    label_rules: LabelRules
    scorer: CandidateScorer
    held_out_domains: list[Array]  #: by split
    functions: list[list[Expansion]]  #: by split, for all kernels; empty if nothing was fitted
    n_candidates: int  #: of all kernels together

    def summarize(self, functions: list[Expansion], X: Array, y: Array) -> Any:
        """Predict some held-out rows of a split, and return what the score requires."""
        values = np.hstack([function(X) for function in functions])
        return self.scorer.summarize(np.hsplit(values, self.n_candidates), y)


@graphs.task
def held_out_summaries(plan: ScorePlan, rows: Any, y: Any, domain: Any, source: str) -> list[Any]:
    """Summarize a partition's predictions for each split; None for splits without held-out rows."""
    with source_in_errors(source):
        X, y, domain = plan.layout.split(rows, y, domain)
        if not len(X):
            return [None] * len(plan.held_out_domains)
        labels: Any = plan.label_rules.check(y, domain, len(X))
        y, domain_labels, summaries_by_split = Rows(X, *labels).y, labels[1], []
        for functions, held_out in zip(plan.functions, plan.held_out_domains, strict=True):
            is_held_out = np.isin(domain_labels.names, held_out)[domain_labels.codes]
            test_rows = np.flatnonzero(is_held_out & bool(functions))
            batches = np.split(test_rows, range(BATCH_ROWS, len(test_rows), BATCH_ROWS))
            summaries = [plan.summarize(functions, X[b], y[b]) for b in batches if len(b)]
            summaries_by_split.append(plan.scorer.merge(summaries) if summaries else None)
        return summaries_by_split


def merge_by_split(scorer: CandidateScorer, partition_summaries: list[list[Any]]) -> list[Any]:
    """Merge the summaries of neighboring partitions, separately for each split."""
    merged_summaries: list[Any] = []
    for split_summaries in zip(*partition_summaries, strict=True):
        summaries = [summary for summary in split_summaries if summary is not None]
        merged_summaries.append(scorer.merge(summaries) if summaries else None)
    return merged_summaries


@graphs.task
def score_split(scorer: CandidateScorer, summaries: list[Any]) -> Any:
    """Score the candidates on all held-out rows of a split, or return None if it has none."""
    (summary,) = merge_by_split(scorer, [[summary] for summary in summaries])
    return None if summary is None else scorer.scores(summary)


def held_out_scores(
    search: Any, functions: list[dict[int, Expansion]], n_candidates: int, held_out: list[Array]
) -> list[Array]:
    """Return the scores of all candidates, as an array of shape (candidates, splits) per kernel.

    ``functions`` contains a dict of functions by split for each kernel. Each function returns the
    values of ``n_candidates`` candidates. ``held_out`` contains the held-out domains of each split.
    """
    partitions: Partitions = search.partitions
    scorer, label_rules = search.scorer, search.estimator.label_rules
    needs_all_values = type(scorer) is CandidateScorer
    if needs_all_values:
        _check_memory(search, functions, held_out)
    scores_by_kernel: list[Array] = []
    # The values of all rows take much memory: if they are needed, score one kernel at a time.
    for kernel_group in [[by_split] for by_split in functions] if needs_all_values else [functions]:
        split_functions = [[f[i] for f in kernel_group if i in f] for i in range(len(held_out))]
        n_group_candidates, layout = n_candidates * len(kernel_group), partitions.layout
        plan = ScorePlan(layout, label_rules, scorer, held_out, split_functions, n_group_candidates)
        plan_task = graphs.constant(plan, "plan")
        task_args = [(plan_task, *partitions.arguments(i)) for i in range(len(partitions))]
        tasks = graphs.calls(held_out_summaries, task_args)
        if needs_all_values:
            split_tasks = ([task[i] for task in tasks] for i in range(len(held_out)))
            scores = graphs.run([graphs.call(score_split, scorer, t) for t in split_tasks])
        else:
            (summaries,) = graphs.run([graphs.tree(tasks, partial(merge_by_split, scorer))])
            scores = [None if summary is None else scorer.scores(summary) for summary in summaries]
        nan_scores = np.full(n_group_candidates, np.nan)
        score_columns = [nan_scores if column is None else column for column in scores]
        scores_by_kernel += np.vsplit(np.column_stack(score_columns), len(kernel_group))
    return scores_by_kernel


def _check_memory(search: Any, functions: list[dict[int, Expansion]], held_out: Any) -> None:
    """Raise MemoryError if the values of all held-out rows do not fit into a worker's memory."""
    free_bytes, client = graphs.memory_per_task(), graphs.current_client()
    if free_bytes is None:
        return
    n_threads = dask.system.CPU_COUNT if client is None else sum(client.nthreads().values())
    n_columns = max(f.dual.shape[1] for by_split in functions for f in by_split.values())
    domain_sizes: dict[Any, int] = {}
    for (domain, _), cell in search.sums.maps[0].items():
        domain_sizes[domain] = domain_sizes.get(domain, 0) + cell.n_samples
    split_sizes = [sum(domain_sizes[domain] for domain in domains.tolist()) for domains in held_out]
    # A worker merges the predictions of one split; those of all splits are spread over all workers.
    needed_bytes = 8.0 * n_columns * (2 * max(split_sizes) + sum(split_sizes) / n_threads)
    if needed_bytes > free_bytes:
        raise MemoryError(
            f"scoring={search.estimator.scoring!r} needs the predictions of all candidates for the "
            f"held-out rows of a split ({max(split_sizes)} rows and {n_columns} columns). A worker "
            f"needs {needed_bytes / 2**30:.1f} GiB for them, but has {free_bytes / 2**30:.1f} GiB "
            "per task. Use fewer alphas or domain_weights, or scoring=None, which needs only sums."
        )
