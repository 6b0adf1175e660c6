"""Parquet files as partitions of known length. Footers are read first, and rows later, in tasks.

``pyarrow.dataset`` is not used, because it does not support glob patterns, reads the footers of
remote files one by one, fills columns that are missing in later files with nulls, and does not name
the file that contains a damaged row group.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import fsspec
import pyarrow.parquet as pq
from pyarrow import types

from domainwise.algebra.gram.dask.graphs import Deferred
from domainwise.tables.files import arrow_frame, folder_values, index_columns, is_data_file
from domainwise.tables.names import check_names

#: Maximum size in memory of adjacent row groups that are read together.
PARTITION_BYTES = 32 * 2**20
#: Number of footers that are read in parallel.
FOOTER_THREADS = 16


@dataclass(frozen=True)
class Piece:
    """Adjacent row groups of a file."""

    filesystem: Any
    path: str
    row_groups: tuple[int, ...]
    n_rows: int
    folder_columns: dict[str, str | None]  #: from folder names, as in ``site=A/part.parquet``

    @property
    def source(self) -> str:
        """Name of the piece in error messages."""
        first, last = self.row_groups[0], self.row_groups[-1]
        groups_text = f"row group {first}" if first == last else f"row groups {first} to {last}"
        return f"{self.path}, {groups_text}"


@dataclass(frozen=True)
class Footer:
    """The metadata of a file, which is read before its rows."""

    filesystem: Any
    path: str
    metadata: Any
    schema: Any
    folder_columns: dict[str, str | None]


def open_parquet(
    path: Any, label_columns: list[str], features: list[str] | None
) -> tuple[Any, dict[str, Any]]:
    """Open Parquet files as a Dask data frame; also return its partitions.

    The path is a file, a folder or a glob pattern, on any storage that fsspec can open. If
    ``features`` is None, all columns except ``label_columns`` and the index are features.
    """
    footers = read_footers(path)
    schema = footers[0].schema
    check_names(schema.names, footers[0].path)
    if features is None:
        excluded_names = {*label_columns, *index_columns(schema)}
        features = [name for name in schema.names if name not in excluded_names]
    columns = [*features, *(name for name in label_columns if name not in features)]
    pieces = cut_pieces(footers, columns)
    numeric_names = [f.name for f in schema if f.name in features and _is_numeric(f.type)]
    for footer in footers[1:]:
        for name in numeric_names:
            if not _is_numeric(dtype := footer.schema.field(name).type):
                raise ValueError(
                    f"{footer.path}: features must be numeric, but {name!r} has type {dtype}. It "
                    f"is numeric in {footers[0].path}. Use the same types in all files."
                )
    meta = arrow_frame(schema.empty_table(), columns, footers[0].folder_columns, exact=False)
    frame = dd.from_map(read_piece, pieces, columns=columns, meta=meta, label="read-parquet")
    return frame, {
        "rows": [Deferred(read_piece, piece, columns) for piece in pieces],
        "lengths": tuple(piece.n_rows for piece in pieces),
        "sources": tuple(piece.source for piece in pieces),
    }


def _is_numeric(dtype: Any) -> bool:
    checks = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    return any(check(dtype) for check in checks)


def read_footers(path: Any) -> list[Footer]:
    """Read the footers of all files under a path; most damaged files are detected here."""
    if Path(path).exists():  # even if the name looks like a pattern
        filesystem, root = fsspec.filesystem("file"), Path(path).absolute().as_posix()
        paths = [root]
    else:
        filesystem, root = fsspec.core.url_to_fs(str(path))
        paths = [root]
        prefix, *wildcards = re.split(r"([*?\[])", root)
        if wildcards:
            paths = filesystem.glob(root)
            root = prefix.rpartition("/")[0]  # folders below the root may define columns
    if len(paths) == 1 and filesystem.isdir(paths[0]):
        paths = [p for p in filesystem.find(paths[0]) if is_data_file(p)]
    if not paths:
        raise FileNotFoundError(f"no Parquet files were found in {path}. Check the path.")

    def read_footer(file_path: str) -> Footer:
        try:
            with filesystem.open(file_path) as file:
                metadata = pq.read_metadata(file)
            schema = metadata.schema.to_arrow_schema()
            return Footer(filesystem, file_path, metadata, schema, folder_values(file_path, root))
        except FileNotFoundError:
            raise
        except Exception as error:
            raise _read_error(file_path, error) from error

    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        return list(pool.map(read_footer, sorted(paths)))


def _read_error(source: str, error: Exception) -> OSError:
    reason = f"{type(error).__name__}: {error}".rstrip(".")
    return OSError(f"cannot read {source}: {reason}. Check access to the file, or replace it.")


def cut_pieces(
    footers: list[Footer], columns: list[str], max_rows: int | None = None
) -> list[Piece]:
    """Divide files into pieces: adjacent row groups with up to ``max_rows`` rows in total.

    If ``max_rows`` is None, it is computed from ``PARTITION_BYTES``. Row groups are not split.
    """
    pieces: list[Piece] = []
    max_rows = max_rows or PARTITION_BYTES // (8 * len(columns))
    for footer in footers:
        file_columns = {*footer.schema.names, *footer.folder_columns}
        if missing_names := [name for name in columns if name not in file_columns]:
            raise ValueError(
                f"{footer.path} has no column {missing_names[0]!r}. Use columns that all files "
                f"have. The columns of this file are {', '.join(sorted(file_columns))}."
            )
        n_earlier_pieces = len(pieces)
        for i in range(footer.metadata.num_row_groups):
            n_rows, row_groups = footer.metadata.row_group(i).num_rows, [i]
            if n_rows and len(pieces) > n_earlier_pieces and pieces[-1].n_rows + n_rows <= max_rows:
                last_piece = pieces.pop()
                n_rows, row_groups = last_piece.n_rows + n_rows, [*last_piece.row_groups, i]
            if n_rows:
                location = (footer.filesystem, footer.path, tuple(row_groups))
                pieces.append(Piece(*location, n_rows, footer.folder_columns))
    if not pieces:
        raise ValueError(
            f"no Parquet file contains rows (number of files: {len(footers)}, first file: "
            f"{footers[0].path}). Check the path."
        )
    return pieces


def read_piece(piece: Piece, columns: list[str], *, exact: bool = False) -> Any:
    """Read a piece as a data frame; if that fails, raise OSError with the name of the piece.

    For ``exact``, see :func:`~domainwise.tables.files.arrow_frame`.
    """
    file_columns = [name for name in columns if name not in piece.folder_columns]
    try:
        with piece.filesystem.open(piece.path) as file:
            table = pq.ParquetFile(file).read_row_groups(
                list(piece.row_groups), columns=file_columns, use_threads=False
            )
    except Exception as error:  # a damaged file can raise errors of any type
        raise _read_error(piece.source, error) from error
    return arrow_frame(table, columns, piece.folder_columns, exact=exact)
