"""Evaluation jobs, which each run one method on one split, and the scoring of their results."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from domainwise.base.arrays import Array
from domainwise.base.files import to_json
from domainwise.base.inputs import quiet_about_domains
from domainwise.base.messages import ContextWarning, RowFoldsWarning
from domainwise.base.process import Row, filtered_warnings, one_thread
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.results import Kind, Prediction
from domainwise.held_out.folds import Split, spaced_rows
from domainwise.held_out.scoring.predictions import Outputs, Predictions, fit_with_domains
from domainwise.models.registry import Method
from domainwise.models.tuning import MethodSearch

#: First words of scikit-learn warnings that are not reported, for example about a class that is
#: missing in a small domain.
_IGNORED_WARNINGS = (
    "y_pred contains classes not in y_true",
    "Variables are collinear",
    "The least populated class",
    "A single label was found",
    "Found unknown categories",
)
#: Maximum number of characters of an error or a warning in results.
MAX_TEXT = 300
#: Beginning of ``part`` for predictions at the smaller sizes of a plan.
SMALLER = "size-"

#: Scores of jobs and intervals of methods, by their keys, so that they are computed only once.
Memo = dict[Any, Any]


def job_key(row: Row) -> tuple[str, int, str]:
    """Return the method, split and part, which together identify a result row."""
    return row["method"], row["split"], row.get("part", Kind.HELD_OUT)


@dataclass(frozen=True)
class MethodJob:
    """Fit a method to the source domains of a split, and predict the held-out domains.

    Permutation importance is computed for ``columns``. Methods with context also predict parts of
    domains, unless ``quick`` is True. A job can be pickled and does not depend on other jobs.
    """

    problem: Problem
    method: Method
    split: Split
    split_number: int
    inner_cv: Any = None
    columns: Sequence[str] = ()
    quick: bool = False
    part: str = Kind.HELD_OUT  #: the kind of predictions, or ``SMALLER`` and a number

    @property
    def cost(self) -> float:
        """Relative time; see also :class:`~domainwise.evaluation.plan.Costs`."""
        return self.method.cost

    @property
    def row_keys(self) -> list[tuple[str, int, str]]:
        """The :func:`job_key` of each row that :meth:`run` returns."""
        variants = self.method.rows(self.problem.classification)
        return [(key, self.split_number, self.part) for key, _, _ in variants]

    def run(self) -> list[Row]:
        """Choose parameters, fit and predict; the rows contain the error if this fails.

        There is a row without context and, if the method can use context, a second row with it.
        BLAS uses one thread, so that the last digits do not depend on the number of workers.
        """
        variants = self.method.rows(self.problem.classification)
        split_and_part = {"split": self.split_number, "part": self.part}
        rows: list[Row] = [{"method": key, **split_and_part} for key, _, _ in variants]
        context_flags = [context for _, _, context in variants]
        start_time = time.perf_counter()
        with (
            one_thread(),
            # Built-in methods pass valid arguments; scikit-learn would check them for each tree.
            config_context(
                transform_output="default", skip_parameter_validation=self.method.kind != "own"
            ),
            filtered_warnings(record=True) as caught_warnings,
        ):
            warnings.resetwarnings()  # many filters are slow: forests copy them for every tree
            warnings.simplefilter("always")
            try:
                with quiet_about_domains():  # the notes report a single source domain
                    self._add_predictions(rows, context_flags)
            except (Exception, SystemExit) as error:  # a user's method may raise anything
                for row in rows:
                    if "predictions" not in row:
                        row["error"] = _reason(error)
        for row in rows:
            seconds = time.perf_counter() - start_time
            row |= {"seconds": seconds, "warnings": reported_warnings(caught_warnings)}
        return rows

    def _fit(self) -> Pipeline:
        """Fit to the source domains."""
        problem, method, (train, _) = self.problem, self.method, self.split
        model = method.pipeline(problem.setting(len(train), self.inner_cv), problem.preprocessor)
        X, y = problem.rows(train, method.prepare), problem.y[train]
        weights = problem.weights_of(train)
        return fit_with_domains(model, X, y, problem.domain_of(train), weights)

    def _add_predictions(self, rows: list[Row], context_flags: list[bool]) -> None:
        """Fit the method, and add its predictions to each row, with or without context."""
        problem, full_problem, (train, test) = self.problem, self.problem.full, self.split
        model = self._fit()
        search: MethodSearch = model[-1]
        parameters = to_json(search.best_params_, str)
        importances: dict[str, list[float]] = {}
        if self.columns:
            with suppress(Exception):
                importances = column_importance(self, model)
        for row, context in zip(rows, context_flags, strict=True):
            predictions = []
            for domain_rows in problem.scored_rows(test):
                predictor = self._predict(model, full_problem, domain_rows, context)
                outputs = predictor.outputs(full_problem.y[domain_rows])
                arguments = (outputs, full_problem, domain_rows, problem.y[train], Kind.HELD_OUT)
                predictions.append(self._prediction(model, *arguments))
                if context and not (self.quick or problem.measure.is_custom):
                    predictions += predict_parts(predictor, predictions[-1], full_problem)
            weights = getattr(search.estimator_, "context_weights_" if context else "weights_", {})
            member_weights = weights.items() if isinstance(weights, dict) else ()  # of an ensemble
            row |= {
                "worth": importances,
                "settled_model": search.settled_,
                "parameters": {name: parameters[name] for name in search.varied_}
                | {f"weight of {name}": round(float(weight), 3) for name, weight in member_weights},
                "settled": parameters,
                "candidates": search.n_candidates_,
                "selected_on": search.selected_on_,
                "predictions": predictions,
            }

    def _predict(self, model: Any, problem: Problem, rows: Array, context: bool) -> Predictions:
        """Predict some rows, each on its own or in the context of its domain."""
        prepare = self.method.prepare
        if not context:
            return Predictions(model, problem.rows(rows, prepare), problem.classes)
        # The context consists of all rows of a domain, including those not drawn for training.
        full_problem = problem.full
        context_rows = full_problem.rows_of(problem.codes[rows])
        X, domains = full_problem.rows(context_rows, prepare), full_problem.domain_of(context_rows)
        scored_rows = np.searchsorted(context_rows, problem.index[rows])
        return Predictions(model, X, problem.classes, domains, scored_rows)

    def _prediction(
        self,
        model: Any,
        outputs: Outputs,
        problem: Problem,
        rows: Array,
        y_train: Array,
        kind: Kind,
    ) -> Prediction:
        """Create the record of a model's outputs for rows of one domain."""
        score, y, measure = float("nan"), outputs.target, problem.measure
        # Only a custom scorer needs the model; all other scorers can score the outputs later.
        if measure.is_custom and measure.is_defined(y_train, y, problem.classification):
            options = {} if problem.weights is None else {"sample_weight": problem.weights[rows]}
            X = problem.rows(rows, self.method.prepare)
            score = float(measure.scorer(model, X, y, **options))
        arrays = {**vars(outputs), "weight": problem.weights_of(rows)}
        arrays["domain"] = int(problem.codes[rows[0]])
        return Prediction(**arrays, row=problem.index[rows], kind=kind, score=score)


@dataclass(frozen=True)
class SeenJob(MethodJob):
    """Predict the test rows of a random split, whose domains also have training rows.

    Parameters are those chosen on the source domains of the job's ``split``.
    """

    seen_split: Split = (np.array([], int), np.array([], int))
    chosen_model: Any = None  #: unfitted model with these parameters; None to choose them again
    use_context: bool = True  #: whether to predict with context, if possible
    part: str = Kind.SEEN

    @property
    def cost(self) -> float:
        """Relative time, given that of choosing parameters."""
        return super().cost * (0.1 if self.chosen_model is not None else 1.1)

    def _add_predictions(self, rows: list[Row], context_flags: list[bool]) -> None:
        """Add predictions for seen domains; none if the method cannot be fitted."""
        problem, (train, test) = self.problem, self.seen_split
        chosen_model = self._fit()[-1].settled_ if self.chosen_model is None else self.chosen_model
        for row in rows:
            row["predictions"] = []
        if self.use_context and (name := _find_parameter(chosen_model, "context")):
            chosen_model = clone(chosen_model).set_params(**{name: "auto"})
        with suppress(Exception):
            model = self._refit(chosen_model, train)
            for row, context in zip(rows, context_flags, strict=True):
                if context and not self.use_context:
                    continue
                # One call for all domains, because preparing rows takes most of the time.
                outputs = self._predict(model, problem, test, context).outputs(problem.y[test])
                for code in np.unique(problem.codes[test]):
                    indices = np.flatnonzero(problem.codes[test] == code)
                    arguments = (problem, test[indices], problem.y[train], Kind.SEEN)
                    prediction = self._prediction(model, outputs.take(indices), *arguments)
                    row["predictions"].append(prediction)

    def _refit(self, chosen_model: Any, train: Array) -> Pipeline:
        """Fit the model chosen on the source domains to other rows."""
        problem, prepare, model = self.problem, self.method.prepare, clone(chosen_model)
        if name := _find_parameter(model, "project__n_components"):
            n_components = model.get_params()[name]
            if n_components is not None and n_components > len(train) - 1:
                model.set_params(**{name: len(train) - 1})
        steps: list[Any] = [("prepare", clone(problem.preprocessor))] if prepare else []
        model = Pipeline([*steps, ("model", model)])
        X, y = problem.rows(train, prepare), problem.y[train]
        domains = problem.domain_of(train) if self.method.kind == "own" else problem.codes[train]
        return fit_with_domains(model, X, y, domains, problem.weights_of(train))


def _find_parameter(model: Any, name: str) -> str:
    """Return the name of a parameter of a model, or of the estimator in it; "" if it has none."""
    names = (name, f"estimator__{name}")
    return next((n for n in names if n in model.get_params()), "")


def _reason(error: BaseException) -> str:
    """Message of an error; the messages of some types are only a key, or empty, or an error."""
    name, message = type(error).__name__, ""
    with suppress(Exception):
        message = str(error)[:MAX_TEXT]
    return f"{name}: {message}" if message and isinstance(error, LookupError) else message or name


def reported_warnings(messages: Sequence[warnings.WarningMessage]) -> list[str]:
    """Sorted texts of the warnings that users should see."""
    # The notes of the evaluation already report what the excluded warning says.
    texts = {
        str(m.message)[:MAX_TEXT] for m in messages if not issubclass(m.category, RowFoldsWarning)
    }
    return sorted(text for text in texts if not text.startswith(_IGNORED_WARNINGS))


def can_score(method: Method, problem: Problem) -> bool:
    """Whether the method predicts what the measure needs, such as probabilities."""
    if problem.classes is None or problem.measure.is_custom:
        return True
    try:
        model = method.make(problem.setting(len(problem.y)))
    except Exception:  # a user's method may raise anything; its jobs report the error
        return True
    n_classes, n_rows = len(problem.classes), 2 * len(problem.classes)
    predictions = Predictions(model, None, problem.classes)
    # The scorer is tried on constant outputs for two rows of each class.
    predictions.labels = np.repeat(problem.classes, 2)
    predictions.probabilities = np.full((n_rows, n_classes), 1 / n_classes)
    predictions.decisions = np.zeros(n_rows if n_classes == 2 else (n_rows, n_classes))
    with filtered_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.measure.scorer(predictions, None, predictions.labels)
        except AttributeError:
            return False
    return True


def score_job(problem: Problem, splits: Sequence[Split], memo: Memo, row: Row) -> Row:
    """Add ``scores`` by domain to a job's row, or an error if the problem's measure fails.

    ``splits`` are the outer splits. The row may contain predictions for held-out domains and for
    seen domains.
    """
    if "error" in row:
        return row
    with filtered_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        held_out = [p for p in row["predictions"] if p.kind == Kind.HELD_OUT]
        y_train = problem.y[splits[row["split"]][0]]
        key = (problem.measure.name, row["method"], row["split"])
        try:
            if key not in memo:
                scores = {p.domain: _held_out_score(problem, p, y_train) for p in held_out}
                memo[key] = scores, reported_warnings(caught_warnings)
            scores, texts = memo[key]
        except Exception as error:
            return {**row, "error": _reason(error)}
    return {**row, "scores": scores, "warnings": sorted({*row["warnings"], *texts})}


def _held_out_score(problem: Problem, prediction: Prediction, y_train: Array) -> float:
    """Score on a held-out domain; NaN if it is not defined."""
    measure, y = problem.measure, prediction.target
    is_defined = measure.is_defined(y_train, y, problem.classification)
    if prediction.domain in problem.unscored or not is_defined:
        return float("nan")
    if measure.is_custom:
        return prediction.score
    return measure.score_outputs(problem.classes, prediction)


#: Maximum number of held-out rows whose columns are shuffled, in a full and in a quick evaluation,
#: and maximum number of rows that are predicted at a time.
MAX_ROWS, QUICK_ROWS, BATCH_ROWS = 400, 100, 2000


def column_importance(job: MethodJob, model: Any) -> dict[str, list[float]]:
    """Permutation importance by column, for each domain on which the measure is defined.

    It is the drop in the score (without context) when a column is shuffled within a domain. It is
    not computed for custom scorers, which call the model themselves and would be slow.
    """
    problem, prepare, measure = job.problem, job.method.prepare, job.problem.measure
    train, test = job.split
    first_row = problem.rows(test[:1], prepare)
    if measure.is_custom or not (hasattr(first_row, "iloc") or isinstance(first_row, np.ndarray)):
        return {}
    max_rows = QUICK_ROWS if job.quick else MAX_ROWS
    test_codes, domain_indices = np.unique(problem.codes[test], return_inverse=True)
    max_domain_rows = max(10, max_rows // len(test_codes))
    rows = problem.by_content(test[spaced_rows(domain_indices, max_domain_rows)])
    y, codes, n = problem.y, problem.codes[rows], len(rows)
    groups = [np.flatnonzero(codes == code) for code in np.setdiff1d(test_codes, problem.unscored)]
    y_train, classification = y[train], problem.classification
    groups = [g for g in groups if measure.is_defined(y_train, y[rows[g]], classification)]
    if not groups:
        return {}
    rng = np.random.default_rng(problem.seed)
    n_repeats = int(np.clip(max_rows // (2 * n), 1, 5))
    # The column that is shuffled in each copy of the rows; None for the copy without changes.
    shuffled_columns: list[str | None] = [None]
    shuffled_columns += [column for column in job.columns for _ in range(n_repeats)]
    scores: dict[str | None, list[list[float]]] = {}
    copies_per_batch = max(1, BATCH_ROWS // n)
    for start in range(0, len(shuffled_columns), copies_per_batch):
        batch_columns = shuffled_columns[start : start + copies_per_batch]
        X = problem.rows(np.tile(rows, len(batch_columns)), prepare).copy()
        for i, column in enumerate(batch_columns):
            if column is not None:
                _shuffle(X, i * n, codes, column, rng)
        targets = np.tile(y[rows], len(batch_columns))
        outputs = Predictions(model, X, problem.classes).outputs(targets)
        if problem.weights is not None:
            weights = np.tile(problem.weights[rows], len(batch_columns))
            outputs = replace(outputs, weight=weights)
        for i, column in enumerate(batch_columns):
            copy_scores = [
                measure.score_outputs(problem.classes, outputs, i * n + g) for g in groups
            ]
            scores.setdefault(column, []).append(copy_scores)
    original_scores = np.array(scores.pop(None)[0])
    return {
        str(column): (original_scores - np.mean(shuffled_scores, axis=0)).tolist()
        for column, shuffled_scores in scores.items()
    }


def _shuffle(X: Any, start: int, codes: Array, column: str, rng: np.random.Generator) -> None:
    """Shuffle a column of X in place, within domains, in the copy that begins at row ``start``."""
    shuffled_rows = start + np.lexsort([rng.random(len(codes)), codes])
    ordered_rows = start + np.lexsort([np.arange(len(codes)), codes])
    if isinstance(X, np.ndarray):
        j = int(column[1:])  # columns of arrays are named x0, x1 and so on
        X[ordered_rows, j] = X[shuffled_rows, j]
    else:
        j = X.columns.get_loc(column)
        X.iloc[ordered_rows, j] = X.iloc[shuffled_rows, j].to_numpy()


def predict_parts(
    whole: Predictions, prediction: Prediction, problem: Problem
) -> Iterator[Prediction]:
    """Predict parts of a held-out domain with context, as if each part were a domain of its own.

    ``whole`` predicts with the whole domain as context, which gives ``prediction``; it contains all
    rows of the domain in table order.
    """
    n_rows = whole.X.shape[0]
    half_codes = (np.arange(n_rows) >= n_rows // 2).astype(np.intp)
    tenth_codes, rows = np.empty(n_rows, dtype=np.intp), problem.rows_of(prediction.domain)
    order = np.searchsorted(rows, problem.by_content(rows))
    tenth_codes[order] = np.random.default_rng(problem.seed).permutation(n_rows) % 10
    for kind, part_codes in ((Kind.HALVES, half_codes), (Kind.TENTHS, tenth_codes)):
        with filtered_warnings():
            warnings.simplefilter("ignore", ContextWarning)
            parts = Predictions(whole.estimator, whole.X, whole.classes, part_codes, whole.rows)
            outputs = parts.outputs(prediction.target)
            place = {"domain": prediction.domain, "weight": prediction.weight}
            yield replace(prediction, kind=kind, **{**vars(outputs), **place})
