"""Reading and writing tables: CSV, Parquet, Feather and Excel, in memory or in chunks."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from domainwise.base.files import replacing
from domainwise.base.messages import warn_caller
from domainwise.tables.cells import decimal_marks, mark_missing, parse_numbers, with_decimal_points
from domainwise.tables.csv_files import CsvFile, open_csv
from domainwise.tables.errors import TableError, import_pandas, refuse_duplicate_names
from domainwise.tables.excel import read_excel

__all__ = ["CHUNK_ROWS", "FORMATS", "iter_table", "open_table", "read_table", "table_columns"]

#: Formats that can be read and written, by file extension.
FORMATS = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".feather", ".arrow"), "feather"),
}
#: Formats that can be read, by file extension.
READ_FORMATS = {**FORMATS, ".xlsx": "excel"}


@dataclass(frozen=True)
class OpenTable:
    """A table whose column names are known; :meth:`frames` reads its rows."""

    path: Path
    file_format: str
    names: list[str]
    notes: tuple[str, ...]  #: Assumptions about the file, and skipped rows and sheets.
    source: Any  #: A CsvFile, a data frame from a workbook, or None.

    def frames(self, columns: Sequence[str], chunk_rows: int | None = None) -> Iterator[Any]:
        """Yield frames of up to ``chunk_rows`` rows; None yields one frame. CSV cells are text."""
        columns, is_empty = list(columns), True
        if self.file_format == "excel":
            step = chunk_rows or max(1, len(self.source))
            slices = (self.source[i : i + step] for i in range(0, len(self.source), step))
            frames: Iterator[Any] = (chunk[columns].reset_index(drop=True) for chunk in slices)
        elif isinstance(self.source, CsvFile):
            batches = self.source.batches(columns)
            frames = (arrow_frame(table, columns, {}) for table in regroup(batches, chunk_rows))
        else:
            frames = arrow_frames(self.path, self.file_format, columns, chunk_rows)
        for frame in filter(len, frames):
            is_empty = False
            yield frame
        if is_empty:
            raise TableError(f"{self.path} has column names but no rows. Pass a table with rows")


def open_table(
    path: str | Path, *, encoding: str | None = None, fallback: str | None = None, read: str = "all"
) -> OpenTable:
    """Open a table and read its column names; :func:`open_csv` describes the options for CSV."""
    import_pandas()
    path = Path(path)
    if not path.exists():
        raise TableError(f"{path} does not exist. Check the path")
    if path.is_dir() and not parquet_files(path):
        raise TableError(f"{path} is a folder without Parquet files. Pass another folder or a file")
    if path.is_file() and path.stat().st_size == 0:
        raise TableError(f"{path} is empty. Pass a file with column names and rows")
    file_format, source = existing_format(path), None
    notes: tuple[str, ...] = ()
    with arrow_errors(path, file_format):
        if file_format == "csv":
            source = open_csv(path, encoding, fallback=fallback, read=read)
            names, notes = source.names, source.notes
        elif file_format == "excel":
            source, notes = read_excel(path)
            names = list(source.columns)
        else:
            first_file = parquet_files(path)[0]
            folder_columns = folder_values(first_file.as_posix(), path.as_posix())
            file_columns = _open_dataset(first_file, file_format).schema.names
            names = [name for name in (*file_columns, *folder_columns) if not _is_index(name)]
    refuse_duplicate_names(names, str(path))
    return OpenTable(path, file_format, names, notes, source)


def table_format(path: str | Path, formats: dict[str, str] = READ_FORMATS) -> str:
    """Return the format that a file extension selects: "csv", "parquet", "feather" or "excel".

    >>> table_format("measurements.csv.gz")
    'csv'
    """
    name = Path(path).name.lower()
    for extension, file_format in formats.items():
        if name.endswith(extension):
            return file_format
    raise TableError(f"{path} has an unknown file extension. Use one of {', '.join(formats)}")


def existing_format(path: str | Path) -> str:
    """Return the format of an existing table; a folder is assumed to contain Parquet files."""
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
    """Read a table into memory.

    The file extension selects CSV (also ``.gz``), Parquet, Feather or Excel (first sheet). A folder
    of Parquet files is read in the order of their names; folder names such as ``site=A`` inside it
    become text columns. ``columns`` are the columns to return, in order; None returns all. In label
    columns (``labels``), text is unchanged and only empty cells are missing ("NA" may mean North
    America). ``decimal`` is the decimal mark of numbers in text, ``encoding`` the encoding of a CSV
    file; None detects them. ``na`` lists values that count as missing in all columns.

    Raises a TableError if the file does not exist, is empty or damaged, or has an unknown encoding,
    lines with different numbers of fields, or duplicate column names.
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
    text_columns: Sequence[str] = (),
    chunk_rows: int | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    na: Sequence[str] = (),
    fallback: tuple[str | None, str | None] = (None, None),
) -> Iterator[Any]:
    """Read a table in chunks, so that the memory needed does not grow with the file.

    See :func:`read_table` for the other arguments. A column has the decimal mark of the first chunk
    in which it is unambiguous; in a later chunk that contradicts it, the column stays text.
    ``text_columns`` contain categories and stay text, even if a chunk has only digits. A chunk has
    ``chunk_rows`` rows; None reads all rows as one chunk. ``fallback`` is the decimal mark and the
    encoding of tables that were read earlier, used if the file is ambiguous.
    """
    read = "all" if chunk_rows is None else "chunks"
    table = open_table(path, encoding=encoding, fallback=fallback[1], read=read)
    for note in table.notes:
        warn_caller(note)
    columns = table.names if columns is None else columns
    marks: dict[str, str] = {}
    for frame in table.frames(columns, chunk_rows):
        names = [name for name in frame.columns if name not in {*labels, *text_columns}]
        for name in frame.columns:
            frame[name] = mark_missing(frame[name], na, nan_text=name not in labels)
        marks |= decimal_marks(frame, names, decimal, earlier_marks=marks, fallback=fallback[0])
        for name in names:
            frame[name] = parse_numbers(with_decimal_points(frame[name], marks.get(name)))
        yield frame


#: Default number of rows in a chunk.
CHUNK_ROWS = 50_000
#: Extensions of the files that are read from a folder.
PARQUET_EXTENSIONS = (".parquet", ".parq", ".pq")
#: Value in the name of a folder whose rows have no value in the partition column.
MISSING_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def _is_index(name: str) -> bool:
    """Whether a column is an unnamed index that pandas or Dask has written."""
    return name.startswith("__index_level_") or name == "__null_dask_index__"


def index_columns(schema: Any) -> set[str]:
    """Return the columns of an Arrow schema that are the index of a data frame."""
    entries = (schema.pandas_metadata or {}).get("index_columns", [])
    return {n for n in entries if isinstance(n, str)} | {n for n in schema.names if _is_index(n)}


def is_data_file(path: str) -> bool:
    """Whether a file in a folder is a Parquet file with rows, not a hidden file or ``_metadata``.

    >>> is_data_file("site=A/part-0.parquet"), is_data_file("site=A/.part-0.parquet")
    (True, False)
    """
    name = path.rsplit("/", 1)[-1]
    return name.endswith(PARQUET_EXTENSIONS) and not name.startswith(("_", "."))


def folder_values(path: str, root: str) -> dict[str, str | None]:
    """Return the values in folder names ``column=value``, by column; missing values are None.

    >>> folder_values("data/site=North%20Sea/part-0.parquet", "data")
    {'site': 'North Sea'}
    """
    folders = path.removeprefix(root).split("/")[:-1]
    pairs = [folder.split("=", 1) for folder in folders if "=" in folder]
    return {unquote(k): None if v == MISSING_PARTITION else unquote(v) for k, v in pairs}


def arrow_frame(
    table: Any, columns: list[str], folder_columns: dict[str, str | None], *, exact: bool = False
) -> Any:
    """Convert an Arrow table to a data frame, and add constant columns from ``folder_columns``.

    Decimals become floats. With ``exact``, int64 and uint64 become nullable types, because large
    numbers lose digits if they are converted to floats.
    """
    import pyarrow

    pandas = import_pandas()
    table = table.select([name for name in columns if name not in folder_columns])
    for i, field in enumerate(table.schema):
        if pyarrow.types.is_decimal(field.type):
            table = table.set_column(i, field.name, table[i].cast(pyarrow.float64()))
    int_types = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.uint64(): pandas.UInt64Dtype()}
    frame = table.to_pandas(
        ignore_metadata=True, use_threads=False, types_mapper=int_types.get if exact else None
    )
    for name, value in folder_columns.items():
        frame[name] = value
    return frame[columns]


def parquet_files(path: Path) -> list[Path]:
    """Return the Parquet files in a folder, sorted by name, or the file itself."""
    if not path.is_dir():
        return [path]
    files = (p for p in path.rglob("*") if is_data_file(p.as_posix()) and p.is_file())
    return sorted(files, key=Path.as_posix)


def _open_dataset(path: Path, file_format: str) -> Any:
    from pyarrow import dataset

    return dataset.dataset(path, format=file_format)


def arrow_frames(
    path: Path, file_format: str, columns: list[str], chunk_rows: int | None
) -> Iterator[Any]:
    """Yield data frames of up to ``chunk_rows`` rows from Parquet or Feather; None yields one."""
    frames = []
    for file in parquet_files(path):
        folder_columns = folder_values(file.as_posix(), path.as_posix())
        with arrow_errors(file, file_format):
            file_dataset = _open_dataset(file, file_format)
            file_columns = [name for name in columns if name not in folder_columns]
            for name in file_columns:
                if name not in file_dataset.schema.names:
                    text = f"{file} has no column {name!r}. Use only columns that all files contain"
                    raise TableError(text)
            batch_rows = chunk_rows or CHUNK_ROWS
            batches = file_dataset.to_batches(
                columns=file_columns, batch_size=batch_rows, batch_readahead=1, use_threads=False
            )
            for table in regroup(batches, chunk_rows):
                frame = arrow_frame(table, columns, folder_columns, exact=True)
                if chunk_rows is None:
                    frames.append(frame)
                else:
                    yield frame
    if frames:
        yield import_pandas().concat(frames, ignore_index=True)


def regroup(batches: Iterator[Any], n_rows: int | None) -> Iterator[Any]:
    """Regroup record batches into tables of ``n_rows`` rows; the last table may have fewer."""
    import pyarrow

    pending_batches: list[Any] = []
    for batch in batches:
        pending_batches.append(batch)
        while n_rows is not None and sum(batch.num_rows for batch in pending_batches) >= n_rows:
            table = pyarrow.Table.from_batches(pending_batches)
            yield table[:n_rows]
            pending_batches = table[n_rows:].to_batches()
    if any(batch.num_rows for batch in pending_batches):
        yield pyarrow.Table.from_batches(pending_batches)


@contextmanager
def arrow_errors(path: Path, file_format: str) -> Iterator[None]:
    """Convert pyarrow errors to errors that name the file."""
    format_name = "CSV" if file_format == "csv" else file_format.capitalize()
    try:
        yield
    except TableError:
        raise
    except ModuleNotFoundError as error:
        raise ImportError(
            f'reading {format_name} files needs {error.name}: pip install "domainwise[cli]"'
        ) from None
    except (OSError, ValueError) as error:
        text = f"{path} is damaged or is not a {format_name} file: {str(error).splitlines()[0]}"
        raise TableError(f"{text}. Export or copy it again") from None


class TableWriter:
    """Writes data frames with the same columns to one file.

    ``schema`` is the Arrow schema for Parquet and Feather; None infers it from the first frame.
    """

    def __init__(self, path: Path, file_format: str, schema: Any = None) -> None:
        self._path, self._format = path, file_format
        self._file: Any = None
        self.schema = schema
        self.n_rows = 0

    def write(self, frame: Any) -> None:
        """Append the rows of a data frame."""
        if self._format == "csv":
            file_name = self._path.name.lower()
            if self._file is None:
                open_text = gzip.open if file_name.endswith(".gz") else open
                self._file = open_text(self._path, "wt", encoding="utf-8", newline="")
            separator = "\t" if ".tsv" in file_name else ","
            frame.to_csv(self._file, index=False, header=self.n_rows == 0, sep=separator)
        else:
            import pyarrow
            from pyarrow import parquet

            # All chunks use the first chunk's types, because a column without values has no type.
            table = pyarrow.Table.from_pandas(frame, schema=self.schema, preserve_index=False)
            if self._file is None:
                self.schema = table.schema.remove_metadata()
                is_parquet = self._format == "parquet"
                open_file = parquet.ParquetWriter if is_parquet else pyarrow.ipc.new_file
                self._file = open_file(str(self._path), self.schema)
            self._file.write_table(table.cast(self.schema))
        self.n_rows += len(frame)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


@contextmanager
def writing_table(path: str | Path) -> Iterator[TableWriter]:
    """Open a table for writing, in the format that its file extension selects."""
    file_format = table_format(path, FORMATS)
    with replacing(path) as temporary_path:
        writer = TableWriter(temporary_path, file_format)
        try:
            yield writer
        finally:
            writer.close()
