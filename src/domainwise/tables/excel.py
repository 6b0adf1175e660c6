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
from typing import IO, Any
from xml.etree import ElementTree

from domainwise.tables.csv_files import unnamed_column_name
from domainwise.tables.errors import TableError, describe_names, import_pandas

#: Maximum unpacked size of a workbook, and of an XML file that lists its sheets, in bytes.
MAX_UNPACKED_BYTES, MAX_CONTENTS_BYTES = 2**30, 2**24
#: A sheet may span ``MAX_AREA`` cells, or ``MAX_AREA_PER_CELL`` for each cell with a value.
MAX_AREA, MAX_AREA_PER_CELL = 10_000_000, 20
#: Number of rows that are searched for the column names.
HEADER_ROWS = 20
BLOCK_BYTES = 2**20
#: Patterns for a position, a cell with a value, a cell with an error (``#DIV/0!``), and a value.
_POSITION = rb"""\br=["']([A-Z]{1,3})([0-9]{1,7})["']"""
CELL = re.compile(rb"<(?:\w+:)?c\b[^>]*?" + _POSITION + rb"[^>]*(?<!/)>")
ERROR_CELL = re.compile(rb"<(?:\w+:)?c\b([^>]*\bt=[\"']e[\"'][^>]*)>(.*?)</(?:\w+:)?c>", re.DOTALL)
VALUE = re.compile(rb"<(?:\w+:)?v>([^<]{1,20})<")
#: Exceptions that reading a damaged workbook can raise.
_FAILURES = (zipfile.BadZipFile, zlib.error, OSError, EOFError, KeyError, ValueError, RuntimeError)


def read_excel(path: Path) -> tuple[Any, tuple[str, ...]]:
    """Read the first sheet that is not empty; also return notes on skipped rows and sheets."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ModuleNotFoundError:
        raise ImportError(
            'reading Excel files needs python-calamine: pip install "domainwise[excel]"'
        ) from None
    try:
        error_cells = _error_cells(path)
        book = CalamineWorkbook.from_path(path)
        sheets = [book.get_sheet_by_name(name) for name in book.sheet_names]
        nonempty_sheets = [sheet for sheet in sheets if sheet.height]
        rows = nonempty_sheets[0].to_python() if nonempty_sheets else []
    except TableError:
        raise
    except (*_FAILURES, CalamineError, ElementTree.ParseError) as error:
        text = f"{path} is damaged or is not an Excel file: {error}. Save it again"
        raise TableError(text) from None
    if not nonempty_sheets:
        raise TableError(f"{path} is empty. Pass a workbook with column names and rows")
    sheet_name, (top, left) = nonempty_sheets[0].name, nonempty_sheets[0].start or (0, 0)
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
    if len(nonempty_sheets) > 1:
        ignored_sheets = describe_names([sheet.name for sheet in nonempty_sheets[1:]])
        notes.append(f"{path.name}: only sheet {sheet_name!r} was read, not {ignored_sheets}")
    return frame.infer_objects(), tuple(notes)


def _error_cells(path: Path) -> dict[str, dict[tuple[int, int], str]]:
    """Check the size of a workbook, and return the errors in its cells by sheet and position."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        unpacked_bytes = sum(member.file_size for member in members)
        if unpacked_bytes > MAX_UNPACKED_BYTES:
            raise TableError(
                f"{path} unpacks to {unpacked_bytes / 1e9:.1f} GB, but the maximum is "
                f"{MAX_UNPACKED_BYTES / 1e9:.1f} GB. Save the sheet as CSV or Parquet"
            )
        xml_roots = []
        for name in ("xl/workbook.xml", "xl/_rels/workbook.xml.rels"):
            if archive.getinfo(name).file_size > MAX_CONTENTS_BYTES:
                raise ValueError(f"{name} has more than {MAX_CONTENTS_BYTES} bytes")
            xml_roots.append(ElementTree.fromstring(archive.read(name)))
        book, links = xml_roots
        path_by_id = {link.get("Id"): str(link.get("Target")) for link in links}
        error_cells, scanned_files = {}, set()
        for sheet in book.findall(".//{*}sheet"):
            sheet_path = path_by_id[next(v for name, v in sheet.items() if name.endswith("}id"))]
            file_name = sheet_path[1:] if sheet_path.startswith("/") else f"xl/{sheet_path}"
            where = f"{path}: sheet {sheet.get('name')!r}"
            with archive.open(file_name) as stream:
                error_cells[str(sheet.get("name"))] = _scan_sheet(stream, where)
            scanned_files.add(file_name)
        for member in members:  # reading fails if a member exceeds its declared size
            with archive.open(member) as stream:
                while member.filename not in scanned_files and stream.read(BLOCK_BYTES):
                    pass
    return error_cells


def _scan_sheet(stream: IO[bytes], where: str) -> dict[tuple[int, int], str]:
    """Check the area that the cells span, and return the errors in cells by row and column."""
    n_cells, column_letters, row_numbers, error_cells = 0, set(), set(), {}
    tail, is_end = b"", False
    while not is_end:
        block = stream.read(BLOCK_BYTES)
        is_end = not block
        xml = tail + block
        end = len(xml)
        if not is_end:  # an incomplete cell at the end is read with the next block
            end = max(xml.rfind(b"<c "), xml.rfind(b":c "), len(xml) - BLOCK_BYTES)
            end = xml.rfind(b"<", 0, end + 1) if end > 0 else 0
        xml, tail = xml[:end], xml[end:]
        cells = CELL.findall(xml)
        n_cells += len(cells)
        column_letters |= {column for column, _ in cells}
        row_numbers |= {int(row) for _, row in cells}
        row_numbers = row_numbers and {min(row_numbers), max(row_numbers)}
        has_errors = b'"e"' in xml or b"'e'" in xml
        for attributes, content in ERROR_CELL.findall(xml) if has_errors else ():
            position_match, value_match = re.search(_POSITION, attributes), VALUE.search(content)
            if position_match is not None and value_match is not None:
                letters, row = position_match.groups()
                value = value_match[1].decode("ascii", "replace")
                error_cells[int(row) - 1, _column_index(letters)] = value
    column_indices = sorted(map(_column_index, column_letters)) or [0]
    height = max(row_numbers, default=0) - min(row_numbers, default=0) + 1
    width = column_indices[-1] - column_indices[0] + 1
    if height * width > max(MAX_AREA, MAX_AREA_PER_CELL * n_cells):
        raise TableError(
            f"{where} has {n_cells:,} cells, spread over {height:,} rows and {width:,} columns. "
            "Delete the cells that are far away from the table, or save the table as CSV"
        )
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
