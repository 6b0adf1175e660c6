"""Applying a model to files of any size: piece by piece, here or on the workers of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainwise.jobs.atomic import replacing_folder
from domainwise.models.application import Application, Part
from domainwise.models.table_model import TableModel
from domainwise.tables.files import CHUNK_ROWS
from domainwise.tables.schema import (
    require_columns,
    table_columns,
)
from domainwise.tables.writer import writing_table


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
