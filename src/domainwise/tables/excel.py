"""Workbooks of Excel, by python-calamine: a reader without macros, formulas or external links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from domainwise.tables.csv_files import row_numbers_name
from domainwise.tables.errors import TableError, describe_names, import_pandas


def read_excel(path: Path) -> tuple[Any, tuple[str, ...]]:
    """The first sheet of a workbook that holds anything, and a note if there are others."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ModuleNotFoundError:
        raise ImportError('Excel files need an extra: pip install "domainwise[excel]"') from None
    try:
        book = CalamineWorkbook.from_path(path)
        sheets = {name: book.get_sheet_by_name(name).to_python() for name in book.sheet_names}
    except (CalamineError, OSError) as error:
        raise TableError(f"{path} is damaged or no Excel file: {error}") from None
    full = {name: rows for name, rows in sheets.items() if rows}
    if not full:
        raise TableError(f"{path} is empty")
    sheet, rows = next(iter(full.items()))
    names = [str(name) for name in rows[0]]
    if "" in names[1:]:
        raise TableError(f"{path}: column {names.index('', 1) + 1} of sheet {sheet!r} has no name")
    names[0] = names[0] or row_numbers_name(names[1:])
    columns = [[_excel_cell(row[i]) for row in rows[1:]] for i in range(len(names))]
    pandas = import_pandas()
    frame = pandas.concat([pandas.Series(cells, dtype=object) for cells in columns], axis=1)
    frame.columns = names
    others = [name for name in full if name != sheet]
    note = f"of {path.name}, sheet {sheet!r} was read and not {describe_names(others)}"
    return frame.infer_objects(), (note,) if others else ()


def _excel_cell(value: Any) -> Any:
    """A cell as it would be in other formats: 3 and not 3.0, and None for an empty one."""
    if value == "":
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value
