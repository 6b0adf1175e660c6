"""Names of columns: which are features, and errors for missing, repeated or unusable names."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from domainwise.tables.errors import TableError, describe_names

#: Name for a first column without a name, which is usually an index written by pandas or R. If
#: another column already has this name, ".1" is added.
UNNAMED = "Unnamed: 0"
UNNAMED_NOTE = "the first column has no name; it was treated as an index and left out"
#: Maximum length of a column name. A longer one is data, for example if line ends are missing.
MAX_NAME_LENGTH = 1000


def check_names(names: Iterable[str], where: str) -> None:
    """Raise a TableError if several columns have the same name, or if a name is very long."""
    counts = Counter(names)
    if duplicates := [name for name, count in counts.items() if count > 1]:
        text = f"{where} has more than one column named {describe_names(duplicates)}"
        raise TableError(f"{text}. Give each column a unique name")
    if long_names := [name for name in counts if len(name) > MAX_NAME_LENGTH]:
        text = f"{where} has a column named {describe_names(long_names[:1])}"
        raise TableError(f"{text}. Give it a name of up to {MAX_NAME_LENGTH:,} characters")


def require_columns(
    required_names: Iterable[str], names: Sequence[str], where: str, *, reason: str = ""
) -> None:
    """Raise a TableError if columns are missing; it gives the ``reason`` and a similar name."""
    missing_names = [name for name in dict.fromkeys(required_names) if name not in names]
    if not missing_names:
        return
    name_by_lowercase = {name.lower(): name for name in names}
    similar_names = difflib.get_close_matches(missing_names[0].lower(), name_by_lowercase, n=1)
    hint = f"did you mean {name_by_lowercase[similar_names[0]]!r}?" if similar_names else ""
    hint = hint or f"it has {describe_names(names)}"
    noun = "column" + "s" * (len(missing_names) > 1)
    raise TableError(f"{where} has no {noun} {describe_names(missing_names)}{reason}; {hint}")


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
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    where: str = "the table",
) -> tuple[list[str], list[str]]:
    """Return the feature columns, and a note if a column without a name is left out.

    They are ``features``, or all columns except target and domain. Those in ``drop`` are excluded.

    >>> choose_features(["age", "site", "ill"], target="ill", domain="site")
    (['age'], [])
    """
    check_names(names, where)
    listed_names = [*(features or ()), *(drop or ())]
    require_columns([target, domain, *listed_names], names, where)
    if target == domain:
        raise TableError(f"target and domain are the same column, {target!r}. Choose two columns")
    if label_names := sorted({target, domain}.intersection(listed_names)):
        raise TableError(
            "the target and the domain cannot be features and cannot be dropped; got "
            f"{describe_names(label_names)}. Remove them from the features and the columns to drop"
        )
    unnamed_columns = {name for name in names if is_unnamed(name)} - {target, domain, *listed_names}
    candidates = [name for name in names if not is_unnamed(name)] if features is None else features
    excluded_names = {target, domain, *(drop or ())}
    feature_names = [name for name in dict.fromkeys(candidates) if name not in excluded_names]
    if not feature_names:
        raise TableError(f"{where} has no feature columns left. Select more, or drop fewer columns")
    return feature_names, [UNNAMED_NOTE] * bool(unnamed_columns)


def named_frame(frame: Any) -> Any:
    """Convert a data frame from any library to pandas; names become strings, the index is reset."""
    frame = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    if not hasattr(frame, "set_axis") or frame.ndim != 2:
        text = f"the table must be a data frame, got {type(frame).__name__}"
        raise TableError(f"{text}. Convert it to a pandas data frame")
    return frame.set_axis([str(name) for name in frame.columns], axis=1).reset_index(drop=True)


def unnamed_column_name(other_names: Sequence[str]) -> str:
    """Return a unique name for a first column without a name."""
    possible_names = [UNNAMED, *(f"{UNNAMED}.{i}" for i in range(1, len(other_names) + 1))]
    return next(name for name in possible_names if name not in other_names)


def is_unnamed(name: str) -> bool:
    """Whether this module or pandas gave this name to a column without a name."""
    return re.fullmatch(rf"{UNNAMED}(\.[0-9]+)?", name) is not None
