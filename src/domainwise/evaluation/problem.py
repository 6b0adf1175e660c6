"""The rows, targets and domains of an evaluation, and its splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import check_cv
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import type_of_target

from domainwise.base import inputs
from domainwise.base.arrays import Array
from domainwise.base.messages import Checks, listed, quoted
from domainwise.held_out import folds
from domainwise.held_out.scoring.measures import Measure, choose_measure, positive_last
from domainwise.held_out.scoring.predictions import codes_of, has_argument
from domainwise.models.registry import Setting
from domainwise.models.table_model import make_preprocessor
from domainwise.tables import cells
from domainwise.tables import schema as tables
from domainwise.tables.errors import ColumnError, TableError, import_pandas, sentence
from domainwise.tables.names import UNNAMED_NOTE, check_names, is_unnamed

#: Raises errors with the messages in ``errors.toml``.
require = Checks("domainwise.evaluation")
#: Maximum number of random folds of all rows.
SEEN_FOLDS = 4


@dataclass(frozen=True)
class Problem:
    """Rows, targets and domains that methods are evaluated on, and the measure."""

    X: Any  #: features, checked
    raw: Any  #: features as the user passed them
    index: Array  #: indices of these rows in the user's table, and in :attr:`full`
    #: Converts rows of X to numbers; unfitted, so that it can be fitted to source domains only.
    preprocessor: Any
    y: Array  #: class labels, or a continuous target
    codes: Array  #: for each row, the index of its domain in ``domains``
    domains: Array  #: sorted domain names
    classes: Array | None  #: class labels (the second of two is positive); None for regression
    measure: Measure
    n_total: int  #: number of rows before a subset is drawn
    seed: int  #: seed for all random choices
    #: Fields of :class:`Setting` that the caller has set.
    overrides: Mapping[str, Any] = field(default_factory=dict)
    parent: Problem | None = None  #: problem with all rows; None if no subset was drawn
    inner_scoring: Any = None  #: scorer for choosing parameters; None for a smooth score
    reader: Any = None  #: converts a raw data frame to X; None if this is not needed
    notes: tuple[str, ...] = ()  #: how columns were read
    max_scored: int = 100_000  #: maximum number of rows that are scored
    weights: Array | None = None  #: how often each row counts; positive, or None without weights

    @property
    def classification(self) -> bool:
        """Whether this is a classification problem."""
        return self.classes is not None

    @property
    def task(self) -> str:
        """Either "classification" or "regression"."""
        return "classification" if self.classification else "regression"

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None for a continuous target."""
        return None if self.classes is None else len(self.classes)

    @property
    def positive(self) -> Any:
        """The positive class of a binary target, which some measures need; None otherwise."""
        return self.classes[1] if self.classes is not None and len(self.classes) == 2 else None

    @property
    def full(self) -> Problem:
        """The problem with all rows, including rows that were not drawn."""
        return self.parent or self

    @cached_property
    def unscored(self) -> Array:
        """Codes of domains that are not scored, because they contain only one class."""
        if self.classes is None:
            return np.array([], dtype=np.intp)
        full = self.full
        is_present = np.zeros((len(self.domains), len(self.classes)), dtype=bool)
        is_present[full.codes, codes_of(full.y, self.classes)] = True
        return np.flatnonzero(is_present.sum(axis=1) < 2)

    @cached_property
    def scored(self) -> Array:
        """Indices of the scored rows: at most ``max_scored``, drawn evenly from the domains."""
        return self._draw(max(self.max_scored, 2 * len(self.domains)))

    def _draw(self, max_rows: int | None) -> Array:
        """Draw rows evenly from the domains, in the order of their content."""
        rows = self.by_content(np.arange(len(self.y)))
        return rows[folds.draw_rows(self.codes[rows], max_rows, self.seed)]

    def by_content(self, rows: Array) -> Array:
        """Sort rows by their content, so that their order in the table changes no result."""
        return rows[np.argsort(self._content_ranks[rows], kind="stable")]

    @cached_property
    def _content_ranks(self) -> Array:
        if self.parent is not None:
            return np.asarray(self.parent._content_ranks[self.index])
        return np.argsort(folds.rows_by_content(self.X, self.y))

    def setting(self, n_rows: int, cv: Any = None) -> Setting:
        """The setting for methods that are fitted to this number of rows."""
        setting = Setting(
            self.classification,
            n_rows,
            self.inner_scoring,
            metric=self.measure.scoring,
            pos_label=self.positive,
            cv=cv,
            seed=self.seed,
            weighted=self.weights is not None,
        )
        return replace(setting, **self.overrides)

    def rows(self, index: Array, prepared: bool = True) -> Any:
        """Rows of X, or of ``raw`` if not ``prepared``, in a container of the same type."""
        return inputs.take_rows(self.X if prepared else self.raw, index)

    def rows_of(self, domain_codes: Array | int) -> Array:
        """Indices of all rows in the domains with these codes."""
        return np.flatnonzero(np.isin(self.codes, domain_codes))

    def weights_of(self, index: Array) -> Array | None:
        """The weight of each row in ``index``; None without weights."""
        return None if self.weights is None else self.weights[index]

    def domain_of(self, index: Array) -> Array:
        """The domain name of each row in ``index``."""
        return np.asarray(self.domains[self.codes[index]])

    def drawn(self, max_rows: int | None) -> Problem:
        """The problem with a subset of rows; see :func:`~domainwise.held_out.folds.draw_rows`."""
        drawn_rows = np.sort(self._draw(max_rows))
        if len(drawn_rows) == len(self.y):
            return self
        names = ("index", "y", "codes", *(() if self.weights is None else ("weights",)))
        arrays = {name: getattr(self, name)[drawn_rows] for name in names}
        X, raw = self.rows(drawn_rows), self.rows(drawn_rows, prepared=False)
        return replace(self, X=X, raw=raw, parent=self, **arrays)

    def without_columns(self, names: Sequence[str]) -> Problem:
        """The problem without some features; array columns are named x0, x1 and so on."""
        if not hasattr(self.X, "columns"):
            indices = [j for j in range(self.X.shape[1]) if f"x{j}" not in names]
            fields: dict[str, Any] = {"X": self.X[:, indices], "raw": self.raw[:, indices]}
        else:
            fields = {"X": self.X.drop(columns=list(names)), "reader": None}
            if isinstance(self.preprocessor, ColumnTransformer):
                steps = [
                    (step_name, transformer, names_left)
                    for step_name, transformer, column_names in self.preprocessor.transformers
                    if (names_left := [name for name in column_names if name not in names])
                ]
                fields["preprocessor"] = clone(self.preprocessor).set_params(transformers=steps)
            if hasattr(self.raw, "columns"):
                fields["raw"] = self.raw.drop(columns=list(names), errors="ignore")
        parent = None if self.parent is None else self.parent.without_columns(names)
        return replace(self, **fields, parent=parent)

    def measured_by(self, measure: Measure) -> Problem:
        """The problem with another measure, but with the same models and decisions."""
        overrides = {"metric": self.measure.scoring, **self.overrides}
        return replace(self, measure=measure, overrides=overrides)

    def scored_rows(self, test: Array) -> list[Array]:
        """For each domain in ``test``, return the indices in :attr:`full` of its scored rows.

        If ``test`` contains only some rows of a domain, only these are scored.
        """
        full, rows_by_domain = self.full, []
        for code in np.unique(self.codes[test]):
            rows = test[self.codes[test] == code]
            if len(rows) == np.count_nonzero(self.codes == code):
                rows_by_domain.append(full.scored[full.codes[full.scored] == code])
            else:
                rows_by_domain.append(self.index[rows])
        return rows_by_domain


def make_problem(
    X: Any,
    y: Any,
    sample_domain: Any,
    *,
    task: str,
    scoring: Any,
    random_state: int,
    max_rows: int | None = None,
    pos_label: Any = None,
    inner_scoring: Any = None,
    schema: tables.Schema | None = None,
    weights: Array | None = None,
) -> Problem:
    """Check the input, choose the task and the measure, and draw rows if there are many.

    With a ``schema``, X and y must come from the table reader. ``weights`` must be positive.
    """
    raw = X if hasattr(X, "shape") else np.asarray(X)
    notes: list[str] = []
    if schema is None:
        X, preprocessor, reader = prepare_features(X, notes)
        y = read_target(y, task, notes)
    else:
        preprocessor, reader = make_preprocessor(schema), None
    n = X.shape[0]
    require(sample_domain is not None, "no domains")
    domains = inputs.check_sample_domain(sample_domain, n, "delta")
    require(len(domains.names) > 1, "one domain", name=domains.names[0])
    target, classes = check_task(y, n, task)
    classification = classes is not None
    require(classification or pos_label is None, "class of numbers", pos_label=pos_label)
    if callable(scoring) and weights is not None:
        require(has_argument(scoring, "sample_weight"), "scorer without weights", scoring=scoring)
    args = (target, classification, pos_label, domains.codes)
    measure = choose_measure(scoring, *args, sample_weight=weights)
    reason = measure.undefined_reason(target, target, classification)
    target_text = "a continuous target" if classes is None else f"{len(classes)} classes"
    values = {"name": measure.name, "target": target_text, "reason": reason}
    require(not reason, "undefined score", **values)
    if inner_scoring is not None:
        inner_scoring = choose_measure(
            inner_scoring, target, classification, pos_label, argument="inner_scoring"
        ).scoring
    problem = Problem(
        *(X, raw, np.arange(n), preprocessor, target, domains.codes, domains.names),
        classes=None if classes is None else positive_last(classes, pos_label),
        measure=measure,
        n_total=n,
        seed=random_state,
        inner_scoring=inner_scoring,
        reader=reader,
        notes=tuple(map(sentence, notes)),
        weights=weights,
    )
    return problem.drawn(max_rows)


def check_task(y: Any, n: int, task: str) -> tuple[Array, Array | None]:
    """Return the targets, and the class names (None for a continuous target)."""
    require(task in tables.TASKS, "unknown task", task=task)
    if task == "auto":
        names = inputs.check_target(y, n, "auto", min_classes=1).names
        is_continuous = names is None or (names.dtype.kind in "iuf" and inputs.is_quantity(names))
        task = "regression" if is_continuous else "classification"
    if task == "classification":
        is_continuous = type_of_target(np.asarray(y)).startswith("continuous")
        require(not is_continuous, "no classes")
        labels = inputs.check_target(y, n, "delta")
        return labels.names[labels.codes], labels.names
    targets = inputs.check_target(y, n, "rbf").values
    require(targets.shape[1] == 1, "several targets", n=targets.shape[1])
    return targets[:, 0], None


def outer_splits(problem: Problem, cv: Any) -> list[folds.Split]:
    """Return the splits of ``cv``; raise an error if a domain has both training and test rows."""
    if cv is None:
        cv = folds.LeaveDomainsOut(max_splits=folds.MAX_FOLDS, random_state=problem.seed)
    splitter = check_cv(cv, problem.y, classifier=problem.classification)
    n, domain_codes = len(problem.y), problem.codes
    table_splits = list(splitter.split(problem.X, problem.y, domain_codes))
    splits = [(np.asarray(train), np.asarray(test)) for train, test in table_splits]
    for train, test in splits:
        max_index = max(np.max(train, initial=0), np.max(test, initial=0))
        advice = "splits of this table" if problem.parent is None else "max_rows=None"
        require(max_index < n, "row index", index=max_index, n=n, advice=advice)
        common_codes = np.intersect1d(domain_codes[train], domain_codes[test])
        common_names = [quoted(name) for name in problem.domains[common_codes]]
        require(not common_names, "split domain", domain="".join(common_names[:1]))
        names = [quoted(name) for name in problem.domains[np.unique(domain_codes[test])]]
        has_classes = not problem.classification or len(np.unique(problem.y[train])) > 1
        require(has_classes, "one class in training", held_out=listed(names, 8, ", "))
    require(splits, "no splits")
    return [(problem.by_content(train), problem.by_content(test)) for train, test in splits]


def seen_splits(problem: Problem, n_splits: int) -> list[folds.Split]:
    """Random folds of all rows, stratified by domain and class, so that all domains are seen.

    ``n_splits`` folds are returned, but at most ``SEEN_FOLDS``.
    """
    n_splits, rows = min(n_splits, SEEN_FOLDS), problem.by_content(np.arange(len(problem.y)))
    strata = problem.codes[rows]
    if problem.classes is not None:
        strata = strata * len(problem.classes) + codes_of(problem.y[rows], problem.classes)
    pairs = folds.row_folds(strata, True, max(n_splits, 2), problem.seed)[:n_splits]
    return [(rows[train], rows[test]) for train, test in pairs]


def prepare_features(X: Any, notes: list[str]) -> tuple[Any, Any, tables.ReadColumns | None]:
    """Return X as an array or data frame, a preprocessor for it, and a reader for new rows.

    Columns of a data frame are read like those of a file. Messages about dropped columns, and
    about how cells were read, are added to ``notes``. The reader converts new rows in the same way;
    it is None if X was not changed. For the preprocessor, see
    :func:`domainwise.models.table_model.make_preprocessor`.
    """
    inputs.check_is_table(X)
    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    require(not issparse(X), "sparse rows", TypeError)
    X = X if hasattr(X, "columns") else np.asarray(X)
    require(X.ndim == 2 and 0 not in X.shape, "shape", shape=X.shape)
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        X = X.astype(np.float64, copy=False)
        require(not np.isinf(X).any(), "infinity")
        inputs.refuse_too_large(X, "X")
        imputer = SimpleImputer(strategy="median", keep_empty_features=True)
        return X, make_pipeline(imputer, StandardScaler()).set_output(transform="default"), None
    X = import_pandas().DataFrame(X) if isinstance(X, np.ndarray) else X
    X = X.infer_objects().set_axis([str(name) for name in X.columns], axis=1)
    column_names = list(X.columns)
    check_names(column_names, "X")
    if unnamed_columns := [name for name in column_names if is_unnamed(name)]:
        notes.append(UNNAMED_NOTE)
    X = X.drop(columns=unnamed_columns).reset_index(drop=True)
    columns = tables.cells_of(X, list(X.columns))
    decimal, marks = cells.learn_marks(columns)
    schema = tables.Schema((), (), "", "", "", decimal=decimal, marks=marks)
    try:
        schema, features = tables.learn_features(columns, schema, notes)
    except ColumnError as error:
        raise TableError(
            *error.parts,
            ". These arguments apply to files. For a data frame, convert the columns to numbers "
            f"first, or use X.drop(columns={list(error.problems)!r})",
        ) from None
    require(schema.features, "no usable column", notes="; ".join(notes))
    has_plain_numbers = all(cells.is_numeric(X[name]) for name in schema.numeric)
    is_unchanged = has_plain_numbers and len(schema.features) == len(column_names)
    reader = None if is_unchanged else tables.ReadColumns(schema.as_dict())
    return features, make_preprocessor(schema), reader


def read_target(y: Any, task: str, notes: list[str]) -> Any:
    """Return y as numbers if it contains quantities written as text, and unchanged otherwise."""
    targets = inputs.plain_array(y, "y")
    is_text = targets.ndim == 1 and all(isinstance(target, str) for target in targets)
    if not is_text or find_spec("pandas") is None:
        return y
    column = cells.Cells(import_pandas().Series(targets.tolist(), dtype=object))
    decimal, _ = cells.learn_marks({"y": column})
    schema = tables.Schema((), (), "y", "", task, decimal=decimal)
    task, _, values = tables.learn_target(column, task, schema)
    if task == "classification":
        return y
    notes.append("the target is text and was read as numbers")
    return values
