"""What a cell means: the only conversions of cells to numbers, days and text.

Typed cells (numbers, dates, booleans) are used as they are. :func:`number_in` and :func:`day_in`
convert a text cell, given how its column is written: the decimal mark, the form of its numbers
("", "percent", "time" or "censored") and the order of day and month. :func:`learn_kind` and
:func:`learn_marks` learn this from the column; a :class:`~domainwise.tables.schema.Schema` stores
it. The meaning of a cell therefore does not depend on the other cells that are read with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from domainwise.base.arrays import Array
from domainwise.base.inputs import LARGEST_NUMBER, too_large
from domainwise.tables.errors import (
    MAX_CHARACTERS,
    Argument,
    MessageParts,
    TableError,
    describe_names,
    import_pandas,
)

#: Text of missing cells: in any column, and in numeric columns, where "NA" is also missing.
MISSING_TEXT = ("", "NaN", "nan", "-nan", "<NA>", "#N/A")
MISSING_WORDS = (*MISSING_TEXT, "NA", "N/A", "n/a", "NULL", "null", "None")
BOOLEANS = dict.fromkeys(("True", "TRUE", "true"), 1.0)
BOOLEANS |= dict.fromkeys(("False", "FALSE", "false"), 0.0)
#: Thousands separators. OTHER_MARK adds the comma if the decimal mark is a point, and vice versa.
THOUSANDS = " '’\u00a0\u202f\u2009"
OTHER_MARK = {".": ",", ",": ".", None: ""}


def _number_pattern(mark: str | None) -> re.Pattern[str]:
    """Return a pattern for numbers with this decimal mark; None allows a point, but no comma."""
    point = re.escape(mark or ".")
    integer = f"(?:[1-9][0-9]{{0,2}}(?:[{THOUSANDS}{OTHER_MARK[mark]}][0-9]{{3}})+|[0-9]+)"
    number = f"(?:{integer}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    return re.compile(f"[+−-]?(?:{number}|[Ii]nf(?:inity)?)")


NUMBER = {mark: _number_pattern(mark) for mark in OTHER_MARK}
_SEPARATORS = {mark: re.compile(f"[{THOUSANDS}{OTHER_MARK[mark]}]") for mark in OTHER_MARK}
SIMPLE_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
PLAIN_NUMBER = re.compile(SIMPLE_NUMBER)
#: Pattern for 1.234 or 1,234, whose mark may be a decimal mark or a thousands separator.
GROUPED = r"[+-]?[1-9][0-9]{{0,2}}[{}][0-9]{{3}}(?:[eE][+-]?[0-9]+)?"
CENSORED = re.compile(r"[<>≤≥]=?\s*")
TIME = re.compile(
    r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]+)?))?(?:\s*([AaPp])\.?[Mm]\.?)?"
)
_MONTH = r"(?i:jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]*"
#: Pattern for dates: 2024-05-31, 31.05.2024, 5/31/24, 31 May 2024, May 31, 2024, 2024-05 or 2024Q2.
DATE = re.compile(
    r"(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{2,4}"
    r"|[0-9]{4}-(?:0[1-9]|1[0-2])|[0-9]{4}[- ]?[Qq][1-4]"
    rf"|[0-9]{{1,2}}[-. ]+{_MONTH}[-., ]+[0-9]{{2,4}}|{_MONTH} [0-9]{{1,2}}, ?[0-9]{{4}})"
    r"(?:[T ].*)?"
)
#: Pattern for numbers with symbols or units, such as <5, $5, (5), 5 mm, 1_000, 95:30 or 1.5D+03,
#: and for the results of failed formulas.
ANNOTATED_NUMBER = re.compile(
    r"[<>=~≈±$€£¥≤≥(]*\s*[+−-]?\.?[0-9][0-9.,:'_]*(?:[eEdD][+-]?[0-9]+)?"
    r"(?:[%‰°€$£¥)]|\s[^0-9]{1,6})*"
)
EXCEL_ERROR = re.compile(r"#(?:DIV/0!|VALUE!|REF!|NAME\?|NUM!|NULL!)")
WHOLE_NUMBER, CODE = re.compile(r"0|-?[1-9][0-9]*"), re.compile(r"[+-]?0[0-9]+")
DIGITS = re.compile(r"[+-]?[0-9]+")
#: A text column is not a categorical feature if its number of distinct values exceeds both this
#: number and half the number of its rows. It is free text if its cells have this many words.
MAX_CATEGORIES, TEXT_WORDS = 50, 4
#: A text column with numbers in at least half of its cells is treated as numbers with some invalid
#: cells if it has more distinct numbers than this; fewer numbers may be codes.
MAX_NUMERIC_CODES = 20
#: Numbers that can be computed from a date, and nouns for what a column contains, by form.
DATE_PARTS = ("month", "weekday", "age")
NOUNS = {"": "numbers", "censored": "numbers", "percent": "percentages", "time": "times"}


def check_mark(mark: str | None) -> None:
    """Raise a TableError for an unknown decimal mark."""
    if mark not in OTHER_MARK:
        raise TableError(Argument("decimal", mark), " is not supported; use '.' or ','")


def number_in(text: str, mark: str | None = None, form: str = "") -> float:
    """Return the number in a text cell, or NaN: percentages as fractions, times in hours.

    >>> number_in("1.234,5", ","), number_in("1,5", "."), number_in("12 %", form="percent")
    (1234.5, nan, 0.12)
    """
    if form == "time":
        match = TIME.fullmatch(text)
        if match is None:
            return np.nan
        hours = sum(float(digits or 0) / 60**i for i, digits in enumerate(match.groups()[:3]))
        return hours if match[4] is None else hours % 12 + 12 * (match[4] in "pP")
    if form == "percent":
        return number_in(text[:-1].rstrip(), mark) / 100 if text.endswith("%") else np.nan
    if form == "censored":
        text = CENSORED.sub("", text, count=1)
    if NUMBER[mark].fullmatch(text) is None:
        return BOOLEANS.get(text, np.nan)
    digits = _SEPARATORS[mark].sub("", text).replace("−", "-")
    return float(digits.replace(",", ".") if mark == "," else digits)


def day_in(text: str, order: str = "") -> date | None:
    """Return the date in a text cell, without the time; ``order`` is "day" or "month" in 1/2/2024.

    >>> day_in("31.5.2024"), day_in("5/31/2024", "month"), day_in("1/2/2024")
    (datetime.date(2024, 5, 31), datetime.date(2024, 5, 31), None)
    """
    text = re.split("[T ]", text)[0]
    if match := re.fullmatch(r"([0-9]{4})[-./]([0-9]{1,2})[-./]([0-9]{1,2})", text):
        year, month, day = map(int, match.groups())
    elif match := re.fullmatch(r"([0-9]{1,2})([-./])([0-9]{1,2})[-./]([0-9]{4})", text):
        day, month, year = int(match[1]), int(match[3]), int(match[4])
        if match[2] != ".":
            if not order:
                return None
            day, month = (day, month) if order == "day" else (month, day)
    else:
        return None
    try:
        return date(year, month, day)
    except ValueError:
        return None


def text_of(cell: Any) -> str:
    """Return a cell as text; whole numbers have no decimal point.

    >>> text_of(3.0), text_of(" 3.0"), text_of(True)
    ('3', ' 3.0', 'True')
    """
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return str(int(cell))
    return str(cell)


# Columns ------------------------------------------------------------------------------------------


def is_numeric(column: Any) -> bool:
    """Whether a column has a numeric or boolean dtype."""
    types = import_pandas().api.types
    return bool(types.is_numeric_dtype(column.dtype)) and not types.is_complex_dtype(column.dtype)


def plain(column: Any) -> Any:
    """Return a column with a dtype of numbers, dates or durations, or with the dtype object."""
    pandas = import_pandas()
    if hasattr(column, "cat"):
        return plain(column.astype(column.cat.categories.dtype))
    if isinstance(column.dtype, pandas.SparseDtype):
        return plain(column.sparse.to_dense())
    if isinstance(column.dtype, pandas.ArrowDtype) and not is_numeric(column):
        import pyarrow

        values = pyarrow.array(column).to_pandas()
        return plain(pandas.Series(values.to_numpy(dtype=object), column.index, name=column.name))
    if isinstance(column.dtype, pandas.PeriodDtype):
        return column.dt.to_timestamp()
    if getattr(column.dtype, "byteorder", "=") not in "=|":
        return column.astype(column.dtype.newbyteorder("="))
    return column if is_numeric(column) or column.dtype.kind in "mM" else column.astype(object)


def _factorize(column: Any) -> tuple[Array, Any]:
    """Return the index of each cell among the distinct cells (-1 if missing), and these."""
    column, pandas = plain(column), import_pandas()
    try:
        return pandas.factorize(column)
    except TypeError:  # lists, for example, which are refused later
        return pandas.factorize(column.map(str, na_action="ignore"))


def _convert(column: Any, convert: Callable[[Any], Any], dtype: Any, missing: Any) -> Array:
    """Convert each distinct cell; missing cells become ``missing``."""
    codes, uniques = _factorize(column)
    values = np.empty(len(uniques) + 1, dtype=dtype)
    values[:-1] = [convert(cell) for cell in uniques]
    values[-1] = missing
    return values[codes]


def _simple_texts(column: Any, mark: str | None, na: Sequence[str]) -> Any:
    """Return stripped text as an Arrow array if all cells are numbers without separators.

    This only makes reading such columns faster. Missing cells are null; the result is None for
    other columns.
    """
    try:
        import pyarrow
        from pyarrow import compute

        texts = compute.utf8_trim_whitespace(pyarrow.array(column, pyarrow.string()))
    except (ImportError, TypeError, ValueError):
        return None
    missing_words = pyarrow.array([*MISSING_WORDS, *na], pyarrow.string())
    texts = compute.if_else(compute.is_in(texts, missing_words), None, texts)
    pattern = SIMPLE_NUMBER.replace(r"\.", ",") if mark == "," else SIMPLE_NUMBER
    is_simple = compute.match_substring_regex(texts, f"^(?:{pattern})$")
    return texts if compute.all(is_simple, min_count=0).as_py() else None


def _count_matches(texts: Any, pattern: str) -> int:
    """Count the texts in an Arrow array that match a pattern."""
    from pyarrow import compute

    return compute.sum(compute.match_substring_regex(texts, pattern)).as_py() or 0


def read_numbers(
    column: Any, mark: str | None = None, form: str = "", na: Sequence[str] = ()
) -> tuple[Array, Array]:
    """Return a column's numbers (NaN if missing), and a mask of cells that cannot be read."""
    column = plain(column)
    if column.dtype.kind == "m":
        return column.dt.total_seconds().to_numpy() / 3600, np.zeros(len(column), dtype=bool)
    if is_numeric(column):
        values = np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))
        is_unreadable = np.zeros(len(values), dtype=bool)
    elif not form and (texts := _simple_texts(column, mark, na)) is not None:
        from pyarrow import compute

        texts = compute.replace_substring(texts, ",", ".") if mark == "," else texts
        values = np.array(texts.cast("float64").to_numpy(zero_copy_only=False))
        is_unreadable = np.zeros(len(values), dtype=bool)
    else:
        # A pair: the number, and whether the cell cannot be read.
        def convert(cell: Any) -> tuple[float, bool]:
            if isinstance(cell, (Real, Decimal)):
                try:
                    return float(cell), False
                except OverflowError:
                    return np.inf, False
            text = str(cell).strip()
            if text in missing_words:
                return np.nan, False
            number = number_in(text, mark, form)
            return number, bool(np.isnan(number))

        missing_words = {*MISSING_WORDS, *na}
        dtype = [("value", np.float64), ("unreadable", bool)]
        pairs = _convert(column, convert, dtype, (np.nan, False))
        values, is_unreadable = pairs["value"].copy(), pairs["unreadable"]
    for number in {number_in(text, m) for text in na for m in (mark, None)} if not form else ():
        values[values == number] = np.nan
    return values, is_unreadable


def read_days(column: Any, order: str, na: Sequence[str] = ()) -> tuple[Any, Array]:
    """Return a column's dates (NaT if missing), and a mask of cells that cannot be read."""
    column, pandas = plain(column), import_pandas()
    if column.dtype.kind == "M":
        days = column.dt.tz_localize(None).dt.normalize().astype("datetime64[s]")
        return days.reset_index(drop=True), np.zeros(len(days), dtype=bool)
    missing_words = {*MISSING_WORDS, *na}

    def convert(cell: Any) -> Any:
        text = str(cell).strip()
        return np.datetime64("NaT") if text in missing_words else day_in(text, order)

    cells = _convert(column, convert, object, np.datetime64("NaT"))
    is_unreadable = np.array([cell is None for cell in cells], dtype=bool)
    return pandas.Series(cells.astype("datetime64[D]")).astype("datetime64[s]"), is_unreadable


def read_texts(
    column: Any,
    levels: Sequence[str] = (),
    na: Sequence[str] = (),
    missing_text: Sequence[str] = MISSING_TEXT,
) -> Array:
    """Return a column's cells as text, as they are written; None if missing.

    Among ``levels``, such as "01" or "TRUE", a typed number or boolean is the level with its value.
    """
    missing_words, values = {*missing_text, *na}, [number_in(level) for level in levels]
    level_by_value = dict(zip(values, levels, strict=True))

    def convert(cell: Any) -> str | None:
        text = text_of(cell)
        if text in missing_words:
            return None
        if isinstance(cell, (Real, np.bool_)) and text not in levels:
            return level_by_value.get(float(cell), text)
        return text

    return _convert(plain(column), convert, object, None)


def read_whole_numbers(column: Any, mark: str | None, na: Sequence[str] = ()) -> Array:
    """Return a column's cells as text, None if missing; "1.0" and "1 " become "1"."""
    missing_words = {*MISSING_WORDS, *na}

    def convert(cell: Any) -> str | None:
        text = text_of(cell).strip()
        if WHOLE_NUMBER.fullmatch(text) is None:  # otherwise, digits beyond float64 are kept
            number = number_in(text, mark)
            text = text_of(number) if number.is_integer() else text_of(cell)
        return None if text.strip() in missing_words else text

    return _convert(plain(column), convert, object, None)


def as_labels(texts: Array) -> Array:
    """Return labels as int64 if all are whole numbers that int64 can represent, otherwise as text.

    >>> as_labels(np.array(["1", "2"], dtype=object)), as_labels(np.array(["01"], dtype=object))
    (array([1, 2]), array(['01'], dtype='<U2'))
    """
    if len(texts) and all(WHOLE_NUMBER.fullmatch(text) for text in set(texts.tolist())):
        numbers = [int(text) for text in texts]
        if min(numbers) >= -(2**63) and max(numbers) < 2**63:
            return np.array(numbers, dtype=np.int64)
    return texts.astype(str)


def missing_cells(column: Any) -> Array:
    """Return a mask of the missing cells in an array or in a data frame column."""
    if hasattr(column, "isna"):
        return np.asarray(column.isna(), dtype=bool)
    column = np.asarray(column)
    if column.dtype.kind == "O":
        return np.array([value is None or value != value for value in column], dtype=bool)
    return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), dtype=bool)


def column_kind(column: Any) -> str:
    """Return the type of a column's cells: "number", "text" or "other", such as dates.

    >>> column_kind(np.array([1, None, 2.5], dtype=object))
    'number'
    """
    if column.dtype.kind not in "OUST":
        return "number" if column.dtype.kind in "biuf" else "other"
    types = {type(value) for value in column[~missing_cells(column)]}
    return "number" if types and all(issubclass(t, Real) for t in types) else "text"


# Learning how a column is written -----------------------------------------------------------------


def count_texts(column: Any, na: Sequence[str] = ()) -> Counter[str]:
    """Count the distinct cells of a column, as text without spaces around it; skip missing ones."""
    codes, uniques = _factorize(column)
    counts: Counter[str] = Counter()
    for cell, count in zip(uniques, np.bincount(codes[codes >= 0], minlength=1), strict=False):
        counts[str(cell).strip()] += int(count)
    for text in {*MISSING_WORDS, *na} & {*counts}:
        del counts[text]
    return counts


def spelled_levels(texts: Sequence[str]) -> list[str]:
    """Return the categories whose value could also be a typed number or boolean.

    >>> spelled_levels(["01", "02", "x", "2", "FALSE"])  # the number 2 may be "02" or "2"
    ['01', 'FALSE']
    """
    distinct_texts = set(texts)
    values = {text: number_in(text) for text in distinct_texts}
    counts = Counter(values.values())
    return sorted(
        text
        for text, value in values.items()
        if counts[value] == 1 and not {text, str(value)} & {text_of(value), "nan"}
    )


def rewritten_example(column: Any, mark: str | None, na: Sequence[str]) -> str:
    """Describe how the first number with a comma or separators is read; "" if there is none."""
    is_simple = is_numeric(column) or (mark != "," and _simple_texts(column, mark, na) is not None)
    for text in () if is_simple else count_texts(column, na):
        bare = text.removesuffix("%").rstrip()
        if NUMBER[mark].fullmatch(bare) and not PLAIN_NUMBER.fullmatch(bare):
            return f"{text!r} is {number_in(bare, mark):.15g}{text[len(bare) :]}"
    return ""


def _share(texts: Counter[str], matches: Callable[[str], Any]) -> float:
    """Return the share of the cells or, if larger, of the distinct cells for which this is true."""
    matching_texts = [text for text in texts if matches(text)]
    n_cells = sum(texts[text] for text in matching_texts)
    return max(n_cells / max(texts.total(), 1), len(matching_texts) / max(len(texts), 1))


def _fits(text: str, mark: str) -> bool:
    """Whether a text is a number or percentage with this decimal mark."""
    return NUMBER[mark].fullmatch(text.removesuffix("%").rstrip()) is not None


def _looks_numeric(text: str) -> bool:
    return _fits(text, ".") or _fits(text, ",")


def learn_marks(
    columns: Mapping[str, Any], mark: str | None = None, na: Sequence[str] = ()
) -> tuple[str | None, dict[str, str]]:
    """Return the decimal mark of a table, and those of columns that have another one.

    A column shows its mark if at least half of its text cells are numbers, and some of them make
    sense with only one mark, such as "1,5" or "1.234,5". The mark of a table is the only one that
    its columns show. If there is none or more than one, it is None.
    """
    if mark is not None:
        return mark, {}
    marks = {}
    for name, column in columns.items():
        if is_numeric(column):
            continue
        simple_texts = {m: _simple_texts(column, m, na) for m in ".,"}
        if simple_marks := [m for m in ".," if simple_texts[m] is not None]:
            mark = simple_marks[0]
            n_marked = _count_matches(simple_texts[mark], f"[{mark}]")
            if n_marked > _count_matches(simple_texts[mark], f"^{GROUPED.format(mark)}$"):
                marks[name] = mark
            continue
        texts = count_texts(column, na)
        numbers = {text for text in texts if _looks_numeric(text)}
        needed_marks = {m for t in numbers for m in ".," if not _fits(t, OTHER_MARK[m])}
        if len(needed_marks) == 1 and _share(texts, numbers.__contains__) >= 0.5:
            (marks[name],) = needed_marks
    table_mark = next(iter({*marks.values()})) if len({*marks.values()}) == 1 else None
    return table_mark, {name: m for name, m in marks.items() if m != table_mark}


def learn_kind(
    column: Any, mark: str | None = None, na: Sequence[str] = ()
) -> tuple[str, str, list[str]]:
    """Return the kind of a column, the form of its cells, and the texts that do not fit.

    Kinds are "number", "text", "date", "empty", and "nested" (lists or bytes, for example). Forms
    of numbers are those of :func:`number_in`; that of dates is the order of day and month.
    """
    column = plain(column)
    if column.dtype.kind in "mM":
        return ("number" if column.dtype.kind == "m" else "date"), "", []
    is_number = is_numeric(column)
    present_cells = column[column.notna()]
    for cell in () if is_number else present_cells:
        if isinstance(cell, (list, dict, tuple, set, bytes, complex, np.ndarray)):
            return "nested", type(cell).__name__, []
    values, is_unreadable = read_numbers(column, mark, "", na)
    if not is_unreadable.any():
        if np.isnan(values).all():
            return "empty", "", []
        simple_texts = _simple_texts(column, mark, na)
        if is_number or (
            simple_texts is not None and not _count_matches(simple_texts, "^[+-]?0[0-9]")
        ):
            return "number", "", []
        texts = count_texts(column, na)
        are_codes = any(map(CODE.fullmatch, texts)) and all(map(DIGITS.fullmatch, texts))
        return ("text" if are_codes else "number"), "", []
    texts = count_texts(column, na)

    def is_percent(text: str) -> bool:
        return not np.isnan(number_in(text, mark, "percent"))

    for kind, form, matches in (
        ("date", "", DATE.fullmatch),
        ("number", "time", TIME.fullmatch),
        ("number", "percent", is_percent),
    ):
        if any(map(matches, texts)) and _share(texts, matches) >= 0.5:
            form = _date_order(texts) if kind == "date" else form
            return kind, form, [text for text in texts if not matches(text)]
    unmatched = [text for text in texts if np.isnan(number_in(text, mark))]
    numbers = {text for text in texts if _looks_numeric(text)}
    errors = {text for text in texts if EXCEL_ERROR.fullmatch(text)}
    correct_texts = Counter({text: n for text, n in texts.items() if text not in errors})
    quantities = [t for t in texts if t in numbers or ANNOTATED_NUMBER.fullmatch(t)]
    has_quantities = sum(texts[text] for text in quantities) >= texts.total() / 2
    if (
        (not numbers.isdisjoint(unmatched) and _share(texts, numbers.__contains__) >= 0.5)
        or (errors and _share(correct_texts, PLAIN_NUMBER.fullmatch) >= 0.5)
        or (has_quantities and len(quantities) > MAX_NUMERIC_CODES)
    ):
        return "number", "", unmatched
    return "text", "", []


def _date_order(texts: Counter[str]) -> str:
    """Return "day" or "month", whichever comes first in dates like 13/2/2024; "" if unknown."""
    matches = [re.match(r"([0-9]{1,2})[-/]([0-9]{1,2})[-/][0-9]{4}", text) for text in texts]
    pairs = [(int(match[1]), int(match[2])) for match in matches if match is not None]
    first_is_day, second_is_day = (any(pair[i] > 12 for pair in pairs) for i in (0, 1))
    return "" if first_is_day == second_is_day else "day" if first_is_day else "month"


def problem_of(
    kind: str, form: str, unmatched_texts: list[str], *, use_dates: bool = False
) -> MessageParts | None:
    """Describe why a column from :func:`learn_kind` cannot be used; None if it can."""
    if kind == "nested":
        return (f"contains {form} values. Store one number or string in each cell",)
    if kind == "date" and not use_dates:
        text = "contains dates or times. Convert them to numbers with "
        return text, Argument("dates", list(DATE_PARTS))
    if not unmatched_texts:
        return None
    if kind == "number" and not form and all(map(_looks_numeric, unmatched_texts)):
        cell = describe_names(unmatched_texts[:1])
        text = f"contains {cell}, whose comma may be a decimal mark or thousands separator. Choose "
        return text, Argument("decimal", ","), " or ", Argument("decimal", ".")
    examples = describe_names(unmatched_texts, 3)
    noun = NOUNS[form] if kind == "number" else "dates"
    advice = "Correct these cells or, if they "
    if are_censored(unmatched_texts):
        advice = "They are censored values: write the limit (200 for '>200') or, if they "
    text = f"contains {noun}, but also {examples}. {advice}mean a missing value, pass "
    return text, Argument("na", [t for t in unmatched_texts if len(t) <= MAX_CHARACTERS][:3])


def are_censored(texts: Sequence[str]) -> bool:
    """Whether all texts are numbers with a sign such as ">" or "<"."""
    return bool(texts) and all(
        CENSORED.match(text) and not np.isnan(number_in(text, ".", "censored")) for text in texts
    )


def size_problem(values: Array, rows: Array) -> MessageParts | None:
    """Describe numbers that are infinite or too large, with their row; None if there are none."""
    if np.isinf(values).any():
        row = rows[int(np.flatnonzero(np.isinf(values))[0])]
        return (f"is infinite in row {row + 1}. Leave the cell empty",)
    return (f"has values beyond ±{LARGEST_NUMBER:.0e}. Rescale it",) if too_large(values) else None


def text_problem(texts: Sequence[str]) -> MessageParts | None:
    """Describe why text cannot be used as categories; None if it can."""
    distinct_texts = set(texts)
    if len(distinct_texts) <= max(MAX_CATEGORIES, len(texts) // 2):
        return None
    extent = f"has {len(distinct_texts)} distinct values in {len(texts)} rows"
    if np.mean([len(text.split()) for text in distinct_texts]) >= TEXT_WORDS:
        return (f"{extent}; it is free text, which cannot be used as a feature",)
    return (f"{extent}; it looks like an identifier",)


def date_numbers(days: Any, name: str, parts: Sequence[str], reference: str) -> dict[str, Array]:
    """Return features computed from dates: month (from 1), weekday (0 is Monday) and age.

    Their names contain the column name. Ages are the years from each date to ``reference``.
    """
    age_seconds = (import_pandas().Timestamp(reference) - days).dt.total_seconds()
    numbers_by_part = {"month": days.dt.month, "weekday": days.dt.day_of_week}
    numbers_by_part["age"] = age_seconds.astype(float) / (365.25 * 86400)
    return {f"{name} ({part})": numbers_by_part[part].to_numpy(dtype=np.float64) for part in parts}
