"""What is done to one piece of a table: predicting or projecting its rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from domainwise.models.context import Statistics, domain_statistics
from domainwise.models.table_model import TableModel
from domainwise.shift.check import find_watch
from domainwise.shift.watch import View
from domainwise.tables.cells import as_labels
from domainwise.tables.schema import TableError, import_pandas, iter_table


@dataclass(frozen=True)
class Part:
    """What became of one piece of a table."""

    columns: list[str]
    n_rows: int
    views: dict[Any, View]  #: what was seen of the rows beside the sources, by domain
    said: list[str]  #: warnings
    frame: Any  #: the rows; None where a worker has written them, or nothing was asked for
    statistics: dict[Any, Statistics] = field(default_factory=dict)  #: of domains


@dataclass(frozen=True)
class Application:
    """What is done to every piece; picklable, so that workers can do it."""

    model: TableModel
    source: str  #: the table's name in messages
    kept: list[str]  #: columns to copy
    project: bool  #: instead of predicting
    reading: dict[str, Any]  #: how cells are read: "decimal", "encoding", "na"
    look: bool = True  #: for shift
    #: Predict or project; otherwise what domains are like is learnt, where context asks for it.
    act: bool = True
    #: Whether rows are predicted with their domain's, which a "column" names or is "one".
    context: str | None = None
    coverage: float | None = None

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
        X = model.schema.prepare(frame, first_row=first_row)
        watch, _ = find_watch(model.pipeline) if self.look else (None, None)
        views = {} if watch is None else watch.look(X, self.domains(frame))
        domains = self._context_domains(frame)
        if not self.act:
            pipeline = model.pipeline
            known = {} if domains is None else domain_statistics(pipeline, X, domains, first_row)
            return Part([], len(frame), views, [], None, known)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            if self.project:
                out = model.projection(X)
            else:
                out = model.predictions(X, domains, self.coverage)
        double = sorted({*self.kept} & {*out.columns})
        if double:
            raise TableError(f"column {double[0]!r} of {self.source} is also one of the output")
        copied = frame[self.kept].reset_index(drop=True)
        out = import_pandas().concat([copied, out], axis=1)
        said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
        names = [str(name) for name in out.columns]
        return Part(names, len(out), views, said, out)

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
        """Domains of rows as text, "" where there is none; None if there is no such column."""
        name = self.model.schema.domain
        if name not in frame.columns:
            return None
        named = frame[name].notna().to_numpy()
        labels = np.full(len(frame), "", dtype=object)
        if named.any():
            labels[named] = as_labels(frame[name][named]).astype(str)
        return labels.astype(str)
