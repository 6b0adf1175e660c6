"""Applying a model on workers of a cluster: pieces of a table, in the table's order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from domainwise.distributed.parquet import Piece, cut_pieces, read_footers, read_piece
from domainwise.gram.dask.graphs import constant, task
from domainwise.models.application import Application, Part
from domainwise.tables.files import CHUNK_ROWS, existing_format
from domainwise.tables.writer import TableWriter

#: Rows of a task, at most. A longer row group is read by several tasks, each of which uses a part.
TASK_ROWS = 2 * CHUNK_ROWS


@dataclass(frozen=True)
class Rows:
    """Rows of a table, after ``first_row`` others: part of a piece to be read, or sent."""

    first_row: int
    source: Any  #: a Piece, or a data frame
    start: int  #: first and last row of the source
    stop: int

    def read(self, columns: list[str]) -> Any:
        """Return the rows as a data frame."""
        sent = not isinstance(self.source, Piece)
        frame = self.source if sent else read_piece(self.source, columns)
        return frame.iloc[self.start : self.stop].reset_index(drop=True)


def parts_on_workers(client: Any, application: Application) -> Iterator[Part]:
    """Apply a model on the workers of a client, and fetch the parts in order."""
    shared = client.compute(constant(application, "model"))

    def submit(rows: Rows) -> Any:
        return client.submit(_apply, shared, rows, pure=False)

    yield from _in_order(client, submit, _cut(application))


def written_by_workers(client: Any, application: Application, folder: Path) -> Iterator[Part]:
    """Apply a model on workers, which write each part to a Parquet file; parts come without rows.

    The folder has to be there for client and workers alike.
    """
    shared = client.compute(constant(application, "model"))
    first: Any = None

    def submit(numbered: tuple[int, Rows]) -> Any:
        nonlocal first
        number, rows = numbered
        file = folder.absolute() / f"part-{number:06d}.parquet"
        # The types of the first part hold for all: a part without values has none of its own.
        future = client.submit(_write, shared, rows, file, first, pure=False)
        first = first or future
        return future

    for part, _ in _in_order(client, submit, enumerate(_cut(application))):
        yield part


def _cut(application: Application) -> Iterator[Rows]:
    """Rows for one task after the other; workers can read row groups, but no part of a CSV file."""
    first_row = 0
    source = application.source
    if existing_format(source) != "parquet":
        for frame in application.frames(CHUNK_ROWS):
            yield Rows(first_row, frame, 0, len(frame))
            first_row += len(frame)
        return
    footers = read_footers(source)
    for piece in cut_pieces(footers, application.columns, TASK_ROWS):
        for start in range(0, piece.n_rows, TASK_ROWS):
            yield Rows(first_row + start, piece, start, min(start + TASK_ROWS, piece.n_rows))
        first_row += piece.n_rows


def _in_order(client: Any, submit: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Results of tasks in the order of items; only a few tasks per thread exist at a time."""
    ahead = 2 * max(1, sum(client.nthreads().values()))
    waiting: deque[Any] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@task
def _apply(application: Application, rows: Rows) -> Part:
    return application(rows.read(application.columns), rows.first_row)


@task
def _write(application: Application, rows: Rows, file: Path, first: Any) -> tuple[Part, Any]:
    """Write a part with the types of the first one; return what is known of it, and its types."""
    part = application(rows.read(application.columns), rows.first_row)
    writer = TableWriter(file, "parquet", None if first is None else first[1])
    try:
        writer.write(part.frame)
    finally:
        writer.close()
    return replace(part, frame=None), writer.schema
