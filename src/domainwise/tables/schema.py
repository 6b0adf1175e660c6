"""Tables of users: read and checked, or refused with a message that says what to do.

:func:`load_table` reads a file, :func:`check_table` takes a data frame. Both return a
:class:`Table` that estimators can use, or raise a TableError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from domainwise.arrays import Array
from domainwise.checks.inputs import MAX_CLASSES, is_quantity
from domainwise.tables import cells
from domainwise.tables.csv_files import holds_row_numbers
from domainwise.tables.errors import Argument, TableError, describe_names
from domainwise.tables.features import Schema, feature_schema, named_frame, require_columns
from domainwise.tables.files import open_table

#: Features of a kind that a note lists.
USED_NAMES = 50
TASKS = ("auto", "classification", "regression")


@dataclass(frozen=True)
class Table:
    """A table that passed all checks."""

    X: Any  #: data frame of features, see :meth:`Schema.prepare`
    y: Array  #: classes or continuous targets
    sample_domain: Array  #: integers, or text
    schema: Schema
    notes: tuple[str, ...] = ()  #: for the user, such as rows that were left out

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

    A name in ``features`` and ``drop`` may be several, separated by commas. ``encoding`` is that of
    a CSV file; None detects it.
    """
    table = open_table(path, encoding=encoding)
    roles: dict[str, Any] = {"target": target, "domain": domain, "where": str(path)}
    features, chosen_drop = (cells.split_names(given, table.names) for given in (features, drop))
    chosen = choose_features(table.names, features=features, drop=chosen_drop, **roles)
    columns = [*chosen, target, domain]
    (frame,) = table.frames(columns)
    checked = check_table(frame, features=chosen, **roles, **options)
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
    """Split a data frame into features, target and domains, and refuse a table without use.

    ``features=None`` takes all columns that are not in ``drop``; rows of ``drop_domains`` are left
    out. ``task="auto"`` takes text and whole numbers with at most 20 values for classes.
    ``auto_drop`` leaves out features that cannot be used, with a note, instead of refusing them.
    Dates become numbers, some of "month", "weekday" and "age" (years before the latest day of all
    date columns, which stays the same for new tables); without any they are refused. ``decimal`` is
    the decimal mark of numbers that are text; None detects it. ``na`` lists missing values in all
    columns; words such as "NA" are missing values by default, but not in labels and categories.
    ``where`` names the table in messages; ``several`` requires more than one domain.

    Raises a TableError that says what to do, or one ColumnError about all features.
    """
    for name, given, known in (("task", [task], TASKS), ("dates", dates, cells.DATE_PARTS)):
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
        **{name: cells.without(frame[name], na, words=name != domain) for name in columns}
    )
    marks = cells.decimal_marks(frame, [*chosen, target], decimal)
    frame[target] = target_column(frame[target], marks.get(target))
    frame = with_labels(frame, target, domain, notes)
    domains = cells.as_labels(frame[domain])
    if drop_domains:
        keep = other_domains(domains, drop_domains, where)
        frame, domains = frame[keep], domains[keep]
    if not len(frame):
        raise TableError(f"{where}: no row has both a target and a domain")
    task = task_of(frame[target], task)
    y = target_values(frame[target], task, notes)
    if several:
        check_domains(domains, y, task, domain, notes)
    schema, frame = feature_schema(
        frame[chosen], marks, dates=dates, auto_drop=auto_drop, notes=notes
    )
    if not schema.features:
        raise TableError(f"{where} has no feature column left: {'; '.join(notes)}")
    mark = decimal or ("," if "," in marks.values() else None)
    schema = replace(schema, target=target, domain=domain, task=task, decimal=mark, na=na)
    X = schema.prepare(frame)
    notes += note_identifiers(X, schema.numbers, domains)
    notes += note_domain_identifiers(X, list(X.columns), domains)
    notes.append(_used(schema))
    return Table(X, y, domains, schema, tuple(notes))


def _row_numbers(names: Sequence[str], mentioned: Sequence[str]) -> list[str]:
    left_out = any(holds_row_numbers(name) and name not in mentioned for name in names)
    return ["the first column has no name; it is taken for row numbers and left out"] * left_out


def _used(schema: Schema) -> str:
    used = []
    kinds = {"numbers": schema.numeric, "categories": schema.categorical, "dates": schema.dates}
    for kind, names in kinds.items():
        more = f" and {len(names) - USED_NAMES} more" * (len(names) > USED_NAMES)
        used += [f"{', '.join(names[:USED_NAMES])}{more} ({kind})"] if names else []
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
    """Return the feature columns: ``features``, or all but target and domain, without ``drop``.

    >>> choose_features(["age", "site", "ill"], target="ill", domain="site")
    ['age']
    """
    double = {name for name in names if list(names).count(name) > 1}
    if double:
        raise TableError(f"{where} has more than one column named {describe_names(double)}")
    require_columns([target, domain, *(features or []), *(drop or [])], names, where)
    if target == domain:
        raise TableError(f"target and domain are the same column, {target!r}")
    clash = {target, domain} & {*(features or ()), *(drop or ())}
    if clash:
        raise TableError(
            f"{describe_names(clash)} cannot be a feature, nor left out: it is the target or domain"
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


ONE_CLASS = "domains with one class only are used for training"


def with_labels(frame: Any, target: str, domain: str, notes: list[str]) -> Any:
    """Leave out rows without target or domain."""
    for name, role in ((target, "target"), (domain, "domain")):
        missing = int(frame[name].isna().sum())
        if missing == len(frame):
            raise TableError(f"the {role} column {name!r} has no values")
        if missing:
            notes.append(f"{missing} of {len(frame)} rows have no {role} and are left out")
            frame = frame[frame[name].notna()]
    return frame


def other_domains(domains: Array, dropped: Sequence[str], where: str) -> Array:
    """Mark the rows that are not of dropped domains."""
    present = {str(name) for name in np.unique(domains)}
    left_out = cells.split_names([str(name) for name in dropped], sorted(present)) or []
    unknown = [name for name in left_out if name not in present]
    if unknown:
        raise TableError(
            f"{where} has no domain {describe_names(unknown)}; it has {describe_names(present)}"
        )
    return np.array([str(name) not in left_out for name in domains])


def target_column(column: Any, mark: str | None) -> Any:
    """Numbers if all cells of a text target are numbers or missing; otherwise unchanged.

    Codes with leading zeros stay text, and so do whole numbers beyond int64.
    """
    column = cells.plain(column)
    if not cells.is_text(column):
        return column
    numbers = cells.typed_numbers(cells.with_points(column, mark))
    if cells.is_text(numbers):
        form, odd = cells.column_form(numbers)
        if form in ("percent", "time") and not odd:
            return cells.numbers_in(numbers, form).rename(column.name)
        return numbers
    if numbers.isna().all():  # only words such as "NA": they are the classes
        return column
    if cells.fits(column, r"-?0[0-9].*|[+-]?[0-9]{19,}").any():
        return column.where(~column.isin(cells.MISSING))
    return numbers


def task_of(target: Any, task: str) -> str:
    """Return the task, decided from the target if it is "auto"."""
    if task != "auto":
        return task
    if not cells.is_numeric(target) or target.dtype.kind == "b":
        return "classification"
    values = target.to_numpy(dtype=np.float64, na_value=np.nan)
    return "regression" if is_quantity(values) else "classification"


def target_values(target: Any, task: str, notes: list[str]) -> Array:
    """Return the target as numbers or labels, refused where there is nothing to learn."""
    name = str(target.name)
    if task == "regression":
        if not cells.is_numeric(target):
            raise TableError(
                f"the target {name!r} holds text: use ",
                Argument("task", "classification"),
                ", or a numeric column",
            )
        y = cells.as_numbers(target, name)
        if np.all(y == y[0]):
            raise TableError(f"the target {name!r} has one value only, {y[0]:g}: nothing to learn")
        return y
    refuse_quantities(target)
    if cells.is_numeric(target):
        cells.as_numbers(target, name)  # refuses infinite ones
    y = cells.as_labels(target)
    classes = np.unique(y)
    if len(classes) < 2:
        raise TableError(f"the target {name!r} has one class only, {classes[0]!s}: two are needed")
    if len(classes) > max(MAX_CLASSES, len(y) // 3):
        raise TableError(
            f"the target {name!r} has {len(classes)} classes in {len(y)} rows: use ",
            Argument("task", "regression"),
            " for a continuous target",
        )
    notes += [
        f"{word!r} is a class of the target {name!r}, in {int(np.sum(y == word))} rows; name it as "
        "a missing value (na) to leave them out"
        for word in classes.tolist()
        if word in cells.MISSING
    ]
    notes += _alike(classes, f"classes of the target {name!r}")
    return y


def refuse_quantities(target: Any) -> None:
    """Refuse a target whose text is not class names: dates, or numbers in part."""
    form, odd = cells.column_form(target)
    if form in ("date", "time", "percent", "nested") or (form == "number" and odd):
        problem = None if form == "date" else cells.problem_of(target, form, odd)
        words = problem or (f"holds {cells.FORMS[form]}",)
        raise TableError(f"the target {str(target.name)!r} ", *words, "; or name another target")


def check_domains(domains: Array, y: Array, task: str, name: str, notes: list[str]) -> None:
    """Refuse domains from which nothing can be learnt, and note what is unusual about them."""
    labels, codes, counts = np.unique(domains, return_inverse=True, return_counts=True)
    if len(labels) < 2:
        raise TableError(
            f"the domain column {name!r} names one domain only, {labels[0]!s}: two or more "
            "are needed"
        )
    if len(labels) > 2 and counts.max() == 1:
        raise TableError(
            f"the domain column {name!r} is different in every row: name a column that groups "
            "rows, such as the site or the patient"
        )
    notes += _alike(labels, f"domains of column {name!r}")
    if task == "classification":
        single = [str(labels[d]) for d in range(len(labels)) if len(np.unique(y[codes == d])) == 1]
        if len(single) == len(labels):
            raise TableError(
                f"every domain of column {name!r} has one class only, so classes cannot be "
                "separated from domains"
            )
        if single:
            notes.append(f"{ONE_CLASS}, and are not scored: {describe_names(single)}")


def _alike(labels: Array, what: str) -> list[str]:
    """Note labels that look alike; they stay separate."""
    groups: dict[str, list[str]] = {}
    for label in map(str, labels.tolist()):
        groups.setdefault(" ".join(normalize("NFKC", label).split()).casefold(), []).append(label)
    return [
        f"{describe_names(same)} are different {what}: "
        "they differ in spaces, capitals or composed letters only"
        for same in groups.values()
        if len(same) > 1
    ]


def note_identifiers(frame: Any, numeric: Sequence[str], domains: Array) -> list[str]:
    """Note numbers that look like identifiers of rows."""
    rows = [np.flatnonzero(domains == d) for d in np.unique(domains)]
    columns = {n: frame[n].to_numpy(dtype=np.float64, na_value=np.nan) for n in numeric}
    return [
        f"feature {name!r} {reason}: it looks like an identifier or a clock. Drop it "
        "unless it has the same meaning in new domains"
        for name, values in columns.items()
        if (reason := identifier_reason(values, rows))
    ]


def identifier_reason(values: Array, rows: Sequence[Array]) -> str:
    """Reason why numbers look like identifiers of rows: distinct, or a running count; or "".

    A running count rises or falls from row to row in every domain of at least five rows, and such
    domains hold twenty rows or more. ``rows`` are those of each domain.
    """
    whole = np.isfinite(values).all() and np.all(values == np.round(values))
    if whole and len(values) >= 20 and len(np.unique(values)) == len(values):
        return "is a different whole number in every row"
    long = [r for r in rows if len(r) >= 5]
    steps = (np.diff(values[r]) for r in long)
    runs = sum(map(len, long)) >= 20 and all((s > 0).all() or (s < 0).all() for s in steps)
    return "rises or falls in every domain" if runs else ""


def note_domain_identifiers(frame: Any, features: Sequence[str], domains: Array) -> list[str]:
    """Note features that alone identify the domain.

    Rows (up to 20,000) are sorted by the feature, those with equal values at random. If neighbours
    share a domain nine tenths as often, beyond chance, as in a table sorted by domain, it does.
    """
    rows = np.random.default_rng(0).permutation(len(domains))[:20_000]
    labels, codes = np.unique(domains[rows], return_inverse=True)
    best = 1 - (len(labels) - 1) / max(len(codes) - 1, 1)
    chance = float(np.sum((np.bincount(codes) / len(codes)) ** 2))
    notes = []
    for name in features:
        column = frame[name].iloc[rows]
        values = column if cells.is_numeric(column) else column.astype(str).factorize()[0]
        sorted_codes = codes[np.argsort(np.asarray(values), kind="stable")]
        same = float(np.mean(sorted_codes[1:] == sorted_codes[:-1]))
        if best > chance and same - chance >= 0.9 * (best - chance):
            notes.append(
                f"feature {name!r} alone identifies the domain, and may not generalize to others; "
                "drop it unless it has the same meaning in new domains"
            )
    return notes
