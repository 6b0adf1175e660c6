"""One method on one split: choose parameters on the sources, predict and score held-out domains."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from domainwise.arrays import Array
from domainwise.checks import ClassShareWarning, RowFoldsWarning
from domainwise.checks.inputs import quiet_about_domains
from domainwise.evaluation.batches import partial_records
from domainwise.evaluation.problem import Problem, within_splits
from domainwise.models.registry import Method
from domainwise.models.search import MethodSearch
from domainwise.models.table_model import plain_parameters
from domainwise.scoring.predictions import Predictions, fit_with_domains, takes
from domainwise.splits.folds import Split, spaced_rows

Row = dict[str, Any]

#: Said by scikit-learn about ordinary things: a class missing from a small domain, and the like.
_EXPECTED = (
    "y_pred contains classes not in y_true",
    "Variables are collinear",
    "The least populated class",
    "A single label was found",
    "Found unknown categories",
)
FAILURES = (ValueError, ArithmeticError, MemoryError, np.linalg.LinAlgError, AttributeError)
#: In place of the number of a fold inside a domain: predicted by a model that had not seen it, or
#: by one that has seen other rows of it, among those of all domains.
OUTSIDE, SEEN = -1, 1000
#: Parts of the work on a method and a split: held-out domains, and domains that are seen.
PARTS = ("outside", "inside")
#: A method with a larger cost has no scores of folds inside each domain, which are many fits.
CHEAP = 20.0


def job_key(row: Row) -> tuple[str, int, str]:
    """Method, split and part of a row of a job."""
    return row["method"], row["split"], row.get("part", PARTS[0])


@dataclass(frozen=True)
class MethodJob:
    """A method on a split, scored on held-out domains; picklable, and independent of all others.

    The importance of ``columns`` is computed, and context is measured with parts of domains, too,
    unless it should be ``quick``.
    """

    problem: Problem
    method: Method
    split: Split
    number: int
    inner_cv: Any = None
    columns: Sequence[str] = ()
    quick: bool = False
    part: ClassVar[str] = PARTS[0]

    @property
    def cost(self) -> float:
        """Rough time; see :func:`~domainwise.evaluation.plan.seconds_per_cost`."""
        return self.method.cost

    @property
    def rows(self) -> list[tuple[str, int, str]]:
        """Method, split and part of each row that it returns."""
        keys = self.method.rows(self.problem.classification)
        return [(key, self.number, self.part) for key, _, _ in keys]

    def run(self) -> list[Row]:
        """Choose parameters, fit, and predict. A failure is a row with the error.

        BLAS gets one thread: the order of its sums, and with it the last digits, would depend on
        the number of workers.
        """
        keys = self.method.rows(self.problem.classification)
        rows: list[Row] = [
            {"method": key, "split": self.number, "part": self.part} for key, _, _ in keys
        ]
        started = time.perf_counter()
        with (
            threadpool_limits(limits=1),
            config_context(transform_output="default"),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.resetwarnings()  # forests set every filter again for every tree
            warnings.simplefilter("always")
            try:
                with quiet_about_domains():  # a note says it, for all methods
                    self._fill(rows, [context for _, _, context in keys])
            except FAILURES as error:
                for row in rows:
                    if "predictions" not in row:
                        row["error"] = f"{error}" or type(error).__name__
        for row in rows:  # neither of two is to be had for less
            row |= {"seconds": time.perf_counter() - started, "warnings": unexpected(caught)}
        return rows

    def _fitted(self) -> Pipeline:
        """The method, fitted to the sources; some look at rows of these that were not drawn."""
        problem, method, (train, _) = self.problem, self.method, self.split
        model = method.pipeline(problem.setting(len(train), self.inner_cv), problem.preprocessor)
        alone = self.quick or problem.whole is None
        if alone or not takes(model[-1].estimator.fit, "learn_from"):
            rows = problem.rows(train, method.prepare)
            return fit_with_domains(model, rows, problem.y[train], problem.domain_of(train))
        whole = problem.everything
        rows = whole.rows_of(problem.codes[train])
        return fit_with_domains(
            model,
            whole.rows(rows, method.prepare),
            whole.y[rows],
            whole.domain_of(rows),
            learn_from=np.searchsorted(rows, problem.index[train]),
        )

    def _fill(self, rows: list[Row], contexts: list[bool]) -> None:
        """Add what the fitted method predicts, without context and, in a second row, with it."""
        model = self._fitted()
        importance: dict[str, list[float]] = {}
        if self.columns:
            with suppress(*FAILURES, KeyError, TypeError):
                asked = (self.problem, self.method, model, self.split, self.columns)
                importance = column_importance(*asked, QUICK_ROWS if self.quick else MAX_ROWS)
        settled = model[-1].settled_
        for row, context in zip(rows, contexts, strict=True):
            row |= {"worth": importance, "settled_model": settled}
            row |= self._predictions(model, context)

    def _predictions(self, model: Pipeline, context: bool) -> Row:
        problem, (train, test) = self.problem, self.split
        search: MethodSearch = model[-1]
        whole = problem.everything
        records = []
        for rows in problem.scored_rows(test):
            records.append(self._record(model, whole, rows, problem.y[train], OUTSIDE, context))
            if context and not (self.quick or problem.measure.own):
                records += self._partial(model, whole, rows, records[-1])
        chosen = plain_parameters(search.best_params_)
        mix = getattr(search.estimator_, "context_weights_" if context else "weights_", None)
        weights = mix.items() if isinstance(mix, dict) else ()  # of an ensemble's members
        return {
            "parameters": {name: chosen[name] for name in search.varied_}
            | {f"weight of {name}": round(float(weight), 3) for name, weight in weights},
            "settled": chosen,
            "candidates": search.n_candidates_,
            "selected_on": search.selected_on_,
            "predictions": records,
        }

    def _predicted(self, model: Any, problem: Problem, rows: Array, context: bool) -> Predictions:
        prepare = self.method.prepare
        if not context:
            return Predictions(model, problem.rows(rows, prepare), problem.classes)
        # A domain is what all of its rows are like, also those that were not drawn.
        whole = problem.everything
        around = whole.rows_of(problem.codes[rows])
        X, domains = whole.rows(around, prepare), whole.domain_of(around)
        drawn = np.searchsorted(whole.index[around], problem.index[rows])
        return Predictions(model, X, problem.classes, domains, drawn)

    def _partial(self, model: Any, whole: Problem, rows: Array, record: Row) -> Iterator[Row]:
        """Predictions of a held-out domain in parts."""
        asked = self._predicted(model, whole, rows, context=True)
        return partial_records(model, asked.X, asked.classes, asked.rows, record, self.problem.seed)

    def _record(
        self, model: Any, problem: Problem, rows: Array, learnt: Array, fold: int, context: bool
    ) -> Row:
        """What a model that was fitted to targets says about rows of one domain."""
        predictions = self._predicted(model, problem, rows, context)
        score, y = float("nan"), problem.y[rows]
        # Only a scorer of the caller's needs the model; all others can judge later.
        if problem.measure.own and problem.measure.defined(learnt, y, problem.classification):
            score = float(problem.measure.scorer(model, predictions.X, y))
        return {
            "row": problem.index[rows],
            "domain": int(problem.codes[rows[0]]),
            "fold": fold,
            "target": y,
            "prediction": predictions.labels,
            "probabilities": predictions.probabilities,
            "decisions": predictions.decisions,
            "score": score,
        }


@dataclass(frozen=True)
class InsideJob(MethodJob):
    """A method on domains that it has seen, with the parameters that it has chosen on a split.

    Predicted are folds inside the held-out domains, if the method is quick, and ``seen``, a random
    split of all rows. Without ``settled``, which has the parameters, they are chosen again.
    """

    seen: Split | None = None
    settled: Any = None
    part: ClassVar[str] = PARTS[1]

    @property
    def cost(self) -> float:
        """Rough time; see :func:`~domainwise.evaluation.plan.seconds_per_cost`."""
        return super().cost * (0.1 if self.settled is not None else 1.1)

    def _fill(self, rows: list[Row], contexts: list[bool]) -> None:
        settled = self._fitted()[-1].settled_ if self.settled is None else self.settled
        within = self._within(settled) if self.method.cost <= CHEAP else []
        for row in rows:
            row["predictions"] = list(within)
        if self.seen is None:
            return
        if any(contexts) and "context" in settled.get_params(deep=False):
            settled = clone(settled).set_params(context="auto")
        train, test = self.seen
        with suppress(*FAILURES, TypeError):
            model = self._settled(settled, train, domains=True)
            for row, context in zip(rows, contexts, strict=True):
                row["predictions"] += self._seen(model, self.problem.y[train], test, context)

    def _within(self, settled: Any) -> list[Row]:
        """Predictions of folds inside the held-out domains.

        A fold with too few rows for the method, which may need several domains, has none.
        """
        problem, (_, held_out) = self.problem, self.split
        records = []
        for code in np.unique(problem.codes[held_out]):
            rows = held_out[problem.codes[held_out] == code]
            for fold, (train, test) in enumerate(within_splits(problem, rows)):
                with suppress(*FAILURES, TypeError):
                    model = self._settled(settled, rows[train], domains=False)
                    learnt = problem.y[rows[train]]
                    record = self._record(model, problem, rows[test], learnt, fold, False)
                    records.append(record)
        return records

    def _seen(self, model: Any, learnt: Array, test: Array, context: bool) -> list[Row]:
        """Predictions for rows of all domains by a model that was fitted to others of them."""
        problem = self.problem
        places = [np.flatnonzero(problem.codes[test] == c) for c in np.unique(problem.codes[test])]
        if problem.measure.own:
            asked = (learnt, SEEN, context)
            return [self._record(model, problem, test[at], *asked) for at in places]
        # One prediction for all domains: forty small ones would mostly prepare rows.
        whole = self._record(model, problem, test, learnt, SEEN, context)
        arrays = ("row", "target", "prediction", "probabilities", "decisions")
        return [
            {**whole, "domain": int(problem.codes[test[at[0]]])}
            | {n: None if whole[n] is None else whole[n][at] for n in arrays}
            for at in places
        ]

    def _settled(self, settled: Any, train: Array, domains: bool) -> Pipeline:
        """What was chosen on the sources, fitted to other rows."""
        problem, prepare = self.problem, self.method.prepare
        steps: list[Any] = [("prepare", clone(problem.preprocessor))] if prepare else []
        model = Pipeline([*steps, ("model", _smaller(clone(settled), len(train)))])
        rows, y = problem.rows(train, prepare), problem.y[train]
        names = problem.domain_of(train) if self.method.kind == "own" else problem.codes[train]
        return fit_with_domains(model, rows, y, names) if domains else model.fit(rows, y)


def _smaller(model: Any, n_rows: int) -> Any:
    """No more components than the rows of one domain can have."""
    asked = model.get_params().get("project__n_components")
    if asked is not None and asked > n_rows - 1:
        model.set_params(project__n_components=n_rows - 1)
    return model


def unexpected(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Texts of warnings but for those about ordinary things."""
    # Notes tell of rows that are held out instead of domains, for all methods.
    known = (RowFoldsWarning, ClassShareWarning)
    own = [warning for warning in caught if not issubclass(warning.category, known)]
    texts = {str(warning.message)[:300] for warning in own}
    return sorted(text for text in texts if not text.startswith(_EXPECTED))


def can_score(method: Method, problem: Problem) -> bool:
    """Whether the method gives what the measure needs; some methods have no probabilities."""
    model = method.make(problem.setting(len(problem.y)))
    if problem.classes is None or problem.measure.own:
        return True
    n = len(problem.classes)
    predictions = Predictions(model, None, problem.classes)
    predictions.labels = np.repeat(problem.classes, 2)
    predictions.probabilities = np.full((2 * n, n), 1 / n)
    predictions.decisions = np.zeros(2 * n if n == 2 else (2 * n, n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.measure.scorer(predictions, None, predictions.labels)
        except AttributeError:
            return False
    return True


class Scorer:
    """Scores the rows of jobs by the measure of a problem, given the outer splits."""

    def __init__(self, problem: Problem, splits: Sequence[Split]) -> None:
        self.problem, self.splits = problem, splits
        self._defined, self._folds = cache(self._is_defined), cache(self._splits_within)

    def __call__(self, row: Row) -> Row:
        """Add ``scores`` and ``within``, by domain; a measure that fails makes the job fail.

        The records of a row are those of both parts of the work.
        """
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
        messages = sorted({*row["warnings"], *unexpected(caught)})
        return {**row, "scores": scores, "within": within, "warnings": messages}

    def _score(self, number: int, record: Row) -> float:
        measure, classes = self.problem.measure, self.problem.classes
        code, fold = record["domain"], record["fold"]
        if fold == OUTSIDE:
            if code in self.problem.unscored:
                return float("nan")
            y, classification = self.problem.y, self.problem.classification
            learnt = y[self.splits[number][0]]
            if not measure.defined(learnt, record["target"], classification):
                return float("nan")
        elif not self._defined(number, code, fold):
            return float("nan")
        if measure.own:
            return float(record["score"])
        named = (record[name] for name in ("prediction", "probabilities", "decisions"))
        return float(measure.scorer(Predictions.of_values(classes, *named), None, record["target"]))

    def _within(self, number: int, code: int, records: dict[tuple[int, int], Row]) -> float:
        """Mean over the folds inside a domain; NaN if one that counts could not be predicted."""
        if not any(domain == code and 0 <= fold < SEEN for domain, fold in records):
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
        """Whether the measure can judge a fold inside a domain; the same for all methods."""
        rows = self._rows(number, code)
        train, test = (rows[part] for part in self._folds(number, code)[fold])
        y = self.problem.y
        return self.problem.measure.defined(y[train], y[test], self.problem.classification)


#: Rows of all domains of a split that are shuffled, over and over up to half as many, and rows
#: that are predicted at a time.
MAX_ROWS, AT_A_TIME = 400, 2000
QUICK_ROWS = 100  #: the former of a quick evaluation


def column_importance(
    problem: Problem,
    method: Method,
    model: Any,
    split: tuple[Array, Array],
    columns: Sequence[str],
    max_rows: int,
) -> dict[str, list[float]]:
    """Loss of the measure by column, one for each domain on which it is defined.

    A column is shuffled among the rows of a domain, and rows are predicted one by one. Own scorers
    of the caller ask the model themselves, which would take long: they get nothing.
    """
    train, test = split
    given = problem.rows(test[:1], method.prepare)
    if problem.measure.own or not (hasattr(given, "iloc") or isinstance(given, np.ndarray)):
        return {}
    codes = np.unique(problem.codes[test])
    local = np.searchsorted(codes, problem.codes[test])
    rows = test[spaced_rows(local, np.full(len(codes), max(10, max_rows // len(codes))))]
    y, kind = problem.y, problem.classification
    defined = [
        code
        for code in np.setdiff1d(codes, problem.unscored)
        if problem.measure.defined(y[train], y[rows[problem.codes[rows] == code]], kind)
    ]
    if not defined:
        return {}
    rng = np.random.default_rng(problem.seed)
    repeats = int(np.clip(max_rows // (2 * len(rows)), 1, 5))
    # The first copy is unchanged; each of the others has one column shuffled.
    copies: list[str | None] = [None, *(name for name in columns for _ in range(repeats))]
    scores: dict[str | None, list[list[float]]] = {}
    step = max(1, AT_A_TIME // len(rows))
    for start in range(0, len(copies), step):
        some = copies[start : start + step]
        X = problem.rows(np.tile(rows, len(some)), method.prepare).copy()
        for place, name in enumerate(some):
            if name is not None:
                _shuffle(X, place * len(rows), problem.codes[rows], name, rng)
        predictions = Predictions(model, X, problem.classes)
        for place, name in enumerate(some):
            scores.setdefault(name, []).append(_scores(problem, predictions, rows, place, defined))
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
    problem: Problem, predictions: Predictions, rows: Array, place: int, defined: Sequence[int]
) -> list[float]:
    scores = []
    for code in defined:
        mine = np.flatnonzero(problem.codes[rows] == code)
        at = mine + place * len(rows)
        parts = [
            None if v is None else v[at] for v in (predictions.probabilities, predictions.decisions)
        ]
        some = Predictions.of_values(problem.classes, predictions.labels[at], *parts)
        scores.append(float(problem.measure.scorer(some, None, problem.y[rows[mine]])))
    return scores
