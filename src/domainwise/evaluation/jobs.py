"""One method on one split: choose on the sources, score each domain that was left out."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from domainwise.arrays import Array
from domainwise.checks.domains import quiet_about_domains
from domainwise.evaluation.problem import Problem, within_splits
from domainwise.models.method import Method
from domainwise.models.search import MethodSearch
from domainwise.models.table_model import plain_parameters
from domainwise.selection.folds import NO_DOMAINS, Split
from domainwise.selection.predictions import Predictions, fit_with_domains

Row = dict[str, Any]

#: Said by scikit-learn about ordinary things: a class missing from a small domain, and the like.
_EXPECTED = (
    "y_pred contains classes not in y_true",
    "Variables are collinear",
    "The least populated class",
    "A single label was found",
    "Found unknown categories",
    NO_DOMAINS,  # a note says it, for all methods
)
_FAILURES = (ValueError, ArithmeticError, MemoryError, np.linalg.LinAlgError, AttributeError)


@dataclass(frozen=True)
class MethodJob:
    """A method on a split; picklable, and independent of all others.

    ``inside`` asks for the reference inside the left-out domains, too.
    """

    problem: Problem
    method: Method
    split: Split
    number: int
    inner_cv: Any = None
    inside: bool = True

    @property
    def cost(self) -> float:
        """Rough seconds, for the time left."""
        return self.method.cost * len(self.problem.y) / 1000

    def run(self) -> list[Row]:
        """Choose, fit, score. A failure is a row that says so.

        BLAS gets one thread: the order of its sums, and with it the last digits, would depend on
        the number of workers.
        """
        row: Row = {"method": self.method.key, "split": self.number}
        started = time.perf_counter()
        with threadpool_limits(limits=1), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with quiet_about_domains():  # a note says it, for all methods
                    row |= self._scores()
            except _FAILURES as error:
                row["error"] = f"{error}" or type(error).__name__
        row["seconds"] = time.perf_counter() - started
        row["warnings"] = sorted(
            {str(w.message)[:300] for w in caught if not str(w.message).startswith(_EXPECTED)}
        )
        return [row]

    def _scores(self) -> Row:
        problem, method, (train, test) = self.problem, self.method, self.split
        model = method.pipeline(problem.setting(len(train), self.inner_cv), problem.preprocessor)
        rows = problem.rows(train, method.prepare)
        fit_with_domains(model, rows, problem.y[train], problem.domain_of(train))
        search: MethodSearch = model[-1]
        scores, within, records = {}, {}, []
        for code in np.unique(problem.codes[test]):
            rows = test[problem.codes[test] == code]
            told = self._predictions(model, rows)
            scores[int(code)] = self._score(model, told, train, rows)
            within[int(code)] = self._within(search, rows) if self.inside else float("nan")
            records.append(
                {
                    "row": problem.index[rows],
                    "domain": int(code),
                    "target": problem.y[rows],
                    "prediction": told.labels,
                    "probabilities": told.probabilities,
                    "decisions": told.decisions if told.probabilities is None else None,
                }
            )
        chosen = plain_parameters(search.best_params_)
        return {
            "scores": scores,
            "within": within,
            "parameters": {name: chosen[name] for name in search.varied_},
            "settled": chosen,
            "candidates": search.n_candidates_,
            "selected_on": search.selected_on_,
            "predictions": records,
        }

    def _predictions(self, model: Any, rows: Array) -> Predictions:
        X = self.problem.rows(rows, self.method.prepare)
        domains = self.problem.domain_of(rows) if self.method.context else None
        return Predictions(model, X, self.problem.classes, domains)

    def _score(self, model: Any, told: Predictions, train: Array, rows: Array) -> float:
        problem, y = self.problem, self.problem.y[rows]
        if not problem.measure.defined(problem.y[train], y, problem.classification):
            return float("nan")
        judged = model if problem.measure.own else told
        return float(problem.measure.scorer(judged, told.X, y))

    def _within(self, search: MethodSearch, rows: Array) -> float:
        """Score of folds inside the domain, with the parameters chosen on the sources."""
        problem, prepare = self.problem, self.method.prepare
        scores = []
        for train, test in within_splits(problem, rows):
            steps: list[Any] = [("prepare", clone(problem.preprocessor))] if prepare else []
            model = Pipeline([*steps, ("model", _smaller(search.settled_, len(train)))])
            try:
                model.fit(problem.rows(rows[train], prepare), problem.y[rows[train]])
                told = self._predictions(model, rows[test])
                scores.append(self._score(model, told, rows[train], rows[test]))
            except (*_FAILURES, TypeError):
                return float("nan")  # too few rows for this method, or it needs several domains
        return float(np.mean(scores)) if scores else float("nan")


def _smaller(model: Any, n_rows: int) -> Any:
    """No more components than the rows of one domain can have."""
    asked = model.get_params().get("project__n_components")
    if asked is not None and asked > n_rows - 1:
        model.set_params(project__n_components=n_rows - 1)
    return model


def can_score(method: Method, problem: Problem) -> bool:
    """Whether the method has what the measure asks for: support vectors give no probabilities."""
    model = method.make(problem.setting(len(problem.y)))
    if problem.classes is None or problem.measure.own:
        return True
    n = len(problem.classes)
    told = Predictions(model, None, problem.classes)
    told.labels = np.repeat(problem.classes, 2)
    told.probabilities = np.full((2 * n, n), 1 / n)
    told.decisions = np.zeros(2 * n if n == 2 else (2 * n, n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.measure.scorer(told, None, told.labels)
        except AttributeError:
            return False
    return True
