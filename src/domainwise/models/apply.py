"""Applying a model to files of any size: piece by piece, here or on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from domainwise.jobs.store import replacing_folder
from domainwise.models.application import Application, Part
from domainwise.models.context import Statistics, find_context, merged_domains, with_statistics
from domainwise.models.table_model import TableModel
from domainwise.shift.check import Finding, find_watch, findings
from domainwise.shift.watch import View, joined_views
from domainwise.tables.files import CHUNK_ROWS, writing_table
from domainwise.tables.schema import require_columns, table_columns

CONTEXTS = ("column", "one")


@dataclass(frozen=True)
class Applied:
    """What came of applying a model to a file."""

    n_rows: int
    columns: list[str]
    notes: list[str]
    findings: list[Finding]
    statistics: dict[Any, Statistics] = field(default_factory=dict)


class ShiftError(ValueError):
    """New rows are unlike the sources, and were to be refused then; it has ``findings``."""

    def __init__(self, source: str | Path, findings: list[Finding]) -> None:
        super().__init__(f"{source} is unlike the sources of the model; nothing was written")
        self.findings = findings


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
    strict: bool = False,
    context: str | None = None,
    coverage: float | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    na: Sequence[str] = (),
) -> Applied:
    """Predict or project all rows of a file, piece by piece.

    With a ``client`` its workers compute; if the destination has no ending it is a folder then,
    into which they write Parquet files. Otherwise it is one table, complete or not there. Columns
    of the source in ``keep`` are copied, and that of domains. ``strict`` reads the source twice: it
    looks for shift first, and raises ShiftError if there is any. ``context`` reads it twice, too:
    "column" predicts rows with their domain's, "one" takes all rows for one domain. ``progress`` is
    called with the number of rows done; ``decimal``, ``encoding`` and ``na`` say how the source is
    written, where it is not as the model's was (:func:`~domainwise.tables.files.read_table`).
    """
    names = table_columns(source, encoding=encoding)
    require_columns(model.schema.features, names, str(source), why=", which the model needs")
    require_columns(keep, names, str(source))
    domain = model.schema.domain
    kept = list(dict.fromkeys([*keep, *([domain] if domain in names else [])]))
    reading = {"decimal": decimal, "encoding": encoding, "na": tuple(na)}
    application = Application(model, str(source), kept, project, reading, coverage=coverage)
    if context is not None:
        if context not in CONTEXTS or project:
            raise ValueError(f"context={context!r}, project={project}: only predictions have it")
        if context == "column":
            require_columns([domain], names, str(source), why=", which context needs")
        find_context(model.pipeline)
        application = replace(application, context=context)
    if strict or context is not None:
        first = replace(application, act=False, look=strict)
        looked = _count(_parts(first, chunk_rows, client), model, progress)
        if looked.findings:
            raise ShiftError(source, looked.findings)
        application = replace(application, look=not strict)
        if context is not None:
            pipeline = with_statistics(model.pipeline, looked.statistics)
            application = replace(application, model=replace(model, pipeline=pipeline))
    if client is not None and not Path(destination).suffix:
        with replacing_folder(destination) as folder:
            return _count(_parts(application, chunk_rows, client, folder), model, progress)
    with writing_table(destination) as writer:
        return _count(_parts(application, chunk_rows, client), model, progress, writer.write)


def _parts(
    application: Application, rows: int, client: Any, folder: Path | None = None
) -> Iterator[Part]:
    if client is not None:
        from domainwise.models.apply_dask import parts_on_workers

        yield from parts_on_workers(client, application, folder)
        return
    first_row = 0
    for frame in application.frames(rows):
        yield application(frame, first_row)
        first_row += len(frame)


def _count(
    parts: Iterable[Part],
    model: TableModel,
    progress: Callable[[int], None] | None,
    write: Callable[[Any], None] | None = None,
) -> Applied:
    """Write parts as they come, where that is still to do, and sum up what is known of them."""
    n_rows, columns = 0, []
    views: dict[Any, View] = {}
    statistics: dict[Any, Statistics] = {}
    said: dict[str, None] = {}
    for part in parts:
        if write is not None:
            write(part.frame)
        n_rows, columns = n_rows + part.n_rows, part.columns
        views = joined_views([views, part.views])
        statistics = merged_domains(statistics, part.statistics)
        said |= dict.fromkeys(part.said)
        if progress is not None:
            progress(n_rows)
    watch, _ = find_watch(model.pipeline)
    strange = [] if watch is None else findings(watch, views)
    return Applied(n_rows, columns, list(said), strange, statistics)
