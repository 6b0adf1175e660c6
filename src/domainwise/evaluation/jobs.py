"""One method on one split: choose on the sources, score each domain that was left out."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from domainwise.arrays import Array
from domainwise.evaluation.problem import Problem, Split, inner_splits, within_splits
from domainwise.models.registry import Choice, Method, Sources

Row = dict[str, Any]

#: Said by scikit-learn about ordinary things: a class missing from a small domain, and the like.
_EXPECTED = (
    "y_pred contains classes not in y_true",
    "Variables are collinear",
    "The least populated class",
    "A single label was found",
    "Found unknown categories",
)
#: Rough seconds per thousand rows, for the time left.
_COSTS = {"constant": 0.2, "linear": 0.7, "boosting": 5.0, "fastdcm": 5.0, "dcmcv": 8.0}
_FAILURES = (ValueError, ArithmeticError, MemoryError, np.linalg.LinAlgError, AttributeError)


@dataclass(frozen=True)
class MethodJob:
    """A method on a split; picklable, and independent of all others."""

    problem: Problem
    method: Method
    split: Split
    number: int
    inner_cv: Any = None

    @property
    def cost(self) -> float:
        """Rough seconds, for the time left."""
        return _COSTS.get(self.method.key, 4.0) * len(self.problem.y) / 1000

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
                row |= self._scores()
            except _FAILURES as error:
                row["error"] = f"{error}" or type(error).__name__
        row["seconds"] = time.perf_counter() - started
        row["warnings"] = sorted(
            {str(w.message)[:300] for w in caught if not str(w.message).startswith(_EXPECTED)}
        )
        return [row]

    def _scores(self) -> Row:
        problem, (train, test) = self.problem, self.split
        features = clone(problem.preprocessor).fit(problem.rows(train))
        splits, rule = inner_splits(problem, train, self.inner_cv)
        choice = self.method.search(
            Sources(
                np.asarray(features.transform(problem.rows(train))),
                problem.y[train],
                problem.codes[train],
                splits,
                problem.measure,
                problem.classification,
                problem.seed,
            )
        )
        scores, within = {}, {}
        for code in np.unique(problem.codes[test]):
            rows = test[problem.codes[test] == code]
            scores[int(code)] = self._score(choice, features, train, rows)
            within[int(code)] = self._within(choice, rows)
        return {
            "scores": scores,
            "within": within,
            "parameters": plain_parameters(choice.parameters),
            "candidates": choice.n_candidates,
            "selected_on": rule,
        }

    def _score(self, choice: Choice, features: Any, train: Array, rows: Array) -> float:
        problem = self.problem
        y = problem.y[rows]
        if not problem.measure.defined(problem.y[train], y, problem.classification):
            return float("nan")
        X = np.asarray(features.transform(problem.rows(rows)))
        return float(problem.measure.scorer(choice.estimator, X, y))

    def _within(self, choice: Choice, rows: Array) -> float:
        """Score of folds inside the domain, with the parameters chosen on the sources."""
        problem = self.problem
        scores = []
        for train, test in within_splits(problem, rows):
            features = clone(problem.preprocessor).fit(problem.rows(rows[train]))
            X = np.asarray(features.transform(problem.rows(rows[train])))
            X_test = np.asarray(features.transform(problem.rows(rows[test])))
            plain = choice.estimator if choice.plain is None else choice.plain
            model = _smaller(clone(plain), len(train))
            try:
                model.fit(X, problem.y[rows[train]])
                score = float(problem.measure.scorer(model, X_test, problem.y[rows[test]]))
            except _FAILURES:
                return float("nan")  # too few rows for this method
            scores.append(score)
        return float(np.mean(scores)) if scores else float("nan")


def _smaller(model: Any, n_rows: int) -> Any:
    """No more components than the rows of one domain can have."""
    asked = model.get_params().get("project__n_components")
    if asked is not None and asked > n_rows - 1:
        model.set_params(project__n_components=n_rows - 1)
    return model


def plain_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON knows them; an infinite ridge becomes text."""
    plain: dict[str, Any] = {}
    for name, value in parameters.items():
        value = value.item() if hasattr(value, "item") else value
        unfit = isinstance(value, float) and not np.isfinite(value)
        plain[name] = str(value) if unfit else value
    return plain


def can_score(method: Method, problem: Problem) -> bool:
    """Whether the method has what the measure asks for: support vectors give no probabilities."""
    if method.key not in ("svm", "invariant", "invariantridge") or not problem.classification:
        return True
    assert problem.classes is not None
    y = np.repeat(np.arange(len(problem.classes)), 2)
    X = np.arange(len(y), dtype=np.float64)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.measure.scorer(SVC().fit(X, y), X, y)
        except AttributeError:
            return False
    return True
