"""Target and domain of a table: the task, the labels, and whether they can be learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unicodedata import normalize

import numpy as np

from domainwise.arrays import Array
from domainwise.checks.inputs import MAX_CLASSES, is_quantity
from domainwise.tables.cells import MISSING, fits, is_text, numbers_in, typed_numbers, with_points
from domainwise.tables.columns import (
    FORMS,
    as_labels,
    as_numbers,
    column_form,
    is_numeric,
    plain,
    problem_of,
    split_names,
)
from domainwise.tables.errors import Argument, TableError, describe_names

ONE_CLASS = "domains with one class only serve for training"


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
    left_out = split_names([str(name) for name in dropped], sorted(present)) or []
    unknown = [name for name in left_out if name not in present]
    if unknown:
        raise TableError(
            f"{where} has no domain {describe_names(unknown)}; it has {describe_names(present)}"
        )
    return np.array([str(name) not in left_out for name in domains])


def target_column(column: Any, mark: str | None) -> Any:
    """Numbers if a target of text holds them all over, apart from words for none; else as it is.

    Codes with zeros in front stay text, and so do whole numbers beyond int64.
    """
    column = plain(column)
    if not is_text(column):
        return column
    numbers = typed_numbers(with_points(column, mark))
    if is_text(numbers):
        form, odd = column_form(numbers)
        if form in ("percent", "time") and not odd:
            return numbers_in(numbers, form).rename(column.name)
        return numbers
    if numbers.isna().all():  # words for none, and nothing else: they are the classes
        return column
    if fits(column, r"-?0[0-9].*|[+-]?[0-9]{19,}").any():
        return column.where(~column.isin(MISSING))
    return numbers


def task_of(target: Any, task: str) -> str:
    """Return the task, told from the target where it is "auto"."""
    if task != "auto":
        return task
    if not is_numeric(target) or target.dtype.kind == "b":
        return "classification"
    values = target.to_numpy(dtype=np.float64, na_value=np.nan)
    return "regression" if is_quantity(values) else "classification"


def target_values(target: Any, task: str, notes: list[str]) -> Array:
    """Return the target as numbers or labels, refused where there is nothing to learn."""
    name = str(target.name)
    if task == "regression":
        if not is_numeric(target):
            raise TableError(
                f"the target {name!r} holds text: use ",
                Argument("task", "classification"),
                ", or a numeric column",
            )
        y = as_numbers(target, name)
        if np.all(y == y[0]):
            raise TableError(f"the target {name!r} has one value only, {y[0]:g}: nothing to learn")
        return y
    refuse_quantities(target)
    y = as_labels(target)
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
        if word in MISSING
    ]
    notes += _alike(classes, f"classes of the target {name!r}")
    return y


def refuse_quantities(target: Any) -> None:
    """Refuse a target whose text is no names of classes: dates, or numbers in part."""
    form, odd = column_form(target)
    if form in ("date", "time", "percent", "nested") or (form == "number" and odd):
        words = (form != "date" and problem_of(target, form, odd)) or (f"holds {FORMS[form]}",)
        raise TableError(f"the target {str(target.name)!r} ", *words, "; or name another target")


def check_domains(domains: Array, y: Array, task: str, name: str, notes: list[str]) -> None:
    """Refuse domains from which nothing carries over, and note what is odd about them."""
    labels, codes, counts = np.unique(domains, return_inverse=True, return_counts=True)
    if len(labels) < 2:
        raise TableError(
            f"the domain column {name!r} names one domain only, {labels[0]!s}: two or more "
            "are needed to learn what carries over"
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
                f"every domain of column {name!r} has one class only: the class cannot be told "
                "from the domain"
            )
        if single:
            notes.append(f"{ONE_CLASS}, and are not scored: {describe_names(single)}")


def _alike(labels: Array, what: str) -> list[str]:
    """Tell of labels that look alike; they stay apart."""
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
    """Tell of numbers that look like names of rows: distinct whole ones, or a running count.

    A running count rises or falls from row to row in every domain of at least five rows, and such
    domains hold twenty rows or more.
    """
    notes = []
    rows = [np.flatnonzero(domains == d) for d in np.unique(domains)]
    long = [r for r in rows if len(r) >= 5]
    for name in numeric:
        values = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        whole = np.isfinite(values).all() and np.all(values == np.round(values))
        distinct = whole and len(values) >= 20 and len(np.unique(values)) == len(values)
        steps = [np.diff(values[r]) for r in long]
        runs = sum(map(len, long)) >= 20 and all((s > 0).all() or (s < 0).all() for s in steps)
        if distinct or runs:
            why = "is another whole number in every row" if distinct else "runs on in every domain"
            notes.append(
                f"feature {name!r} {why}: it looks like an identifier or a clock; leave it out "
                "unless it means the same elsewhere"
            )
    return notes


def note_domain_tells(frame: Any, features: Sequence[str], domains: Array) -> list[str]:
    """Tell of features that alone tell the domain, and say nothing about others.

    Rows (up to 20,000) are sorted by the feature, those with equal values at random. If neighbours
    share a domain nine tenths as often, beyond chance, as in a table sorted by domain, it tells.
    """
    rows = np.random.default_rng(0).permutation(len(domains))[:20_000]
    labels, codes = np.unique(domains[rows], return_inverse=True)
    best = 1 - (len(labels) - 1) / max(len(codes) - 1, 1)
    chance = float(np.sum((np.bincount(codes) / len(codes)) ** 2))
    notes = []
    for name in features:
        column = frame[name].iloc[rows]
        values = column.to_numpy() if is_numeric(column) else column.astype(str).factorize()[0]
        sorted_codes = codes[np.argsort(values, kind="stable")]
        same = float(np.mean(sorted_codes[1:] == sorted_codes[:-1]))
        if best > chance and same - chance >= 0.9 * (best - chance):
            notes.append(
                f"feature {name!r} alone tells the domain, and may say nothing about others; leave "
                "it out unless it means the same elsewhere"
            )
    return notes
