"""Parquet and Feather files, which ``pyarrow.dataset`` reads, and folders of them.

Files of a folder are read one after the other: as one data set, pyarrow would fill a column that a
later file lacks with gaps, make numbers of names of folders such as ``site=007``, and either pass
over damaged files or stop at any other file that lies there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from domainwise.tables.errors import TableError, import_pandas

#: Rows read at a time when a table is streamed.
CHUNK_ROWS = 50_000
#: Endings of the files that a folder is searched for.
PARQUET_ENDINGS = (".parquet", ".parq", ".pq")
#: Name that writers give a folder of rows without a value.
MISSING_FOLDER = "__HIVE_DEFAULT_PARTITION__"


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


def arrow_frame(
    table: Any, columns: list[str], keys: dict[str, str | None], *, exact: bool = False
) -> Any:
    """The columns as a data frame, those of its folders included; decimal numbers as floats.

    With ``exact``, whole numbers with gaps are not turned into floats, in which large ones merge.
    """
    import pyarrow

    pandas = import_pandas()
    table = table.select([name for name in columns if name not in keys])
    for i, column in enumerate(table.schema):
        if pyarrow.types.is_decimal(column.type):
            table = table.set_column(i, column.name, table.column(i).cast(pyarrow.float64()))
    whole = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.uint64(): pandas.UInt64Dtype()}
    frame = table.to_pandas(
        ignore_metadata=True, use_threads=False, types_mapper=whole.get if exact else None
    )
    for name in columns:
        if name in keys:
            frame[name] = keys[name]
    return frame[columns]


def parquet_files(path: Path) -> list[Path]:
    """The file itself, or the files of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    return sorted(
        (p for p in path.rglob("*") if is_data_file(p.as_posix()) and p.is_file()),
        key=Path.as_posix,
    )


def arrow_names(path: Path, kind: str) -> list[str]:
    """Columns of a file or of the first of a folder, and those in the names of folders."""
    first = parquet_files(path)[0]
    names = _dataset(first, kind).schema.names
    names = [*names, *folder_keys(first.as_posix(), path.as_posix())]
    return [name for name in names if not _is_index(name)]


def _dataset(path: Path, kind: str) -> Any:
    from pyarrow import dataset

    return dataset.dataset(path, format=kind)


def arrow_pieces(path: Path, kind: str, columns: list[str], rows: int | None) -> Iterator[Any]:
    """Data frames of ``rows`` rows, or one; a file that lacks a column is refused."""
    pieces = []
    for file in parquet_files(path):
        keys = folder_keys(file.as_posix(), path.as_posix())
        with arrow_errors(file, kind):
            data = _dataset(file, kind)
            stored = [name for name in columns if name not in keys]
            missing = [name for name in stored if name not in data.schema.names]
            if missing:
                raise TableError(
                    f"{file} has no column {missing[0]!r}, which other files of its folder have"
                )
            batches = data.to_batches(
                columns=stored, batch_size=rows or CHUNK_ROWS, batch_readahead=1, use_threads=False
            )
            for table in sized(batches, rows):
                frame = arrow_frame(table, columns, keys, exact=True)
                if rows is None:
                    pieces.append(frame)
                else:
                    yield frame
    if pieces:
        yield import_pandas().concat(pieces, ignore_index=True)


def sized(batches: Iterator[Any], rows: int | None) -> Iterator[Any]:
    """Record batches as tables of so many rows, the last one shorter; None makes one of all."""
    import pyarrow

    waiting: list[Any] = []
    for batch in batches:
        waiting.append(batch)
        while rows is not None and sum(part.num_rows for part in waiting) >= rows:
            table = pyarrow.Table.from_batches(waiting)
            yield table[:rows]
            waiting = table[rows:].to_batches()
    if any(part.num_rows for part in waiting):
        yield pyarrow.Table.from_batches(waiting)


@contextmanager
def arrow_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn what pyarrow says about a file into a message about the file."""
    try:
        yield
    except TableError:
        raise
    except ModuleNotFoundError as error:
        raise ImportError(
            f'{kind.capitalize()} files need {error.name}: pip install "domainwise[cli]"'
        ) from None
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise TableError(f"{path} is damaged or no {kind.capitalize()} file: {reason}") from None
