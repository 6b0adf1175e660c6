"""Applying a model on workers of a cluster: pieces of a table, in the table's order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from domainwise.distributed.parquet import Piece, cut_pieces, read_footers, read_piece
from domainwise.gram.dask.graphs import constant, task
from domainwise.models.application import Application, Part
from domainwise.tables.files import CHUNK_ROWS, TableWriter, existing_format

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


def parts_on_workers(
    client: Any, application: Application, folder: Path | None = None
) -> Iterator[Part]:
    """Apply a model on the workers of a client, and fetch the parts in order.

    With a folder, which has to be there for client and workers alike, these write each part to a
    Parquet file in it, and parts come without rows.
    """
    shared = client.compute(constant(application, "model"))
    ahead = 2 * max(1, sum(client.nthreads().values()))  # tasks that exist at a time
    waiting: deque[Any] = deque()
    first: Any = None
    for number, rows in enumerate(_cut(application)):
        file = folder and folder.absolute() / f"part-{number:06d}.parquet"
        waiting.append(client.submit(_apply, shared, rows, file, first, pure=False))
        # The types of the first part hold for all: a part without values has none of its own.
        first = first or (folder and waiting[0])
        if len(waiting) > ahead:
            yield waiting.popleft().result()[0]
    while waiting:
        yield waiting.popleft().result()[0]


def _cut(application: Application) -> Iterator[Rows]:
    """Rows for one task after the other; workers can read row groups, but no part of a CSV file."""
    first_row = 0
    if existing_format(application.source) != "parquet":
        for frame in application.frames(CHUNK_ROWS):
            yield Rows(first_row, frame, 0, len(frame))
            first_row += len(frame)
        return
    footers = read_footers(application.source)
    for piece in cut_pieces(footers, application.columns, TASK_ROWS):
        for start in range(0, piece.n_rows, TASK_ROWS):
            yield Rows(first_row + start, piece, start, min(start + TASK_ROWS, piece.n_rows))
        first_row += piece.n_rows


@task
def _apply(application: Application, rows: Rows, file: Path | None, first: Any) -> tuple[Part, Any]:
    """A part or, once it is written with the types of the first one, what is known of it; types."""
    part = application(rows.read(application.columns), rows.first_row)
    if file is None:
        return part, None
    writer = TableWriter(file, "parquet", None if first is None else first[1])
    try:
        writer.write(part.frame)
    finally:
        writer.close()
    return replace(part, frame=None), writer.schema
