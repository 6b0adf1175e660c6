"""Reading Excel workbooks with python-calamine, which ignores macros, formulas and links.

A workbook is a zip archive. Its unpacked size and the area that its cells span are checked before
calamine reads it. calamine returns error values as empty cells, so this module reads them itself.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from domainwise.base.messages import listed, quoted
from domainwise.tables.errors import check, import_pandas
from domainwise.tables.names import complete_names

#: Maximum unpacked size of a workbook, which takes some 20 seconds to read, in bytes.
MAX_UNPACKED_BYTES = 2**28
#: A sheet may span ``MAX_AREA`` cells, or ``MAX_AREA_PER_CELL`` for each cell with a value.
MAX_AREA, MAX_AREA_PER_CELL = 10_000_000, 2
#: Number of rows that are searched for the column names.
HEADER_ROWS = 20
#: Pattern for a cell with a value, and for an error such as ``#DIV/0!`` in it. The number of
#: characters is limited, so that the time is proportional to the size of the file.
TOKEN = re.compile(
    rb"""<(?:\w{1,9}:)?c\b[^<>]{0,99}?\br=["']([A-Z]{1,3})([0-9]{1,7})["'][^<>]{0,99}(?<!/)>"""
    rb"""(?:(?:<(?:\w{1,9}:)?f\b[^<>]*>[^<]*</(?:\w{1,9}:)?f>|<[^<>]{0,99}/>)?"""
    rb"""<(?:\w{1,9}:)?v>(#[^<]{1,20})<)?"""
)
#: Exceptions that reading a damaged workbook can raise, except OSError and ValueError.
DAMAGED = (zipfile.BadZipFile, zlib.error, KeyError, RuntimeError, ElementTree.ParseError)


def read_excel(path: Path) -> tuple[Any, tuple[str, ...]]:
    """Read the first visible sheet that is not empty; also return notes on what was skipped."""
    from python_calamine import CalamineError, CalamineWorkbook, SheetVisibleEnum

    errors_by_sheet = _find_errors(path)
    try:
        book = CalamineWorkbook.from_path(path)
        visible = {s.name for s in book.sheets_metadata if s.visible == SheetVisibleEnum.Visible}
        # The sheets with cells; visible ones are first.
        sheet_names = sorted({**errors_by_sheet}, key=lambda name: name not in visible)
        check(sheet_names, "empty file", path=path)
        sheet = book.get_sheet_by_name(sheet_names[0])
        rows, (top, left) = sheet.to_python(), sheet.start or (0, 0)
    except CalamineError as error:
        raise ValueError(error) from None
    for (row, column), error_value in errors_by_sheet[sheet_names[0]].items():
        rows[row - top][column - left] = error_value
    header_index = _header_index(rows)
    sheet_name, *others = [quoted(n) + " (hidden)" * (n not in visible) for n in sheet_names]
    names = complete_names([str(name) for name in rows[header_index]], path, f"sheet {sheet_name}")
    frame = import_pandas().DataFrame(rows[header_index + 1 :], columns=names, dtype=object)
    notes = []
    if header_index:
        notes.append(f"{path.name}: rows skipped above the column names: {header_index}")
    if others or sheet_names[0] not in visible:
        others_text = f", not {listed(others, 8, ', ')}" if others else ""
        notes.append(f"{path.name}: only sheet {sheet_name} was read{others_text}")
    return frame.replace("", None).convert_dtypes(), tuple(notes)


def _find_errors(path: Path) -> dict[str, dict[tuple[int, int], str]]:
    """Check the size of a workbook; return the errors in cells for each sheet that has cells."""
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(member.file_size for member in archive.infolist())
        sizes = {"size": n_bytes / 1e6, "limit": MAX_UNPACKED_BYTES / 1e6}
        check(n_bytes <= MAX_UNPACKED_BYTES, "large workbook", path=path, **sizes)
        if (damaged_member := archive.testzip()) is not None:  # or larger than declared
            raise ValueError(f"{damaged_member} is damaged")
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
        path_by_id = {link.get("Id"): str(link.get("Target")) for link in links}
        errors_by_sheet = {}
        for sheet in book.findall(".//{*}sheet"):
            identifier = next((v for name, v in sheet.items() if name.endswith("}id")), "")
            xml = archive.read(f"xl/{path_by_id.pop(identifier).removeprefix('/xl/')}")
            name = str(sheet.get("name"))
            if (errors := _scan_sheet(xml, path, name)) is not None:
                errors_by_sheet[name] = errors
    return errors_by_sheet


def _scan_sheet(xml: bytes, path: Path, name: str) -> dict[tuple[int, int], str] | None:
    """Check the area that the cells span, and return the errors in cells; None without cells."""
    n_cells, errors = 0, {}
    letters, rows = {b"A"}, {b"1"}
    for match in TOKEN.finditer(xml):
        n_cells += 1
        letters.add(match[1])
        rows.add(match[2])
        if match[3] and re.search(rb"""\bt=["']e["']""", match[0]):
            index = int(match[2]) - 1, _column_index(match[1])
            errors[index] = match[3].decode("ascii", "replace")
    height, width = max(map(int, rows)), max(map(_column_index, letters)) + 1
    is_dense = height * width <= max(MAX_AREA, MAX_AREA_PER_CELL * n_cells)
    extent = {"n_cells": n_cells, "height": height, "width": width}
    check(is_dense, "sparse sheet", path=path, sheet=name, **extent)
    return errors if n_cells else None


def _column_index(letters: bytes) -> int:
    """Return the index of a column, from 0.

    >>> _column_index(b"A"), _column_index(b"XFD")
    (0, 16383)
    """
    return reduce(lambda number, letter: 26 * number + letter - 64, letters, 0) - 1


def _header_index(rows: Sequence[Sequence[Any]]) -> int:
    """Return the index of the row with the column names.

    The names are distinct strings, and at most half of the cells in each row above are filled.
    If there is no such row, the names are in the first row.
    """
    width = len(rows[0])
    for index, row in enumerate(rows[:HEADER_ROWS]):
        filled_cells = [cell for cell in row if cell != ""]
        if len(filled_cells) >= width - (row[0] == ""):
            are_names = all(isinstance(cell, str) for cell in filled_cells) and width > 1
            return index if are_names and len({*filled_cells}) == len(filled_cells) else 0
        if 2 * len(filled_cells) > width:
            return 0
    return 0
