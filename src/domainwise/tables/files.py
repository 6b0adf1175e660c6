"""Reading tables: CSV, Parquet and Feather, whole or in pieces, refused where they are damaged."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

#: Rows read at a time when a table is streamed.
CHUNK_ROWS = 50_000

#: File endings, and how each is read.
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
#: Separators of a CSV file, in the order in which they are looked for in its first line.
SEPARATORS = (",", "\t", ";", "|")
#: Endings of the files that a folder is searched for.
PARQUET_ENDINGS = (".parquet", ".parq", ".pq")
#: Cells of a CSV file that hold no value; in a column of categories words may be values.
MISSING_TEXT = ["", "NaN", "nan", "-nan", "<NA>", "#N/A"]
MISSING = [*MISSING_TEXT, "NA", "N/A", "n/a", "NULL", "null", "None"]
#: Name that writers give a folder of rows without a value.
MISSING_FOLDER = "__HIVE_DEFAULT_PARTITION__"


class TableError(ValueError):
    """A table that cannot be used, with words about what to do."""


def import_pandas() -> Any:
    """Return pandas, or say which extra brings it."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ImportError(
            f'reading tables needs {error.name}: pip install "domainwise[cli]"'
        ) from None
    return pandas


def table_format(path: str | Path) -> str:
    """Return "csv", "parquet" or "feather" by the ending of a file name.

    >>> table_format("measurements.csv.gz")
    'csv'
    """
    name = Path(path).name.lower()
    for ending, kind in FORMATS.items():
        if name.endswith(ending):
            return kind
    raise TableError(
        f"{path}: the ending says nothing about its format; use one of {', '.join(FORMATS)}"
    )


def existing_format(path: str | Path) -> str:
    """Return the format of a table that is there; a folder is one of Parquet files."""
    return "parquet" if Path(path).is_dir() else table_format(path)


def table_columns(path: str | Path) -> list[str]:
    """Return the column names of a table without reading its rows."""
    path = _existing(path)
    kind = existing_format(path)
    if kind == "csv":
        names = _csv_header(path)[0]
    else:
        names = [name for name in _arrow_names(path, kind) if not _is_index(name)]
    _refuse_duplicates(path, names)
    return names


def read_table(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    labels: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> Any:
    """Read a whole table.

    Parameters
    ----------
    path : path-like
        A CSV (also ``.gz``), Parquet or Feather file; the ending of its name says which. Or a
        folder of Parquet files, in the order of their names; names of folders inside such as
        ``site=A`` count as columns of text.
    columns : sequence of str, default=None
        Columns to read, in this order; None reads all. They must exist.
    labels : sequence of str, default=()
        Columns that a CSV file holds labels in: text as it is written, of which only the empty
        one is missing ("NA" may well be North America).
    categories : sequence of str, default=()
        Columns in which, if they turn out to hold text, words such as "None" are values, as they
        are in other formats.

    Returns
    -------
    frame : pandas.DataFrame

    Raises
    ------
    TableError
        If the file is missing, empty, ragged, not UTF-8, damaged, or names a column twice.
    """
    pandas = import_pandas()
    frames = list(iter_table(path, columns=columns, labels=labels))
    frame = frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)
    if existing_format(path) == "csv":
        is_text = pandas.api.types.is_string_dtype
        words = [c for c in categories if is_text(frame[c].dtype) and frame[c].isna().any()]
        if words:
            (frame[words],) = iter_table(path, columns=words, text=words)
    return frame


def iter_table(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    labels: Sequence[str] = (),
    text: Sequence[str] = (),
    rows: int | None = None,
) -> Iterator[Any]:
    """Read a table piece by piece, so that memory does not grow with the file.

    Parameters
    ----------
    path, columns, labels
        As in :func:`read_table`. A CSV file is checked to its end before the first piece.
    text : sequence of str, default=()
        Columns that a CSV file holds categories in: text, also where a piece holds digits only.
    rows : int, default=None
        Rows of a piece. None reads a CSV file, whose types are then inferred from all rows, as
        one piece, and other files as they come.

    Yields
    ------
    frame : pandas.DataFrame
        At least one, with at least one row.
    """
    import_pandas()
    path = _existing(path)
    kind = existing_format(path)
    names = table_columns(path)
    chosen = names if columns is None else list(columns)
    if kind == "csv":
        pieces = _csv_pieces(path, chosen, labels, text, rows)
    else:
        pieces = _arrow_pieces(path, kind, chosen, rows or CHUNK_ROWS)
    empty = True
    for frame in pieces:
        if len(frame):
            empty = False
            yield frame
    if empty:
        raise TableError(f"{path} has column names but no rows")


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.exists():
        raise TableError(f"{path}: no such file")
    if path.is_dir() and not _parquet_files(path):
        raise TableError(f"{path} is a folder without Parquet files; name a file")
    if path.is_file() and path.stat().st_size == 0:
        raise TableError(f"{path} is empty")
    return path


def _refuse_duplicates(path: Path, names: Sequence[str]) -> None:
    double = [name for name, count in Counter(names).items() if count > 1]
    if double:
        raise TableError(
            f"{path} has more than one column named {', '.join(map(repr, double))}; "
            "give each column its own name"
        )


def _open_text(path: Path) -> IO[str]:
    # utf-8-sig: spreadsheets put a byte order mark first, which is no part of a name.
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _csv_header(path: Path) -> tuple[list[str], str]:
    """Column names and separator of a CSV file."""
    try:
        with _open_text(path) as text:
            line = text.readline()
            while line and not line.strip():
                line = text.readline()
    except UnicodeDecodeError as error:
        raise TableError(_not_utf8(path, error)) from None
    except (OSError, EOFError) as error:
        raise TableError(f"{path} cannot be read: {error}") from None
    if not line.strip():
        raise TableError(f"{path} is empty")
    separator = next((mark for mark in SEPARATORS if mark in line), ",")
    names = next(csv.reader([line], delimiter=separator))
    blank = [i for i, name in enumerate(names, 1) if not name.strip()]
    if len(blank) > 1 or (blank and blank != [1]):
        raise TableError(
            f"{path}: column {blank[-1]} has no name; the first line must name all columns"
        )
    # One nameless first column is what pandas and R write for row numbers.
    return ["Unnamed: 0" if not name.strip() else name for name in names], separator


def _not_utf8(path: Path, error: UnicodeDecodeError) -> str:
    with open(path, "rb") as file:
        start = file.read(4)
    if start == b"PAR1":
        return f"{path} is a Parquet file: give it a name that ends in .parquet"
    encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
    return (
        f"{path} is not UTF-8 (byte {error.object[error.start] if error.object else 0:#04x}); "
        f"save it as UTF-8, or convert it: iconv -f {encoding} -t utf-8 OLD > NEW"
    )


def _check_csv(path: Path, names: Sequence[str], separator: str) -> None:
    """Read to the end once: pandas fills short rows up without a word."""
    try:
        with _open_text(path) as text:
            reader = csv.reader(text, delimiter=separator)
            for fields in reader:
                if fields and len(fields) != len(names):
                    raise TableError(
                        f"{path}, line {reader.line_num}: {len(fields)} fields, but the first "
                        f"line names {len(names)} columns; mend that line (text that holds "
                        f"{separator!r} needs double quotes around it)"
                    )
    except UnicodeDecodeError as error:
        raise TableError(_not_utf8(path, error)) from None
    except (OSError, EOFError) as error:
        raise TableError(f"{path} is damaged: {error}") from None
    except csv.Error as error:
        raise TableError(f"{path} is not a CSV file: {error}") from None


def _csv_pieces(
    path: Path,
    columns: list[str],
    labels: Sequence[str],
    text: Sequence[str],
    rows: int | None,
) -> Iterator[Any]:
    pandas = import_pandas()
    names, separator = _csv_header(path)
    _check_csv(path, names, separator)
    try:
        reader = pandas.read_csv(
            path,
            sep=separator,
            encoding="utf-8-sig",
            names=names,
            header=0,
            usecols=columns,
            index_col=False,
            chunksize=rows,
            low_memory=False,
            dtype={name: str for name in [*labels, *text] if name in columns},
            keep_default_na=False,
            na_values={
                name: [""] if name in labels else MISSING_TEXT if name in text else MISSING
                for name in columns
            },
        )
        if rows is None:
            yield reader[columns]
            return
        with reader:
            for frame in reader:
                yield frame[columns].reset_index(drop=True)
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
        raise TableError(f"{path} is not a CSV file: {error}") from None


def _is_index(name: str) -> bool:
    """Whether pandas or Dask wrote a column for row numbers."""
    return name.startswith("__index_level_") or name == "__null_dask_index__"


def index_columns(schema: Any) -> set[str]:
    """Columns of an Arrow schema that hold the index of a data frame, by name or by its notes."""
    noted = (schema.pandas_metadata or {}).get("index_columns", [])
    named = {name for name in noted if isinstance(name, str)}
    return named | {name for name in schema.names if _is_index(name)}


def is_data_file(path: str) -> bool:
    """Whether a file of a folder holds rows; ``_metadata`` and hidden files do not.

    >>> is_data_file("site=A/part-0.parquet"), is_data_file("site=A/.part-0.parquet")
    (True, False)
    """
    name = path.rsplit("/", 1)[-1]
    return name.endswith(PARQUET_ENDINGS) and not name.startswith(("_", "."))


def folder_keys(path: str, root: str) -> dict[str, str | None]:
    """Columns in the names of folders, ``key=value``; values are strings, or None if missing.

    >>> folder_keys("data/site=North%20Sea/part-0.parquet", "data")
    {'site': 'North Sea'}
    """
    folders = path.removeprefix(root).split("/")[:-1]
    pairs = (folder.partition("=") for folder in folders)
    return {
        unquote(name): None if value == MISSING_FOLDER else unquote(value)
        for name, sign, value in pairs
        if sign
    }


def arrow_frame(table: Any, columns: list[str], keys: dict[str, str | None]) -> Any:
    """The columns as a data frame, those of its folders included; decimal numbers as floats."""
    import pyarrow

    table = table.select([name for name in columns if name not in keys])
    for i, field in enumerate(table.schema):
        if pyarrow.types.is_decimal(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pyarrow.float64()))
    frame = table.to_pandas(ignore_metadata=True, use_threads=False)
    for name in columns:
        if name in keys:
            frame[name] = keys[name]
    return frame[columns]


def _parquet_files(path: Path) -> list[Path]:
    """The file itself, or the files of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    return sorted(
        (p for p in path.rglob("*") if is_data_file(p.as_posix()) and p.is_file()),
        key=Path.as_posix,
    )


def _arrow_names(path: Path, kind: str) -> list[str]:
    if kind == "feather":
        with _arrow_errors(path, kind):
            return list(next(_feather_batches(path)).schema.names)
    first = _parquet_files(path)[0]
    with _arrow_errors(first, kind):
        from pyarrow import parquet

        names = list(parquet.read_schema(first).names)
    return [*names, *folder_keys(first.as_posix(), path.as_posix())]


def _arrow_pieces(path: Path, kind: str, columns: list[str], rows: int) -> Iterator[Any]:
    if kind == "parquet":
        for file in _parquet_files(path):
            keys = folder_keys(file.as_posix(), path.as_posix())
            yield from _parquet_pieces(file, columns, keys, rows)
        return
    with _arrow_errors(path, kind):
        import pyarrow

        for batch in _feather_batches(path):
            for start in range(0, batch.num_rows, rows):
                table = pyarrow.Table.from_batches([batch.slice(start, rows)])
                yield arrow_frame(table, columns, {})


def _parquet_pieces(
    path: Path, columns: list[str], keys: dict[str, str | None], rows: int
) -> Iterator[Any]:
    with _arrow_errors(path, "parquet"):
        import pyarrow
        from pyarrow import parquet

        stored = [name for name in columns if name not in keys]
        with parquet.ParquetFile(path, memory_map=True) as file:
            missing = [name for name in stored if name not in file.schema_arrow.names]
            if missing:
                raise TableError(
                    f"{path} has no column {missing[0]!r}, which other files of its folder have"
                )
            for batch in file.iter_batches(batch_size=rows, columns=stored):
                yield arrow_frame(pyarrow.Table.from_batches([batch]), columns, keys)


def _feather_batches(path: Path) -> Iterator[Any]:
    """Record batches of a Feather file, each read when it is asked for; at least one."""
    import pyarrow
    from pyarrow import feather

    with open(path, "rb") as file:
        first_version = file.read(4) == b"FEA1"
    if first_version:  # which knows no batches
        yield from feather.read_table(path).to_batches()
        return
    with pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_file(source) as reader:
        if not reader.num_record_batches:
            yield pyarrow.RecordBatch.from_pylist([], schema=reader.schema)
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


class _arrow_errors:
    """Turn what pyarrow says about a file into a message about the file."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind.capitalize()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, ModuleNotFoundError):
            raise ImportError(
                f'{self.kind} files need {error.name}: pip install "domainwise[cli]"'
            ) from None
        if error is not None and type(error).__module__.startswith("pyarrow"):
            reason = str(error).splitlines()[0]
            raise TableError(f"{self.path} is damaged or no {self.kind} file: {reason}") from None
        if isinstance(error, OSError):
            raise TableError(f"{self.path} cannot be read: {error}") from None
