"""Reading numbers, percentages, times and dates from text cells, where the text is unambiguous.

A cell is unambiguous if it is a number for only one decimal mark: "1,5" and "1.234,5" have decimal
commas, "1.5" and "1,234.5" decimal points. "1,234" may have either: other cells of its column
decide, and then other columns. Nothing is guessed beyond that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.checks.inputs import LARGEST_NUMBER, too_large
from domainwise.tables.errors import Argument, TableError, describe_names, import_pandas

#: Text of missing cells; words such as "NA" may be values in columns of categories or classes.
MISSING_TEXT = ["", "NaN", "nan", "-nan", "<NA>", "#N/A"]
MISSING = [*MISSING_TEXT, "NA", "N/A", "n/a", "NULL", "null", "None"]
#: Results of formulas that failed; ``#N/A`` is a missing value.
EXCEL_ERRORS = ["#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"]
TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
#: Dates: 2024-05-31 (with or without a time), 31.05.2024, 5/31/24, 31 May 2024, May 31, 2024,
#: 2024-05, 2024Q2.
_MONTH = r"(?i:jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]*"
DATE = (
    r"(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{2,4}"
    r"|[0-9]{4}-(?:0[1-9]|1[0-2])|[0-9]{4}[- ]?[Qq][1-4]"
    rf"|[0-9]{{1,2}}[-. ]+{_MONTH}[-., ]+[0-9]{{2,4}}|{_MONTH} [0-9]{{1,2}}, ?[0-9]{{4}})"
    r"(?:[T ].*)?"
)
TIME = r"(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?(?:\s*[AaPp]\.?[Mm]\.?)?"
PLAIN = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?[Ii]nf(?:inity)?"
#: Numbers with signs or units around them: <5, $5, (5), 5 mm, 1_000, 95:30, 1.5D+03.
MARKED = (
    r"[<>=~≈±$€£¥(]*\s*[+−-]?\.?[0-9][0-9.,:'_]*(?:[eEdD][+-]?[0-9]+)?"
    r"(?:[%‰°€$£¥)]|\s[^0-9]{1,6})*"
)
#: Thousands separators; the mark that is not the decimal mark (``APART``) is another one.
SPACES = " '’\u00a0\u202f\u2009"
APART = {".": ",", ",": ".", None: ""}
#: Text with more distinct values than this, and than half of its rows, is not categorical.
MAX_CATEGORIES = 50
#: Text that is half numbers, with more distinct ones than this, is numeric with faulty cells.
NUMBER_VALUES = 20


def _number(mark: str | None) -> str:
    """Return a pattern of numbers with this decimal mark, or none, and thousands separators."""
    apart = f"[{SPACES}{APART[mark]}]"
    whole = f"(?:[1-9][0-9]{{0,2}}(?:{apart}[0-9]{{3}})+|[0-9]+)"
    if mark is None:
        return f"[+−-]?{whole}"
    point = re.escape(mark)
    return f"[+−-]?(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"


NUMBER = {mark: _number(mark) for mark in (".", ",", None)}
#: Numbers and percentages with either decimal mark.
EITHER = rf"(?:{NUMBER['.']}|{NUMBER[',']})\s*%?"


def is_text(column: Any) -> bool:
    """Whether a column has a string dtype, or the object dtype of spreadsheet columns."""
    types = import_pandas().api.types
    return bool(types.is_object_dtype(column.dtype) or types.is_string_dtype(column.dtype))


def fits(column: Any, pattern: str, *, whole: bool = True) -> Any:
    """Mark cells whose text, stripped, matches a pattern, or contains it (``whole=False``)."""
    pattern = rf"^\s*(?:{pattern})\s*$" if whole else pattern
    text = _arrow_text(column)
    if text is None:
        search = re.compile(pattern).search
        return column.map(lambda cell: isinstance(cell, str) and search(cell) is not None)
    from pyarrow import compute

    matches = compute.match_substring_regex(text, pattern).fill_null(False)
    return import_pandas().Series(matches.to_numpy(zero_copy_only=False), column.index, dtype=bool)


def _arrow_text(column: Any) -> Any:
    """Return a text column as an Arrow array, which is searched ten times as fast; else None."""
    try:
        import pyarrow

        array = pyarrow.array(column, from_pandas=True)
    except (ImportError, TypeError, ValueError, OverflowError):
        return None
    array = array.combine_chunks() if isinstance(array, pyarrow.ChunkedArray) else array
    return array if array.type in (pyarrow.string(), pyarrow.large_string()) else None


def words_of(column: Any) -> Any:
    """Return cells as stripped text, without missing ones and words such as "NA"."""
    words = column[column.notna()].astype(str).str.strip()
    return words[~words.isin(MISSING)]


def without(column: Any, na: Sequence[str], *, words: bool = True) -> Any:
    """Set cells to missing that are empty or in ``na``, or with ``words`` text such as "NaN"."""
    if is_text(column) or hasattr(column, "cat"):
        values: list[Any] = [*na, *(MISSING_TEXT if words else [""])]
    elif column.dtype.kind in "iuf":
        values = [float(word) for word in na if re.fullmatch(PLAIN, word)]
    else:
        return column
    missing = column.isin(values)
    return column.where(~missing) if missing.any() else column


def decimal_marks(
    frame: Any,
    names: Sequence[str],
    mark: str | None = None,
    *,
    earlier: Mapping[str, str] | None = None,
    usual: str | None = None,
) -> dict[str, str]:
    """Return the decimal marks of text columns, by name; ambiguous columns are left out.

    The mark is that of ``earlier`` pieces of the table, or the user's ``mark``, or follows from the
    column's cells, or from the other columns if they agree, or is the ``usual`` one.
    """
    marks = dict(earlier or {})
    ambiguous = {}
    texts = [name for name in names if name not in marks and is_text(frame[name])]
    if {mark, usual, *marks.values()} <= {None, "."} and not any(
        fits(frame[name], ",", whole=False).any() for name in texts
    ):
        pointed = [name for name in texts if fits(frame[name], r"\.", whole=False).any()]
        return {**marks, **dict.fromkeys(pointed, ".")}
    for name in texts:
        cells = frame[name]
        point, comma = (fits(cells, rf"(?:{NUMBER[m]})\s*%?") for m in (".", ","))
        only_point, only_comma = (point & ~comma).any(), (comma & ~point).any()
        if mark is not None:
            marks[name] = mark
        elif only_point != only_comma:
            marks[name] = "." if only_point else ","
        elif not only_point and (point & fits(cells, "[.,]", whole=False)).any():
            ambiguous[name] = bool(fits(cells[point], ",", whole=False).any())
    detected = {*marks.values()}
    for name, has_comma in ambiguous.items():
        if len(detected) == 1:
            (marks[name],) = detected
        elif not has_comma and usual == ",":
            cell = frame[name][fits(frame[name], r"[0-9]\.[0-9]", whole=False)].iloc[0].strip()
            choice = Argument("decimal", "."), " or ", Argument("decimal", ",")
            other = cell.replace(".", "")
            raise TableError(
                f"column {name!r}: {cell!r} may be {cell} or {other}; choose with ", *choice
            )
        elif not has_comma:
            marks[name] = "."
        elif usual is not None and not detected:
            marks[name] = usual
    return marks


def with_points(column: Any, mark: str | None) -> Any:
    """Rewrite the numbers in a text column with decimal points and without thousands separators."""
    if not is_text(column):
        return column
    change = fits(column, f"[,−{APART[mark]}]|[0-9][{SPACES}][0-9]", whole=False)
    if change.any():
        change &= fits(column, rf"(?:{NUMBER[mark]})\s*%?")
    if not change.any():
        return column
    apart = f"[{SPACES}{APART[mark]}]"
    cells = column[change].astype(str).str.strip().str.replace(apart, "", regex=True)
    cells = cells.str.replace("−", "-", regex=False).str.replace(mark or ".", ".", regex=False)
    return column.astype(object).where(~change, cells.astype(object))


def typed_numbers(column: Any) -> Any:
    """Convert text to numbers or booleans if all cells are that or missing; else unchanged."""
    if not is_text(column):
        return column
    pandas, text = import_pandas(), _arrow_text(column)
    numbers = None if text is None else _cast(text)
    if numbers is not None:
        return pandas.Series(numbers, column.index, name=column.name)
    values = column[column.notna() & ~column.isin(MISSING)]
    if values.isin([True, False]).all() and values.map(type).eq(bool).all() and len(values):
        return column.where(column.isin([True, False])).astype("boolean")
    if len(values) and values.isin(TRUTH).all():
        return column.where(column.isin(TRUTH)).map(TRUTH).astype("boolean")
    plain = fits(values, PLAIN) | values.map(lambda cell: isinstance(cell, (int, float, Decimal)))
    if not plain.all():
        return column
    numbers = pandas.to_numeric(values.astype(object), errors="coerce")
    return numbers if len(values) == len(column) else numbers.astype(float).reindex(column.index)


def _cast(text: Any) -> Any:
    """Convert text to int64 or to the nearest float64 values; None if a cell is not a number."""
    import pyarrow
    from pyarrow import compute

    text = compute.utf8_trim_whitespace(text)
    missing = compute.is_in(text, pyarrow.array(MISSING, text.type))
    text = compute.if_else(missing, pyarrow.scalar(None, text.type), text)
    fraction = compute.any(compute.match_substring(text, ".")).as_py()
    for kind in (pyarrow.int64(), pyarrow.float64())[bool(fraction) :]:
        try:
            numbers = text.cast(kind)
        except pyarrow.ArrowInvalid:
            continue
        if numbers.null_count and kind == pyarrow.int64():  # float64 would lose digits
            return numbers.to_pandas(types_mapper={kind: import_pandas().Int64Dtype()}.get).array
        return numbers.to_numpy(zero_copy_only=False)
    return None


def form_of(column: Any) -> tuple[str, list[str]]:
    """Return the form of a column, and its text cells that do not have this form.

    Forms are "numeric", "nested" (such as lists), "date" and "time", and for text also "number",
    "percent" and "text".
    """
    pandas = import_pandas()
    if column.dtype.kind == "M" or isinstance(column.dtype, pandas.PeriodDtype):
        return "date", []
    if column.dtype.kind == "m":
        return "time", []
    if is_numeric(column):
        return "numeric", []
    nested = (list, dict, tuple, set, bytes, np.ndarray)
    if column.dtype == object and column.map(lambda cell: isinstance(cell, nested)).any():
        return "nested", []
    column = plain(column)
    if not is_text(column):
        return "text", []
    words = words_of(column)
    for form, pattern in (("date", DATE), ("time", TIME), ("percent", rf"(?:{PLAIN})\s*%")):
        fit = fits(words, pattern)
        if _mostly(words, fit):
            return form, list(words[~fit].unique())
    commas, plain_number = fits(words, EITHER), fits(words, PLAIN)
    errors, marked = words.isin(EXCEL_ERRORS), plain_number | fits(words, MARKED)
    if (
        (_mostly(words, commas) and (commas & ~plain_number).any())
        or (errors.any() and _mostly(words[~errors], plain_number[~errors]))
        or (marked.mean() >= 0.5 and words[marked].nunique() > NUMBER_VALUES)
    ):
        return "number", list(words[~plain_number].unique())
    return "text", []


def _mostly(words: Any, fit: Any) -> bool:
    """Whether at least half of the rows, or half of the distinct words, fit."""
    return bool(fit.any()) and (fit.mean() >= 0.5 or words[fit].nunique() >= 0.5 * words.nunique())


def numbers_in(column: Any, form: str | None = None) -> Any:
    """Return cells as floats, percentages as fractions, times as hours; NaN for other cells."""
    pandas = import_pandas()
    if column.dtype.kind == "m":
        return column.dt.total_seconds() / 3600
    words = words_of(column)
    if form == "time":
        numbers = words.map({word: _hours(word) for word in words.unique()}).astype(float)
    else:
        share = fits(words, rf"(?:{PLAIN})\s*%") & (form == "percent")
        words = words.where(~share, words.str.rstrip("% "))
        truth = words.isin(TRUTH)
        words = words.where(~truth, words.map(TRUTH).map({True: "1", False: "0"}))
        words = words.where(fits(words, PLAIN)).astype(object)
        numbers = pandas.to_numeric(words, errors="coerce").astype(float)
        numbers = numbers.where(~share, numbers / 100)
    return numbers.reindex(column.index)


def _hours(word: str) -> float:
    """Return a time in hours since midnight, and a plain number unchanged; NaN for other text.

    >>> _hours("7:30 pm"), _hours("07:30")
    (19.5, 7.5)
    """
    if not re.fullmatch(TIME, word):
        return float(word) if re.fullmatch(PLAIN, word) else np.nan
    clock = re.sub(r"[^0-9:.]", "", word.split(" ")[0].rstrip("aApPmM.")).split(":")
    hours = sum(float(part) / 60**i for i, part in enumerate(clock))
    half = re.search(r"([aApP])\.?[mM]", word)
    return hours if half is None else hours % 12 + 12 * (half[1] in "pP")


def date_order(column: Any) -> str | None:
    """Return what comes first in dates such as 1/2/2024: "day", "month", or None if ambiguous."""
    parts = words_of(column).str.extract(r"^([0-9]{1,2})[-/]([0-9]{1,2})[-/][0-9]{4}").dropna()
    if not len(parts):
        return "day"
    first, second = (parts[i].astype(int).max() > 12 for i in (0, 1))
    return None if first == second else "day" if first else "month"


def days_in(column: Any, order: str | None) -> Any:
    """Return the days of dates, NaT if a cell is missing or not a date; see :func:`date_order`."""
    pandas = import_pandas()
    if column.dtype.kind == "M":
        return column.dt.tz_localize(None).dt.normalize().astype("datetime64[s]")
    if isinstance(column.dtype, pandas.PeriodDtype):
        return column.dt.to_timestamp().astype("datetime64[s]")
    words = words_of(column).str.replace(r"[T ].*$", "", regex=True)
    words = words.str.replace(r"^([0-9]{4})[./]([0-9]+)[./]", r"\1-\2-", regex=True)
    words = words.str.replace(r"^([0-9]{1,2})-([0-9]{1,2})-", r"\1/\2/", regex=True)
    days = pandas.Series(pandas.NaT, index=words.index, dtype="datetime64[s]")
    slashes = {"day": "%d/%m/%Y", "month": "%m/%d/%Y"}
    for form in filter(None, ("%Y-%m-%d", "%d.%m.%Y", slashes.get(order or ""))):
        days = days.fillna(pandas.to_datetime(words, format=form, errors="coerce"))
    return days.reindex(column.index)


#: Numbers that can be computed from a date.
DATE_PARTS = ("month", "weekday", "age")
#: "7" but not "007", which is a code.
WHOLE_NUMBER = re.compile(r"0|-?[1-9]\d*")
#: Names of forms in messages.
FORMS = {"number": "numbers", "percent": "percentages", "time": "times", "date": "dates"}

Words = tuple[str | Argument, ...]


def split_names(texts: Sequence[str] | None, names: Sequence[str]) -> list[str] | None:
    """Split names at commas, unless a name with a comma is itself one of ``names``.

    >>> split_names(["age,sex", "dose, mg"], ["age", "sex", "dose, mg"])
    ['age', 'sex', 'dose, mg']
    """
    if texts is None:
        return None
    parts = [part for text in texts for part in ([text] if text in names else text.split(","))]
    return [part if part in names else part.strip() for part in parts if part.strip()]


def is_numeric(column: Any) -> bool:
    """Whether a column holds numbers or truth values."""
    types = import_pandas().api.types
    return bool(types.is_numeric_dtype(column.dtype)) and not types.is_complex_dtype(column.dtype)


def as_numbers(column: Any, name: str, first_row: int = 0, form: str | None = None) -> Array:
    """Return a column as float64 with NaN for missing values; ``form`` as in :func:`form_of`."""
    if not is_numeric(column):
        numbers = numbers_in(plain(column), form)
        if (row := first_unread(column, numbers)) is not None:
            cell = str(column.iloc[row])
            raise TableError(
                f"column {name!r} must hold numbers, but row {first_row + row + 1} has {cell!r}. "
                "Correct it, leave the cell empty, or set a decimal mark or a missing value with ",
                *(Argument("decimal", ","), " or ", Argument("na", [cell])),
            )
        column = numbers
    values = np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if problem := too_large_problem(values, first_row):
        raise TableError(f"column {name!r} ", *problem)
    return values


def first_unread(column: Any, values: Any) -> int | None:
    """First row whose cell is not missing but could not be read; None if there is none."""
    unread = np.flatnonzero(values.isna() & column.notna() & ~column.isin(MISSING))
    return int(unread[0]) if len(unread) else None


def too_large_problem(values: Array, first_row: int = 0) -> Words | None:
    """Describe numbers that are infinite or too large; None if there are none."""
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        return (f"is infinite in row {first_row + row + 1}; leave the cell empty",)
    return (f"holds values beyond {LARGEST_NUMBER:.0e}: scale it",) if too_large(values) else None


def date_parts(
    column: Any, name: str, first_row: int, order: str | None, parts: Sequence[str], reference: str
) -> dict[str, Array]:
    """Return numbers computed from dates, by name: month (from 1), weekday (0 is Monday) and age.

    Ages are the years from each date to the day ``reference``. Other cells are refused.
    """
    days = days_in(column, order)
    if (row := first_unread(column, days)) is not None:
        raise TableError(
            f"column {name!r} must hold dates, but row {first_row + row + 1} has "
            f"{str(column.iloc[row])!r}; write it as 2024-05-31, or leave the cell empty"
        )
    age = (import_pandas().Timestamp(reference) - days).dt.total_seconds()
    values = {"month": days.dt.month, "weekday": days.dt.day_of_week}
    values["age"] = age.astype(float) / (365.25 * 86400)
    return {f"{name} ({part})": values[part].to_numpy(dtype=np.float64) for part in parts}


def as_text(column: Any) -> Array:
    """Return a column as text objects with NaN for missing values."""
    text = plain(column).astype(object).map(str, na_action="ignore")
    return text.where(column.notna(), np.nan).to_numpy(dtype=object)


def as_labels(column: Any) -> Array:
    """Return a column without missing values as labels: int64 if possible, otherwise text.

    Text is unchanged, spaces included. Whole numbers beyond int64 become text, so that different
    ones stay different.
    """
    column = plain(column)
    kind = column.dtype.kind if is_numeric(column) else ""
    if kind in ("i", "u") and column.max() < 2**63:
        return column.to_numpy(dtype=np.int64)
    text = [str(value) for value in column]
    if kind == "f":
        values = column.to_numpy(dtype=np.float64)
        if np.all(np.isfinite(values) & (values == np.round(values))):
            text = [str(int(value)) for value in values]
    if all(WHOLE_NUMBER.fullmatch(value) for value in set(text)):
        numbers = [int(value) for value in text]
        if min(numbers) >= -(2**63) and max(numbers) < 2**63:
            return np.array(numbers, dtype=np.int64)
    return np.array(text)


def problem_of(column: Any, form: str, odd: list[str], *, dates: bool = False) -> Words | None:
    """Describe what is wrong with a feature, and what to do; None if it can be used.

    ``form`` and ``odd`` are returned by :func:`form_of`; ``dates`` is whether dates can be used.
    """
    if form == "nested":
        kind = type(column[column.notna()].iloc[0]).__name__
        return (f"holds {kind} values; one number or text per cell is needed",)
    if form == "date" and not dates:
        advice = "holds dates or times. Turn them into numbers with "
        return advice, Argument("dates", list(DATE_PARTS))
    if form == "number" and odd and fits(import_pandas().Series(odd, dtype=object), EITHER).all():
        advice = (
            f"holds numbers such as {odd[0]!r}, in which a comma may be a decimal mark or separate "
            "thousands; choose with "
        )
        return advice, Argument("decimal", ","), " or ", Argument("decimal", ".")
    if odd:
        advice = (
            f"holds {FORMS[form]}, but also {describe_names(odd, 3)}; correct those cells, or if "
            "they mean a missing value, pass "
        )
        return advice, Argument("na", odd[:3])
    n, count = column.count(), column.astype(str)[column.notna()].nunique() if form == "text" else 0
    if count > max(MAX_CATEGORIES, n // 2):
        return (
            f"has {count} different texts in {n} rows: it identifies rows and does not describe "
            "them",
        )
    return None


def plain(column: Any) -> Any:
    """Convert a categorical pandas column to a column of its values."""
    return column.astype(column.cat.categories.dtype) if hasattr(column, "cat") else column
