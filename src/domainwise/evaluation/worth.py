"""What a column is worth on a domain left out: the score that is lost if it is shuffled there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.evaluation.problem import Problem
from domainwise.models.method import Method
from domainwise.scoring.predictions import Predictions
from domainwise.splits.draw import spaced_rows

#: Rows of all domains of a split that are shuffled, over and over up to as many, and rows that
#: are predicted at a time.
MAX_ROWS, AT_A_TIME = 400, 2000


def worth_of_columns(
    problem: Problem,
    method: Method,
    model: Any,
    split: tuple[Array, Array],
    columns: Sequence[str],
    context: bool,
) -> dict[str, list[float]]:
    """Loss of the measure by column, one for each domain on which it is defined.

    A column is shuffled among the rows of a domain; ``context`` shows the model these together.
    Own scorers of the caller ask the model themselves, which would take long: they get nothing.
    """
    train, test = split
    given = problem.rows(test[:1], method.prepare)
    if problem.measure.own or not (hasattr(given, "iloc") or isinstance(given, np.ndarray)):
        return {}
    codes = np.unique(problem.codes[test])
    local = np.searchsorted(codes, problem.codes[test])
    rows = test[spaced_rows(local, np.full(len(codes), max(10, MAX_ROWS // len(codes))))]
    y, kind = problem.y, problem.classification
    defined = [
        code
        for code in np.setdiff1d(codes, problem.unscored)
        if problem.measure.defined(y[train], y[rows[problem.codes[rows] == code]], kind)
    ]
    if not defined:
        return {}
    rng = np.random.default_rng(problem.seed)
    repeats = int(np.clip(MAX_ROWS // len(rows), 1, 5))
    # The first copy is as it was; all others have a column shuffled.
    copies: list[str | None] = [None, *(name for name in columns for _ in range(repeats))]
    scores: dict[str | None, list[list[float]]] = {}
    step = max(1, AT_A_TIME // len(rows))
    for start in range(0, len(copies), step):
        some = copies[start : start + step]
        X = problem.rows(np.tile(rows, len(some)), method.prepare).copy()
        for place, name in enumerate(some):
            if name is not None:
                _shuffle(X, place * len(rows), problem.codes[rows], name, rng)
        # Each copy of a domain is a domain of its own.
        of = np.repeat(np.arange(len(some)), len(rows)) * len(problem.domains)
        domains = of + np.tile(problem.codes[rows], len(some)) if context else None
        told = Predictions(model, X, problem.classes, domains)
        for place, name in enumerate(some):
            scores.setdefault(name, []).append(_scores(problem, told, rows, place, defined))
    before = np.array(scores.pop(None)[0])
    return {str(n): (before - np.mean(s, axis=0)).tolist() for n, s in scores.items()}


def _shuffle(X: Any, start: int, codes: Array, name: str, rng: np.random.Generator) -> None:
    """Shuffle a column, in place, among the rows of each domain of one copy."""
    order = np.lexsort([rng.random(len(codes)), codes])
    place = np.lexsort([np.arange(len(codes)), codes])
    if isinstance(X, np.ndarray):
        column = X[:, int(name[1:])]
        column[start + place] = column[start + order]
    else:
        at = X.columns.get_loc(name)
        X.iloc[start + place, at] = X.iloc[start + order, at].to_numpy()


def _scores(
    problem: Problem, told: Predictions, rows: Array, place: int, defined: Sequence[int]
) -> list[float]:
    found = []
    for code in defined:
        mine = np.flatnonzero(problem.codes[rows] == code)
        at = mine + place * len(rows)
        parts = [None if v is None else v[at] for v in (told.probabilities, told.decisions)]
        some = Predictions.kept(problem.classes, told.labels[at], *parts)
        found.append(float(problem.measure.scorer(some, None, problem.y[rows[mine]])))
    return found
