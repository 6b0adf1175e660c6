"""Users' tables: a schema is learnt once, and all rows are converted through it.

:func:`load_table` reads a file, and :func:`check_table` takes a data frame. Both learn a
:class:`Schema`, which describes the columns and how their cells are written, and return a
:class:`Table` that :meth:`Schema.prepare` has converted, or raise a TableError. New rows, in files,
chunks or data frames, are converted by the same method.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from domainwise.base.arrays import Array
from domainwise.base.inputs import MAX_CLASSES, is_quantity
from domainwise.base.messages import MAX_CHARACTERS, listed, quoted
from domainwise.tables import cells, errors, names
from domainwise.tables.cells import Cells
from domainwise.tables.errors import Argument, check, describe, import_pandas, problem, refuse
from domainwise.tables.files import OpenTable, open_table

#: Maximum number of features of each type that a note lists.
MAX_LISTED = 50
#: A categorical column is encoded with at most MAX_LEVELS categories; the others, and those with
#: fewer than MIN_LEVEL_ROWS rows, are pooled. So are categories that a fit has not seen.
MAX_LEVELS, MIN_LEVEL_ROWS = 50, 5
#: Notes on columns whose numbers are written in a special form.
FORM_NOTES = {"percent": "read as percentages (12% is 0.12)", "time": "read as times, in hours"}
TASKS = ("auto", "classification", "regression")


@dataclass(frozen=True)
class Schema:
    """The columns of a table, their roles, and how their cells are written.

    It determines the meaning of each cell. A cell that does not fit raises an error.
    """

    numeric: tuple[str, ...]  #: column names, in the order of the table
    categorical: tuple[str, ...]
    target: str
    domain: str
    task: str  #: "classification" or "regression"
    #: By column, if it is not "": for numbers "percent", "time" (in hours), "censored" (">200" is
    #: 200) or "grouped" (1.234 is a thousand); for dates "day" or "month", the first in 1/2/2024,
    #: or "date".
    forms: dict[str, str] = field(default_factory=dict)
    dates: tuple[str, ...] = ()
    date_parts: tuple[str, ...] = ()  #: computed features: "month", "weekday" (0 is Monday), "age"
    reference: str = ""  #: ages are the years from a date to this day
    decimal: str | None = None  #: decimal mark in text; None if the table did not show one
    encoding: str | None = None
    na: tuple[str, ...] = ()  #: values that count as missing
    marks: dict[str, str] = field(default_factory=dict)  #: of columns with another decimal mark
    #: Categories such as "01", by column; a typed number, such as 1, is the category of this value.
    levels: dict[str, list[str]] = field(default_factory=dict)
    site_level: tuple[str, ...] = ()  #: features that are constant within every domain

    @property
    def features(self) -> list[str]:
        """All feature columns of the table, numeric ones first."""
        return [*self.numeric, *self.categorical, *self.dates]

    @property
    def numbers(self) -> list[str]:
        """The numeric columns that :meth:`prepare` returns."""
        date_numbers = [f"{name} ({part})" for name in self.dates for part in self.date_parts]
        return [*self.numeric, *date_numbers]

    def with_options(self, decimal: str | None = None, na: Sequence[str] = ()) -> Schema:
        """Return the schema of a table with another decimal mark, or more missing values."""
        decimal, marks = cells.learn_marks({}, decimal) if decimal else (self.decimal, self.marks)
        return replace(self, decimal=decimal, marks=marks, na=(*self.na, *map(str, na)))

    def prepare(self, frame: Any, *, first_row: int = 0, rows: Array | None = None) -> Any:
        """Return the features of a data frame in the form that models are fitted to.

        Numbers, and numbers computed from dates, are converted to float64 and categories to text.
        Missing values are NaN. Raises a TableError for a missing column, and for a cell that does
        not fit. ``rows`` selects rows by position. For messages, ``first_row`` is the number of
        rows before this chunk of a table.
        """
        names.require_columns(self.features, list(frame.columns), "the table")
        return self.convert(cells_of(frame, self.features, self.na, rows, first_row))

    def convert(self, columns: Mapping[str, Cells]) -> Any:
        """Return the features, as described in :meth:`prepare`."""
        arrays: dict[str, Any] = {n: self.read_numbers(columns[n], n) for n in self.numeric}
        for name in self.dates:
            days = self.read_numbers(columns[name], name)
            arrays |= cells.date_numbers(days, name, self.date_parts, self.reference)
        for name in self.categorical:
            texts = columns[name].texts(self.levels.get(name, ()))
            texts = np.where(import_pandas().isna(texts), np.nan, texts)
            arrays[name] = import_pandas().Series(texts, dtype=object)
        return import_pandas().DataFrame(arrays)

    def mark(self, name: str) -> str | None:
        """Return the decimal mark of a column."""
        return self.marks.get(name, self.decimal)

    def read_numbers(self, column: Cells, name: str) -> Array:
        """Return a numeric column as float64, with NaN for missing values; dates as days.

        Raises a TableError if a cell cannot be read; it gives the option that helps.
        """
        mark, form = self.mark(name), self.forms.get(name, "date" if name in self.dates else "")
        numbers, is_unreadable = column.numbers(mark, form)
        if is_unreadable.any():
            i = int(np.flatnonzero(is_unreadable)[0])
            cell, noun = str(column.column.iloc[i]), cells.NOUNS.get(form, "numbers")
            advice = problem("write a date" if noun == "dates" else "correct the cell")
            advice = cells.mark_advice(cell, form) or advice
            if len(cell) <= MAX_CHARACTERS and "," not in cell:  # --na a,b lists two values
                advice += problem("treat as missing", na=[cell])
            values = {"column": name, "noun": noun, "row": column.rows[i] + 1, "cell": cell}
            raise errors.TableError(*problem("unreadable cell", **values), *advice)
        if form == "grouped" and mark == "," and column.is_numeric and np.any(numbers % 1 > 0):
            i = int(np.flatnonzero(numbers % 1 > 0)[0])
            refuse("typed groups", column=name, row=column.rows[i] + 1, number=numbers[i])
        if size_problem := cells.size_problem(column, mark, form):
            raise errors.TableError(f"column {quoted(str(name))} ", *size_problem)
        return numbers

    def read_domains(self, frame: Any) -> Array | None:
        """Return the domain of each row as text, None if it is missing; None without a column."""
        if self.domain not in frame.columns:
            return None
        return Cells(frame[self.domain], self.na).texts(missing=[""])

    def read_labels(self, frame: Any, classes: Iterable[Any] | None) -> tuple[Array, Array, Any]:
        """Return the indices of rows with a target and a domain, and their targets and domains.

        Targets are floats, or class names as text. If ``classes`` are whole numbers, so is a cell
        such as "1.0". Domains are text; None without a domain column.
        """
        column, domains = Cells(frame[self.target], self.na), self.read_domains(frame)
        labels = [*(classes or ())]
        if self.task == "regression":
            y = self.read_numbers(column, self.target)
        elif labels and all(isinstance(label, (int, np.integer)) for label in labels):
            y = column.whole_numbers(self.mark(self.target))
        else:
            y = column.texts([str(label) for label in labels])
        has_labels = ~import_pandas().isna(y)
        if domains is not None:
            has_labels &= ~import_pandas().isna(domains)
            domains = domains[has_labels].astype(str)
        y = y[has_labels] if self.task == "regression" else y[has_labels].astype(str)
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


@dataclass(frozen=True)
class Table:
    """A table that has passed all checks."""

    X: Any  #: data frame of features, see :meth:`Schema.prepare`
    y: Array  #: classes or continuous targets
    sample_domain: Array  #: integers, or text
    schema: Schema
    notes: tuple[str, ...] = ()  #: for the user, for example about rows that were left out
    sample_weight: Array | None = None  #: how often each row counts; positive
    dropped_domains: tuple[str, ...] = ()  #: as text

    @property
    def domains(self) -> list[Any]:
        """The domains, sorted."""
        return np.unique(self.sample_domain).tolist()

    @property
    def classes(self) -> list[Any] | None:
        """The classes, sorted; None for a continuous target."""
        return np.unique(self.y).tolist() if self.schema.task == "classification" else None


def load_table(path: str | Path, *, encoding: str | None = None, **options: Any) -> Table:
    """Read a file and check it; see :func:`check_table` for the arguments.

    ``encoding`` is the encoding of a CSV file; None detects it.
    """
    file = open_table(path, encoding=encoding)
    table = check_table(file, where=str(path), **options)
    schema = replace(table.schema, encoding=encoding)
    return replace(table, schema=schema, notes=(*file.notes, *table.notes))


def check_table(
    frame: Any,
    *,
    target: str,
    domain: str,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    drop_domains: Sequence[str] | None = None,
    task: str = "auto",
    auto_drop: bool = False,
    dates: Sequence[str] = (),
    decimal: str | None = None,
    na: Sequence[str] = (),
    where: str = "the table",
) -> Table:
    """Learn the schema of a data frame or file, and split it into features, target and domains.

    ``weight`` is a column that says how often each row counts; rows of weight 0 are left out.
    ``features=None`` uses all columns that are not in ``drop``; rows from ``drop_domains`` are left
    out. Their entries may contain several names, separated by commas. ``task="auto"`` treats text,
    and up to 20 distinct whole numbers, as classes.
    ``auto_drop`` leaves out features that cannot be used, with a note, instead of raising an error,
    and reads censored values such as ">200" as their limit. ``dates`` lists numbers to compute from
    dates: "month", "weekday" and "age" (years before the latest day in all date columns, which is
    also used for new tables); if it is empty, dates cannot be used. ``decimal`` is the decimal mark
    of numbers in text; None infers it. ``na`` lists values that count as missing in all columns; so
    do words such as "NA", except in labels and categories. ``where`` names the table in messages.

    Raises a TableError, or one ColumnError about all features that cannot be used.
    """
    for name, entries, choices in (("task", [task], TASKS), ("dates", dates, cells.DATE_PARTS)):
        is_valid = not isinstance(entries, str) and set(entries) <= {*choices}
        check(is_valid, "unsupported", value=Argument(name, entries), choices=", ".join(choices))
    file = frame if isinstance(frame, OpenTable) else None
    frame, na = names.named_frame(frame) if file is None else None, tuple(map(str, na))
    column_names = list(frame.columns) if file is None else file.names
    roles = {"target": target, "domain": domain} | ({"weight": weight} if weight else {})
    feature_names, notes = names.choose_features(column_names, roles, features, drop, where=where)
    if file is not None:
        (frame,) = file.frames([*feature_names, *roles.values()])
    schema = Schema((), (), target, domain, task, {}, na=na)
    domain_texts: Any = schema.read_domains(frame)
    has_domain = ~import_pandas().isna(domain_texts)
    check(has_domain.any(), "no values", role="domain", column=domain)
    domain_names = sorted({*domain_texts[has_domain]})
    dropped_domains = names.split_names(drop_domains, domain_names) or []
    unknown = [name for name in dropped_domains if name not in domain_names]
    check(not unknown, "unknown domains", where=where, names=unknown, domains=domain_names)
    rows = np.flatnonzero(has_domain & ~np.isin(domain_texts, dropped_domains))
    check(len(rows), "no rows left", where=where)
    columns = cells_of(frame, [*feature_names, target], na, rows)
    decimal, marks = cells.learn_marks(columns, decimal)
    schema = replace(schema, decimal=decimal, marks=marks)
    task, form, y = learn_target(columns.pop(target), task, schema)
    has_target = ~import_pandas().isna(y)
    check(has_target.any(), "no values", role="target", column=target)
    is_used, weights = has_target.copy(), None
    if weight is not None:
        (column,) = cells_of(frame, [weight], na, rows[has_target]).values()
        weights = schema.read_numbers(column, weight)
        for i in np.flatnonzero(~(weights >= 0)):
            cell = "none" if np.isnan(weights[i]) else weights[i]
            refuse("invalid weight", column=weight, row=column.rows[i] + 1, cell=cell)
        check(weights.any(), "zero weights", column=weight)
        is_used[has_target], weights = weights > 0, weights[weights > 0]
    has_weight = is_used[has_target]
    masks = {"no target": has_target, "no domain": has_domain, "the weight 0": has_weight}
    for reason, mask in masks.items():
        if n_rows := len(mask) - mask.sum():
            notes.append(f"{n_rows} of {len(mask)} rows have {reason} and are left out")
    if not is_used.all():
        rows, y = rows[is_used], y[is_used]
        columns = cells_of(frame, feature_names, na, rows)
    y = y if task == "regression" else cells.as_labels(y)
    domains = cells.as_labels(domain_texts[rows])
    notes += _check_target(y, task, target)
    notes += _check_domains(domains, y, task, domain)
    schema = replace(schema, task=task, forms={target: form} if form else {})
    schema, X = learn_features(columns, schema, notes, dates=dates, auto_drop=auto_drop)
    check(schema.features, "no usable features", where=where, notes="; ".join(notes))
    domain_codes = np.unique(domains, return_inverse=True)[1]
    schema = replace(schema, site_level=tuple(names.site_columns(X, domain_codes)))
    if schema.site_level:
        names_text = listed(schema.site_level, 20, ", ")
        notes.append(describe("site level", names=names_text, n=domain_codes.max() + 1))
    groups = {"numeric": schema.numeric, "categorical": schema.categorical, "date": schema.dates}
    lists = [f"{k} features: {listed(v, MAX_LISTED, ', ')}" for k, v in groups.items() if v]
    notes.append("; ".join(lists))
    return Table(X, y, domains, schema, tuple(notes), weights, tuple(dropped_domains))


def cells_of(
    frame: Any,
    names: Sequence[str],
    na: Sequence[str] = (),
    rows: Array | None = None,
    first_row: int = 0,
) -> dict[str, Cells]:
    """Return the cells of columns, by name; see :meth:`Schema.prepare`."""
    all_rows = slice(None) if rows is None or len(rows) == len(frame) else rows
    row_numbers = first_row + (np.arange(len(frame)) if rows is None else rows)
    return {n: Cells(cells.plain(frame[n]).iloc[all_rows], na, row_numbers) for n in names}


def learn_features(
    columns: Mapping[str, Cells],
    schema: Schema,
    notes: list[str],
    *,
    dates: Sequence[str] = (),
    auto_drop: bool = False,
) -> tuple[Schema, Any]:
    """Learn what the columns of a table contain; return the schema and the features.

    ``schema`` contains the decimal marks. Notes on columns that are left out, and on how cells are
    read, are added to ``notes``. One ColumnError lists all features that cannot be used.
    """
    used: dict[str, list[str]] = defaultdict(list)  # columns by kind
    noted: dict[str, list[str]] = defaultdict(list)  # columns by what a note says about them
    problems: dict[str, errors.MessageParts] = {}
    forms, levels = dict(schema.forms), dict[str, list[str]]()
    options = {"use_dates": bool(dates), "read_limits": auto_drop}
    for name, column in columns.items():
        mark = schema.mark(name)
        kind, form, reason = cells.learn_column(column, mark, **options)
        texts = column.texts() if kind == "text" else ()
        counts = Counter(text for text in texts if text is not None)
        if reason := reason or cells.text_problem(counts):
            problems[name] = reason
            continue
        values = column.numbers(mark, form)[0] if kind != "text" else [*counts]
        if (n_values := import_pandas().Series(values).nunique()) <= 1:
            noted[f"left out because they are {'constant' if n_values else 'empty'}"].append(name)
            continue
        used[kind].append(name)
        forms |= {name: form} if form else {}
        levels |= {name: spelled} if (spelled := cells.spelled_levels(counts, schema.na)) else {}
        if form == "censored":
            is_limit = column.numbers(mark)[1]
            example = column.column[is_limit].iloc[0]
            example = f"{name} ({is_limit.sum()} cells, such as {example!r})"
            noted["with censored values, which are read as their limit"].append(example)
        elif form in FORM_NOTES:
            noted[FORM_NOTES[form]].append(name)
        elif kind == "number" and (text := column.special_number()):
            example = f"{name} ({text!r} is {cells.number_in(text, mark):.15g})"
            noted["with decimal commas or thousands separators"].append(example)
    if problems and not auto_drop:
        raise errors.ColumnError(problems)
    if problems:
        noted["left out because they cannot be used"] = list(problems)
    numeric, categorical = (tuple(used[k]) for k in ("number", "text"))
    schema = replace(schema, numeric=numeric, categorical=categorical, forms=forms, levels=levels)
    if used["date"]:
        days = [columns[name].numbers(schema.mark(name), forms[name])[0] for name in used["date"]]
        latest_day = str(np.float64(max(map(np.nanmax, days))).astype("M8[D]"))
        age_note = f" (age on {latest_day})" if "age" in dates else ""
        noted[f"with dates, converted to {', '.join(dates)}{age_note}"] = used["date"]
        dated: Any = {"dates": tuple(used["date"]), "date_parts": tuple(dates)}
        schema = replace(schema, **dated, reference=latest_day)
    notes += [f"columns {text}: {', '.join(entries)}" for text, entries in noted.items()]
    return schema, schema.convert(columns)


def learn_target(column: Cells, task: str, schema: Schema) -> tuple[str, str, Array]:
    """Return the task, the form of the target's cells, and the targets; None or NaN if missing.

    Targets are floats, or class names as text. ``task`` is "auto" or the task.
    """
    mark, target = schema.mark(schema.target), schema.target
    kind, form, reason = cells.learn_column(column, mark)
    check(kind != "date", "unusual target", target=target, noun="dates")
    if reason:
        subject, advice = f"the target {quoted(str(target))} ", ", or choose another target"
        raise errors.TableError(subject, *reason, advice)
    values, _ = column.numbers(mark, form)
    are_numbers = kind == "number" and not {*column.counts} <= {*cells.BOOLEANS}
    if task == "auto":
        is_continuous = are_numbers and is_quantity(values[~np.isnan(values)])
        task = "regression" if is_continuous else "classification"
    if task == "regression":
        check(kind == "number", "text as target", target=target, task="classification")
        return task, form, values
    check(form not in cells.NOUNS, "unusual target", target=target, noun=cells.NOUNS.get(form))
    if are_numbers and np.array_equal(values, np.round(values), equal_nan=True):
        return task, "", column.whole_numbers(mark)
    return task, "", column.texts()


def _check_target(y: Array, task: str, name: str) -> list[str]:
    """Raise a TableError if targets cannot be used, and return notes on unusual classes."""
    classes, counts = np.unique(y, return_counts=True)
    value = f"{classes[0]:g}" if task == "regression" else quoted(str(classes[0]))[1:-1]
    noun = "value" if task == "regression" else "class"
    check(len(classes) > 1, "one class", target=name, noun=noun, value=value)
    if task == "regression":
        return []
    extent = {"n_classes": len(classes), "n_rows": len(y)}
    has_few_classes = len(classes) <= max(MAX_CLASSES, len(y) // 3)
    check(has_few_classes, "many classes", target=name, task="regression", **extent)
    return [
        describe("missing word", label=label, target=name, n_rows=n_rows)
        for label, n_rows in zip(classes.tolist(), counts, strict=True)
        if label in cells.MISSING_WORDS
    ] + names.similar_label_notes(classes, f"classes of the target {name!r}")


def _check_domains(domains: Array, y: Array, task: str, column: str) -> list[str]:
    """Raise a TableError if the domains cannot be used, and return notes on similar names."""
    domain_names, domain_codes, sizes = np.unique(domains, return_inverse=True, return_counts=True)
    check(len(domain_names) > 1, "one domain", column=column, domain=str(domain_names[0]))
    check(len(domain_names) == 2 or sizes.max() > 1, "domain in every row", column=column)
    if task == "classification":
        n_classes = [len(np.unique(y[domain_codes == k])) for k in range(len(domain_names))]
        check(max(n_classes) > 1, "one class per domain", column=column)
    return names.similar_label_notes(domain_names, f"domains of column {column!r}")
