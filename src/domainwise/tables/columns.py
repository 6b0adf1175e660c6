"""One column of a table: what kind it is, whether it can be used, and its values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.checks.inputs import LARGEST_NUMBER, too_large
from domainwise.tables import cells
from domainwise.tables.errors import Argument, TableError, describe_names, import_pandas

#: What becomes of a date: the arguments to choose from.
DATE_PARTS = ("month", "weekday", "age")
#: "7" but not "007", which is a code.
WHOLE_NUMBER = re.compile(r"0|-?[1-9]\d*")
#: Forms in words.
FORMS = {"number": "numbers", "percent": "percentages", "time": "times", "date": "dates"}

Words = tuple[str | Argument, ...]


def split_names(given: Sequence[str] | None, names: Sequence[str]) -> list[str] | None:
    """Split names that were given with commas between, unless that is itself one of ``names``.

    >>> split_names(["age,sex", "dose, mg"], ["age", "sex", "dose, mg"])
    ['age', 'sex', 'dose, mg']
    """
    if given is None:
        return None
    split = []
    for text in given:
        parts = [text] if text in names else text.split(",")
        split += [part if part in names else part.strip() for part in parts if part.strip()]
    return split


def is_numeric(column: Any) -> bool:
    """Whether a column holds numbers or truth values."""
    types = import_pandas().api.types
    return bool(types.is_numeric_dtype(column.dtype)) and not types.is_complex_dtype(column.dtype)


def as_numbers(column: Any, name: str, first_row: int = 0, form: str | None = None) -> Array:
    """Return a column as float64 with NaN for missing values; ``form`` as :func:`form_of` tells."""
    if not is_numeric(column):
        numbers = cells.numbers_in(plain(column), form)
        if (row := first_wrong(column, numbers)) is not None:
            raise TableError(
                f"column {name!r} must hold numbers, but row {first_row + row + 1} has "
                f"{str(column.iloc[row])!r}; mend it, or leave the cell empty, or say what it is "
                "with ",
                Argument("decimal", ","),
                " or ",
                Argument("na", [str(column.iloc[row])]),
            )
        column = numbers
    values = np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))
    words = beyond(values, first_row)
    if words is not None:
        raise TableError(f"column {name!r} ", *words)
    return values


def first_wrong(column: Any, values: Any) -> int | None:
    """First row whose cell holds something but has no value; None if there is none."""
    wrong = np.flatnonzero(values.isna() & column.notna() & ~column.isin(cells.MISSING))
    return int(wrong[0]) if len(wrong) else None


def beyond(values: Array, first_row: int = 0) -> Words | None:
    """Say what is wrong with numbers that are infinite or too large; None if nothing is."""
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        return (f"is infinite in row {first_row + row + 1}; leave the cell empty",)
    return (f"holds values beyond {LARGEST_NUMBER:.0e}: scale it",) if too_large(values) else None


def as_days(column: Any, name: str, first_row: int = 0, order: str | None = None) -> Any:
    """Return a column of dates as days, refused where a cell is none."""
    days = cells.days_in(column, order)
    if (row := first_wrong(column, days)) is not None:
        raise TableError(
            f"column {name!r} must hold dates, but row {first_row + row + 1} has "
            f"{str(column.iloc[row])!r}; write it as 2024-05-31, or leave the cell empty"
        )
    return days


def as_text(column: Any) -> Array:
    """Return a column as text objects with NaN for missing values."""
    labels = plain(column).astype(object)
    missing = column.isna().to_numpy()
    return np.array(
        [np.nan if gone else str(value) for value, gone in zip(labels, missing, strict=True)],
        dtype=object,
    )


def as_labels(column: Any) -> Array:
    """Return a column without missing values as labels: int64 where it can be, else text.

    Text stays as it is written, spaces included. Whole numbers beyond int64 become text, in which
    no two of them are the same.
    """
    column = plain(column)
    if is_numeric(column) and column.dtype.kind in "iu" and column.max() < 2**63:
        return column.to_numpy(dtype=np.int64)
    if is_numeric(column) and column.dtype.kind == "f":
        values = column.to_numpy(dtype=np.float64)
        whole = np.isfinite(values) & (values == np.round(values))
        text = [str(int(v)) for v in values] if whole.all() else [str(v) for v in column]
    else:
        text = [str(value) for value in column]
    if all(WHOLE_NUMBER.fullmatch(value) for value in set(text)):
        numbers = [int(value) for value in text]
        if min(numbers) >= -(2**63) and max(numbers) < 2**63:
            return np.array(numbers, dtype=np.int64)
    return np.array(text)


def column_form(column: Any) -> tuple[str, list[str]]:
    """Tell what a column holds: "numeric", "nested", or what :func:`form_of` says of its text."""
    pandas = import_pandas()
    if column.dtype.kind == "M" or isinstance(
        column.dtype, (pandas.DatetimeTZDtype, pandas.PeriodDtype)
    ):
        return "date", []
    if column.dtype.kind == "m":
        return "time", []
    if is_numeric(column):
        return "numeric", []
    nested = (list, dict, tuple, set, bytes, np.ndarray)
    if column.dtype == object and column.map(lambda cell: isinstance(cell, nested)).any():
        return "nested", []
    return cells.form_of(plain(column)) if cells.is_text(plain(column)) else ("text", [])


def problem_of(column: Any, form: str, odd: list[str], *, dates: bool = False) -> Words | None:
    """Say what is wrong with a feature that has values, and what to do; None if it can be used."""
    if form == "nested":
        kind = type(column[column.notna()].iloc[0]).__name__
        return (f"holds {kind} values; one number or text per cell is needed",)
    if form == "date" and not dates:
        return (
            "holds dates or times; make numbers of them that mean something elsewhere with ",
            Argument("dates", list(DATE_PARTS)),
        )
    if odd:
        marked = import_pandas().Series(odd, dtype=object)
        either = rf"(?:{cells.NUMBER['.']}|{cells.NUMBER[',']})\s*%?"
        if form == "number" and cells.fits(marked, either).all():
            return (
                f"holds numbers such as {odd[0]!r}, in which a comma may be a decimal mark or "
                "stand between thousands; say which with ",
                Argument("decimal", ","),
                " or ",
                Argument("decimal", "."),
            )
        return (
            f"holds {FORMS[form]}, but also {describe_names(odd, 3)}; mend those cells, or if they "
            "stand for no value say so with ",
            Argument("na", odd[:3]),
        )
    if form == "text":
        known = column[column.notna()].astype(str)
        n_values = int(known.nunique())
        if n_values > max(cells.MAX_CATEGORIES, len(known) // 2):
            return (
                f"has {n_values} different texts in {len(known)} rows: it names rows instead of "
                "describing them",
            )
    return None


def plain(column: Any) -> Any:
    """Undo pandas' categories."""
    if hasattr(column, "cat"):
        return column.astype(column.cat.categories.dtype)
    return column
