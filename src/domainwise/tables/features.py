"""The features of a table: their columns, how cells are read, and their preprocessing.

:func:`make_preprocessor` belongs at the front of a pipeline, so that imputation, scaling and
one-hot encoding are fitted on source domains only.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from domainwise.tables import cells
from domainwise.tables.errors import ColumnError, TableError, describe_names, import_pandas


@dataclass(frozen=True)
class Schema:
    """The columns of a table, what each is for, and how its cells are read."""

    numeric: tuple[str, ...]  #: in the order of the table, as all columns
    categorical: tuple[str, ...]
    target: str
    domain: str
    task: str  #: "classification" or "regression"
    #: By column: numbers written as "percent" or "time", and for dates which of "day" and "month"
    #: comes first in 1/2/2024.
    forms: dict[str, str] = field(default_factory=dict)
    dates: tuple[str, ...] = ()
    date_parts: tuple[str, ...] = ()  #: of each date: "month", "weekday" (0 is Monday), "age"
    reference: str = ""  #: the day from which ages are counted back, in years
    decimal: str | None = None  #: given or detected, for new tables in which it is not clear
    encoding: str | None = None
    na: tuple[str, ...] = ()  #: missing values

    @property
    def features(self) -> list[str]:
        """All feature columns of the table, numeric ones first."""
        return [*self.numeric, *self.categorical, *self.dates]

    @property
    def numbers(self) -> list[str]:
        """The numeric columns of what :meth:`prepare` returns."""
        parts = [f"{name} ({part})" for name in self.dates for part in self.date_parts]
        return [*self.numeric, *parts]

    def prepare(self, frame: Any, *, first_row: int = 0) -> Any:
        """Return the feature columns of a data frame as models are fitted to them.

        Numbers, and numbers made of dates, become float64, categories text; missing values are NaN.
        A missing column, or text in a column of numbers, is refused. ``first_row`` counts the rows
        before this piece of a streamed table, for messages.
        """
        require_columns(self.features, list(frame.columns), "the table")
        pandas = import_pandas()
        raw = {name: cells.without(frame[name], self.na) for name in self.features}
        marks = cells.decimal_marks(raw, self.numeric)
        columns = {}
        for name in self.numeric:
            column = cells.with_points(raw[name], marks.get(name))
            columns[name] = cells.as_numbers(column, name, first_row, self.forms.get(name))
        for name in self.dates:
            days = cells.as_days(raw[name], name, first_row, self.forms.get(name))
            for part in self.date_parts:
                columns[f"{name} ({part})"] = cells.date_part(days, part, self.reference)
        for name in self.categorical:
            columns[name] = pandas.Series(cells.as_text(raw[name]), dtype=object)
        return pandas.DataFrame(columns, index=range(len(frame)))

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists and strings, to be stored."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Schema:
        """Undo :meth:`as_dict`."""
        known = {f.name for f in fields(cls)}.intersection(stored)
        tuples: dict[str, Any] = {n: tuple(v) for n, v in stored.items() if isinstance(v, list)}
        return cls(**{name: tuples.get(name, stored[name]) for name in known})


class ReadColumns(TransformerMixin, BaseEstimator):
    """First step of a pipeline that takes raw data frames.

    ``schema`` is a :class:`Schema` as :meth:`Schema.as_dict` returns it.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def fit(self, X: Any, y: Any = None) -> Self:
        """Do nothing: the schema is known."""
        return self

    def transform(self, X: Any) -> Any:
        """Read the cells of a data frame of pandas or polars, by the names of its columns."""
        frame = X.to_pandas() if hasattr(X, "to_pandas") else X
        return Schema.from_dict(self.schema).prepare(frame)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def feature_schema(
    frame: Any, marks: Mapping[str, str], *, dates: Sequence[str], auto_drop: bool, notes: list[str]
) -> tuple[Schema, Any]:
    """Infer the types of features, given their decimal marks, and convert the columns.

    The caller fills in target, domain and task of the schema. ``notes`` receives which columns are
    left out and how cells were read; one ColumnError lists all features that cannot be used.
    """
    kinds: dict[str, list[str]] = {"numeric": [], "categorical": [], "dates": []}
    columns: dict[str, list[str]] = defaultdict(list)
    forms: dict[str, str] = {}
    problems: dict[str, cells.Words] = {}
    typed: dict[str, Any] = {}
    latest = ""
    for name in frame.columns:
        column = frame[name]
        if not hasattr(column, "cat"):
            rewritten = cells.with_points(column, marks.get(name))
            if rewritten is not column:
                row = (rewritten != column)[column.notna()].idxmax()
                columns["rewritten"].append(f"{name} ({column[row]!r} is {rewritten[row]})")
            column = typed[name] = cells.typed_numbers(rewritten)
        if column.isna().all() or (cells.is_text(column) and not len(cells.words_of(column))):
            columns["empty"].append(name)
            continue
        form, odd = cells.column_form(column)
        words = cells.problem_of(column, form, odd, dates=bool(dates))
        if words is None and column.nunique() == 1:
            columns["constant"].append(name)
        elif words is None and form == "date":
            order = cells.date_order(column)
            days = cells.days_in(column, order)
            if cells.first_wrong(column, days) is not None:
                words = ("holds dates that are ambiguous or cannot be read; write 2024-05-31",)
            else:
                kinds["dates"].append(name)
                forms[name] = order or ""
                latest = max(latest, str(days.max().date()))
        elif words is None and form == "text":
            kinds["categorical"].append(name)
        elif words is None:
            values = column if cells.is_numeric(column) else cells.numbers_in(column, form)
            words = cells.beyond(values.to_numpy(dtype=np.float64, na_value=np.nan))
            kinds["numeric"].append(name)
            if form in ("percent", "time"):
                forms[name] = form
                columns[form].append(name)
        if words is not None:
            problems[name] = words
    if problems and not auto_drop:
        raise ColumnError(problems)
    for names, what in (
        (columns["empty"], "left out because they are empty"),
        (columns["constant"], "left out because they are constant"),
        (list(problems), "left out because they cannot be used"),
        (columns["rewritten"], "with decimal commas or separated thousands"),
        (columns["percent"], "read as percentages (12% is 0.12)"),
        (columns["time"], "read as times, in hours"),
        (kinds["dates"], f"of dates, read as {', '.join(dates)} (before {latest})"),
    ):
        notes += [f"columns {what}: {', '.join(names)}"] if names else []
    left = {kind: tuple(n for n in names if n not in problems) for kind, names in kinds.items()}
    schema = Schema(
        left["numeric"],
        left["categorical"],
        target="",
        domain="",
        task="",
        forms={name: form for name, form in forms.items() if name not in problems},
        dates=left["dates"],
        date_parts=tuple(dates) if left["dates"] else (),
        reference=latest,
    )
    return schema, frame.assign(**typed)


def named_frame(frame: Any) -> Any:
    """Return a data frame of any library as one of pandas whose column names are strings."""
    frame = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    if not hasattr(frame, "set_axis") or frame.ndim != 2:
        raise TableError(f"a data frame is needed, got {type(frame).__name__}")
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def require_columns(
    wanted: Iterable[str], names: Sequence[str], where: str, *, reason: str = ""
) -> None:
    """Refuse columns that do not exist, and suggest the most similar name."""
    missing = [name for name in dict.fromkeys(wanted) if name not in names]
    if not missing:
        return
    first = missing[0]
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(first.lower(), list(by_lower), n=1)
    hint = f"did you mean {by_lower[close[0]]!r}?" if close else f"it has {describe_names(names)}"
    also = f" (nor {describe_names(missing[1:])})" if missing[1:] else ""
    raise TableError(f"{where} has no column {first!r}{also}{reason}; {hint}")


def make_preprocessor(schema: Schema) -> ColumnTransformer:
    """Return the transformer of a table's features into numbers, not fitted.

    Numeric columns: missing values become the median, then unit variance. Categorical columns:
    missing values become the most frequent one, then one column per category, all zero for a
    category that fit has not seen.
    """
    numeric = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
    )
    categorical = make_pipeline(
        SimpleImputer(strategy="most_frequent", keep_empty_features=True),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    parts = [
        ("numeric", numeric, schema.numbers),
        ("categorical", categorical, list(schema.categorical)),
    ]
    made = ColumnTransformer([part for part in parts if part[2]], verbose_feature_names_out=False)
    return made.set_output(transform="default")  # whatever set_config asks for elsewhere
