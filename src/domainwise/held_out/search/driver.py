"""The search: candidates are scored on held-out domains, and the best of them are chosen.

All classes that choose arguments by holding out domains call :func:`search`. They differ in the
*kind* of search, an object with the methods of :class:`Searchable`. To write a kind, implement:

1. ``candidates(data)`` returns the candidates, which are dicts of arguments.
2. ``batches(candidates)`` returns lists of indices of candidates that share computations, such as a
   kernel matrix. ``batches_by(candidates, names)`` groups candidates with the same values of these
   arguments. If nothing is shared, each candidate is a batch.
3. ``outcomes(data, splits, batch, score)`` fits the candidates of a batch to the training rows of
   each split, and passes each fitted model to ``score.outcome(model, X_test, y_test)``. A kind that
   computes outputs or scores without a model returns them directly. With ``one_pass``, this method
   is called once for each batch, with all splits; otherwise once for each batch and split, in
   ``n_jobs`` parallel jobs.
4. ``fit(data, chosen)`` fits the chosen candidates, best first.

An outcome is a number or, if the score uses all splits together
(:class:`~domainwise.held_out.search.scores.SmoothScore`), the outputs for the test rows of a
split. A *rule* chooses candidates by the table of scores: :func:`best`,
:func:`one_standard_error` or :func:`best_of_paths`; ``functools.partial`` sets the options of the
last two.

>>> from sklearn.linear_model import Ridge
>>> from domainwise.held_out.search.scores import as_score
>>> class Penalties:
...     one_pass = False
...
...     def candidates(self, data):
...         return [{"alpha": alpha} for alpha in (0.1, 1e6)]
...
...     def batches(self, candidates):
...         return [[i] for i in range(len(candidates))]
...
...     def outcomes(self, data, splits, batch, score):
...         ((train, test),) = splits
...         models = self.fit(data.take(train), batch)
...         return [[score.outcome(m, data.X[test], data.y[test])] for m in models]
...
...     def fit(self, data, chosen):
...         return [Ridge(**candidate).fit(data.X, data.y) for candidate in chosen]
>>> X = np.arange(12.0).reshape(-1, 1)
>>> splits = [(np.arange(6), np.arange(6, 12)), (np.arange(6, 12), np.arange(6))]
>>> search(Penalties(), Data(X, 2 * X[:, 0]), splits, as_score("r2")).chosen
[{'alpha': 0.1}]
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from scipy.stats import rankdata

from domainwise.base.arrays import Array, available_memory
from domainwise.base.inputs import Labels, take_rows
from domainwise.base.messages import warn_caller
from domainwise.base.process import single_blas_thread
from domainwise.held_out.folds import Split
from domainwise.held_out.search.scores import Outcome, Score

#: Memory that a worker needs: bytes for imported modules, and the number of copies of the rows.
WORKER_BYTES, WORKER_COPIES = 2**28, 4
Candidate = dict[str, Any]  #: arguments by name
Rule = Callable[[Sequence[Candidate], Array], list[int]]  #: returns the chosen indices


@dataclass(frozen=True)
class Data:
    """Rows and labels of a search; fields that a kind does not use are None."""

    X: Any  #: rows, sums over rows, or Dask partitions
    y: Any  #: the target, in the form that estimators and scorers accept
    sample_domain: Any = None  #: the domains, in the form that estimators accept
    target: Labels | None = None  #: the validated target
    domain: Labels | None = None  #: the validated domains
    class_weight: Any = None
    seed: int = 0
    weights: Array | None = None  #: the checked weights of rows; None without weights

    def take(self, rows: Array) -> Data:
        """Return some of the rows; categories that do not occur in them are removed."""
        sample_domain = None if self.sample_domain is None else take_rows(self.sample_domain, rows)
        weights = None if self.weights is None else self.weights[rows]
        changes: dict[str, Any] = {"sample_domain": sample_domain, "weights": weights}
        for name, labels in (("target", self.target), ("domain", self.domain)):
            changes[name] = None if labels is None else labels.take(rows)
            if labels is not None and labels.codes is not None:
                present_codes, codes = np.unique(labels.codes[rows], return_inverse=True)
                changes[name] = Labels(codes=codes, names=labels.names[present_codes])
        return replace(self, X=take_rows(self.X, rows), y=take_rows(self.y, rows), **changes)


#: Outcomes of the candidates in a batch: one sequence per candidate, with one outcome per split.
Outcomes = Sequence[Sequence[Outcome]]


class Searchable(Protocol):
    """A kind of search; the module docstring explains how to write one."""

    @property
    def one_pass(self) -> bool:
        """Whether the outcomes of a batch are computed for all splits together."""

    def candidates(self, data: Data) -> list[Candidate]:
        """Return all candidates."""

    def batches(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Group candidates that share computations, and return their indices."""

    def outcomes(
        self, data: Data, splits: Sequence[Split], batch: Sequence[Candidate], score: Score
    ) -> Outcomes:
        """Return scores or outputs of a batch on some splits."""

    def fit(self, data: Data, chosen: Sequence[Candidate]) -> list[Any]:
        """Fit the chosen candidates to all rows."""


@dataclass(frozen=True)
class Race:
    """Settings of a search in rounds that drops clearly worse candidates after each round.

    The rounds depend only on the number of splits, so that the choice is the same for every
    ``n_jobs``. A candidate is dropped if the rule does not choose it and its mean score is worse
    than that of the last chosen candidate by more than ``margin`` standard errors of their
    difference (paired over the domains or splits). The other candidates are scored on all splits.
    """

    first: int = 2  #: number of splits in round 1; rounds 1 and 2 contain half of all splits
    margin: float = 1.0  #: in standard errors; with infinity, no candidate is dropped

    def rounds(self, n_splits: int) -> list[list[int]]:
        """Return the split indices of each round, which are spread over all splits."""
        ends = sorted({min(self.first, n_splits), max(self.first, n_splits // 2), n_splits})
        order = np.argsort(np.arange(n_splits) * (np.sqrt(5.0) - 1) / 2 % 1.0, kind="stable")
        return [order[start:end].tolist() for start, end in pairwise([0, *ends]) if end <= n_splits]

    def survivors(self, candidates: Sequence[Candidate], scores: Array, rule: Rule) -> list[int]:
        """Return the indices of the candidates that are not dropped."""
        scores = scores[:, np.isfinite(scores).all(axis=0)]
        if scores.shape[1] < 2:
            return list(range(len(candidates)))
        chosen_indices = rule(candidates, scores)
        deficits = scores[chosen_indices[-1]] - scores
        standard_errors = deficits.std(axis=1, ddof=1) / np.sqrt(deficits.shape[1])
        standard_errors = np.maximum(standard_errors, np.finfo(float).tiny)
        is_close = deficits.mean(axis=1) <= self.margin * standard_errors
        is_close[chosen_indices] = True
        return np.flatnonzero(is_close).tolist()


def search(
    kind: Searchable,
    data: Data,
    splits: Sequence[Split],
    score: Score,
    rule: Rule | None = None,
    *,
    race: Race | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> SearchResult:
    """Score the candidates of a kind on the splits, and choose by ``rule`` (:func:`best` if None).

    Without a ``race``, all candidates are scored on every split. With a race, the result contains
    only the candidates that were not dropped. Kinds with ``one_pass`` ignore ``race``.
    """
    candidates, rule = kind.candidates(data), best if rule is None else rule
    n_jobs = limit_jobs(n_jobs, getattr(data.X, "nbytes", 0))
    race = None if kind.one_pass else race
    rounds = [list(range(len(splits)))] if race is None else race.rounds(len(splits))
    outcomes: list[dict[int, Outcome]] = [{} for _ in candidates]
    indices = list(range(len(candidates)))  # indices of candidates not dropped
    finished_splits: list[int] = []

    def compute_scores() -> Array:
        finished_outcomes = [[outcomes[i][k] for k in finished_splits] for i in indices]
        return score.table(finished_outcomes, [splits[k][1] for k in finished_splits])

    for split_indices in rounds:
        if finished_splits and race is not None and len(indices) > 1:
            survivors = race.survivors([candidates[i] for i in indices], compute_scores(), rule)
            indices = [indices[i] for i in survivors]
        batches = kind.batches([candidates[i] for i in indices])
        split_sets = [split_indices] if kind.one_pass else [[k] for k in split_indices]
        tasks = [([indices[i] for i in batch], group) for batch in batches for group in split_sets]
        run_task = partial(_run_task, kind, data, score=score, n_jobs=n_jobs)
        task_outcomes = Parallel(n_jobs=n_jobs, verbose=verbose)(
            delayed(run_task)([splits[k] for k in group], [candidates[i] for i in batch])
            for batch, group in tasks
        )
        for (batch, group), batch_outcomes in zip(tasks, task_outcomes, strict=True):
            for i, values in zip(batch, batch_outcomes, strict=True):
                outcomes[i].update(zip(group, values, strict=True))
        finished_splits = sorted(finished_splits + split_indices)
    result = SearchResult.from_scores([candidates[i] for i in indices], compute_scores(), rule)
    chosen_outcomes = [[outcomes[indices[i]][k] for k in finished_splits] for i in result.indices]
    if not isinstance(chosen_outcomes[0][0], np.ndarray):
        return result
    return replace(result, held_out=_outputs_by_row(chosen_outcomes, data, splits))


def _outputs_by_row(outcomes: Any, data: Data, splits: Sequence[Split]) -> Array:
    """Return outputs of candidates, of shape (candidates, rows, columns)."""
    test_sets = [test for _, test in splits]
    n_rows = 1 + max(int(test.max()) for test in test_sets) if data.y is None else len(data.y)
    return np.stack([outputs_by_row(values, test_sets, n_rows) for values in outcomes])


def held_out_outputs(
    kind: Searchable,
    data: Data,
    splits: Sequence[Split],
    candidates: Sequence[Candidate],
    score: Score,
) -> Array:
    """Return ``held_out`` of a search result for a score that returns outputs of candidates."""
    outcomes: list[list[Outcome]] = [[] for _ in candidates]
    for split in splits:
        for batch in kind.batches(candidates):
            values = kind.outcomes(data, [split], [candidates[i] for i in batch], score)
            for i, split_values in zip(batch, values, strict=True):
                outcomes[i] += split_values
    return _outputs_by_row(outcomes, data, splits)


def limit_jobs(n_jobs: int | None, n_bytes: int = 0) -> int | None:
    """Return the number of workers with rows of ``n_bytes`` that fit into the free memory."""
    free_bytes = available_memory()
    if n_jobs in (None, 1) or free_bytes is None:
        return n_jobs
    worker_bytes = WORKER_BYTES + WORKER_COPIES * n_bytes
    return max(1, min(effective_n_jobs(n_jobs), free_bytes // worker_bytes))


def _run_task(
    kind: Searchable,
    data: Data,
    splits: Sequence[Split],
    batch: Sequence[Candidate],
    *,
    score: Score,
    n_jobs: int | None,
) -> Outcomes:
    """Run one task; each parallel worker uses one BLAS thread."""
    with single_blas_thread(n_jobs not in (None, 1)):
        return kind.outcomes(data, splits, batch, score)


def batches_by(candidates: Sequence[Candidate], names: Sequence[str]) -> list[list[int]]:
    """Group the indices of candidates with the same values of some (possibly missing) arguments.

    >>> batches_by([{"gamma": 1, "C": 1}, {"gamma": 2, "C": 1}, {"gamma": 1, "C": 2}], ["gamma"])
    [[0, 2], [1]]
    """
    batches: dict[Any, list[int]] = {}
    for i, candidate in enumerate(candidates):
        key = tuple(_hashable(candidate.get(name)) for name in names)
        batches.setdefault(key, []).append(i)
    return list(batches.values())


def _hashable(value: Any) -> Any:
    """Return a value that can be a dict key; unhashable values are equal only to themselves."""
    return value if isinstance(value, Hashable) else id(value)


# The result of a search.


@dataclass(frozen=True)
class SearchResult:
    """Candidates with their scores, and the indices of those that were chosen."""

    candidates: list[Candidate]
    scores: Array  #: shape (candidates, splits); NaN where the score is not defined
    indices: list[int]  #: indices of the chosen candidates, best first
    #: Outputs of the chosen candidates for held-out rows, of shape (chosen, rows, columns): means
    #: over splits, NaN for rows that no split holds out. None for a score that needs no outputs.
    held_out: Array | None = None

    @classmethod
    def from_scores(
        cls, candidates: Sequence[Candidate], scores: Array, rule: Rule | None = None
    ) -> SearchResult:
        """Choose candidates by their scores; splits on which no score is defined are ignored."""
        rule = best if rule is None else rule
        return cls(list(candidates), scores, rule(candidates, comparable_scores(scores)))

    @property
    def chosen(self) -> list[Candidate]:
        """Arguments of the chosen candidates, best first."""
        return [self.candidates[i] for i in self.indices]


class SearchAttributes:
    """Fitted attributes that a search sets."""

    best_index_: int
    best_params_: dict[str, Any]
    best_score_: float
    cv_results_: dict[str, Any]
    n_splits_: int
    held_out_outputs_: Array | None

    def __getstate__(self) -> Any:
        # Outputs for individual rows are not part of a model and are not saved.
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "held_out_outputs_"}

    def _record_search(self, result: SearchResult, *, arguments: bool = True) -> None:
        """Store the results of a search as :class:`sklearn.model_selection.GridSearchCV` does.

        Means ignore splits on which no candidate has a score. ``arguments`` adds a column for each
        argument; all candidates must then have the same arguments.
        """
        compared_scores = result.scores[:, _has_score(result.scores)]
        means = compared_scores.mean(axis=1)
        columns: dict[str, Any] = {"params": result.candidates}
        for name in result.candidates[0] if arguments else ():
            columns[f"param_{name}"] = np.array([c[name] for c in result.candidates])
        columns |= {f"split{i}_test_score": column for i, column in enumerate(result.scores.T)}
        columns |= {"mean_test_score": means, "std_test_score": compared_scores.std(axis=1)}
        self.cv_results_ = columns | {"rank_test_score": ranks(means)}
        self.best_index_ = result.indices[0]
        self.best_params_ = result.chosen[0]
        self.best_score_ = float(means[self.best_index_])
        self.n_splits_ = result.scores.shape[1]
        self.held_out_outputs_ = result.held_out


def outputs_by_row(split_outputs: Sequence[Any], test_sets: Sequence[Array], n_rows: int) -> Array:
    """Combine outputs for the test rows of all splits into one array, in the order of the rows.

    Rows in several test sets get the mean of their outputs; rows in no test set get NaN.
    """
    sums = np.zeros((n_rows, split_outputs[0].shape[1]), dtype=split_outputs[0].dtype)
    counts = np.zeros((n_rows, 1), dtype=sums.dtype)
    for outputs, test in zip(split_outputs, test_sets, strict=True):
        sums[test] += outputs
        counts[test] += 1
    return np.asarray(sums / np.where(counts > 0, counts, np.nan))


# Scores on splits, and rules.


def comparable_scores(scores: Array) -> Array:
    """Return the scores on the splits on which at least one candidate has a score.

    Some scores are not defined on all domains: the area under the ROC curve needs two classes.
    Candidates are then compared on the other splits.
    """
    is_defined = _has_score(scores)
    if not is_defined.any():
        raise ValueError(
            "The score is not defined on any split, perhaps because every held-out domain contains "
            "only one class. Choose another scorer (scoring) or another splitter (cv)."
        )
    if not is_defined.all():
        warn_caller(
            f"The score is not defined on {int((~is_defined).sum())} of {len(is_defined)} splits, "
            "perhaps because their held-out domains contain only one class. Candidates are "
            "compared on the other splits."
        )
    return scores[:, is_defined]


def _has_score(scores: Array) -> Array:
    """Return for each split whether at least one candidate has a score."""
    return np.asarray(~np.isnan(scores).all(axis=0))


def ranks(means: Array) -> Array:
    """Return ranks, where 1 is the best; candidates without a score come last."""
    return rankdata(-np.nan_to_num(means, nan=-np.inf), method="min").astype(np.int32)


def best(candidates: Sequence[Candidate], scores: Array) -> list[int]:
    """Rule: choose the candidate with the best mean score; the first one if there are ties."""
    return [int(ranks(scores.mean(axis=1)).argmin())]


def one_standard_error(
    candidates: Sequence[Candidate], scores: Array, *, order: Callable[[Candidate], Any]
) -> list[int]:
    """Rule: choose the first candidate, in ``order``, within one standard error of the best.

    The standard error is that of the mean difference from the best candidate over splits. It
    does not depend on how difficult the domains are.
    """
    means = scores.mean(axis=1)
    best_indices = best(candidates, scores)
    if scores.shape[1] < 2:
        return best_indices
    differences = scores[best_indices] - scores
    standard_errors = differences.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
    close_indices = np.flatnonzero(means >= means[best_indices] - standard_errors).tolist()
    return [min(close_indices, key=lambda i: (order(candidates[i]), i))]


def best_of_paths(
    candidates: Sequence[Candidate], scores: Array, *, path: Container[str], n: int = 1
) -> list[int]:
    """Rule: choose the ``n`` best candidates from different paths, best first.

    Candidates that differ only in the arguments in ``path`` form a path. Averaging the outputs of
    several candidates reduces the effect of noisy scores.

    >>> grid = [{"gamma": g, "C": C} for g in (1, 2) for C in (1, 10)]
    >>> best_of_paths(grid, np.array([[0.7], [0.8], [0.9], [0.6]]), path=("C",), n=2)
    [2, 1]
    """
    best_by_path: dict[Any, int] = {}
    for i in np.argsort(ranks(scores.mean(axis=1)), kind="stable").tolist():
        fixed_names = [name for name in candidates[i] if name not in path]
        path_key = frozenset((name, _hashable(candidates[i][name])) for name in fixed_names)
        best_by_path.setdefault(path_key, i)
    return list(best_by_path.values())[:n]
