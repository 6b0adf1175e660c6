"""Target and domain of a table: the task, the labels, and whether they can be learnt from."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.checks.inputs import MAX_CLASSES, is_quantity
from domainwise.tables.columns import (
    as_labels,
    as_numbers,
    describe_names,
    is_numeric,
    refuse_unusable,
    split_names,
)
from domainwise.tables.files import TableError


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


def task_of(target: Any, task: str) -> str:
    """Return the task, told from the target where it is "auto"."""
    if task != "auto":
        return task
    if not is_numeric(target) or target.dtype.kind == "b":
        return "classification"
    values = target.to_numpy(dtype=np.float64, na_value=np.nan)
    return "regression" if is_quantity(values) else "classification"


def target_values(target: Any, task: str) -> Array:
    """Return the target as numbers or labels, refused where there is nothing to learn."""
    name = str(target.name)
    if task == "regression":
        if not is_numeric(target):
            raise TableError(
                f"the target {name!r} holds text: use --task classification, or a numeric column"
            )
        y = as_numbers(target, name)
        if np.all(y == y[0]):
            raise TableError(f"the target {name!r} has one value only, {y[0]:g}: nothing to learn")
        return y
    refuse_unusable(target, name, role="target")
    y = as_labels(target)
    classes = np.unique(y)
    if len(classes) < 2:
        raise TableError(f"the target {name!r} has one class only, {classes[0]!s}: two are needed")
    if len(classes) > max(MAX_CLASSES, len(y) // 3):
        raise TableError(
            f"the target {name!r} has {len(classes)} classes in {len(y)} rows: "
            "use --task regression for a continuous target"
        )
    return y


def check_domains(domains: Array, y: Array, task: str, name: str) -> None:
    """Refuse domains from which nothing carries over."""
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
    if task == "classification":
        single = [str(labels[d]) for d in range(len(labels)) if len(np.unique(y[codes == d])) == 1]
        if single:
            raise TableError(
                f"{'domain' if len(single) == 1 else 'domains'} {describe_names(single)} of column "
                f"{name!r} {'has' if len(single) == 1 else 'have'} one class only; leave "
                f"{'it' if len(single) == 1 else 'them'} out with --drop-domains "
                f"{shlex.quote(','.join(single))}, or merge with others"
            )


def refuse_constant(frame: Any, features: Sequence[str]) -> None:
    """Refuse features that never vary."""
    constant = [name for name in features if frame[name].nunique(dropna=False) == 1]
    if constant:
        raise TableError(
            f"{'feature' if len(constant) == 1 else 'features'} {describe_names(constant)} "
            f"{'has' if len(constant) == 1 else 'have'} the same value in every row; leave out "
            f"with --drop {shlex.quote(','.join(constant))}"
        )


def note_domain_names(frame: Any, categorical: Sequence[str], domains: Array) -> list[str]:
    """Tell of categories that say which domain a row is of, and nothing else."""
    n_domains = len(np.unique(domains))
    notes = []
    for name in categorical:
        pairs = {*zip(frame[name].astype(str), domains.tolist(), strict=True)}
        if len(pairs) == n_domains == frame[name].nunique(dropna=False):
            notes.append(
                f"feature {name!r} only names the domain, and says nothing about others; "
                f"leave it out with --drop {shlex.quote(name)}"
            )
    return notes
