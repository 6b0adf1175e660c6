"""Scores from predictions: those of the measure asked for, and of any other later."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from domainwise.evaluation.jobs import FAILURES, OUTSIDE, SEEN, Row, unexpected
from domainwise.evaluation.problem import Problem, within_splits
from domainwise.scoring.predictions import Predictions
from domainwise.splits.folds import Split


class Judge:
    """Scores the rows of jobs by the measure of a problem, given the outer splits."""

    def __init__(self, problem: Problem, splits: Sequence[Split]) -> None:
        self.problem, self.splits = problem, splits
        self._defined, self._folds = cache(self._is_defined), cache(self._splits_within)

    def __call__(self, row: Row) -> Row:
        """Add ``scores`` and ``within``, by domain; a measure that fails makes the job fail."""
        if "error" in row:
            return row
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            records = {(r["domain"], r["fold"]): r for r in row["predictions"]}
            outer = [code for code, fold in records if fold == OUTSIDE]
            number = row["split"]
            try:
                scores = {code: self._score(number, records[code, OUTSIDE]) for code in outer}
            except FAILURES as error:
                return {**row, "error": f"{error}" or type(error).__name__}
            within = {code: self._within(number, code, records) for code in outer}
        told = sorted({*row["warnings"], *unexpected(caught)})
        return {**row, "scores": scores, "within": within, "warnings": told}

    def _score(self, number: int, record: Row) -> float:
        measure, classes = self.problem.measure, self.problem.classes
        if not self._defined(number, record["domain"], record["fold"]):
            return float("nan")
        if measure.own:
            return float(record["score"])
        named = (record[name] for name in ("prediction", "probabilities", "decisions"))
        return float(measure.scorer(Predictions.kept(classes, *named), None, record["target"]))

    def _within(self, number: int, code: int, records: dict[tuple[int, int], Row]) -> float:
        """Mean over the folds inside a domain; NaN if one that counts could not be predicted."""
        if not any(domain == code and fold not in (OUTSIDE, SEEN) for domain, fold in records):
            return float("nan")
        folds = range(len(self._folds(number, code)))
        counting = [fold for fold in folds if self._defined(number, code, fold)]
        try:
            scores = [self._score(number, records[code, fold]) for fold in counting]
        except (*FAILURES, KeyError):
            return float("nan")
        return float(np.mean(scores)) if scores else float("nan")

    def _rows(self, number: int, code: int) -> Any:
        test = self.splits[number][1]
        return test[self.problem.codes[test] == code]

    def _splits_within(self, number: int, code: int) -> list[Split]:
        return within_splits(self.problem, self._rows(number, code))

    def _is_defined(self, number: int, code: int, fold: int) -> bool:
        """Whether the measure can judge anything there; the same for all methods."""
        if fold == OUTSIDE and code in self.problem.unscored:
            return False
        train, test = self.splits[number][0], self._rows(number, code)
        if fold != OUTSIDE:
            inner, held = self._folds(number, code)[fold]
            train, test = test[inner], test[held]
        y = self.problem.y
        return self.problem.measure.defined(y[train], y[test], self.problem.classification)
