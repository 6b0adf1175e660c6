"""Parquet files as partitions whose lengths are known: footers first, rows inside tasks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import fsspec
import pyarrow.parquet as pq

from domainwise._dask_input import KnownRows

#: Row groups of a file are taken together up to this many bytes of columns in memory.
PARTITION_BYTES = 32 * 2**20
#: Footers read at a time.
FOOTER_THREADS = 16


@dataclass(frozen=True)
class Piece:
    """Some row groups of one file.

    ``keys`` are the columns that the names of its folders stand for (``site=A/part.parquet``).
    """

    files: Any
    path: str
    groups: tuple[int, ...]
    n_rows: int
    keys: tuple[tuple[str, str], ...]

    @property
    def source(self) -> str:
        """What the piece is called in errors."""
        first, last = self.groups[0], self.groups[-1]
        which = f"row group {first}" if first == last else f"row groups {first} to {last}"
        return f"{self.path}, {which}"


def known_rows(path: Any, wanted: list[str], features: list[str] | None) -> KnownRows:
    """Return the columns of a Parquet file or a folder of them as partitions.

    Parameters
    ----------
    path : str or path-like
        A file, a folder that is searched for files, or a pattern; anything fsspec can open.
    wanted : list of str
        Columns of labels.
    features : list of str or None
        Columns of features; None for all but ``wanted``.
    """
    files, root, paths = parquet_files(path)
    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        footers = list(pool.map(lambda p: _footer(files, p), paths))
    keys = [_folder_keys(p, root) for p in paths]
    schema = footers[0].schema.to_arrow_schema()
    if features is None:
        features = [name for name in schema.names if name not in wanted]
    columns = [*features, *(name for name in wanted if name not in features)]
    pieces = []
    for p, footer, folder in zip(paths, footers, keys, strict=True):
        here = {*footer.schema.to_arrow_schema().names, *(name for name, _ in folder)}
        missing = [name for name in columns if name not in here]
        if missing:
            raise ValueError(f"{p} has no column {missing[0]!r}; it has {', '.join(sorted(here))}")
        pieces += _pieces(files, p, footer, folder, len(columns))
    if not pieces:
        raise ValueError(f"{path}: {len(paths)} Parquet files, all without rows")
    meta = _frame(schema.empty_table(), columns, keys[0])
    frame = dd.from_map(read_piece, pieces, columns=columns, meta=meta, label="read-parquet")
    lengths = tuple(piece.n_rows for piece in pieces)
    return KnownRows(frame, lengths, tuple(piece.source for piece in pieces))


def parquet_files(path: Any) -> tuple[Any, str, list[str]]:
    """Return the file system, the folder and the sorted files that a path stands for."""
    files, _, paths = fsspec.get_fs_token_paths(str(path))
    root = paths[0] if paths else str(path)
    if len(paths) == 1 and files.isdir(root):
        names = [p for p in files.find(root) if p.endswith((".parquet", ".parq", ".pq"))]
        paths = [p for p in names if not p.rsplit("/", 1)[-1].startswith(("_", "."))]
    if not paths:
        raise FileNotFoundError(f"no Parquet files in {path}")
    return files, root, sorted(paths)


def read_piece(piece: Piece, columns: list[str]) -> Any:
    """Read a piece as a data frame, or say which file cannot be read."""
    stored = [name for name in columns if name not in dict(piece.keys)]
    try:
        with piece.files.open(piece.path) as file:
            table = pq.ParquetFile(file).read_row_groups(
                list(piece.groups), columns=stored, use_threads=False
            )
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise OSError(f"cannot read {piece.source}: {type(error).__name__}: {error}") from error
    return _frame(table, columns, piece.keys)


def _footer(files: Any, path: str) -> Any:
    try:
        with files.open(path) as file:
            return pq.read_metadata(file)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise OSError(f"cannot read {path}: {type(error).__name__}: {error}") from error


def _pieces(
    files: Any, path: str, footer: Any, keys: tuple[tuple[str, str], ...], n_columns: int
) -> list[Piece]:
    """Neighbouring row groups of a file, as many as make a partition."""
    found: list[Piece] = []
    groups: list[int] = []
    rows = 0
    for g in range(footer.num_row_groups):
        n = footer.row_group(g).num_rows
        if groups and (rows + n) * n_columns * 8 > PARTITION_BYTES:
            found.append(Piece(files, path, tuple(groups), rows, keys))
            groups, rows = [], 0
        if n:
            groups, rows = [*groups, g], rows + n
    return [*found, Piece(files, path, tuple(groups), rows, keys)] if groups else found


def _folder_keys(path: str, root: str) -> tuple[tuple[str, str], ...]:
    """Columns in the names of folders, ``key=value``; values are strings."""
    folders = path.removeprefix(root).split("/")[:-1]
    return tuple((name, value) for name, sign, value in (f.partition("=") for f in folders) if sign)


def _frame(table: Any, columns: list[str], keys: tuple[tuple[str, str], ...]) -> Any:
    """Columns of a table, those of its folders included, in the order asked for."""
    stored = [name for name in columns if name in table.column_names]
    frame = table.select(stored).to_pandas(ignore_metadata=True, use_threads=False)
    for name, value in keys:
        if name in columns:
            frame[name] = value
    return frame[columns]
