"""Columns: which are features, errors for missing or unusable names, and notes about columns."""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from domainwise.base.arrays import Array
from domainwise.base.messages import listed
from domainwise.tables.errors import check, describe, describe_names, refuse

#: Name for a first column without a name, which is usually an index written by pandas or R. If
#: another column already has this name, ".1" is added.
UNNAMED = "Unnamed: 0"
UNNAMED_NOTE = "the first column has no name; it was treated as an index and left out"
#: Maximum length of a column name. A longer one is data, for example if line ends are missing.
MAX_NAME_LENGTH = 1000


def check_names(names: Iterable[str], where: str) -> None:
    """Raise a TableError if several columns have the same name, or if a name is very long."""
    counts = Counter(names)
    duplicates = [name for name, count in counts.items() if count > 1]
    check(not duplicates, "duplicate names", where=where, names=duplicates)
    name = max(counts, key=len, default="")
    check(len(name) <= MAX_NAME_LENGTH, "long name", where=where, name=name, limit=MAX_NAME_LENGTH)


def require_columns(
    required_names: Iterable[str], names: Sequence[str], where: str, *, reason: str = ""
) -> None:
    """Raise a TableError if columns are missing, with a similar name, or have the same name."""
    check_names(names, where)
    missing_names = [name for name in dict.fromkeys(required_names) if name not in names]
    if not missing_names:
        return
    name_by_lowercase = {name.lower(): name for name in names}
    similar_names = difflib.get_close_matches(missing_names[0].lower(), name_by_lowercase, n=1)
    hint = f"did you mean {name_by_lowercase[similar_names[0]]!r}?" if similar_names else ""
    values = {"hint": hint or f"it has {describe_names(names)}", "s": "s"[: len(missing_names) - 1]}
    refuse("missing columns", where=where, names=missing_names, reason=reason, **values)


def split_names(entries: Sequence[str] | None, names: Iterable[str]) -> list[str] | None:
    """Split entries at commas, except entries that are themselves in ``names``.

    >>> split_names(["age,sex", "dose, mg"], ["age", "sex", "dose, mg"])
    ['age', 'sex', 'dose, mg']
    """
    if entries is None:
        return None
    names = {*names}
    pieces = [p for entry in entries for p in ([entry] if entry in names else entry.split(","))]
    return [piece if piece in names else piece.strip() for piece in pieces if piece.strip()]


def choose_features(
    names: Sequence[str],
    roles: Mapping[str, str],
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    where: str = "the table",
) -> tuple[list[str], list[str]]:
    """Return the feature columns, and a note if a column without a name is left out.

    They are ``features``, or all columns except those in ``roles``. Those in ``drop`` are excluded.
    Entries may contain several names, separated by commas.

    >>> choose_features(["age", "site", "ill"], {"target": "ill", "domain": "site"})
    (['age'], [])
    """
    features, drop = split_names(features, names), split_names(drop, names)
    label_names, listed_names = {*roles.values()}, {*(features or ()), *(drop or ())}
    require_columns([*roles.values(), *sorted(listed_names)], names, where)
    same = [role for role, name in roles.items() if [*roles.values()].count(name) > 1]
    check(not same, "same column", roles=listed(same), columns=[roles[role] for role in same[:1]])
    invalid_names = sorted(label_names & listed_names)
    check(not invalid_names, "label as feature", roles=listed([*roles]), names=invalid_names)
    excluded_names = {*label_names, *(drop or ())}
    chosen_names = names if features is None else dict.fromkeys(features)
    feature_names = [name for name in chosen_names if name not in excluded_names]
    named_features = [n for n in feature_names if features is not None or not is_unnamed(n)]
    check(named_features, "no features left", where=where)
    return named_features, [UNNAMED_NOTE] if len(named_features) < len(feature_names) else []


def named_frame(frame: Any) -> Any:
    """Convert a data frame to pandas, with text as names and a new index."""
    frame = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    is_frame = hasattr(frame, "set_axis") and frame.ndim == 2
    check(is_frame, "not a frame", type=type(frame).__name__)
    return frame.set_axis([str(name) for name in frame.columns], axis=1).reset_index(drop=True)


def complete_names(names: list[str], path: Path, place: str) -> list[str]:
    """Return the column names of a file; a first column without a name gets a unique one."""
    for i, name in enumerate(names[1:], 2):
        check(name.strip(), "unnamed column", path=path, column=i, place=place)
    unused_names = (n for i in count() if (n := f"{UNNAMED}.{i}" if i else UNNAMED) not in names)
    return names if names[0].strip() else [next(unused_names), *names[1:]]


def is_unnamed(name: str) -> bool:
    """Whether this module or pandas gave this name to a column without a name."""
    return re.fullmatch(rf"{UNNAMED}(\.[0-9]+)?", name) is not None


def similar_label_notes(labels: Array, noun: str) -> list[str]:
    """Return notes on labels that look the same but are not merged."""
    label_groups: dict[str, list[str]] = defaultdict(list)
    for label in map(str, labels.tolist()):
        label_groups[" ".join(normalize("NFKC", label).split()).casefold()].append(label)
    groups = [group for group in label_groups.values() if len(group) > 1]
    return [describe("similar labels", labels=group, noun=noun) for group in groups]


def site_columns(X: Any, domain_codes: Array) -> list[str]:
    """Return the columns that are constant within every domain, such as the beds of a hospital.

    >>> import pandas
    >>> X = pandas.DataFrame({"beds": [80, 80, 200], "age": [51, 60, 44]})
    >>> site_columns(X, np.array([0, 0, 1]))
    ['beds']
    """
    names, codes = list(X.columns), np.asarray(domain_codes)
    if len(codes) == len(np.unique(codes)):
        return []
    for n_rows in (1000, len(codes)):  # most columns vary within the first rows
        n_values = X[names][:n_rows].groupby(codes[:n_rows]).nunique()
        names = [name for name in names if (n_values[name] <= 1).all()]
    return names
