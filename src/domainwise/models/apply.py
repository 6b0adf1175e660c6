"""Applying a model to files of any size: piece by piece, here or on the workers of a cluster."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainwise.jobs.atomic import replacing_folder
from domainwise.models.table_model import TableModel
from domainwise.tables.files import CHUNK_ROWS
from domainwise.tables.schema import (
    TableError,
    import_pandas,
    iter_table,
    require_columns,
    table_columns,
)
from domainwise.tables.writer import writing_table


@dataclass(frozen=True)
class Part:
    """What became of one piece of a table.

    Attributes
    ----------
    columns : list of str
    n_rows : int
    unseen : dict
        By categorical column, the rows with a category that was not there in fit.
    said : list of str
        Warnings.
    frame : pandas.DataFrame or None
        The rows; None where a worker has written them.
    """

    columns: list[str]
    n_rows: int
    unseen: dict[str, int]
    said: list[str]
    frame: Any


@dataclass(frozen=True)
class Application:
    """What is done to every piece; picklable, so that workers can do it.

    Attributes
    ----------
    model : TableModel
    source : str
        The table's name in messages.
    kept : list of str
        Columns to copy.
    project : bool
        Project instead of predicting.
    reading : dict
        How cells are read: ``decimal``, ``encoding`` and ``na``.
    """

    model: TableModel
    source: str
    kept: list[str]
    project: bool
    reading: dict[str, Any]

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return list(dict.fromkeys([*self.model.schema.features, *self.kept]))

    def frames(self, rows: int) -> Iterator[Any]:
        """Read the table, so many rows at a time."""
        schema = self.model.schema
        return iter_table(
            self.source,
            columns=self.columns,
            labels=[name for name in self.kept if name not in schema.features],
            text=schema.categorical,
            rows=rows,
            usual=(schema.decimal, schema.encoding),
            **{**self.reading, "na": [*schema.na, *self.reading["na"]]},
        )

    def __call__(self, frame: Any, first_row: int) -> Part:
        """Predict or project the rows of a piece that begins after ``first_row`` others."""
        model = self.model
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            X = model.schema.prepare(frame, first_row=first_row)
            out = model.projection(X) if self.project else model.predictions(X)
        double = sorted({*self.kept} & {*out.columns})
        if double:
            raise TableError(f"column {double[0]!r} of {self.source} is also one of the output")
        copied = frame[self.kept].reset_index(drop=True)
        out = import_pandas().concat([copied, out], axis=1)
        said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
        names = [str(name) for name in out.columns]
        return Part(names, len(out), model.unseen_categories(X), said, out)


@dataclass(frozen=True)
class Applied:
    """What came of applying a model to a file."""

    n_rows: int
    columns: list[str]
    notes: list[str]


def apply_to_file(
    model: TableModel,
    source: str | Path,
    destination: str | Path,
    *,
    project: bool = False,
    keep: Sequence[str] = (),
    chunk_rows: int = CHUNK_ROWS,
    progress: Callable[[int], None] | None = None,
    client: Any = None,
    decimal: str | None = None,
    encoding: str | None = None,
    na: Sequence[str] = (),
) -> Applied:
    """Predict or project all rows of a file, piece by piece.

    Parameters
    ----------
    model : TableModel
    source, destination : path-like
        Tables; the output is complete or not there. With a client a destination whose name has no
        ending is a folder, into which workers write Parquet files.
    project : bool, default=False
        Write the projection instead of predictions.
    keep : sequence of str, default=()
        Columns of the source to copy; the domain column is, if it is there.
    chunk_rows : int
        Rows at a time.
    progress : callable, default=None
        Called with the number of rows done.
    client : distributed.Client, default=None
        Whose workers compute; None computes here.
    decimal, encoding, na
        How the source is written; see :func:`~domainwise.tables.files.read_table`. What the model
        was fitted with holds where that is not said.

    Returns
    -------
    Applied
    """
    names = table_columns(source, encoding=encoding)
    require_columns(model.schema.features, names, str(source), why=", which the model needs")
    require_columns(keep, names, str(source))
    domain = model.schema.domain
    kept = list(dict.fromkeys([*keep, *([domain] if domain in names else [])]))
    reading = {"decimal": decimal, "encoding": encoding, "na": tuple(na)}
    application = Application(model, str(source), kept, project, reading)
    if client is None:
        parts = _parts_here(application, chunk_rows)
    else:
        from domainwise.models.apply_dask import parts_on_workers, written_by_workers

        if not Path(destination).suffix:
            with replacing_folder(destination) as folder:
                return _count(written_by_workers(client, application, folder), progress)
        parts = parts_on_workers(client, application)
    with writing_table(destination) as writer:
        return _count(parts, progress, writer.write)


def _parts_here(application: Application, rows: int) -> Iterator[Part]:
    first_row = 0
    for frame in application.frames(rows):
        yield application(frame, first_row)
        first_row += len(frame)


def _count(
    parts: Iterable[Part],
    progress: Callable[[int], None] | None,
    write: Callable[[Any], None] | None = None,
) -> Applied:
    """Write parts as they come, where that is still to do, and sum up what is known of them."""
    n_rows, columns = 0, []
    unseen: Counter[str] = Counter()
    said: dict[str, None] = {}
    for part in parts:
        if write is not None:
            write(part.frame)
        n_rows, columns = n_rows + part.n_rows, part.columns
        unseen.update(part.unseen)
        said |= dict.fromkeys(part.said)
        if progress is not None:
            progress(n_rows)
    strange = [
        f"{count} rows have a value of {name!r} that the model does not know; it is treated as none"
        for name, count in unseen.items()
        if count
    ]
    return Applied(n_rows, columns, [*said, *strange])
