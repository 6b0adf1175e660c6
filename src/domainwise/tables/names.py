"""Columns: which are features, errors for missing or unusable names, and notes about columns."""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, count
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from domainwise.base.arrays import Array
from domainwise.base.messages import listed
from domainwise.tables.cells import is_numeric
from domainwise.tables.errors import check, describe_names, import_pandas, refuse

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


def label_columns(target: str, domain: str, weight: str | None = None) -> dict[str, str]:
    """Return the columns that are not features, by role."""
    return {"target": target, "domain": domain} | ({} if weight is None else {"weight": weight})


def choose_features(
    names: Sequence[str],
    roles: Mapping[str, str],
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    *,
    where: str = "the table",
) -> tuple[list[str], list[str]]:
    """Return the feature columns, and a note if a column without a name is left out.

    They are ``features``, or all columns except those in ``roles``. Those in ``drop`` are excluded.
    Entries may contain several names, separated by commas.

    >>> choose_features(["age", "site", "ill"], label_columns("ill", "site"))
    (['age'], [])
    """
    features, drop = split_names(features, names), split_names(drop, names)
    label_names, listed_names = {*roles.values()}, {*(features or ()), *(drop or ())}
    require_columns([*roles.values(), *sorted(listed_names)], names, where)
    for first, second in combinations(roles, 2):
        values = {"first": first, "second": second, "column": roles[first]}
        check(roles[first] != roles[second], "same column", **values)
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


#: Maximum number of rows that are sorted to find columns that identify the domain.
MAX_SORTED_ROWS = 20_000
#: Copied rows within domains are reported if two rows of a domain are equal more than this many
#: times as often as two rows of different domains.
COPY_RATIO = 10


def similar_label_notes(labels: Array, noun: str) -> list[str]:
    """Return notes on labels that look the same but are not merged."""
    label_groups: dict[str, list[str]] = defaultdict(list)
    for label in map(str, labels.tolist()):
        label_groups[" ".join(normalize("NFKC", label).split()).casefold()].append(label)
    return [
        f"{describe_names(group)} are different {noun}, although they differ only in spaces, "
        "capitalization or Unicode form; if they mean the same thing, write them the same way"
        for group in label_groups.values()
        if len(group) > 1
    ]


def identifier_reason(values: Array, domain_rows: Sequence[Array]) -> str:
    """Explain why numbers look like row identifiers; return "" if they do not.

    Numbers look like identifiers if they are at least 20 distinct integers, or if they are
    monotonic in every domain with at least five rows and these domains have at least 20 rows in
    total. ``domain_rows`` contains the row indices of each domain.
    """
    n_values = len(np.unique(values))
    if n_values == len(values) >= 20 and np.array_equal(values, np.round(values)):
        return "is a different whole number in every row"
    large_domain_rows = [rows for rows in domain_rows if len(rows) >= 5]
    steps_by_domain = (np.diff(values[rows]) for rows in large_domain_rows)
    is_monotonic = all((steps > 0).all() or (steps < 0).all() for steps in steps_by_domain)
    has_enough_rows = sum(map(len, large_domain_rows)) >= 20
    text = "increases or decreases from row to row in every domain"
    return text if has_enough_rows and is_monotonic else ""


def site_columns(X: Any, domain_codes: Array) -> list[str]:
    """Return the columns that are constant within every domain, such as the beds of a hospital.

    >>> X = import_pandas().DataFrame({"beds": [80, 80, 200], "age": [51, 60, 44]})
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


def feature_notes(X: Any, y: Array, site_level: Sequence[str], domains: Array) -> list[str]:
    """Return notes on columns that describe domains or look like identifiers, and on copied rows.

    Up to ``MAX_SORTED_ROWS`` rows are sorted by each feature, with ties in random order. A feature
    identifies the domain if the share of adjacent rows from the same domain, minus the share
    expected by chance, is at least 90 % of this difference in a table sorted by domain.
    """
    all_codes, notes = np.unique(domains, return_inverse=True)[1], list[str]()
    n_domains, advice = all_codes.max() + 1, "Drop it unless it has the same meaning in new domains"
    if site_level:
        notes.append(
            f"columns that are constant within every domain: {listed(site_level, 20, ', ')}; they "
            f"describe the domain, so {n_domains} domains provide only {n_domains} of their values"
        )
    domain_rows = [np.flatnonzero(all_codes == d) for d in range(n_domains)]
    rows = np.random.default_rng(0).permutation(len(domains))[:MAX_SORTED_ROWS]
    codes, identifying_notes = all_codes[rows], list[str]()
    share_if_sorted = 1 - (len(np.unique(codes)) - 1) / max(len(codes) - 1, 1)
    share_by_chance = float(np.sum((np.bincount(codes) / len(codes)) ** 2))
    X = X.drop(columns=list(site_level))
    for name, column in X.items():
        values = column.to_numpy() if is_numeric(column) else column.factorize()[0]
        if is_numeric(column) and (reason := identifier_reason(values, domain_rows)):
            text = f"feature {name!r} {reason}: it looks like an identifier or a time"
            notes.append(f"{text}. {advice}")
        sorted_codes = codes[np.argsort(values[rows], kind="stable")]
        excess_share = float(np.mean(sorted_codes[1:] == sorted_codes[:-1])) - share_by_chance
        if 0 < 0.9 * (share_if_sorted - share_by_chance) <= excess_share:
            text = f"feature {name!r} alone identifies the domain, so it may not generalize"
            identifying_notes.append(f"{text}. {advice}")
    return notes + identifying_notes + _copy_notes(X.assign(**{"": y}), domains)


def _copy_notes(rows: Any, domains: Array) -> list[str]:
    """Return a note if rows are exact copies of other rows of their domain, more than by chance."""
    hashes = import_pandas().util.hash_pandas_object(rows, index=False)
    keys = import_pandas().DataFrame({"row": hashes, "domain": domains})
    n_within, n_total = (((n := keys.value_counts(by)) * (n - 1.0)).sum() for by in (None, "row"))
    share_within = (keys["domain"].value_counts(normalize=True) ** 2).sum()  # of all pairs of rows
    if n_within * (1 - share_within) <= COPY_RATIO * (n_total - n_within) * share_within:
        return []
    n_copies = keys["domain"][keys.duplicated()].value_counts().sort_index()
    extents = [f"{n} in {name}" for name, n in n_copies.items()]
    return [
        "rows that are exact copies of another row of the same domain: "
        f"{listed(extents, 5, ', ')}; remove them if they were recorded twice"
    ]
