"""What a cell means: the only conversions of cells to numbers, days and text.

Typed cells (numbers, dates, booleans) are used as they are. :func:`number_in` converts a text cell,
given how its column is written: the decimal mark, and the form of its numbers ("", "percent",
"time" or "censored") or dates (a key of ``DATE_FORMATS``). :func:`learn_column` and
:func:`learn_marks` learn this from the column; a :class:`~domainwise.tables.schema.Schema` stores
it. The meaning of a cell therefore does not depend on the other cells that are read with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import cache, cached_property, partial
from numbers import Real
from typing import Any

import numpy as np

from domainwise.base.arrays import Array
from domainwise.base.inputs import LARGEST_NUMBER, too_large
from domainwise.base.messages import MAX_CHARACTERS
from domainwise.tables.errors import (
    Argument,
    MessageParts,
    check,
    import_pandas,
    problem,
)

#: Text of missing cells: in any column, and in numeric columns, where "NA" is also missing.
MISSING_TEXT = ("", "NaN", "nan", "-nan", "<NA>", "#N/A")
MISSING_WORDS = (*MISSING_TEXT, "NA", "N/A", "n/a", "NULL", "null", "None")
BOOLEANS = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
#: Thousands separators. OTHER_MARK adds the comma if the decimal mark is a point, and vice versa.
THOUSANDS = " '’\u00a0\u202f\u2009"
OTHER_MARK = {".": ",", ",": ".", None: ""}
MARKS = {"comma": Argument("decimal", ","), "point": Argument("decimal", ".")}


def _number_pattern(mark: str | None) -> re.Pattern[str]:
    """Return a pattern for numbers with this decimal mark; None allows a point, but no comma."""
    point = re.escape(mark or ".")
    integer = f"(?:[1-9][0-9]{{0,2}}(?:[{THOUSANDS}{OTHER_MARK[mark]}][0-9]{{3}})+|[0-9]+)"
    number = f"(?:{integer}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    return re.compile(f"[+−-]?(?:{number}|[Ii]nf(?:inity)?)")


NUMBER = {mark: _number_pattern(mark) for mark in OTHER_MARK}
_SEPARATORS = {mark: re.compile(f"[{THOUSANDS}{OTHER_MARK[mark]}]") for mark in OTHER_MARK}
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
#: Formats of dates, by form: "date" if the order of day and month is unknown, or which is first.
DATE_FORMATS = {"date": ["%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y"]}
DATE_FORMATS["day"] = [*DATE_FORMATS["date"], "%d/%m/%Y", "%d-%m-%Y"]
DATE_FORMATS["month"] = [*DATE_FORMATS["date"], "%m/%d/%Y", "%m-%d-%Y"]
EPOCH = date(1970, 1, 1).toordinal()
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
NOUNS = {"percent": "percentages", "time": "times"} | dict.fromkeys(DATE_FORMATS, "dates")


def number_in(text: str, mark: str | None = None, form: str = "") -> float:
    """Return the number in a text cell, or NaN.

    Percentages are converted to fractions, times to hours, and dates to days since 1970.

    >>> number_in("1.234,5", ","), number_in("1,5", "."), number_in("12 %", form="percent")
    (1234.5, nan, 0.12)
    >>> number_in("1970-01-31", form="date"), number_in("2/1/1970", form="day")
    (30, 1)
    """
    if form == "time":
        match = TIME.fullmatch(text)
        if match is None:
            return np.nan
        hours = sum(float(digits or 0) / 60**i for i, digits in enumerate(match.groups()[:3]))
        return hours if match[4] is None else hours % 12 + 12 * (match[4] in "pP")
    if form in DATE_FORMATS:
        for date_format in DATE_FORMATS[form]:
            with suppress(ValueError):
                return datetime.strptime(re.split("[T ]", text)[0], date_format).toordinal() - EPOCH
        return np.nan
    if form == "percent":
        return number_in(text[:-1].rstrip(), mark) / 100 if text.endswith("%") else np.nan
    if form == "censored":
        text = CENSORED.sub("", text, count=1)
    if NUMBER[mark].fullmatch(text) is None:
        return BOOLEANS.get(text, np.nan)
    digits = _SEPARATORS[mark].sub("", text).replace("−", "-")
    return float(digits.replace(",", ".") if mark == "," else digits)


def is_number(text: str, mark: str | None = None, form: str = "") -> bool:
    """Whether :func:`number_in` can read a text."""
    return not np.isnan(number_in(text, mark, form))


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
    """Return a column whose dtype is one of numbers, dates, durations or text, or object."""
    pandas = import_pandas()
    if hasattr(column, "cat"):
        return plain(column.astype(column.cat.categories.dtype))
    if isinstance(column.dtype, pandas.SparseDtype):
        return plain(column.sparse.to_dense())
    if isinstance(column.dtype, pandas.PeriodDtype):
        return column.dt.to_timestamp()
    if getattr(column.dtype, "byteorder", "=") not in "=|":
        return column.astype(column.dtype.newbyteorder("="))
    is_typed = is_numeric(column) or column.dtype.kind in "mM"
    return column if is_typed or column.dtype == "str" else column.astype(object)


#: Types of cells that are neither numbers nor text.
NESTED = (list, dict, tuple, set, bytes, complex, np.ndarray)


class Cells:
    """The cells of a column, each distinct one of which is converted once.

    ``na`` lists values that count as missing, in addition to ``MISSING_WORDS``. ``rows`` contains
    the row numbers of the cells, from 0, for messages.
    """

    def __init__(self, column: Any, na: Sequence[str] = (), rows: Array | None = None) -> None:
        self.column, self.na = plain(column), tuple(word.strip() for word in na)
        self.rows = np.arange(len(column)) if rows is None else rows
        self.missing_words = {*MISSING_WORDS, *self.na}
        self.is_numeric = is_numeric(self.column) or self.column.dtype.kind == "m"
        self.numbers = cache(self._read_numbers)
        self._simple_numbers = cache(self._read_simple_numbers)

    @cached_property
    def _distinct(self) -> tuple[Array, list[Any]]:
        """The index of each cell among the distinct cells (-1 if missing), and these."""
        if self.column.dtype != object:
            codes, uniques = import_pandas().factorize(self.column)
            return codes, list(uniques)
        # Lists have no hash, and 1 equals True, although their text differs.
        keys = self.column.map(lambda cell: (type(cell), str(cell)), na_action="ignore")
        cells = dict(zip(keys, self.column, strict=True))
        codes, uniques = import_pandas().factorize(keys)
        return codes, [cells[key] for key in uniques]

    @cached_property
    def _stripped(self) -> Any:
        """The cells as text without spaces around it; NaN if missing."""
        texts = self.column.map(text_of, "ignore") if self.column.dtype == object else self.column
        texts = texts.astype(str).str.strip()
        return texts.mask(texts.isin(self.missing_words))

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of each distinct cell, as text without spaces around it; no missing ones."""
        return Counter(self._stripped.value_counts(sort=False).to_dict())

    def _convert(self, convert: Callable[[Any], Any], missing: Any) -> tuple[Array, Array]:
        """Convert each distinct cell; also return a mask of those for which ``convert`` gave None.

        ``missing`` is the value of missing cells.
        """
        codes, uniques = self._distinct
        values = np.empty(len(uniques) + 1, dtype=object)
        values[:] = [*map(convert, uniques), missing]
        return values[codes], np.array([value is None for value in values])[codes]

    def _read_simple_numbers(self, mark: str) -> Array | None:
        """Return the numbers if all cells are simple, which is faster; None otherwise."""
        if self.column.dtype != "str":
            return None
        texts = self._stripped
        pattern = rf"[+-]?(?:[0-9]+(?:\{mark}[0-9]*)?|\{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        if not texts.str.fullmatch(pattern, na=True).all():
            return None
        return np.array(texts.str.replace(mark, ".", regex=False).tolist(), dtype=np.float64)

    def _read_numbers(self, mark: str | None, form: str = "") -> tuple[Array, Array]:
        """Return the numbers (NaN if missing), and a mask of cells that cannot be read."""
        is_date = form in DATE_FORMATS

        def convert(cell: Any) -> float | None:
            if (text := str(cell).strip()) in self.missing_words:
                return np.nan
            is_typed = isinstance(cell, Real) and not is_date
            number = number_in(text) if is_typed else number_in(text, mark, form)
            return None if np.isnan(number) else number

        is_unreadable, values = np.zeros(len(self.column), dtype=bool), None
        if self.column.dtype.kind == "m":
            return self.column.dt.total_seconds().to_numpy() / 3600, is_unreadable
        if is_date and self.column.dtype.kind == "M":
            times = self.column.dt.tz_localize(None) - import_pandas().Timestamp(0)
            values = times.dt.days.to_numpy(dtype=np.float64, na_value=np.nan)
        elif self.is_numeric and not is_date:
            values = np.array(self.column.to_numpy(dtype=np.float64, na_value=np.nan))
        elif not form:
            values = self._simple_numbers(mark or ".")
        if values is None:
            values, is_unreadable = self._convert(convert, np.nan)
            values = values.astype(np.float64)
        if self.na:
            numbers = [number_in(text, m, form) for text in self.na for m in (mark, None)]
            values[np.isin(values, numbers)] = np.nan
        return values, is_unreadable

    def texts(self, levels: Sequence[str] = (), missing: Sequence[str] = MISSING_TEXT) -> Array:
        """Return the cells as text, as they are written; None if missing.

        Among ``levels``, such as "01" or "TRUE", a typed number or boolean is the level with its
        value. Raises a TableError if there are several.
        """
        levels_by_value: dict[float, list[str]] = {}
        for level in levels:
            levels_by_value.setdefault(number_in(level), []).append(level)
        for word in self.na:
            levels_by_value.setdefault(number_in(word), [word])
        missing_words = {*missing, *self.na}

        def convert(cell: Any) -> str | None:
            is_typed = isinstance(cell, (Real, np.bool_))
            matches = levels_by_value.get(float(cell), []) if is_typed else []
            values = {"number": cell, "levels": " or ".join(map(repr, matches))}
            check(len(matches) < 2, "ambiguous level", column=self.column.name, **values)
            text = matches[0] if matches else text_of(cell)
            return None if text.strip() in missing_words else text

        return self._convert(convert, None)[0]

    def whole_numbers(self, mark: str | None) -> Array:
        """Return the cells as text, None if missing; "1.0" and "1 " become "1"."""

        def convert(cell: Any) -> str | None:
            if (text := text_of(cell).strip()) in self.missing_words:
                return None
            if WHOLE_NUMBER.fullmatch(text) is None:  # otherwise, digits beyond float64 are kept
                number = number_in(text, mark)
                text = text_of(number) if number.is_integer() else text_of(cell)
            return None if text in self.na else text

        return self._convert(convert, None)[0]

    def special_number(self) -> str:
        """Return the first cell with a comma or other separators; "" if all numbers are simple."""
        is_simple = self.is_numeric or self._simple_numbers(".") is not None
        texts = () if is_simple else self.counts
        return next((text for text in texts if _SEPARATORS["."].search(text)), "")

    def shown_mark(self) -> str | None:
        """Return the decimal mark that the cells show, or None.

        They show it if at least half of them are numbers, and some of these make sense with only
        one mark, such as "1,5" or "1.234,5".
        """
        if self.is_numeric:
            return None
        for mark, other_mark in (".,", ",."):
            if self._simple_numbers(mark) is not None:
                texts = self._stripped.dropna()
                return mark if any(mark in t and not _fits(t, other_mark) for t in texts) else None
        numbers = {*filter(_looks_numeric, self.counts)}
        needed_marks = {m for t in numbers for m in ".," if not _fits(t, OTHER_MARK[m])}
        is_shown = len(needed_marks) == 1 and _are_most(numbers, self.counts)
        return needed_marks.pop() if is_shown else None


def as_labels(texts: Array) -> Array:
    """Return labels as int64 if all are whole numbers that int64 can represent, otherwise as text.

    >>> as_labels(np.array(["1", "2"], dtype=object)), as_labels(np.array(["01"], dtype=object))
    (array([1, 2]), array(['01'], dtype='<U2'))
    """
    if len(texts) and all(map(WHOLE_NUMBER.fullmatch, {*texts.tolist()})):
        with suppress(OverflowError):
            return np.array([int(text) for text in texts], dtype=np.int64)
    return texts.astype(str)


# Learning how a column is written -----------------------------------------------------------------


def spelled_levels(texts: Iterable[str], na: Sequence[str] = ()) -> list[str]:
    """Return the categories that a typed number or boolean with their value may stand for.

    Other typed numbers are categories as they are written or, if they are in ``na``, missing.

    >>> spelled_levels(["01", "02", "x", "2", "3", "FALSE"])  # the number 2 may be "02" or "2"
    ['01', '02', '2', 'FALSE']
    """
    values = {text: value for text in texts if not np.isnan(value := number_in(text))}
    counts = Counter([*values.values(), *{*map(number_in, na)}])
    return sorted(text for text, v in values.items() if counts[v] > 1 or text != text_of(v))


def _are_most(matching_texts: Collection[str], texts: Counter[str]) -> bool:
    """Whether these are at least half of the cells, or of the distinct cells; False if empty."""
    n_cells, n_texts = sum(texts[text] for text in matching_texts), len(matching_texts)
    return n_texts > 0 and (2 * n_cells >= texts.total() or 2 * n_texts >= len(texts))


def _fits(text: str, mark: str) -> bool:
    """Whether a text is a number or percentage with this decimal mark."""
    return NUMBER[mark].fullmatch(text.removesuffix("%").rstrip()) is not None


def _looks_numeric(text: str) -> bool:
    return _fits(text, ".") or _fits(text, ",")


def learn_marks(
    columns: Mapping[str, Cells], mark: str | None = None
) -> tuple[str | None, dict[str, str]]:
    """Return the decimal mark of a table, and those of columns that have another one.

    The mark of a table is the only one that its columns show. If there is none or more than one, it
    is None.
    """
    check(mark in OTHER_MARK, "unknown mark", decimal=mark)
    if mark is not None:
        return mark, {}
    shown_marks = {name: m for name, cells in columns.items() if (m := cells.shown_mark())}
    has_one_mark = len({*shown_marks.values()}) == 1
    return (next(iter(shown_marks.values())), {}) if has_one_mark else (None, shown_marks)


def learn_kind(cells: Cells, mark: str | None = None) -> tuple[str, str, list[str]]:
    """Return the kind of a column, the form of its cells, and the texts that do not fit.

    Kinds are "number", "text", "date", "empty", and "nested" (lists or bytes, for example). Forms
    of numbers are those of :func:`number_in`, and "grouped" for whole numbers some of which have
    points between thousands; that of dates is the order of day and month.
    """
    column = cells.column
    if column.dtype.kind == "M":
        return "date", "date", []
    for cell in column if column.dtype == object else ():
        if isinstance(cell, NESTED):
            return "nested", type(cell).__name__, []
    values, is_unreadable = cells.numbers(mark)
    if np.isnan(values).all() and not is_unreadable.any():
        return "empty", "", []
    if cells.is_numeric:
        return "number", "", []
    is_whole = np.array_equal(values, np.round(values), equal_nan=True)
    texts = cells.counts if is_whole or mark is None or is_unreadable.any() else Counter[str]()
    if not is_unreadable.any():
        if is_whole and any(map(CODE.fullmatch, texts)) and all(map(DIGITS.fullmatch, texts)):
            return "text", "", []
        pointed_texts = [text for text in texts if "." in text]
        # Numbers with three decimals have a point in all cells, or a zero before it in some.
        is_ambiguous = len(pointed_texts) < len(texts) and all(_fits(t, ",") for t in pointed_texts)
        form = "grouped" if mark == "," and pointed_texts else ""
        return "number", form, pointed_texts if mark is None and is_ambiguous else []
    is_percent = partial(is_number, mark=mark, form="percent")
    forms = ("date", "", DATE.fullmatch), ("number", "time", TIME.fullmatch)
    for kind, form, matches in (*forms, ("number", "percent", is_percent)):
        matching_texts = {*filter(matches, texts)}
        if _are_most(matching_texts, texts):
            unmatched = [text for text in texts if text not in matching_texts]
            return kind, form or _date_form(texts), unmatched
    unmatched = [text for text in texts if not is_number(text, mark)]
    numbers = {*filter(_looks_numeric, texts)}
    numbers_or_errors = numbers | {*filter(EXCEL_ERROR.fullmatch, texts)} if numbers else numbers
    quantities = numbers | {*filter(ANNOTATED_NUMBER.fullmatch, texts)}
    has_numbers = _are_most(numbers_or_errors, texts)
    has_numbers = has_numbers and not numbers_or_errors.isdisjoint(unmatched)
    has_quantities = 2 * sum(texts[text] for text in quantities) >= texts.total()
    has_quantities = has_quantities and len(quantities) > MAX_NUMERIC_CODES
    return ("number", "", unmatched) if has_numbers or has_quantities else ("text", "", [])


def _date_form(texts: Counter[str]) -> str:
    """Return "day" or "month", whichever comes first in dates like 13/2/2024, otherwise "date"."""
    matches = (re.match(r"([0-9]{1,2})[-/]([0-9]{1,2})[-/][0-9]{4}", text) for text in texts)
    pairs = [[int(digits) > 12 for digits in match.groups()] for match in matches if match]
    first_is_day, second_is_day = (any(pair[i] for pair in pairs) for i in (0, 1))
    return "date" if first_is_day == second_is_day else "day" if first_is_day else "month"


def learn_column(
    cells: Cells, mark: str | None = None, *, use_dates: bool = False, read_limits: bool = False
) -> tuple[str, str, MessageParts | None]:
    """Return the kind of a column, the form of its cells, and why it cannot be used, or None.

    With ``read_limits``, censored values are read as their limit if they are a minority.
    """
    kind, form, unmatched = learn_kind(cells, mark)
    if kind == "nested":
        return kind, form, problem("nested", form=form)
    if kind == "date" and not use_dates:
        return kind, form, problem("dates", dates=list(DATE_PARTS))
    are_limits = [CENSORED.match(t) and is_number(t, mark, "censored") for t in unmatched]
    n_unmatched = sum(cells.counts[text] for text in unmatched)
    if n_unmatched and read_limits and all(are_limits) and 2 * n_unmatched <= cells.counts.total():
        form, unmatched = "censored", []
    if unmatched and kind == "number" and not form and all(map(_looks_numeric, unmatched)):
        mark_name = "comma" if "," in unmatched[0] else "point"
        return kind, form, problem("ambiguous mark", mark=mark_name, cell=unmatched[0], **MARKS)
    if unmatched:
        name = "censored cells" if all(are_limits) else "unreadable cells"
        values = {"noun": NOUNS.get(form, "numbers"), "examples": unmatched[:3]}
        na = [text for text in unmatched if len(text) <= MAX_CHARACTERS][:3]
        return kind, form, problem(name, **values, na=na)
    if kind == "date" and cells.numbers(mark, form)[1].any():
        return kind, form, problem("ambiguous dates")
    return kind, form, size_problem(cells, mark, form) if kind == "number" else None


def mark_advice(cell: str, form: str) -> MessageParts:
    """Return advice to set a decimal mark with which a cell can be read; () if there is none."""
    marks = [name for name in MARKS if is_number(cell.strip(), MARKS[name].value, form)]
    return problem(f"set {' or '.join(marks)}", **MARKS) if marks else ()


def size_problem(cells: Cells, mark: str | None, form: str) -> MessageParts | None:
    """Describe numbers that are infinite or too large, with their row; None if there are none."""
    values, _ = cells.numbers(mark, form)
    for i in np.flatnonzero(np.isinf(values)):
        return problem("infinite", row=cells.rows[i] + 1)
    return problem("too large", limit=LARGEST_NUMBER) if too_large(values) else None


def text_problem(counts: Counter[str]) -> MessageParts | None:
    """Describe why text cannot be used as categories; None if it can."""
    if len(counts) <= max(MAX_CATEGORIES, counts.total() // 2):
        return None
    is_free_text = np.mean([len(text.split()) for text in counts]) >= TEXT_WORDS
    kind = "free text" if is_free_text else "identifier"
    return problem(kind, n_values=len(counts), n_rows=counts.total())


def date_numbers(days: Array, name: str, parts: Sequence[str], reference: str) -> dict[str, Array]:
    """Return features computed from dates: month (from 1), weekday (0 is Monday) and age.

    Their names contain the column name. Ages are the years from each date to ``reference``.
    """
    dates = import_pandas().Series(days.astype("M8[D]").astype("M8[s]")).dt
    numbers = {"month": dates.month, "weekday": dates.day_of_week}
    numbers["age"] = (float(np.datetime64(reference, "D").astype(int)) - days) / 365.25
    return {f"{name} ({part})": np.asarray(numbers[part], dtype=np.float64) for part in parts}
