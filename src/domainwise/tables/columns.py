"""One column of a table: what kind it is, whether it can be used, and its values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.checks.inputs import LARGEST_NUMBER, too_large
from domainwise.tables.files import TableError, import_pandas

#: Text in these forms is a date: 2024-05-31 (with or without a time), 31.05.2024, 5/31/24.
DATE = re.compile(r"\s*(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4})([T ].*)?\s*")
#: "7" but not "007", which is a code.
WHOLE_NUMBER = re.compile(r"0|-?[1-9]\d{0,17}")
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
#: Values looked at to tell dates and numbers from categories.
LOOKED_AT = 1000
#: More categories than this, in most rows another one, are no categories.
MAX_CATEGORIES = 50
#: Text that is a number in at least this share of rows, with this many values, is a mistake.
NUMBER_SHARE, NUMBER_VALUES = 0.9, 20


def describe_names(names: Iterable[Any], most: int = 8) -> str:
    """List names for a message, the first few if there are many.

    >>> describe_names(["a", "b"])
    "'a', 'b'"
    """
    shown = [repr(str(name)) for name in names]
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")


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


def as_numbers(column: Any, name: str, first_row: int = 0) -> Array:
    """Return a column as float64 with NaN for missing values."""
    pandas = import_pandas()
    if not is_numeric(column):
        numbers = pandas.to_numeric(column.astype(object), errors="coerce")
        wrong = numbers.isna().to_numpy() & column.notna().to_numpy()
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise TableError(
                f"column {name!r} must hold numbers, but row {first_row + row + 1} has "
                f"{str(column.iloc[row])!r}; mend it, or leave the cell empty"
            )
        column = numbers
    values = np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise TableError(
            f"column {name!r} is infinite in row {first_row + row + 1}; leave the cell empty"
        )
    if too_large(values):
        raise TableError(f"column {name!r} holds values beyond {LARGEST_NUMBER:.0e}: scale it")
    return values


def as_text(column: Any) -> Array:
    """Return a column as text objects with NaN for missing values."""
    labels = _plain(column).astype(object)
    missing = column.isna().to_numpy()
    return np.array(
        [np.nan if gone else str(value) for value, gone in zip(labels, missing, strict=True)],
        dtype=object,
    )


def as_labels(column: Any) -> Array:
    """Return a column without missing values as labels: integers where it can be, else text."""
    column = _plain(column)
    if is_numeric(column) and column.dtype.kind != "b":
        values = column.to_numpy(dtype=np.float64)
        if np.all(np.isfinite(values)) and np.all(values == np.round(values)):
            return column.to_numpy(dtype=np.int64)
    text = [str(value) for value in column]
    if all(WHOLE_NUMBER.fullmatch(value) for value in set(text)):
        return np.array([int(value) for value in text])
    return np.array(text)


def refuse_unusable(column: Any, name: str, role: str = "column") -> None:
    """Refuse dates, nested values, columns without values, identifiers and misread numbers."""
    pandas = import_pandas()
    drop = (
        f"leave it out (command line: --drop {shlex.quote(name)})"
        if role == "column"
        else "name another target"
    )
    if bool(column.isna().all()):
        raise TableError(f"{role} {name!r} has no values; {drop}")
    if column.dtype.kind in "mM" or isinstance(column.dtype, pandas.DatetimeTZDtype):
        raise TableError(_about_dates(name, role, drop))
    if is_numeric(column):
        return
    known = _plain(column[column.notna()])
    sample = known.iloc[np.linspace(0, len(known) - 1, min(len(known), LOOKED_AT)).astype(int)]
    if any(hasattr(value, "isoformat") for value in sample):
        raise TableError(_about_dates(name, role, drop))
    if any(isinstance(value, (list, dict, tuple, set, bytes, np.ndarray)) for value in sample):
        raise TableError(
            f"{role} {name!r} holds {type(sample.iloc[0]).__name__} values; one number or text per "
            f"cell is needed: {drop}"
        )
    text = [str(value) for value in sample]
    if _share(DATE, text) > 0.5:
        raise TableError(_about_dates(name, role, drop))
    if _share(DECIMAL_COMMA, text) > 0.5:
        raise TableError(
            f"{role} {name!r} has decimal commas, such as {text[0]!r}; save it with decimal points"
        )
    if role == "column":
        _refuse_odd_text(known, name, drop)


def _refuse_odd_text(known: Any, name: str, drop: str) -> None:
    values = known.astype(str)
    numbers = import_pandas().to_numeric(values, errors="coerce")
    if numbers.notna().mean() >= NUMBER_SHARE and numbers.nunique() > NUMBER_VALUES:
        odd = values[numbers.isna()].unique()
        if not len(odd):
            raise TableError(f"column {name!r} holds numbers as text; store them as numbers")
        raise TableError(
            f"column {name!r} holds numbers, but also {describe_names(odd, 3)}; mend those cells, "
            f"or leave them empty, or {drop}"
        )
    n_values = int(values.nunique())
    if n_values > max(MAX_CATEGORIES, len(values) // 2):
        raise TableError(
            f"column {name!r} has {n_values} different texts in {len(values)} rows: it names rows "
            f"instead of describing them; {drop}"
        )


def _plain(column: Any) -> Any:
    """Undo pandas' categories."""
    if hasattr(column, "cat"):
        return column.astype(column.cat.categories.dtype)
    return column


def _share(pattern: re.Pattern[str], text: list[str]) -> float:
    return sum(bool(pattern.fullmatch(value)) for value in text) / max(len(text), 1)


def _about_dates(name: str, role: str, drop: str) -> str:
    return (
        f"{role} {name!r} holds dates or times; turn it into numbers that mean something "
        f"elsewhere (age in days, month of the year), or {drop}"
    )
