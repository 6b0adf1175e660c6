"""The rows of a ridge search, and scores of its candidates on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer
from sklearn.utils.metaestimators import available_if

from domainwise.algebra.backends.base import LabelRules
from domainwise.algebra.backends.dask import Layout, Partitions, source_in_errors
from domainwise.algebra.gram.dask import graphs
from domainwise.base.arrays import Array, to_device_of, to_host
from domainwise.base.inputs import Labels
from domainwise.estimators.projections.projection import Expansion
from domainwise.held_out.calibration.curves import class_columns
from domainwise.held_out.calibration.decisions import MIN_SHARE, DecisionRule, without_class_weights
from domainwise.held_out.scoring.measures import check_task
from domainwise.held_out.scoring.predictions import codes_of
from domainwise.held_out.search.scores import Scorer, quiet_scores

#: Regression metrics that are means over rows.
ROW_MEAN_METRICS = (
    "neg_mean_absolute_error",
    "neg_mean_absolute_percentage_error",
    "neg_mean_gamma_deviance",
    "neg_mean_poisson_deviance",
    "neg_mean_squared_log_error",
)


class ClassRule(ClassifierMixin, BaseEstimator):
    """Fitted estimator that scorers call; it converts decision values, passed as X, into classes.

    Values of indicators -1 and 1 estimate probabilities, from which ``rule`` predicts classes. If
    classes had ``weights`` in the fit, these probabilities are divided by them. With
    ``only_classes=True``, values are not estimates, and there is no ``decision_function``.
    """

    def __init__(
        self,
        classes: Any = None,
        rule: DecisionRule | None = None,
        weights: Any = 1.0,
        only_classes: bool = False,
    ) -> None:
        self.classes = classes
        self.rule = rule
        self.weights = weights
        self.only_classes = only_classes

    @property
    def classes_(self) -> Array:
        """Classes, in the order of the columns."""
        return np.asarray(self.classes)

    def codes(self, values: Array) -> Array:
        """Return class codes."""
        values = class_columns(values)
        if self.rule is None or self.only_classes:
            return np.asarray(values.argmax(axis=1))
        estimates = np.clip((1.0 + values) / 2.0, MIN_SHARE, None)
        return self.rule.codes(without_class_weights(estimates, self.weights))

    def predict(self, values: Array) -> Array:
        """Return the predicted classes."""
        return self.classes_[self.codes(values)]

    @available_if(lambda self: not self.only_classes)
    def decision_function(self, values: Array) -> Array:
        """Return the values; a single column becomes one-dimensional."""
        return values[:, 0] if values.shape[1] == 1 else values


class NumberRule(RegressorMixin, BaseEstimator):
    """Fitted estimator that scorers call; it returns the predicted values, passed as X."""

    def predict(self, values: Array) -> Array:
        """Return the values; a single column becomes one-dimensional."""
        return values[:, 0] if values.shape[1] == 1 else values


def class_targets(n_classes: int) -> Array:
    """Return each class's targets (-1 or 1): one column per class, but only one for two classes."""
    if n_classes == 2:
        return np.array([[-1.0], [1.0]])
    return 2.0 * np.eye(n_classes) - 1.0


@dataclass(frozen=True)
class Rows:
    """Training rows and their labels."""

    X: Any
    target: Labels
    domain: Labels

    @property
    def Y(self) -> Array:
        """Targets as columns of numbers."""
        if self.target.codes is None:
            return self.target.values
        return class_targets(self.target.n_categories)[to_host(self.target.codes)]

    @property
    def y(self) -> Array:
        """Targets as scorers expect them."""
        if self.target.codes is None:
            return self.Y[:, 0] if self.Y.shape[1] == 1 else self.Y
        return self.target.names[to_host(self.target.codes)]

    def codes(self) -> tuple[Any, Any]:
        """Return class codes and domain codes; zeros for continuous targets or domains."""
        zeros = np.zeros(len(self.X), dtype=np.int64)

        def move_to_device(codes: Any) -> Any:
            codes = zeros if codes is None else codes
            return to_device_of(codes, self.X) if isinstance(codes, np.ndarray) else codes

        return move_to_device(self.target.codes), move_to_device(self.domain.codes)


@dataclass(frozen=True)
class CandidateScorer:
    """A scorer for many candidates that requires the predicted values of all rows.

    Rows can be passed in batches. Subclasses store a summary of each batch instead of its values.
    """

    scorer: Any  #: scikit-learn scorer
    rule: Any  #: estimator that the scorer calls: ClassRule or NumberRule

    def __call__(self, outputs: list[Array], y: Array) -> Array:
        """Score candidates on the same rows; ``outputs`` contains each candidate's predictions."""
        return self.scores(self.summarize(outputs, y))

    def summarize(self, outputs: list[Array], y: Array) -> Any:
        """Return what the score needs to know about the predictions for some rows."""
        return outputs, y

    def merge(self, summaries: Sequence[Any]) -> Any:
        """Merge the summaries of several batches, in the order of the batches."""
        outputs, y = zip(*summaries, strict=True)
        return [np.concatenate(values) for values in zip(*outputs, strict=True)], np.concatenate(y)

    def scores(self, summary: Any) -> Array:
        """Score every candidate."""
        scorer = Scorer(self.scorer)
        with quiet_scores():
            return np.array([scorer.outcome(**inputs) for inputs in self._scorer_inputs(summary)])

    def _scorer_inputs(self, summary: Any) -> Iterator[dict[str, Any]]:
        outputs, y = summary
        return ({"model": self.rule, "X": values, "y": y} for values in outputs)


class MeanScorer(CandidateScorer):
    """A scorer for means over rows; a summary is a row count and a score for each candidate."""

    def summarize(self, outputs: list[Array], y: Array) -> Any:
        """Score the candidates on these rows."""
        return len(y), super().scores((outputs, y))

    def merge(self, summaries: Sequence[Any]) -> Any:
        """Average the scores, weighted by the numbers of rows."""
        row_counts, scores = zip(*summaries, strict=True)
        return sum(row_counts), np.average(scores, axis=0, weights=row_counts)

    def scores(self, summary: Any) -> Array:
        """Return the scores in the merged summary."""
        return np.asarray(summary[1])


class CountScorer(CandidateScorer):
    """A scorer that needs only predicted classes; a summary is a confusion matrix per candidate."""

    def summarize(self, outputs: list[Array], y: Array) -> Any:
        """Return confusion matrices, of shape (candidates, true classes, predicted classes)."""
        n, rule = len(self.rule.classes_), self.rule
        offsets = n * codes_of(y, rule.classes_)
        counts = [np.bincount(offsets + rule.codes(values), minlength=n * n) for values in outputs]
        return np.reshape(counts, (-1, n, n))

    def merge(self, summaries: Sequence[Any]) -> Any:
        """Add the confusion matrices."""
        return sum(summaries)

    def _scorer_inputs(self, summary: Any) -> Iterator[dict[str, Any]]:
        classes, targets_by_class = self.rule.classes_, class_targets(len(self.rule.classes_))
        rule = ClassRule(classes, only_classes=True)
        for confusion_matrix in summary:
            true_codes, predicted_codes = np.nonzero(confusion_matrix)
            weights = confusion_matrix[true_codes, predicted_codes].astype(float)
            values = targets_by_class[predicted_codes]
            yield {"model": rule, "X": values, "y": classes[true_codes], "sample_weight": weights}


def candidate_scorer(scoring: Any, rule: Any) -> CandidateScorer:
    """Return a scorer for the metric, one that stores as little as possible about held-out rows."""
    check_task(scoring, isinstance(rule, ClassRule))
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    if scoring in ROW_MEAN_METRICS:
        return MeanScorer(scorer, rule)
    if isinstance(rule, ClassRule) and isinstance(scorer, type(get_scorer("accuracy"))):
        count_scorer = CountScorer(scorer, rule)
        try:
            count_scorer.scores(np.eye(len(rule.classes_))[None])
            return count_scorer
        except (AttributeError, TypeError, ValueError):
            pass  # the metric needs decision values, rejects these classes, or accepts no weights
    return CandidateScorer(scorer, rule)


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
