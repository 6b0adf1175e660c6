"""Members of an ensemble: the search on domains left out, and the fitted result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from domainwise.arrays import Array
from domainwise.calibration.curves import Curve
from domainwise.ensemble.judge import Judge
from domainwise.ensemble.kinds import Candidate, Kind, Sources, levelled
from domainwise.gram.tiles import one_thread
from domainwise.search.scores import outputs
from domainwise.search.search import Split


@dataclass(frozen=True)
class Member:
    """A fitted member."""

    name: str
    in_context: bool  #: whether it predicts rows in context
    parameters: list[Candidate]  #: what was chosen, the best first
    estimators: list[Any]  #: their outputs are averaged
    n_classes: int  #: 0 for a continuous target
    clip: float | None  #: deviations at which far values level off
    curve: Curve | None  #: from outputs to probabilities

    def predict(self, X: Array) -> Array:
        """Probabilities of the classes, or one column of values, of rows as it knows them."""
        X = levelled(X, self.clip)
        values = [outputs(model, X, self.n_classes) for model in self.estimators]
        mean = np.mean(values, axis=0)
        return np.asarray(mean if self.curve is None else self.curve.probabilities(mean))


def fit_member(
    kind: Kind,
    name: str,
    sources: Sources,
    splits: Sequence[Split],
    judge: Judge,
    *,
    in_context: bool,
    n_jobs: int | None,
) -> tuple[Member, Array]:
    """Choose on domains left out, fit to all rows, and return what was predicted for the former."""
    sources = replace(sources, X=levelled(sources.X, kind.clip))
    candidates = kind.candidates(sources)
    with threadpool_limits(1):
        values = out_of_domain(kind, candidates, sources, splits, n_jobs)
        scores = np.array([judge.choice_score(v) for v in values])
        chosen = best_of_paths(candidates, scores, kind.path)[: kind.n_average]
        mean = values[chosen].mean(axis=0, dtype=np.float64)
        curve = judge.curve(mean) if sources.n_classes else None
        parameters = [candidates[i] for i in chosen]
        estimators = kind.fit(sources, parameters)
    member = Member(name, in_context, parameters, estimators, sources.n_classes, kind.clip, curve)
    return member, np.asarray(mean if curve is None else curve.probabilities(mean))


def out_of_domain(
    kind: Kind,
    candidates: Sequence[Candidate],
    sources: Sources,
    splits: Sequence[Split],
    n_jobs: int | None,
) -> Array:
    """Outputs of all candidates for rows that they were fitted without, of shape (c, n, k).

    Rows that several splits leave out have the mean, those that none does have NaN.
    """
    batches = kind.batches(candidates)
    tasks = [(split, batch) for split in splits for batch in batches]
    found = Parallel(n_jobs=n_jobs)(
        delayed(_predict)(kind, sources, split, [candidates[i] for i in batch])
        for split, batch in tasks
    )
    shape = (len(candidates), len(sources.X), max(1, sources.n_classes))
    total, count = np.zeros(shape, dtype=np.float32), np.zeros(len(sources.X))
    for (split, batch), values in zip(tasks, found, strict=True):
        for i, each in zip(batch, values, strict=True):
            total[i, split.test] += each.astype(np.float32)
    for split in splits:
        count[split.test] += 1
    return np.asarray(total / np.where(count > 0, count, np.nan).astype(np.float32)[:, None])


def _predict(kind: Kind, sources: Sources, split: Split, batch: Sequence[Candidate]) -> list[Array]:
    with one_thread():  # the same sums, and the same bits, whatever n_jobs is
        return kind.predict(sources, split, batch)


def best_of_paths(candidates: Sequence[Candidate], scores: Array, path: str | None) -> list[int]:
    """The best candidate of each path, the best path first; the first of equals."""
    best: dict[Any, int] = {}
    for i in np.argsort(-scores, kind="stable"):
        rest = tuple(item for item in candidates[i].items() if item[0] != path)
        best.setdefault(rest, int(i))
    return list(best.values())
