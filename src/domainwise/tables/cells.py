"""Reading numbers, percentages, times and dates from unambiguous text cells.

A number is unambiguous if only one of the two decimal marks makes sense in it: "1,5" and "1.234,5"
have decimal commas, "1.5" and "1,234.5" have decimal points. For "1,234", which is ambiguous, the
other cells in the column decide, or otherwise the other columns. Nothing else is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from domainwise.base.arrays import Array
from domainwise.base.inputs import LARGEST_NUMBER, is_quantity, too_large
from domainwise.tables.errors import Argument, TableError, describe_names, import_pandas

#: Text of missing cells: in any column, and in numeric columns, where "NA" is also missing.
MISSING_TEXT = ["", "NaN", "nan", "-nan", "<NA>", "#N/A"]
MISSING_WORDS = [*MISSING_TEXT, "NA", "N/A", "n/a", "NULL", "null", "None"]
#: Results of failed formulas, except ``#N/A``, which is a missing value.
EXCEL_ERRORS = ["#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"]
BOOLEANS = dict.fromkeys(("True", "TRUE", "true"), True)
BOOLEANS |= dict.fromkeys(("False", "FALSE", "false"), False)
_MONTH = r"(?i:jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]*"
#: Pattern for dates: 2024-05-31, 31.05.2024, 5/31/24, 31 May 2024, May 31, 2024, 2024-05 or 2024Q2.
DATE = (
    r"(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{2,4}"
    r"|[0-9]{4}-(?:0[1-9]|1[0-2])|[0-9]{4}[- ]?[Qq][1-4]"
    rf"|[0-9]{{1,2}}[-. ]+{_MONTH}[-., ]+[0-9]{{2,4}}|{_MONTH} [0-9]{{1,2}}, ?[0-9]{{4}})"
    r"(?:[T ].*)?"
)
TIME = r"(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?(?:\s*[AaPp]\.?[Mm]\.?)?"
PLAIN_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?[Ii]nf(?:inity)?"
#: Pattern for numbers with symbols or units: <5, $5, (5), 5 mm, 1_000, 95:30, 1.5D+03.
ANNOTATED_NUMBER = (
    r"[<>=~≈±$€£¥(]*\s*[+−-]?\.?[0-9][0-9.,:'_]*(?:[eEdD][+-]?[0-9]+)?"
    r"(?:[%‰°€$£¥)]|\s[^0-9]{1,6})*"
)
#: Thousands separators. OTHER_MARK adds the comma if the decimal mark is a point, and vice versa.
THOUSANDS = " '’\u00a0\u202f\u2009"
OTHER_MARK = {".": ",", ",": ".", None: ""}
#: A text column looks like an identifier, not a categorical feature, if its number of distinct
#: values exceeds both this number and half the number of its rows.
MAX_CATEGORIES = 50
#: A text column with numbers in at least half of its cells is treated as numbers with some invalid
#: cells if it has more distinct numbers than this; fewer numbers may be codes.
MAX_NUMERIC_CODES = 20


def _number_pattern(mark: str | None) -> str:
    """Return a pattern for numbers with this decimal mark (or none) and thousands separators."""
    separator = f"[{THOUSANDS}{OTHER_MARK[mark]}]"
    integer = f"(?:[1-9][0-9]{{0,2}}(?:{separator}[0-9]{{3}})+|[0-9]+)"
    if mark is None:
        return f"[+−-]?{integer}"
    escaped_mark = re.escape(mark)
    return f"[+−-]?(?:{integer}(?:{escaped_mark}[0-9]*)?|{escaped_mark}[0-9]+)(?:[eE][+-]?[0-9]+)?"


NUMBER = {mark: _number_pattern(mark) for mark in (".", ",", None)}
#: Pattern for numbers and percentages with either decimal mark.
NUMBER_OR_PERCENT = rf"(?:{NUMBER['.']}|{NUMBER[',']})\s*%?"


def is_text(column: Any) -> bool:
    """Whether a column has a string dtype, or the object dtype of spreadsheet columns."""
    types = import_pandas().api.types
    return bool(types.is_object_dtype(column.dtype) or types.is_string_dtype(column.dtype))


def matches(column: Any, pattern: str, *, full: bool = True) -> Any:
    """Return a mask of cells whose text matches a pattern, or contains it if ``full`` is False."""
    pattern = rf"^\s*(?:{pattern})\s*$" if full else pattern
    arrow_text = _arrow_text(column)
    if arrow_text is None:
        search = re.compile(pattern).search
        return column.map(lambda cell: isinstance(cell, str) and search(cell) is not None)
    from pyarrow import compute

    is_match = compute.match_substring_regex(arrow_text, pattern).fill_null(False)
    return import_pandas().Series(is_match.to_numpy(zero_copy_only=False), column.index, dtype=bool)


def _arrow_text(column: Any) -> Any:
    """Return a text column as an Arrow array, which is faster to search; None for other types."""
    try:
        import pyarrow

        array = pyarrow.array(column, from_pandas=True)
    except (ImportError, TypeError, ValueError, OverflowError):
        return None
    array = array.combine_chunks() if isinstance(array, pyarrow.ChunkedArray) else array
    return array if array.type in (pyarrow.string(), pyarrow.large_string()) else None


def text_cells(column: Any) -> Any:
    """Return the cells as stripped text, without missing cells and words such as "NA"."""
    texts = column[column.notna()].astype(str).str.strip()
    return texts[~texts.isin(MISSING_WORDS)]


def mark_missing(column: Any, na: Sequence[str], *, nan_text: bool = True) -> Any:
    """Mark empty cells, values in ``na`` and, with ``nan_text``, text such as "NaN" as missing."""
    if is_text(column) or hasattr(column, "cat"):
        missing_values: list[Any] = [*na, *(MISSING_TEXT if nan_text else [""])]
    elif column.dtype.kind in "iuf":
        missing_values = [float(text) for text in na if re.fullmatch(PLAIN_NUMBER, text)]
    else:
        return column
    is_missing = column.isin(missing_values)
    return column.where(~is_missing) if is_missing.any() else column


def decimal_marks(
    frame: Any,
    names: Sequence[str],
    mark: str | None = None,
    *,
    earlier_marks: Mapping[str, str] | None = None,
    fallback: str | None = None,
) -> dict[str, str]:
    """Return the decimal marks of text columns, by name; ambiguous columns are left out.

    The mark is the one from earlier chunks (``earlier_marks``) or the user's ``mark``. Otherwise it
    is inferred from the column's cells, or from other columns if they agree, or is ``fallback``.
    """
    marks = dict(earlier_marks or {})
    has_comma_by_column = {}
    text_columns = [name for name in names if name not in marks and is_text(frame[name])]
    if {mark, fallback, *marks.values()} <= {None, "."} and not any(
        matches(frame[name], ",", full=False).any() for name in text_columns
    ):
        point_columns = [n for n in text_columns if matches(frame[n], r"\.", full=False).any()]
        return {**marks, **dict.fromkeys(point_columns, ".")}
    for name in text_columns:
        column = frame[name]
        fits_point, fits_comma = (matches(column, rf"(?:{NUMBER[m]})\s*%?") for m in (".", ","))
        needs_point = (fits_point & ~fits_comma).any()
        needs_comma = (fits_comma & ~fits_point).any()
        if mark is not None:
            marks[name] = mark
        elif needs_point != needs_comma:
            marks[name] = "." if needs_point else ","
        elif not needs_point and (fits_point & matches(column, "[.,]", full=False)).any():
            has_comma_by_column[name] = bool(matches(column[fits_point], ",", full=False).any())
    known_marks = {*marks.values()}
    for name, has_comma in has_comma_by_column.items():
        if len(known_marks) == 1:
            (marks[name],) = known_marks
        elif not has_comma and fallback == ",":
            cell = frame[name][matches(frame[name], r"[0-9]\.[0-9]", full=False)].iloc[0].strip()
            remedy = Argument("decimal", "."), " or ", Argument("decimal", ",")
            text = f"column {name!r}: {cell!r} may be {cell} or {cell.replace('.', '')}. Choose "
            raise TableError(text, *remedy)
        elif not has_comma:
            marks[name] = "."
        elif fallback is not None and not known_marks:
            marks[name] = fallback
    return marks


def with_decimal_points(column: Any, mark: str | None) -> Any:
    """Rewrite the numbers in a text column with decimal points and without thousands separators."""
    if not is_text(column):
        return column
    needs_rewrite = matches(column, f"[,−{OTHER_MARK[mark]}]|[0-9][{THOUSANDS}][0-9]", full=False)
    if needs_rewrite.any():
        needs_rewrite &= matches(column, rf"(?:{NUMBER[mark]})\s*%?")
    if not needs_rewrite.any():
        return column
    separator = f"[{THOUSANDS}{OTHER_MARK[mark]}]"
    numbers = column[needs_rewrite].astype(str).str.strip().str.replace(separator, "", regex=True)
    numbers = numbers.str.replace("−", "-", regex=False).str.replace(mark or ".", ".", regex=False)
    return column.astype(object).where(~needs_rewrite, numbers.astype(object))


def parse_numbers(column: Any) -> Any:
    """Convert a text column to numbers or booleans; if a cell is neither, return it unchanged."""
    if not is_text(column):
        return column
    pandas, arrow_text = import_pandas(), _arrow_text(column)
    numbers = None if arrow_text is None else _cast_numbers(arrow_text)
    if numbers is not None:
        return pandas.Series(numbers, column.index, name=column.name)
    cells = column[column.notna() & ~column.isin(MISSING_WORDS)]
    if len(cells) and cells.isin([True, False]).all() and cells.map(type).eq(bool).all():
        return column.where(column.isin([True, False])).astype("boolean")
    if len(cells) and cells.isin(BOOLEANS).all():
        return column.where(column.isin(BOOLEANS)).map(BOOLEANS).astype("boolean")
    is_number = cells.map(lambda cell: isinstance(cell, (int, float, Decimal)))
    if not (is_number | matches(cells, PLAIN_NUMBER)).all():
        return column
    numbers = pandas.to_numeric(cells.astype(object), errors="coerce")
    return numbers if len(cells) == len(column) else numbers.astype(float).reindex(column.index)


def _cast_numbers(arrow_text: Any) -> Any:
    """Convert Arrow text to int64 or to the nearest float64; None if a cell is not a number."""
    import pyarrow
    from pyarrow import compute

    arrow_text = compute.utf8_trim_whitespace(arrow_text)
    is_missing = compute.is_in(arrow_text, pyarrow.array(MISSING_WORDS, arrow_text.type))
    arrow_text = compute.if_else(is_missing, pyarrow.scalar(None, arrow_text.type), arrow_text)
    has_point = compute.any(compute.match_substring(arrow_text, ".")).as_py()
    for dtype in (pyarrow.int64(), pyarrow.float64())[bool(has_point) :]:
        try:
            numbers = arrow_text.cast(dtype)
        except pyarrow.ArrowInvalid:
            continue
        if numbers.null_count and dtype == pyarrow.int64():  # float64 would lose digits
            return numbers.to_pandas(types_mapper={dtype: import_pandas().Int64Dtype()}.get).array
        return numbers.to_numpy(zero_copy_only=False)
    return None


def form_of(column: Any) -> tuple[str, list[str]]:
    """Return the form of a column, and the distinct text cells that do not have this form.

    Forms are "numeric", "nested" (lists, for example), "date" and "time". Text columns can also
    have the forms "number", "percent" and "text".
    """
    pandas = import_pandas()
    if column.dtype.kind == "M" or isinstance(column.dtype, pandas.PeriodDtype):
        return "date", []
    if column.dtype.kind == "m":
        return "time", []
    if is_numeric(column):
        return "numeric", []
    nested_types = (list, dict, tuple, set, bytes, np.ndarray)
    if column.dtype == object and column.map(lambda cell: isinstance(cell, nested_types)).any():
        return "nested", []
    column = category_values(column)
    if not is_text(column):
        return "text", []
    texts = text_cells(column)
    for form, pattern in (("date", DATE), ("time", TIME), ("percent", rf"(?:{PLAIN_NUMBER})\s*%")):
        is_match = matches(texts, pattern)
        if _half_match(texts, is_match):
            return form, list(texts[~is_match].unique())
    is_number, is_plain = matches(texts, NUMBER_OR_PERCENT), matches(texts, PLAIN_NUMBER)
    is_error, is_annotated = texts.isin(EXCEL_ERRORS), is_plain | matches(texts, ANNOTATED_NUMBER)
    if (
        (_half_match(texts, is_number) and (is_number & ~is_plain).any())
        or (is_error.any() and _half_match(texts[~is_error], is_plain[~is_error]))
        or (is_annotated.mean() >= 0.5 and texts[is_annotated].nunique() > MAX_NUMERIC_CODES)
    ):
        return "number", list(texts[~is_plain].unique())
    return "text", []


def _half_match(texts: Any, is_match: Any) -> bool:
    """Whether at least half of the cells, or half of the distinct cells, match."""
    larger_share = max(is_match.mean(), texts[is_match].nunique() / max(texts.nunique(), 1))
    return bool(is_match.any()) and larger_share >= 0.5


def numbers_in(column: Any, form: str | None = None) -> Any:
    """Return cells as floats: percentages as fractions, times in hours, NaN for other text."""
    pandas = import_pandas()
    if column.dtype.kind == "m":
        return column.dt.total_seconds() / 3600
    texts = text_cells(column)
    if form == "time":
        numbers = texts.map({text: _hours(text) for text in texts.unique()}).astype(float)
    else:
        is_percent = matches(texts, rf"(?:{PLAIN_NUMBER})\s*%") & (form == "percent")
        texts = texts.where(~is_percent, texts.str.rstrip("% "))
        texts = texts.where(~texts.isin(BOOLEANS), texts.map(BOOLEANS).map({True: "1", False: "0"}))
        texts = texts.where(matches(texts, PLAIN_NUMBER)).astype(object)
        numbers = pandas.to_numeric(texts, errors="coerce").astype(float)
        numbers = numbers.where(~is_percent, numbers / 100)
    return numbers.reindex(column.index)


def _hours(text: str) -> float:
    """Return a time in hours since midnight, and a number unchanged; NaN for other text.

    >>> _hours("7:30 pm"), _hours("07:30")
    (19.5, 7.5)
    """
    if not re.fullmatch(TIME, text):
        return float(text) if re.fullmatch(PLAIN_NUMBER, text) else np.nan
    clock_parts = re.sub(r"[^0-9:.]", "", text.split(" ")[0].rstrip("aApPmM.")).split(":")
    hours = sum(float(digits) / 60**i for i, digits in enumerate(clock_parts))
    suffix_match = re.search(r"([aApP])\.?[mM]", text)
    return hours if suffix_match is None else hours % 12 + 12 * (suffix_match[1] in "pP")


def date_order(column: Any) -> str | None:
    """Return "day" or "month", whichever comes first in dates like 1/2/2024; None if ambiguous."""
    numbers = text_cells(column).str.extract(r"^([0-9]{1,2})[-/]([0-9]{1,2})[-/][0-9]{4}").dropna()
    if not len(numbers):
        return "day"
    first_is_day, second_is_day = (numbers[i].astype(int).max() > 12 for i in (0, 1))
    return None if first_is_day == second_is_day else "day" if first_is_day else "month"


def days_in(column: Any, order: str | None) -> Any:
    """Return dates without times; NaT for other cells. ``order`` is from :func:`date_order`."""
    pandas = import_pandas()
    if column.dtype.kind == "M":
        return column.dt.tz_localize(None).dt.normalize().astype("datetime64[s]")
    if isinstance(column.dtype, pandas.PeriodDtype):
        return column.dt.to_timestamp().astype("datetime64[s]")
    texts = text_cells(column).str.replace(r"[T ].*$", "", regex=True)
    texts = texts.str.replace(r"^([0-9]{4})[./]([0-9]+)[./]", r"\1-\2-", regex=True)
    texts = texts.str.replace(r"^([0-9]{1,2})-([0-9]{1,2})-", r"\1/\2/", regex=True)
    days = pandas.Series(pandas.NaT, index=texts.index, dtype="datetime64[s]")
    slash_formats = {"day": "%d/%m/%Y", "month": "%m/%d/%Y"}
    for date_format in filter(None, ("%Y-%m-%d", "%d.%m.%Y", slash_formats.get(order or ""))):
        days = days.fillna(pandas.to_datetime(texts, format=date_format, errors="coerce"))
    return days.reindex(column.index)


#: Numbers that can be computed from a date.
DATE_PARTS = ("month", "weekday", "age")
#: "7" but not "007", which is a code.
WHOLE_NUMBER = re.compile(r"0|-?[1-9]\d*")
#: Nouns that messages use for the forms.
FORM_NOUNS = {"number": "numbers", "percent": "percentages", "time": "times", "date": "dates"}

MessageParts = tuple[str | Argument, ...]


def split_names(entries: Sequence[str] | None, names: Sequence[str]) -> list[str] | None:
    """Split entries at commas, except entries that are themselves in ``names``.

    >>> split_names(["age,sex", "dose, mg"], ["age", "sex", "dose, mg"])
    ['age', 'sex', 'dose, mg']
    """
    if entries is None:
        return None
    pieces = [p for entry in entries for p in ([entry] if entry in names else entry.split(","))]
    return [piece if piece in names else piece.strip() for piece in pieces if piece.strip()]


def is_numeric(column: Any) -> bool:
    """Whether a column has a numeric or boolean dtype."""
    types = import_pandas().api.types
    return bool(types.is_numeric_dtype(column.dtype)) and not types.is_complex_dtype(column.dtype)


def as_numbers(column: Any, name: str, first_row: int = 0, form: str | None = None) -> Array:
    """Return a column as float64 with NaN for missing values; ``form`` as in :func:`form_of`."""
    if not is_numeric(column):
        numbers = numbers_in(category_values(column), form)
        if (row := first_unreadable(column, numbers)) is not None:
            cell = str(column.iloc[row])
            raise TableError(
                f"column {name!r} must contain numbers, but row {first_row + row + 1} has {cell!r}."
                " Correct the cell or leave it empty, set the decimal mark with ",
                *(Argument("decimal", ","), ", or treat this value as missing with "),
                Argument("na", [cell]),
            )
        column = numbers
    values = np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if problem := too_large_problem(values, first_row):
        raise TableError(f"column {name!r} ", *problem)
    return values


def first_unreadable(column: Any, converted_cells: Any) -> int | None:
    """Return the index of the first cell that could not be converted; None if there is none."""
    is_missing = column.isna() | column.astype(str).str.strip().isin(MISSING_WORDS)
    unreadable_rows = np.flatnonzero(converted_cells.isna() & ~is_missing)
    return int(unreadable_rows[0]) if len(unreadable_rows) else None


def too_large_problem(values: Array, first_row: int = 0) -> MessageParts | None:
    """Describe numbers that are infinite or too large; None if there are none."""
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        return (f"is infinite in row {first_row + row + 1}. Leave the cell empty",)
    return (f"has values beyond ±{LARGEST_NUMBER:.0e}. Rescale it",) if too_large(values) else None


def as_days(column: Any, name: str, first_row: int, order: str | None) -> Any:
    """Return dates as :func:`days_in` does; raise a TableError for cells that are not dates."""
    days = days_in(column, order)
    if (row := first_unreadable(column, days)) is not None:
        raise TableError(
            f"column {name!r} must contain dates, but row {first_row + row + 1} has "
            f"{str(column.iloc[row])!r}. Write it as YYYY-MM-DD, or leave the cell empty"
        )
    return days


def date_numbers(days: Any, name: str, parts: Sequence[str], reference: str) -> dict[str, Array]:
    """Return features computed from dates: month (from 1), weekday (0 is Monday) and age.

    Their names contain the column name. Ages are the years from each date to ``reference``.
    """
    age_seconds = (import_pandas().Timestamp(reference) - days).dt.total_seconds()
    numbers_by_part = {"month": days.dt.month, "weekday": days.dt.day_of_week}
    numbers_by_part["age"] = age_seconds.astype(float) / (365.25 * 86400)
    return {f"{name} ({part})": numbers_by_part[part].to_numpy(dtype=np.float64) for part in parts}


def as_text(column: Any) -> Any:
    """Return a column as strings, with NaN for missing values and with the default index."""
    texts = category_values(column).astype(object).map(str, na_action="ignore")
    values = texts.where(column.notna(), np.nan).to_numpy(dtype=object)
    return import_pandas().Series(values, dtype=object)


def as_labels(column: Any) -> Array:
    """Return a column without missing values as labels: int64 if possible, otherwise text.

    Text is unchanged, including spaces. Whole numbers beyond int64 become text, so that different
    numbers stay different.
    """
    if not len(column):
        return np.array([], dtype=str)
    column = category_values(column)
    dtype_kind = column.dtype.kind if is_numeric(column) else ""
    if dtype_kind in ("i", "u") and column.max() < 2**63:
        return column.to_numpy(dtype=np.int64)
    texts = [str(label) for label in column]
    if dtype_kind == "f":
        values = column.to_numpy(dtype=np.float64)
        if np.all(np.isfinite(values) & (values == np.round(values))):
            texts = [str(int(value)) for value in values]
    if all(WHOLE_NUMBER.fullmatch(text) for text in set(texts)):
        numbers = [int(text) for text in texts]
        if min(numbers) >= -(2**63) and max(numbers) < 2**63:
            return np.array(numbers, dtype=np.int64)
    return np.array(texts)


def problem_of(
    column: Any, form: str, unmatched_texts: list[str], *, use_dates: bool = False
) -> MessageParts | None:
    """Describe what is wrong with a feature, and what to do; None if it can be used.

    ``form`` and ``unmatched_texts`` are from :func:`form_of`; ``use_dates`` allows dates.
    """
    if form == "nested":
        type_name = type(column[column.notna()].iloc[0]).__name__
        return (f"contains {type_name} values. Store one number or string in each cell",)
    if form == "date" and not use_dates:
        text = "contains dates or times. Convert them to numbers with "
        return text, Argument("dates", list(DATE_PARTS))
    unmatched_cells = import_pandas().Series(unmatched_texts, dtype=object)
    if form == "number" and unmatched_texts and matches(unmatched_cells, NUMBER_OR_PERCENT).all():
        cell = repr(unmatched_texts[0])
        text = f"contains {cell}, whose comma may be a decimal mark or thousands separator. Choose "
        return text, Argument("decimal", ","), " or ", Argument("decimal", ".")
    if unmatched_texts:
        examples = describe_names(unmatched_texts, 3)
        text = f"contains {FORM_NOUNS[form]}, but also {examples}. Correct these cells or, if they "
        return text, "mean a missing value, pass ", Argument("na", unmatched_texts[:3])
    n_cells = column.count()
    n_distinct = column.dropna().astype(str).nunique() if form == "text" else 0
    if n_distinct > max(MAX_CATEGORIES, n_cells // 2):
        return (f"has {n_distinct} distinct values in {n_cells} rows; it looks like an identifier",)
    return None


def category_values(column: Any) -> Any:
    """Convert a categorical column to the dtype of its categories; return others unchanged."""
    return column.astype(column.cat.categories.dtype) if hasattr(column, "cat") else column


def target_column(column: Any, mark: str | None) -> Any:
    """Convert a text target to numbers if all its cells are numbers or missing.

    Other text is unchanged, and so are codes with leading zeros and whole numbers beyond int64.
    """
    column = category_values(column)
    if not is_text(column):
        return column
    numbers = parse_numbers(with_decimal_points(column, mark))
    if is_text(numbers):
        form, unmatched_texts = form_of(numbers)
        if form in ("percent", "time") and not unmatched_texts:
            return numbers_in(numbers, form).rename(column.name)
        return column
    if numbers.isna().all():  # all cells are words such as "NA", which are the classes
        return column
    if matches(column, r"-?0[0-9].*|[+-]?[0-9]{19,}").any():
        return column.where(~column.isin(MISSING_WORDS))
    return numbers


def task_of(target: Any, task: str) -> str:
    """Return ``task``; if it is "auto", choose the task from the target."""
    if task != "auto":
        return task
    if not is_numeric(target) or target.dtype.kind == "b":
        return "classification"
    values = target.to_numpy(dtype=np.float64, na_value=np.nan)
    return "regression" if is_quantity(values) else "classification"


def refuse_quantities(target: Any, mark: str | None = None) -> None:
    """Raise a TableError if the target contains dates or other quantities instead of classes."""
    form, unmatched_texts = form_of(with_decimal_points(target, mark))
    if form in ("date", "time", "percent", "nested") or (form == "number" and unmatched_texts):
        problem = None if form == "date" else problem_of(target, form, unmatched_texts)
        subject = f"the target {str(target.name)!r} "
        if problem is None:
            raise TableError(f"{subject}contains {FORM_NOUNS[form]}. Choose another target")
        raise TableError(subject, *problem, ", or choose another target")
