"""Reading Excel workbooks with python-calamine, which ignores macros, formulas and links.

A workbook is a zip archive. Its unpacked size and the area that its cells span are checked before
calamine reads it. calamine returns error values as empty cells, so this module reads them itself.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from domainwise.base.messages import listed
from domainwise.tables.errors import TableError, import_pandas, quoted
from domainwise.tables.names import unnamed_column_name

#: Maximum unpacked size of a workbook, which takes some 20 seconds to read, and of an XML file that
#: lists its sheets, in bytes.
MAX_UNPACKED_BYTES, MAX_CONTENTS_BYTES = 2**28, 2**24
#: A sheet may span ``MAX_AREA`` cells, or ``MAX_AREA_PER_CELL`` for each cell with a value.
MAX_AREA, MAX_AREA_PER_CELL = 10_000_000, 20
#: Number of rows that are searched for the column names.
HEADER_ROWS = 20
#: Patterns for a cell with a value, and for a cell with an error such as ``#DIV/0!``.
CELL = re.compile(rb"""<(?:\w+:)?c\b[^>]*?\br=["']([A-Z]{1,3})([0-9]{1,7})["'][^>]*(?<!/)>""")
ERROR = re.compile(
    rb"""<(?:\w+:)?c\b[^>]*\bt=["']e["'][^>]*>(?:(?!</(?:\w+:)?c>).)*?<(?:\w+:)?v>([^<]{1,20})<""",
    re.DOTALL,
)
#: Exceptions that reading a damaged workbook can raise.
_FAILURES = (zipfile.BadZipFile, zlib.error, OSError, EOFError, KeyError, ValueError, RuntimeError)


def read_excel(path: Path) -> tuple[Any, tuple[str, ...]]:
    """Read the first visible sheet that is not empty; also return notes on what was skipped."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook, SheetVisibleEnum
    except ModuleNotFoundError:
        raise ImportError(
            'reading Excel files needs python-calamine: pip install "domainwise[excel]"'
        ) from None
    try:
        error_cells = _find_errors(path)
        book = CalamineWorkbook.from_path(path)
        visible = {s.name for s in book.sheets_metadata if s.visible == SheetVisibleEnum.Visible}
        sheets = [book.get_sheet_by_name(name) for name in book.sheet_names]
        sheets = sorted((s for s in sheets if s.height), key=lambda s: s.name not in visible)
        rows = sheets[0].to_python() if sheets else []
    except TableError:
        raise
    except (*_FAILURES, CalamineError, ElementTree.ParseError, StopIteration) as error:
        text = f"{path} is damaged or is not an Excel file: {error}. Save it again"
        raise TableError(text) from None
    if not sheets:
        raise TableError(f"{path} is empty. Pass a workbook with column names and rows")
    sheet_name, (top, left) = sheets[0].name, sheets[0].start or (0, 0)
    for (row, column), error_value in error_cells[sheet_name].items():
        rows[row - top][column - left] = error_value
    header_index = _header_index(rows)
    names = [str(name) for name in rows[header_index]]
    if "" in names[1:]:
        raise TableError(
            f"{path}: column {names.index('', 1) + 1} of sheet {sheet_name!r} has no name. Name "
            "all columns in the first row of the table"
        )
    names[0] = names[0] or unnamed_column_name(names[1:])
    rows = [[_cell_value(cell) for cell in row] for row in rows[header_index + 1 :]]
    frame = import_pandas().DataFrame(rows, columns=names, dtype=object)
    notes = []
    if header_index:
        notes.append(f"{path.name}: rows skipped above the column names: {header_index}")
    if sheet_name not in visible:
        notes.append(f"{path.name}: sheet {sheet_name!r} was read, although it is hidden")
    if others := [quoted(s.name) + " (hidden)" * (s.name not in visible) for s in sheets[1:]]:
        notes.append(
            f"{path.name}: only sheet {sheet_name!r} was read, not {listed(others, 8, ', ')}"
        )
    return frame.infer_objects(), tuple(notes)


def _find_errors(path: Path) -> dict[str, dict[tuple[int, int], str]]:
    """Check the size of a workbook, and return the errors in its cells by sheet and position."""
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(member.file_size for member in archive.infolist())
        if n_bytes > MAX_UNPACKED_BYTES:
            raise TableError(
                f"{path} unpacks to {n_bytes / 1e6:,.0f} MB, but the maximum is "
                f"{MAX_UNPACKED_BYTES / 1e6:,.0f} MB. Save the sheet as CSV or Parquet"
            )
        if (damaged_member := archive.testzip()) is not None:  # or larger than declared
            raise ValueError(f"{damaged_member} is damaged")
        contents = [
            archive.read(f"xl/{name}") for name in ("workbook.xml", "_rels/workbook.xml.rels")
        ]
        if max(map(len, contents)) > MAX_CONTENTS_BYTES:
            raise ValueError("its list of sheets is too long")
        book, links = map(ElementTree.fromstring, contents)
        path_by_id = {link.get("Id"): str(link.get("Target")) for link in links}
        error_cells = {}
        for sheet in book.findall(".//{*}sheet"):
            sheet_path = path_by_id[next(v for name, v in sheet.items() if name.endswith("}id"))]
            file_name = sheet_path[1:] if sheet_path.startswith("/") else f"xl/{sheet_path}"
            name = str(sheet.get("name"))
            error_cells[name] = _scan_sheet(archive.read(file_name), f"{path}: sheet {name!r}")
    return error_cells


def _scan_sheet(xml: bytes, where: str) -> dict[tuple[int, int], str]:
    """Check the area that the cells span, and return the errors in cells by row and column."""
    letters, rows, n_cells = set(), set(), 0
    for match in CELL.finditer(xml):
        n_cells += 1
        letters.add(match[1])
        rows.add(match[2])
    columns = {_column_index(text) for text in letters} or {0}
    row_numbers = {int(text) for text in rows} or {0}
    height, width = (max(numbers) - min(numbers) + 1 for numbers in (row_numbers, columns))
    if height * width > max(MAX_AREA, MAX_AREA_PER_CELL * n_cells):
        raise TableError(
            f"{where} has {n_cells:,} cells, spread over {height:,} rows and {width:,} columns. "
            "Delete the cells that are far away from the table, or save the table as CSV"
        )
    error_cells = {}
    for match in ERROR.finditer(xml) if b'"e"' in xml or b"'e'" in xml else ():
        if position := CELL.match(match[0]):
            index = int(position[2]) - 1, _column_index(position[1])
            error_cells[index] = match[1].decode("ascii", "replace")
    return error_cells


def _column_index(letters: bytes) -> int:
    """Return the index of a column, from 0.

    >>> _column_index(b"A"), _column_index(b"XFD")
    (0, 16383)
    """
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number - 1


def _header_index(rows: Sequence[Sequence[Any]]) -> int:
    """Return the index of the row with the column names.

    The names are distinct strings, and at most half of the cells in each row above are filled.
    If there is no such row, the names are in the first row.
    """
    width = len(rows[0])
    for index, row in enumerate(rows[:HEADER_ROWS]):
        filled_cells = [cell for cell in row if cell != ""]
        if len(filled_cells) >= width - (row[0] == ""):
            are_strings = all(isinstance(cell, str) for cell in filled_cells)
            are_names = are_strings and len({*filled_cells}) == len(filled_cells)
            return index if are_names and width > 1 else 0
        if 2 * len(filled_cells) > width:
            return 0
    return 0


def _cell_value(cell: Any) -> Any:
    """Convert a cell to the value that other formats give: 3 instead of 3.0, None if empty."""
    if cell == "":
        return None
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
