"""Fitting on a Dask cluster: from Parquet files, or with folds distributed over the workers."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import dask.dataframe as dd
import fsspec
import pyarrow.parquet as pq
from joblib import parallel_config
from pyarrow import types

from domainwise.algebra.backends.dask import KnownPartitions
from domainwise.algebra.gram.dask.graphs import Deferred
from domainwise.base.messages import needs_extra
from domainwise.estimators.projections.projection import Projection
from domainwise.estimators.ridge.base import InvariantRidge
from domainwise.tables.files import arrow_frame, folder_values, index_columns, is_data_file

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
) -> tuple[Any, KnownPartitions]:
    """Open Parquet files as a Dask data frame; also return its partitions.

    The path is a file, a folder or a glob pattern, on any storage that fsspec can open. If
    ``features`` is None, all columns except ``label_columns`` and the index are features.
    """
    footers = read_footers(path)
    schema = footers[0].schema
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
    lengths = tuple(piece.n_rows for piece in pieces)
    deferred_pieces = tuple(Deferred(read_piece, piece, columns) for piece in pieces)
    return frame, KnownPartitions(lengths, tuple(piece.source for piece in pieces), deferred_pieces)


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


Estimator = TypeVar("Estimator", bound=Projection | InvariantRidge)


def fit_parquet(
    estimator: Estimator,
    path: str | PathLike[str],
    *,
    target: str | Sequence[str] | None,
    domain: str | Sequence[str] | None,
    features: Sequence[str] | None = None,
    client: Any = None,
) -> Estimator:
    """Fit an estimator to Parquet files, which may be larger than memory.

    Fast estimators read the files once. A ridge search reads them a second time if its ``scoring``
    needs predictions. A partition consists of adjacent row groups of a file, up to 32 MiB in total.
    The footers of all files, which contain the numbers of rows, are read first. If a footer cannot
    be read, an error is raised before anything is computed.

    Parameters
    ----------
    estimator : projection, InvariantRidgeClassifierCV or InvariantRidgeCV
        For example :class:`~domainwise.FastDCM`. Fitted in place, but unchanged if an error occurs.
    path : str or path-like
        A file, a folder or a glob pattern, on any storage that fsspec can open. Folder names such
        as ``site=A`` become string columns.
    target : str, list of str or None
        Column or columns to use as y; None if there is no target.
    domain : str, list of str or None
        Column with domain labels, or columns with continuous domain descriptors. None treats all
        rows as one domain.
    features : list of str, default=None
        Columns to use as X. None uses all other columns, which must be numeric.
    client : distributed.Client, default=None
        Client of the cluster. None uses the current client or, if there is none, local threads.

    Returns
    -------
    estimator : object
        The same object, fitted.

    Raises
    ------
    OSError
        If a file cannot be read. The message contains its name.

    See Also
    --------
    domainwise.FastDCM : An estimator that can be fitted with this function.

    Examples
    --------
    >>> from domainwise import FastDCM
    >>> from domainwise.distributed.fit import fit_parquet
    >>> model = fit_parquet(
    ...     FastDCM(n_landmarks=300), "measurements/", target="y", domain="site"
    ... )  # doctest: +SKIP
    """
    with needs_extra("fit_parquet", "dask,data"):
        for package in ("dask", "distributed", "pandas", "pyarrow"):
            import_module(package)
    if not isinstance(estimator, Projection | InvariantRidge):
        raise TypeError(
            f"fit_parquet does not support {type(estimator).__name__}. Pass a projection (such "
            "as FastDCM or InvariantFeatures), InvariantRidgeClassifierCV or InvariantRidgeCV."
        )
    from domainwise.algebra.backends.dask import DaskBackend

    label_columns: list[str] = []
    columns_by_role: dict[str, Any] = {"target": target, "domain": domain}
    for role, columns in columns_by_role.items():
        if isinstance(columns, str):
            label_columns.append(columns)
        elif isinstance(columns, Sequence) and columns and all(isinstance(c, str) for c in columns):
            columns_by_role[role] = [*columns]
            label_columns += columns
        elif columns is not None:
            raise TypeError(
                f"{role} must be a column name, a list of column names, or None; got {columns!r}"
            )
    if isinstance(features, str):
        raise TypeError(f"features must be a list of column names; got {features!r}")
    feature_names = None if features is None else list(features)
    problem = "" if feature_names != [] else "the list is empty. Pass None for all other columns"
    for name, n_occurrences in Counter(feature_names or ()).items():
        if name in label_columns:
            problem = f"{name!r} is also a target or domain column. Remove it from features"
        elif n_occurrences > 1:
            problem = f"{name!r} is listed {n_occurrences} times. List it once"
    if problem:
        raise ValueError(f"features={features!r}: {problem}.")
    with nullcontext() if client is None else _as_current(client):
        frame, partitions = open_parquet(path, label_columns, feature_names)
        fitted_copy = copy.copy(estimator)
        fitted_copy.fit_with(DaskBackend(partitions), frame, *columns_by_role.values())
    estimator.__dict__ = fitted_copy.__dict__
    return estimator


def _as_current(client: Any) -> AbstractContextManager[Any]:
    """Return a context in which this is the current client; raise an error if it is unusable."""
    from distributed import Client

    if not isinstance(client, Client):
        raise TypeError(
            f"client must be a distributed.Client; got {type(client).__name__}. Pass "
            "Client(address)."
        )
    if client.asynchronous:
        raise TypeError("client is asynchronous. Pass Client(address, asynchronous=False).")
    if client.status != "running":
        raise ValueError(f"client is {client.status}. Connect a new client with Client(address).")
    return client.as_current()


@contextmanager
def folds_on(client: Any, report: Callable[[int], None] | None = None) -> Iterator[None]:
    """Run joblib loops, such as loops over folds, on a client's workers; None changes nothing.

    ``report`` is called after each task with the number of finished tasks. joblib's Dask backend
    sends every loop to the workers, including loops inside a task and loops with ``n_jobs=1``, such
    as those in a column transformer. Here, these two kinds of loops run in the calling process.
    """
    if client is None:
        yield
        return
    from joblib._dask import DaskDistributedBackend

    class FoldsBackend(DaskDistributedBackend):  # type: ignore[misc, unused-ignore]
        default_n_jobs = 1
        n_finished = 0

        def effective_n_jobs(self, n_jobs: int) -> int:
            return 1 if n_jobs == 1 else super().effective_n_jobs(n_jobs)

        def submit(self, func: Any, callback: Any = None) -> Any:
            func.items = [
                (SequentialTask(function), args, kwargs) for function, args, kwargs in func.items
            ]
            return super().submit(func, callback)

        def retrieve_result_callback(self, out: Any) -> Any:
            self.n_finished += 1
            if report is not None:
                report(self.n_finished)
            return super().retrieve_result_callback(out)

    with parallel_config(backend=FoldsBackend(client=client)):
        yield


@dataclass(frozen=True)
class SequentialTask:
    """A function whose joblib loops run sequentially in the calling process."""

    function: Callable[..., Any]

    @property
    def __name__(self) -> str:
        """Name of the task on the dashboard."""
        function = getattr(self.function, "func", self.function)  # unwrap functools.partial
        return getattr(function, "__name__", type(function).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        with parallel_config(backend="sequential"):
            return self.function(*args, **kwargs)
