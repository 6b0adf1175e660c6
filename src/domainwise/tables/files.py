"""Reading and writing tables: CSV, Parquet, Feather and Excel, in memory or in chunks.

Cells are read as they are written: those of CSV files are text. Their meaning is determined later,
by a :class:`~domainwise.tables.schema.Schema`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from domainwise.base.files import replacing
from domainwise.base.messages import needs_extra
from domainwise.tables.csv_files import CsvFile
from domainwise.tables.errors import TableError, check, import_pandas, refuse
from domainwise.tables.excel import DAMAGED, read_excel
from domainwise.tables.names import check_names, require_columns

#: Extensions of the files that are read from a folder.
PARQUET_EXTENSIONS = (".parquet", ".parq", ".pq")
#: Formats that can be read and written, by file extension.
FORMATS = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "csv"),
    **dict.fromkeys(PARQUET_EXTENSIONS, "parquet"),
    **dict.fromkeys((".feather", ".arrow"), "feather"),
}
#: Formats that can be read, by file extension.
READ_FORMATS = {**FORMATS, ".xlsx": "excel"}
CHUNK_ROWS = 50_000  #: default number of rows in a chunk
#: Value in the name of a folder whose rows have no value in the partition column.
MISSING_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class OpenTable:
    """A table whose column names are known; :meth:`frames` reads its rows."""

    path: Path
    names: list[str]
    notes: tuple[str, ...]  #: assumptions about the file, and skipped rows and sheets
    read: Callable[[list[str]], Iterator[Any]]  #: yields data frames with these columns

    def frames(self, columns: Sequence[str], chunk_rows: int | None = None) -> Iterator[Any]:
        """Yield frames of up to ``chunk_rows`` rows; None yields one frame. CSV cells are text."""
        frames, n_rows = filter(len, self.read(list(columns))), 0
        with _read_errors(self.path):
            if chunk_rows is None and (pieces := list(frames)):
                frames = iter([import_pandas().concat(pieces, ignore_index=True)])
            for frame in frames:
                n_rows += len(frame)
                size = chunk_rows or len(frame)
                for start in range(0, len(frame), size):
                    yield frame[start : start + size].reset_index(drop=True)
        check(n_rows, "no rows", path=self.path)


def open_table(
    path: str | Path, *, encoding: str | None = None, fallback: str | None = None
) -> OpenTable:
    """Open a table and read its column names.

    The file extension selects CSV (also ``.gz``), Parquet, Feather or Excel (first visible sheet).
    A folder of Parquet files is read in the order of their names; folder names such as ``site=A``
    inside it become text columns. ``encoding`` is the encoding of a CSV file; None detects it. For
    ``fallback``, see :class:`CsvFile`.

    Raises a TableError if the file does not exist, is empty or damaged, or has an unknown encoding,
    lines with different numbers of fields, or unusable column names.
    """
    import_pandas()
    path, notes = Path(path), tuple[str, ...]()
    check(path.exists(), "no file", path=path)
    check(path.is_dir() or path.stat().st_size, "empty file", path=path)
    files = parquet_files(path)
    check(files, "no Parquet files", path=path)
    file_format = existing_format(path)
    read: Callable[[list[str]], Iterator[Any]] = partial(_arrow_frames, path, file_format)
    with _read_errors(path):
        if file_format == "csv":
            csv_file = CsvFile(path, encoding, fallback=fallback)
            names, notes = csv_file.names, csv_file.notes
            read = lambda columns: (arrow_frame(b, columns) for b in csv_file.batches(columns))  # noqa: E731
        elif file_format == "excel":
            sheet, notes = read_excel(path)
            names, read = list(sheet.columns), lambda columns: iter([sheet[columns]])
        else:
            from pyarrow import dataset

            is_parquet = file_format == "parquet"
            reader = dataset.ParquetFileFormat() if is_parquet else dataset.IpcFileFormat()
            schema = reader.inspect(str(files[0]))
            folder_columns = folder_values(files[0].as_posix(), path.as_posix())
            names = [name for name in (*schema.names, *folder_columns) if not _is_index(name)]
    check_names(names, str(path))
    return OpenTable(path, names, notes, read)


def table_format(path: str | Path, formats: dict[str, str] = READ_FORMATS) -> str:
    """Return the format that a file extension selects: "csv", "parquet", "feather" or "excel".

    >>> table_format("measurements.csv.gz")
    'csv'
    """
    name = Path(path).name.lower()
    for extension, file_format in formats.items():
        if name.endswith(extension):
            return file_format
    refuse("unknown extension", path=path, extensions=", ".join(formats))


def existing_format(path: str | Path) -> str:
    """Return the format of an existing table; a folder is assumed to contain Parquet files."""
    return "parquet" if Path(path).is_dir() else table_format(path)


# Parquet and Feather ------------------------------------------------------------------------------


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


def arrow_frame(table: Any, columns: list[str], folders: Any = None, *, exact: bool = True) -> Any:
    """Convert an Arrow table or batch to a data frame; ``folders`` contains constant columns.

    Decimals become floats. With ``exact``, int64 and uint64 become nullable types, because large
    numbers lose digits if they are converted to floats.
    """
    import pyarrow

    pandas = import_pandas()
    folders = folders or {}
    table = table.select([name for name in columns if name not in folders])
    for i, field in enumerate(table.schema):
        if pyarrow.types.is_decimal(field.type):
            table = table.set_column(i, field.name, table[i].cast(pyarrow.float64()))
    int_types = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.uint64(): pandas.UInt64Dtype()}
    frame = table.to_pandas(
        ignore_metadata=True, use_threads=False, types_mapper=int_types.get if exact else None
    )
    return frame.assign(**folders)[columns]


def parquet_files(path: Path) -> list[Path]:
    """Return the Parquet files in a folder, sorted by name, or the file itself."""
    if not path.is_dir():
        return [path]
    files = (p for p in path.rglob("*") if is_data_file(p.as_posix()) and p.is_file())
    return sorted(files, key=Path.as_posix)


def _arrow_frames(path: Path, file_format: str, columns: list[str]) -> Iterator[Any]:
    """Yield data frames from Parquet or Feather files."""
    from pyarrow import dataset

    for file in parquet_files(path):
        folder_columns = folder_values(file.as_posix(), path.as_posix())
        with _read_errors(file):
            table = dataset.dataset(file, format=file_format)
            file_columns = [name for name in columns if name not in folder_columns]
            require_columns(file_columns, table.schema.names, str(file), reason=" of other files")
            options = {"batch_size": CHUNK_ROWS, "batch_readahead": 1, "use_threads": False}
            for batch in table.to_batches(columns=file_columns, **options):
                yield arrow_frame(batch, columns, folder_columns)


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Convert errors of libraries to errors that name the file."""
    file_format = existing_format(path)
    try:
        with needs_extra(f"reading {path}", "excel" if file_format == "excel" else "cli"):
            yield
    except TableError:
        raise
    except UnicodeDecodeError as error:
        other_encoding = "cp1252" if error.encoding.startswith("utf") else "cp1251"
        refuse("wrong encoding", path=path, error=error, encoding=other_encoding)
    except (OSError, EOFError, ValueError, csv.Error, *DAMAGED) as error:
        text = f"the file is damaged, or its format is not {file_format}"
        reason = f"{text} ({''.join(str(error).splitlines()[:1])})"
        refuse("unreadable", path=path, reason=getattr(error, "strerror", None) or reason)


# Writing ------------------------------------------------------------------------------------------


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
            separator = "\t" if ".tsv" in self._path.name.lower() else ","
            options: dict[str, Any] = {"index": False, "header": self.n_rows == 0, "mode": "a"}
            frame.to_csv(self._path, sep=separator, lineterminator="\n", **options)
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
    with replacing(path) as temporary, closing(TableWriter(temporary, file_format)) as writer:
        yield writer
