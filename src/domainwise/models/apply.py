"""Applying a model to files of any size: in pieces, here or on the workers of a cluster.

To predict rows in the context of their whole domain, of which a piece holds some rows only, a first
pass computes statistics of the domains, and a second one predicts with a copy of the model that has
them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import config_context

from domainwise.arrays import Array
from domainwise.ensemble.batches import drawn_numbers, row_keys
from domainwise.ensemble.context import DomainContext, DomainStatistics
from domainwise.ensemble.moments import Moments
from domainwise.jobs.store import replacing_folder
from domainwise.models.table_model import TableModel
from domainwise.shift.check import Finding, find_watch, findings
from domainwise.shift.watch import View, joined_views
from domainwise.tables.cells import as_labels
from domainwise.tables.errors import TableError, import_pandas
from domainwise.tables.features import require_columns
from domainwise.tables.files import CHUNK_ROWS, iter_table, table_columns, writing_table

#: Rows of a domain, drawn at random, that an ensemble divides into parts, and from which it decides
#: whether context is safe there.
HELD_ROWS = 4000
#: Such rows of all domains together, at most.
MOST_ROWS = 200_000


@dataclass(frozen=True)
class Statistics:
    """Statistics of some rows of a domain: moments, and the rows that drew the smallest numbers."""

    n_rows: int
    moments: Moments
    drawn: Array
    rows: Array

    def merged(self, other: Statistics) -> Statistics:
        """Of the rows of both."""
        drawn = np.concatenate([self.drawn, other.drawn])
        order = np.argsort(drawn, kind="stable")
        rows = np.concatenate([self.rows, other.rows])[order]
        n_rows = self.n_rows + other.n_rows
        return Statistics(n_rows, self.moments.merged(other.moments), drawn[order], rows)

    def first(self, most: int) -> Statistics:
        """Keep at most so many rows."""
        return replace(self, drawn=self.drawn[:most], rows=self.rows[:most].copy())


def find_context(model: Any) -> tuple[Any, DomainContext, list[Any]]:
    """Find the part of a model that uses context, its DomainContext, and the steps before it."""
    owners = [
        (owner, before)
        for owner, before in _owners(model, [])
        if isinstance(owner, DomainContext) or owner.uses_context
    ]
    if len(owners) != 1:
        raise ValueError(
            "context: this model predicts rows one by one, whatever else is known of their domain"
            if not owners
            else "context: several parts of this model look at domains; use one DomainContext"
        )
    owner, before = owners[0]
    return owner, getattr(owner, "domain_context_", owner), before


def _owners(model: Any, before: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    if isinstance(model, DomainContext) or hasattr(model, "domain_context_"):
        yield model, before
    for i, (_, step) in enumerate(getattr(model, "steps", ())):
        yield from _owners(step, [*before, *(earlier for _, earlier in model.steps[:i])])
    if hasattr(model, "estimator_"):
        yield from _owners(model.estimator_, before)


def domain_statistics(model: Any, X: Any, domains: Array) -> dict[Any, Statistics]:
    """Statistics of rows, as the model takes them, by domain."""
    owner, context, before = find_context(model)
    for step in before:
        X = step.transform(X)
    rows = np.asarray(X, dtype=np.float64)
    moments = context.domain_moments(rows, domains)
    statistics = {}
    for name, known in moments.items():
        mine = rows[domains == name]
        n = len(mine)
        if owner is context:
            mine = mine[:0]
        drawn = drawn_numbers(row_keys(mine, 0))
        order = np.argsort(drawn, kind="stable")[:HELD_ROWS]
        statistics[name] = Statistics(n, known, drawn[order], mine[order])
    return statistics


def merged_domains(a: dict[Any, Statistics], b: dict[Any, Statistics]) -> dict[Any, Statistics]:
    """Merge the statistics of two pieces of a table."""
    merged = a | {name: a[name].merged(b[name]) if name in a else b[name] for name in b}
    most = min(HELD_ROWS, MOST_ROWS // max(1, len(merged)))
    return {name: each.first(most) for name, each in merged.items()}


def with_statistics(model: Any, statistics: dict[Any, Statistics]) -> Any:
    """Return a copy of a model that takes statistics of domains from here, not from rows of X.

    It shares all that was fitted with the model, which is not changed: others may use it meanwhile.
    """
    owner, _, _ = find_context(model)
    known = DomainStatistics({name: each.moments for name, each in statistics.items()})
    if not isinstance(owner, DomainContext) and statistics:
        batches = {n: owner.batch_of(s.rows, s.n_rows, s.moments) for n, s in statistics.items()}
        known = replace(known, batches=batches)
        rows = np.concatenate([each.rows for each in statistics.values()])
        names = np.repeat(list(statistics), [len(each.rows) for each in statistics.values()])
        alone = owner.with_statistics(known).domains_without_context(rows, names)
        known = replace(known, without_context=frozenset(alone))
    return _exchanged(model, owner, owner.with_statistics(known))


def _exchanged(model: Any, part: Any, other: Any) -> Any:
    """Return a copy of a model in which one part of it is another."""
    if model is part:
        return other
    changed = copy(model)
    if hasattr(model, "steps"):
        changed.steps = [(name, _exchanged(step, part, other)) for name, step in model.steps]
    if "estimator_" in vars(model):
        changed.estimator_ = _exchanged(model.estimator_, part, other)
    return changed


CONTEXTS = ("column", "one")


@dataclass(frozen=True)
class Part:
    """The result for one piece of a table."""

    columns: list[str]
    n_rows: int
    views: dict[Any, View]  #: statistics that are compared with those of the sources, by domain
    messages: list[str]  #: of warnings
    frame: Any  #: the rows; None if a worker has written them, or in a first pass
    statistics: dict[Any, Statistics] = field(default_factory=dict)  #: of domains


@dataclass(frozen=True)
class Application:
    """Predicting or projecting the rows of a piece; picklable, so that workers can do it."""

    model: TableModel
    source: str  #: the table's name in messages
    copied: list[str]  #: columns of the source in the output
    project: bool  #: instead of predicting
    reading: dict[str, Any]  #: how cells are read: "decimal", "encoding", "na"
    look: bool = True  #: for shift
    act: bool = True  #: predict or project; False is a first pass that computes statistics
    #: Predict rows in the context of their domain, which a "column" names, or of "one" domain.
    context: str | None = None
    coverage: float | None = None

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return list(dict.fromkeys([*self.model.schema.features, *self.copied]))

    def frames(self, rows: int) -> Iterator[Any]:
        """Read the table in pieces of ``rows`` rows."""
        schema = self.model.schema
        return iter_table(
            self.source,
            columns=self.columns,
            labels=[name for name in self.copied if name not in schema.features],
            text=schema.categorical,
            rows=rows,
            usual=(schema.decimal, schema.encoding),
            **{**self.reading, "na": [*schema.na, *self.reading["na"]]},
        )

    @config_context(transform_output="default")
    def __call__(self, frame: Any, first_row: int) -> Part:
        """Predict or project the rows of a piece that begins after ``first_row`` others."""
        model = self.model
        X = model.schema.prepare(frame, first_row=first_row)
        watch, _ = find_watch(model.pipeline) if self.look else (None, None)
        views = {} if watch is None else watch.look(X, self.domains(frame))
        domains = self._context_domains(frame)
        if not self.act:
            pipeline = model.pipeline
            known = {} if domains is None else domain_statistics(pipeline, X, domains)
            return Part([], len(frame), views, [], None, known)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            out = (
                model.projection(X)
                if self.project
                else model.predictions(X, domains, self.coverage)
            )
        double = sorted({*self.copied} & {*out.columns})
        if double:
            raise TableError(f"column {double[0]!r} of {self.source} is also one of the output")
        out = import_pandas().concat([frame[self.copied].reset_index(drop=True), out], axis=1)
        messages = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
        return Part([str(name) for name in out.columns], len(out), views, messages, out)

    def _context_domains(self, frame: Any) -> Any:
        if self.context is None:
            return None
        domains = np.full(len(frame), "all") if self.context == "one" else self.domains(frame)
        if (domains == "").any():
            raise TableError(
                f"{self.source} has rows without a value in {self.model.schema.domain!r}, which "
                "context needs"
            )
        return domains

    def domains(self, frame: Any) -> Any:
        """Domains of rows as text, "" if missing; None if there is no column of domains."""
        name = self.model.schema.domain
        if name not in frame.columns:
            return None
        named = frame[name].notna().to_numpy()
        labels = np.full(len(frame), "", dtype=object)
        if named.any():
            labels[named] = as_labels(frame[name][named]).astype(str)
        return labels.astype(str)


@dataclass(frozen=True)
class Applied:
    """The result of applying a model to a file."""

    n_rows: int
    columns: list[str]
    notes: list[str]
    findings: list[Finding]
    statistics: dict[Any, Statistics] = field(default_factory=dict)


class ShiftError(ValueError):
    """New rows differ from the sources, and ``strict`` was set; see ``findings``."""

    def __init__(self, source: str | Path, findings: list[Finding]) -> None:
        super().__init__(f"{source} differs from the sources of the model; nothing was written")
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

    With a ``client`` its workers compute; a destination without an ending is then a folder, into
    which they write Parquet files. Otherwise it is one table, which replaces an older one when it
    is complete. Columns of the source in ``keep`` are copied, and that of domains. ``strict`` reads
    the source twice: it checks for shift first, and raises ShiftError if there is any. ``context``
    reads it twice, too: "column" predicts rows in the context of their domain, "one" takes all rows
    for one domain. ``progress`` is called with the number of rows done; ``decimal``, ``encoding``
    and ``na`` describe the source where it differs from the model's table
    (:func:`~domainwise.tables.files.read_table`).
    """
    names = table_columns(source, encoding=encoding)
    require_columns(model.schema.features, names, str(source), reason=", which the model needs")
    require_columns(keep, names, str(source))
    domain = model.schema.domain
    copied = list(dict.fromkeys([*keep, *([domain] if domain in names else [])]))
    reading = {"decimal": decimal, "encoding": encoding, "na": tuple(na)}
    application = Application(model, str(source), copied, project, reading, coverage=coverage)
    if context is not None:
        if context not in CONTEXTS or project:
            raise ValueError(
                f"context={context!r}, project={project}: context must be one of "
                f"{', '.join(CONTEXTS)}, and is for predictions only"
            )
        if context == "column":
            require_columns([domain], names, str(source), reason=", which context needs")
        find_context(model.pipeline)
        application = replace(application, context=context)
    if strict or context is not None:
        first = replace(application, act=False, look=strict)
        first_pass = _count(_parts(first, chunk_rows, client), model, progress)
        if first_pass.findings:
            raise ShiftError(source, first_pass.findings)
        application = replace(application, look=not strict)
        if context is not None:
            pipeline = with_statistics(model.pipeline, first_pass.statistics)
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
        from domainwise.models.large_table import parts_on_workers

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
    """Write parts as they come, if ``write`` is given, and sum up their statistics."""
    n_rows, columns = 0, []
    views: dict[Any, View] = {}
    statistics: dict[Any, Statistics] = {}
    messages: dict[str, None] = {}
    for part in parts:
        if write is not None:
            write(part.frame)
        n_rows, columns = n_rows + part.n_rows, part.columns
        views = joined_views([views, part.views])
        statistics = merged_domains(statistics, part.statistics)
        messages |= dict.fromkeys(part.messages)
        if progress is not None:
            progress(n_rows)
    watch, _ = find_watch(model.pipeline)
    differences = [] if watch is None else findings(watch, views)
    return Applied(n_rows, columns, list(messages), differences, statistics)
