"""Reading tables: CSV, Parquet, Feather and Excel, whole or in pieces, refused where damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainwise.checks.warn import warn_caller
from domainwise.tables.arrow_files import (
    CHUNK_ROWS,
    arrow_errors,
    arrow_frame,
    arrow_names,
    arrow_pieces,
    parquet_files,
    sized,
)
from domainwise.tables.cells import decimal_marks, typed_numbers, with_points, without
from domainwise.tables.csv_text import CsvFile, open_csv
from domainwise.tables.errors import TableError, import_pandas
from domainwise.tables.excel import read_excel

__all__ = ["CHUNK_ROWS", "FORMATS", "iter_table", "open_table", "read_table", "table_columns"]

#: File endings, and how each is read and written.
FORMATS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
}
#: Those that are read only, too.
READ_FORMATS = {**FORMATS, ".xlsx": "excel"}


@dataclass(frozen=True)
class OpenTable:
    """A table whose columns are known, and whose rows are still to be read."""

    path: Path
    kind: str
    names: list[str]
    notes: tuple[str, ...]  #: What had to be guessed.
    source: Any  #: A CsvFile, the rows of a workbook, or None.

    def frames(self, columns: Sequence[str], rows: int | None = None) -> Iterator[Any]:
        """Read columns as data frames of ``rows`` rows, or as one; cells of a CSV file are text."""
        columns, n_rows = list(columns), 0
        if self.kind == "excel":
            step = rows or max(1, len(self.source))
            frames = (self.source[i : i + step] for i in range(0, len(self.source), step))
            pieces: Iterator[Any] = (frame[columns].reset_index(drop=True) for frame in frames)
        elif isinstance(self.source, CsvFile):
            batches = self.source.batches(columns)
            pieces = (arrow_frame(table, columns, {}) for table in sized(batches, rows))
        else:
            pieces = arrow_pieces(self.path, self.kind, columns, rows)
        for frame in pieces:
            n_rows += len(frame)
            if len(frame):
                yield frame
        if not n_rows:
            raise TableError(f"{self.path} has column names but no rows")


def open_table(
    path: str | Path, *, encoding: str | None = None, fallback: str | None = None, read: str = "all"
) -> OpenTable:
    """Open a table and find out its columns; the options of CSV files are those of open_csv."""
    import_pandas()
    path = Path(path)
    if not path.exists():
        raise TableError(f"{path}: no such file")
    if path.is_dir() and not parquet_files(path):
        raise TableError(f"{path} is a folder without Parquet files; name a file")
    if path.is_file() and path.stat().st_size == 0:
        raise TableError(f"{path} is empty")
    kind = existing_format(path)
    notes: tuple[str, ...] = ()
    source: Any = None
    with arrow_errors(path, kind):
        if kind == "csv":
            source = open_csv(path, encoding, fallback=fallback, read=read)
            names, notes = source.names, source.notes
        elif kind == "excel":
            source, notes = read_excel(path)
            names = list(source.columns)
        else:
            names = arrow_names(path, kind)
    double = [name for name, count in Counter(names).items() if count > 1]
    if double:
        raise TableError(
            f"{path} has more than one column named {', '.join(map(repr, double))}; "
            "give each column its own name"
        )
    return OpenTable(path, kind, names, notes, source)


def table_format(path: str | Path, formats: dict[str, str] = READ_FORMATS) -> str:
    """Return "csv", "parquet", "feather" or "excel" by the ending of a file name.

    >>> table_format("measurements.csv.gz")
    'csv'
    """
    name = Path(path).name.lower()
    for ending, kind in formats.items():
        if name.endswith(ending):
            return kind
    raise TableError(
        f"{path}: the ending says nothing about its format; use one of {', '.join(formats)}"
    )


def existing_format(path: str | Path) -> str:
    """Return the format of a table that is there; a folder is one of Parquet files."""
    return "parquet" if Path(path).is_dir() else table_format(path)


def table_columns(path: str | Path, *, encoding: str | None = None) -> list[str]:
    """Return the column names of a table without reading its rows."""
    return open_table(path, encoding=encoding, read="names").names


def read_table(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    labels: Sequence[str] = (),
    decimal: str | None = None,
    encoding: str | None = None,
    na: Sequence[str] = (),
) -> Any:
    """Read a whole table.

    A CSV (also ``.gz``), Parquet, Feather or Excel file (its first sheet), as the ending of its
    name says, or a folder of Parquet files, in the order of their names; names of folders inside
    such as ``site=A`` count as columns of text. ``columns`` are read in their order; None is all.
    ``labels`` are columns that a CSV file holds labels in: text as it is written, of which only the
    empty one is missing ("NA" may well be North America). ``decimal`` is the mark of numbers that
    are text, and ``encoding`` that of a CSV file; None tells either from the file. ``na`` stands
    for none in every column.

    Raises TableError if the file is missing, empty, ragged, of unknown encoding, damaged, or names
    a column twice.
    """
    (frame,) = iter_table(
        path, columns=columns, labels=labels, decimal=decimal, encoding=encoding, na=na
    )
    return frame


def iter_table(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    labels: Sequence[str] = (),
    text: Sequence[str] = (),
    rows: int | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    na: Sequence[str] = (),
    usual: tuple[str | None, str | None] = (None, None),
) -> Iterator[Any]:
    """Read a table piece by piece, so that memory does not grow with the file.

    Arguments are those of :func:`read_table`. The decimal mark of a column is told from the first
    piece that shows one; a later piece that contradicts it keeps its text. Columns in ``text`` hold
    categories: text, also where a piece holds digits only. A piece has ``rows`` rows; None reads
    all as one. ``usual`` are decimal mark and encoding of earlier tables, for what the file itself
    leaves open.
    """
    table = open_table(
        path, encoding=encoding, fallback=usual[1], read="all" if rows is None else "pieces"
    )
    for note in table.notes:
        warn_caller(note)
    columns = table.names if columns is None else columns
    marks: dict[str, str] = {}
    for frame in table.frames(columns, rows):
        free = [name for name in frame.columns if name not in labels and name not in text]
        for name in frame.columns:
            frame[name] = without(frame[name], na, words=name not in labels)
        marks |= decimal_marks(frame, free, decimal, known=marks, usual=usual[0])
        for name in free:
            frame[name] = typed_numbers(with_points(frame[name], marks.get(name)))
        yield frame
