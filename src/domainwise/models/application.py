"""What is done to one piece of a table: predicting or projecting its rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from domainwise.models.table_model import TableModel
from domainwise.tables.schema import (
    TableError,
    import_pandas,
    iter_table,
)


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
