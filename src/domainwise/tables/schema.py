"""Tables as people have them: read and checked, or refused with words about what to do.

:func:`load_table` reads a file, or :func:`check_table` takes a data frame, and either returns a
:class:`Table` that estimators can use, or raises :class:`TableError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.tables import labels
from domainwise.tables.cells import decimal_marks, without
from domainwise.tables.columns import DATE_PARTS, as_labels, split_names
from domainwise.tables.csv_text import holds_row_numbers
from domainwise.tables.errors import (
    Argument,
    ColumnError,
    TableError,
    describe_names,
    import_pandas,
)
from domainwise.tables.features import (
    Schema,
    feature_schema,
    make_preprocessor,
    named_frame,
    require_columns,
)
from domainwise.tables.files import FORMATS, iter_table, open_table, read_table, table_columns

__all__ = [
    "FORMATS",
    "ColumnError",
    "Schema",
    "Table",
    "TableError",
    "check_table",
    "choose_features",
    "import_pandas",
    "iter_table",
    "load_table",
    "make_preprocessor",
    "read_table",
    "require_columns",
    "split_names",
    "table_columns",
]


TASKS = ("auto", "classification", "regression")


@dataclass(frozen=True)
class Table:
    """A table that passed all checks."""

    X: Any  #: data frame of features, see :meth:`Schema.prepare`
    y: Array  #: classes or continuous targets
    sample_domain: Array  #: integers, or text
    schema: Schema
    notes: tuple[str, ...] = ()  #: what a user should know: rows that were left out, and the like

    @property
    def domains(self) -> list[Any]:
        """The domains, sorted."""
        return np.unique(self.sample_domain).tolist()

    @property
    def classes(self) -> list[Any] | None:
        """The classes, sorted; None for a continuous target."""
        return np.unique(self.y).tolist() if self.schema.task == "classification" else None


def load_table(
    path: str | Path,
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    encoding: str | None = None,
    **options: Any,
) -> Table:
    """Read a file, once, and check it; see :func:`check_table` for the arguments.

    Names in ``features`` and ``drop`` may have commas between. ``encoding`` is that of a CSV file;
    None tells it from its bytes.
    """
    table = open_table(path, encoding=encoding)
    names = dict(features=split_names(features, table.names), drop=split_names(drop, table.names))
    chosen = choose_features(table.names, target=target, domain=domain, where=str(path), **names)
    columns = [*chosen, target, domain]
    (frame,) = table.frames(columns)
    checked = check_table(
        frame, target=target, domain=domain, features=chosen, where=str(path), **options
    )
    notes = (*table.notes, *_row_numbers(table.names, [*columns, *(drop or [])]), *checked.notes)
    return replace(checked, schema=replace(checked.schema, encoding=encoding), notes=notes)


def check_table(
    frame: Any,
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    drop_domains: Sequence[str] | None = None,
    task: str = "auto",
    auto_drop: bool = False,
    dates: Sequence[str] = (),
    decimal: str | None = None,
    na: Sequence[str] = (),
    where: str = "the table",
    several: bool = True,
) -> Table:
    """Split a data frame into features, target and domains, and refuse what cannot be learnt from.

    ``features=None`` takes all columns that are not in ``drop``; rows of ``drop_domains`` are left
    out. ``task="auto"`` takes text and whole numbers with at most 20 values for classes.
    ``auto_drop`` leaves out features that cannot be used, with a note, instead of refusing them.
    Dates become numbers, some of "month", "weekday" and "age" (years before the latest day of all
    date columns, which stays the same for new tables); without any they are refused. ``decimal`` is
    the mark of numbers that are text, None tells it from them. ``na`` stands for none in every
    column; words such as "NA" do without being named, but not among labels and categories.
    ``where`` names the table in messages; ``several`` domains are needed to learn from it.

    Raises TableError with words about what to do, a :class:`ColumnError` for all features at once.
    """
    for name, given, known in (("task", [task], TASKS), ("dates", dates, DATE_PARTS)):
        if isinstance(given, str) or not set(given) <= set(known):
            raise TableError(Argument(name, given), f": use {', '.join(known)}")
    if decimal not in (None, ".", ","):
        raise TableError(Argument("decimal", decimal), ": use '.' or ','")
    frame = named_frame(frame)
    names = list(frame.columns)
    chosen = choose_features(
        names, target=target, domain=domain, features=features, drop=drop, where=where
    )
    notes = _row_numbers(names, [*chosen, target, domain, *(drop or [])])
    na = tuple(str(word) for word in na)
    columns = [*chosen, target, domain]
    frame = frame[columns].assign(
        **{name: without(frame[name], na, words=name != domain) for name in columns}
    )
    marks = decimal_marks(frame, [*chosen, target], decimal)
    frame[target] = labels.target_column(frame[target], marks.get(target))
    frame = labels.with_labels(frame, target, domain, notes)
    domains = as_labels(frame[domain])
    if drop_domains:
        keep = labels.other_domains(domains, drop_domains, where)
        frame, domains = frame[keep], domains[keep]
    if not len(frame):
        raise TableError(f"{where}: no row has both a target and a domain")
    task = labels.task_of(frame[target], task)
    y = labels.target_values(frame[target], task, notes)
    if several:
        labels.check_domains(domains, y, task, domain, notes)
    schema, frame = feature_schema(
        frame[chosen], marks, dates=dates, auto_drop=auto_drop, notes=notes
    )
    if not schema.features:
        raise TableError(f"{where} has no feature column left: {'; '.join(notes)}")
    told = decimal or ("," if "," in marks.values() else None)
    schema = replace(schema, target=target, domain=domain, task=task, decimal=told, na=na)
    X = schema.prepare(frame)
    notes += labels.note_identifiers(X, schema.numbers, domains)
    notes += labels.note_domain_tells(X, list(X.columns), domains)
    notes.append(_used(schema))
    return Table(X, y, domains, schema, tuple(notes))


def _row_numbers(names: Sequence[str], spoken_of: Sequence[str]) -> list[str]:
    left_out = [name for name in names if holds_row_numbers(name) and name not in spoken_of]
    return ["the first column has no name: taken for row numbers, and left out"] * bool(left_out)


def _used(schema: Schema) -> str:
    kinds = {"numbers": schema.numeric, "categories": schema.categorical, "dates": schema.dates}
    used = [f"{', '.join(names)} ({kind})" for kind, names in kinds.items() if names]
    return f"features used: {'; '.join(used)}"


def choose_features(
    names: Sequence[str],
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    where: str = "the table",
) -> list[str]:
    """Return the feature columns: those given, or all but target and domain, less those dropped.

    >>> choose_features(["age", "site", "ill"], target="ill", domain="site")
    ['age']
    """
    double = {name for name in names if list(names).count(name) > 1}
    if double:
        raise TableError(f"{where} has more than one column named {describe_names(double)}")
    require_columns([target, domain, *(features or []), *(drop or [])], names, where)
    if target == domain:
        raise TableError(f"target and domain are the same column, {target!r}")
    both = {target, domain} & {*(features or ()), *(drop or ())}
    if both:
        raise TableError(
            f"{describe_names(both)} cannot be a feature, nor left out: it is the target or domain"
        )
    chosen = [
        name
        for name in (names if features is None else dict.fromkeys(features))
        if name not in (target, domain, *(drop or ()))
        and (features is not None or not holds_row_numbers(name))
    ]
    if not chosen:
        raise TableError(f"{where} has no feature column left")
    return chosen
