"""Reading and checking users' tables.

:func:`load_table` reads a file, and :func:`check_table` takes a data frame. Both return a
:class:`Table` that estimators can use, or raise a TableError. A :class:`Schema` describes a table's
columns and how their cells are read. :func:`make_preprocessor` returns the first step of a
pipeline, so that imputation, scaling and one-hot encoding are fitted to source domains only.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self
from unicodedata import normalize

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from domainwise.base.arrays import Array
from domainwise.base.inputs import MAX_CLASSES
from domainwise.tables import cells
from domainwise.tables.csv_files import is_unnamed
from domainwise.tables.errors import (
    Argument,
    ColumnError,
    TableError,
    describe_names,
    import_pandas,
    join_names,
    refuse_duplicate_names,
)
from domainwise.tables.files import open_table

#: Maximum number of features of each type that a note lists.
MAX_LISTED_FEATURES = 50
TASKS = ("auto", "classification", "regression")
ONE_CLASS_NOTE = "domains with only one class are used for training"
UNNAMED_NOTE = "the first column has no name; it was treated as an index and left out"


@dataclass(frozen=True)
class Schema:
    """The columns of a table, their roles, and how their cells are read."""

    numeric: tuple[str, ...]  #: column names, in the order of the table
    categorical: tuple[str, ...]
    target: str
    domain: str
    task: str  #: "classification" or "regression"
    #: By column: "percent" or "time" for numbers in this form; for dates, "day" or "month",
    #: whichever comes first in 1/2/2024.
    forms: dict[str, str] = field(default_factory=dict)
    dates: tuple[str, ...] = ()
    date_parts: tuple[str, ...] = ()  #: computed features: "month", "weekday" (0 is Monday), "age"
    reference: str = ""  #: ages are the years from a date to this day
    decimal: str | None = None  #: decimal mark, passed or detected; for tables that are ambiguous
    encoding: str | None = None
    na: tuple[str, ...] = ()  #: values that count as missing

    @property
    def features(self) -> list[str]:
        """All feature columns of the table, numeric ones first."""
        return [*self.numeric, *self.categorical, *self.dates]

    @property
    def numbers(self) -> list[str]:
        """The numeric columns that :meth:`prepare` returns."""
        date_numbers = [f"{name} ({part})" for name in self.dates for part in self.date_parts]
        return [*self.numeric, *date_numbers]

    def prepare(self, frame: Any, *, first_row: int = 0) -> Any:
        """Return the features of a data frame in the form that models are fitted to.

        Numbers, and numbers computed from dates, are converted to float64 and categories to text.
        Missing values are NaN. Raises a TableError for a missing column, and for text in a numeric
        column. ``first_row`` is the number of rows before this chunk of a table, for messages.
        """
        require_columns(self.features, list(frame.columns), "the table")
        frame = frame if frame.index.is_unique else frame.reset_index(drop=True)
        raw_columns = {name: cells.mark_missing(frame[name], self.na) for name in self.features}
        decimal_marks = cells.decimal_marks(raw_columns, self.numeric)
        columns = {}
        for name in self.numeric:
            column = cells.with_decimal_points(raw_columns[name], decimal_marks.get(name))
            columns[name] = cells.as_numbers(column, name, first_row, self.forms.get(name))
        for name in self.dates:
            days = cells.as_days(raw_columns[name], name, first_row, self.forms.get(name))
            columns |= cells.date_numbers(days, name, self.date_parts, self.reference)
        columns |= {name: cells.as_text(raw_columns[name]) for name in self.categorical}
        return import_pandas().DataFrame(columns, index=range(len(frame)))

    def read_labels(
        self, frame: Any, classes: Iterable[Any] | None
    ) -> tuple[Array, Array, Array | None]:
        """Return the indices of rows with a target and a domain, and their targets and domains.

        Targets are floats, or class names as text. A class such as "1.0" is read as the number 1
        only if all targets are then in ``classes``. Domains are text; None without a domain column.
        """
        target, domains = cells.mark_missing(frame[self.target], self.na), None
        decimal_marks = cells.decimal_marks({self.target: target}, [self.target], self.decimal)
        converted_target = cells.target_column(target, decimal_marks.get(self.target))
        has_labels = converted_target.notna().to_numpy()
        if self.domain in frame.columns:
            domain_column = cells.mark_missing(frame[self.domain], self.na, nan_text=False)
            has_labels = has_labels & domain_column.notna().to_numpy()
            domains = cells.as_labels(domain_column[has_labels]).astype(str)
        if self.task == "regression":
            y = cells.as_numbers(converted_target[has_labels], self.target)
        else:
            y = cells.as_labels(converted_target[has_labels]).astype(str)
            if not {*y.tolist()} <= {str(label) for label in classes or ()}:
                y = cells.as_labels(target[has_labels]).astype(str)
        return np.flatnonzero(has_labels), y, domains

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as a dict for JSON."""
        return {n: list(v) if isinstance(v, tuple) else v for n, v in vars(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Schema:
        """Return the schema described by a dict from :meth:`as_dict`."""
        field_values: Any = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
        return cls(**{f.name: field_values[f.name] for f in fields(cls) if f.name in field_values})


class ReadColumns(TransformerMixin, BaseEstimator):
    """First step of a pipeline that takes raw data frames.

    ``schema`` is a dict from :meth:`Schema.as_dict`.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def fit(self, X: Any, y: Any = None) -> Self:
        """Do nothing, because the schema is known."""
        return self

    def transform(self, X: Any) -> Any:
        """Prepare the features of a pandas or polars data frame, selected by column name."""
        frame = X.to_pandas() if hasattr(X, "to_pandas") else X
        return Schema.from_dict(self.schema).prepare(frame)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def make_preprocessor(schema: Schema) -> ColumnTransformer:
    """Return an unfitted transformer that converts a table's features to numbers.

    Numeric columns are imputed with the median and standardized. Categorical columns are imputed
    with the most frequent category and one-hot encoded; categories that ``fit`` has not seen are
    encoded as zeros.
    """
    median_imputer, mode_imputer = (
        SimpleImputer(strategy=strategy, keep_empty_features=True)
        for strategy in ("median", "most_frequent")
    )
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    steps = [
        ("numeric", make_pipeline(median_imputer, StandardScaler()), schema.numbers),
        ("categorical", make_pipeline(mode_imputer, encoder), list(schema.categorical)),
    ]
    steps = [step for step in steps if step[2]]
    transformer = ColumnTransformer(steps, verbose_feature_names_out=False)
    return transformer.set_output(transform="default")  # regardless of set_config


@dataclass(frozen=True)
class Table:
    """A table that has passed all checks."""

    X: Any  #: data frame of features, see :meth:`Schema.prepare`
    y: Array  #: classes or continuous targets
    sample_domain: Array  #: integers, or text
    schema: Schema
    notes: tuple[str, ...] = ()  #: for the user, for example about rows that were left out

    @property
    def domains(self) -> list[Any]:
        """The domains, sorted."""
        return np.unique(self.sample_domain).tolist()

    @property
    def classes(self) -> list[Any] | None:
        """The classes, sorted; None for a continuous target."""
        return np.unique(self.y).tolist() if self.schema.task == "classification" else None


def load_table(
    path: str | Path,
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    encoding: str | None = None,
    **options: Any,
) -> Table:
    """Read a file and check it; see :func:`check_table` for the arguments.

    An entry of ``features`` or ``drop`` may contain several names, separated by commas.
    ``encoding`` is the encoding of a CSV file; None detects it.
    """
    file = open_table(path, encoding=encoding)
    arguments: dict[str, Any] = {"target": target, "domain": domain, "where": str(path)}
    features, drop = (cells.split_names(entries, file.names) for entries in (features, drop))
    feature_names, notes = choose_features(file.names, features=features, drop=drop, **arguments)
    (frame,) = file.frames([*feature_names, target, domain])
    table = check_table(frame, features=feature_names, **arguments, **options)
    all_notes = (*file.notes, *notes, *table.notes)
    return replace(table, schema=replace(table.schema, encoding=encoding), notes=all_notes)


def check_table(
    frame: Any,
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    drop_domains: Sequence[str] | None = None,
    task: str = "auto",
    auto_drop: bool = False,
    dates: Sequence[str] = (),
    decimal: str | None = None,
    na: Sequence[str] = (),
    where: str = "the table",
    several_domains: bool = True,
) -> Table:
    """Split a data frame into features, target and domains.

    ``features=None`` uses all columns that are not in ``drop``; rows from ``drop_domains`` are left
    out. ``task="auto"`` treats text, and up to 20 distinct whole numbers, as classes.
    ``auto_drop`` leaves out features that cannot be used, with a note, instead of raising an error.
    ``dates`` lists numbers to compute from dates: "month", "weekday" and "age" (years before the
    latest day in all date columns, which is also used for new tables); if it is empty, dates cannot
    be used. ``decimal`` is the decimal mark of numbers in text; None detects it. ``na`` lists
    values that count as missing in all columns; so do words such as "NA", except in labels and
    categories. ``where`` names the table in messages; ``several_domains`` requires at least two.

    Raises a TableError, or one ColumnError about all features that cannot be used.
    """
    for name, entries, choices in (("task", [task], TASKS), ("dates", dates, cells.DATE_PARTS)):
        if isinstance(entries, str) or not set(entries) <= set(choices):
            text = f" is not supported; use {', '.join(choices)}"
            raise TableError(Argument(name, entries), text)
    if decimal not in (None, ".", ","):
        raise TableError(Argument("decimal", decimal), " is not supported; use '.' or ','")
    frame = named_frame(frame)
    roles: dict[str, Any] = {"target": target, "domain": domain}
    column_options = {"features": features, "drop": drop, "where": where, **roles}
    feature_names, notes = choose_features(list(frame.columns), **column_options)
    na, names = tuple(map(str, na)), [*feature_names, target, domain]
    frame = import_pandas().DataFrame(
        {name: cells.mark_missing(frame[name], na, nan_text=name != domain) for name in names}
    )
    decimal_marks = cells.decimal_marks(frame, [*feature_names, target], decimal)
    frame[target] = cells.target_column(frame[target], decimal_marks.get(target))
    for name, role in ((target, "target"), (domain, "domain")):
        n_missing = int(frame[name].isna().sum())
        if n_missing == len(frame):
            raise TableError(f"the {role} column {name!r} has no values. Choose another column")
        if n_missing:
            notes.append(f"{n_missing} of {len(frame)} rows have no {role} and are left out")
            frame = frame[frame[name].notna()]
    domains = cells.as_labels(frame[domain])
    if drop_domains:
        is_kept = _rows_to_keep(domains, drop_domains, where)
        frame, domains = frame[is_kept], domains[is_kept]
    if not len(frame):
        raise TableError(
            f"{where} has no rows left: every row lacks a target or a domain, or is in a dropped "
            "domain. Choose other columns, or drop fewer domains"
        )
    task = cells.task_of(frame[target], task)
    y = target_values(frame[target], task, notes, decimal_marks.get(target))
    if several_domains:
        _check_domains(domains, y, task, domain, notes)
    schema, X = feature_schema(
        frame[feature_names], decimal_marks, na=na, dates=dates, auto_drop=auto_drop, notes=notes
    )
    if not schema.features:
        text = f"{where} has no features that can be used: {'; '.join(notes)}"
        raise TableError(f"{text}. Choose other feature columns")
    mark = decimal or ("," if "," in decimal_marks.values() else None)
    schema = replace(schema, **roles, task=task, decimal=mark)
    notes += _identifier_notes(X, schema, domains)
    groups = {"numeric": schema.numeric, "categorical": schema.categorical, "date": schema.dates}
    lists = [f"{k} features: {join_names(v, MAX_LISTED_FEATURES)}" for k, v in groups.items() if v]
    return Table(X, y, domains, schema, (*notes, "; ".join(lists)))


def choose_features(
    names: Sequence[str],
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    where: str = "the table",
) -> tuple[list[str], list[str]]:
    """Return the feature columns, and a note if a column without a name is left out.

    They are ``features``, or all columns except target and domain. Those in ``drop`` are excluded.

    >>> choose_features(["age", "site", "ill"], target="ill", domain="site")
    (['age'], [])
    """
    refuse_duplicate_names(names, where)
    listed_names = [*(features or ()), *(drop or ())]
    require_columns([target, domain, *listed_names], names, where)
    if target == domain:
        raise TableError(f"target and domain are the same column, {target!r}. Choose two columns")
    if label_names := sorted({target, domain}.intersection(listed_names)):
        raise TableError(
            "the target and the domain cannot be features and cannot be dropped; got "
            f"{describe_names(label_names)}. Remove them from the features and the columns to drop"
        )
    unnamed_columns = {name for name in names if is_unnamed(name)} - {target, domain, *listed_names}
    candidates = [name for name in names if not is_unnamed(name)] if features is None else features
    excluded_names = {target, domain, *(drop or ())}
    feature_names = [name for name in dict.fromkeys(candidates) if name not in excluded_names]
    if not feature_names:
        raise TableError(f"{where} has no feature columns left. Select more, or drop fewer columns")
    return feature_names, [UNNAMED_NOTE] * bool(unnamed_columns)


def named_frame(frame: Any) -> Any:
    """Convert a data frame from any library to pandas; names become strings, the index is reset."""
    frame = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    if not hasattr(frame, "set_axis") or frame.ndim != 2:
        text = f"the table must be a data frame, got {type(frame).__name__}"
        raise TableError(f"{text}. Convert it to a pandas data frame")
    return frame.set_axis([str(name) for name in frame.columns], axis=1).reset_index(drop=True)


def require_columns(
    required_names: Iterable[str], names: Sequence[str], where: str, *, reason: str = ""
) -> None:
    """Raise a TableError if columns are missing; it gives the ``reason`` and a similar name."""
    missing_names = [name for name in dict.fromkeys(required_names) if name not in names]
    if not missing_names:
        return
    name_by_lowercase = {name.lower(): name for name in names}
    similar_names = difflib.get_close_matches(missing_names[0].lower(), name_by_lowercase, n=1)
    hint = f"did you mean {name_by_lowercase[similar_names[0]]!r}?" if similar_names else ""
    hint = hint or f"it has {describe_names(names)}"
    noun = "column" + "s" * (len(missing_names) > 1)
    raise TableError(f"{where} has no {noun} {describe_names(missing_names)}{reason}; {hint}")


def feature_schema(
    frame: Any,
    decimal_marks: Mapping[str, str],
    *,
    na: tuple[str, ...] = (),
    dates: Sequence[str] = (),
    auto_drop: bool = False,
    notes: list[str],
) -> tuple[Schema, Any]:
    """Infer the types of features; return their schema and the prepared features.

    The caller sets the schema's target, domain and task. Notes on columns that are left out, and on
    how cells are read, are added to ``notes``. One ColumnError lists all unusable features.
    """
    groups: dict[str, list[str]] = defaultdict(list)  # column names, by type or by note
    forms: dict[str, str] = {}
    problems: dict[str, cells.MessageParts] = {}
    columns: dict[str, Any] = {}
    latest_day = ""
    for name in frame.columns:
        column = frame[name]
        if not hasattr(column, "cat"):
            rewritten_column = cells.with_decimal_points(column, decimal_marks.get(name))
            if rewritten_column is not column:
                row = (rewritten_column != column)[column.notna()].idxmax()
                groups["rewritten"].append(f"{name} ({column[row]!r} is {rewritten_column[row]})")
            column = cells.parse_numbers(rewritten_column)
        column = cells.mark_missing(column, na)
        if column.isna().all() or (cells.is_text(column) and not len(cells.text_cells(column))):
            groups["empty"].append(name)
            continue
        form, unmatched_texts = cells.form_of(column)
        problem = cells.problem_of(column, form, unmatched_texts, use_dates=bool(dates))
        if problem is None and column.nunique() == 1:
            groups["constant"].append(name)
        elif problem is None and form == "date":
            order = cells.date_order(column)
            columns[name] = days = cells.days_in(column, order)
            if cells.first_unreadable(column, days) is not None:
                problem = ("has dates that are ambiguous or cannot be read. Use YYYY-MM-DD",)
            else:
                groups["date"].append(name)
                forms[name] = order or ""
                latest_day = max(latest_day, str(days.max().date()))
        elif problem is None and form == "text":
            groups["text"].append(name)
            columns[name] = cells.as_text(column)
        elif problem is None:
            is_number = cells.is_numeric(column)
            numbers = column if is_number else cells.numbers_in(cells.category_values(column), form)
            columns[name] = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
            problem = cells.too_large_problem(columns[name])
            groups["number"].append(name)
            if form in ("percent", "time"):
                forms[name] = form
                groups[form].append(name)
        if problem is not None:
            problems[name] = problem
    if problems and not auto_drop:
        raise ColumnError(problems)
    age_note = f" (age on {latest_day})" if "age" in dates else ""
    for listed_names, text in (
        (groups["empty"], "left out because they are empty"),
        (groups["constant"], "left out because they are constant"),
        (list(problems), "left out because they cannot be used"),
        (groups["rewritten"], "with decimal commas or thousands separators"),
        (groups["percent"], "read as percentages (12% is 0.12)"),
        (groups["time"], "read as times, in hours"),
        (groups["date"], f"with dates, converted to {', '.join(dates)}{age_note}"),
    ):
        notes += [f"columns {text}: {', '.join(listed_names)}"] if listed_names else []
    number_columns, text_columns, date_columns = (
        {name: columns[name] for name in groups[column_type] if name not in problems}
        for column_type in ("number", "text", "date")
    )
    schema = Schema(
        *(tuple(number_columns), tuple(text_columns), "", "", ""),
        forms={name: form for name, form in forms.items() if name not in problems},
        dates=tuple(date_columns),
        date_parts=tuple(dates) if date_columns else (),
        reference=latest_day,
        na=na,
    )
    for name in date_columns:
        number_columns |= cells.date_numbers(date_columns[name], name, dates, latest_day)
    return schema, import_pandas().DataFrame(number_columns | text_columns, index=range(len(frame)))


def target_values(target: Any, task: str, notes: list[str], mark: str | None = None) -> Array:
    """Return the target as numbers or labels; raise a TableError if it cannot be used."""
    subject, remedy = f"the target {str(target.name)!r}", Argument("task", "classification")
    if task == "regression":
        if not cells.is_numeric(target):
            raise TableError(f"{subject} contains text. Use ", remedy, " or a numeric column")
        y = cells.as_numbers(target, str(target.name))
        if np.all(y == y[0]):
            raise TableError(f"{subject} has only one value, {y[0]:g}. Choose another column")
        return y
    cells.refuse_quantities(target, mark)
    if cells.is_numeric(target):
        cells.as_numbers(target, str(target.name))  # raises an error for infinite values
    y = cells.as_labels(target)
    classes = np.unique(y)
    if len(classes) < 2:
        raise TableError(f"{subject} has only one class, {classes[0]!s}. Choose another column")
    if len(classes) > max(MAX_CLASSES, len(y) // 3):
        text = f"{subject} has {len(classes)} classes in {len(y)} rows. Choose another column"
        remedy = Argument("task", "regression")
        raise TableError(text, ", or use ", remedy, " if the target is continuous")
    notes += [
        f"{label!r} is a class of {subject}, with {int(np.sum(y == label))} rows; if it means a "
        "missing value, add it to na"
        for label in classes.tolist()
        if label in cells.MISSING_WORDS
    ]
    notes += _similar_label_notes(classes, f"classes of {subject}")
    return y


def class_codes(texts: Array, classes: Sequence[Any], column: str, owner: str) -> Array:
    """Return the index of each text in ``classes``; messages call them the classes of ``owner``."""
    code_by_class = {str(label): code for code, label in enumerate(classes)}
    if unknown_texts := sorted({*texts.tolist()} - {*code_by_class}):
        raise TableError(
            f"column {column!r} has the values {describe_names(unknown_texts)}, but the classes of "
            f"{owner} are {describe_names(code_by_class, 20)}. Correct these values, or leave the "
            "cells empty"
        )
    return np.array([code_by_class[text] for text in texts.tolist()], dtype=np.int64)


def _rows_to_keep(domains: Array, drop_domains: Sequence[str], where: str) -> Array:
    """Return a mask of the rows whose domain is not in ``drop_domains``."""
    domain_names = sorted({str(name) for name in np.unique(domains)})
    excluded_names = cells.split_names([str(name) for name in drop_domains], domain_names) or []
    if unknown_names := [name for name in excluded_names if name not in domain_names]:
        text = f"{where} has no domain {describe_names(unknown_names)}. Its domains are "
        raise TableError(text, describe_names(domain_names))
    return np.array([str(name) not in excluded_names for name in domains])


def _check_domains(domains: Array, y: Array, task: str, column_name: str, notes: list[str]) -> None:
    """Raise a TableError if the domains cannot be used, and add notes on unusual domains."""
    domain_names, domain_codes, sizes = np.unique(domains, return_inverse=True, return_counts=True)
    if len(domain_names) < 2:
        raise TableError(
            f"the domain column {column_name!r} has only one domain, {domain_names[0]!s}, but at "
            "least two are needed. Choose another column, or add rows from other domains"
        )
    if len(domain_names) > 2 and sizes.max() == 1:
        raise TableError(
            f"the domain column {column_name!r} has a different value in every row. Choose a "
            "column that groups rows, such as the site or the patient"
        )
    notes += _similar_label_notes(domain_names, f"domains of column {column_name!r}")
    if task == "classification":
        n_classes = [len(np.unique(y[domain_codes == k])) for k in range(len(domain_names))]
        one_class_domains = [str(d) for d, n in zip(domain_names, n_classes, strict=True) if n == 1]
        if len(one_class_domains) == len(domain_names):
            raise TableError(
                f"every domain of column {column_name!r} has only one class, so classes cannot be "
                "separated from domains. Choose another domain column"
            )
        if one_class_domains:
            notes.append(f"{ONE_CLASS_NOTE}, but not scored: {describe_names(one_class_domains)}")


def _similar_label_notes(labels: Array, noun: str) -> list[str]:
    """Return notes on labels that look the same but are not merged."""
    label_groups: dict[str, list[str]] = defaultdict(list)
    for label in map(str, labels.tolist()):
        label_groups[" ".join(normalize("NFKC", label).split()).casefold()].append(label)
    return [
        f"{describe_names(group)} are different {noun}, although they differ only in spaces, "
        "capitalization or Unicode form; if they mean the same thing, write them the same way"
        for group in label_groups.values()
        if len(group) > 1
    ]


def identifier_reason(values: Array, domain_rows: Sequence[Array]) -> str:
    """Explain why numbers look like row identifiers; return "" if they do not.

    Numbers look like identifiers if they are at least 20 distinct integers, or if they are
    monotonic in every domain with at least five rows and these domains have at least 20 rows in
    total. ``domain_rows`` contains the row indices of each domain.
    """
    are_integers = np.isfinite(values).all() and np.all(values == np.round(values))
    if are_integers and len(values) >= 20 and len(np.unique(values)) == len(values):
        return "is a different whole number in every row"
    large_domain_rows = [rows for rows in domain_rows if len(rows) >= 5]
    steps_by_domain = (np.diff(values[rows]) for rows in large_domain_rows)
    is_monotonic = all((steps > 0).all() or (steps < 0).all() for steps in steps_by_domain)
    has_enough_rows = sum(map(len, large_domain_rows)) >= 20
    text = "increases or decreases from row to row in every domain"
    return text if has_enough_rows and is_monotonic else ""


def _identifier_notes(frame: Any, schema: Schema, domains: Array) -> list[str]:
    """Return notes on features that look like row identifiers or that identify the domain.

    For the latter, up to 20,000 rows are sorted by the feature, with ties in random order. A
    feature identifies the domain if the share of adjacent rows from the same domain, minus the
    share expected by chance, is at least 90 % of this difference in a table sorted by domain.
    """
    advice = "Drop it unless it has the same meaning in new domains"
    domain_rows = [np.flatnonzero(domains == d) for d in np.unique(domains)]
    notes = []
    for name in schema.numbers:
        values = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        if reason := identifier_reason(values, domain_rows):
            text = f"feature {name!r} {reason}: it looks like an identifier or a time"
            notes.append(f"{text}. {advice}")
    sampled_rows = np.random.default_rng(0).permutation(len(domains))[:20_000]
    domain_names, domain_codes = np.unique(domains[sampled_rows], return_inverse=True)
    share_if_sorted = 1 - (len(domain_names) - 1) / max(len(domain_codes) - 1, 1)
    share_by_chance = float(np.sum((np.bincount(domain_codes) / len(domain_codes)) ** 2))
    for name in frame.columns:
        column = frame[name].iloc[sampled_rows]
        values = column if cells.is_numeric(column) else column.astype(str).factorize()[0]
        sorted_codes = domain_codes[np.argsort(np.asarray(values), kind="stable")]
        same_domain_share = float(np.mean(sorted_codes[1:] == sorted_codes[:-1]))
        if 0 < 0.9 * (share_if_sorted - share_by_chance) <= same_domain_share - share_by_chance:
            text = f"feature {name!r} alone identifies the domain, so it may not generalize"
            notes.append(f"{text}. {advice}")
    return notes
