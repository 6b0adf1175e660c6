"""Which rows are held out when something is chosen, and which are drawn where there are many."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import (
    KFold,
    LeaveOneGroupOut,
    LeavePGroupsOut,
    StratifiedKFold,
    check_cv,
)

from domainwise.arrays import Array
from domainwise.checks.arguments import check_arguments
from domainwise.checks.warn import RowFoldsWarning, warn_caller
from domainwise.splits.splitters import LeaveDomainsOut

Split = tuple[Array, Array]  #: rows to train on, and rows to test on
SplitParts = list[tuple[list[int], list[int]]]  #: the same as parts of the rows

#: Domains are left out one at a time up to this many, beyond that in as many groups.
MAX_FOLDS = 10
#: Folds of rows, where there are no domains to leave out.
ROW_FOLDS = 5
#: Parts into which splits may cut the rows, for each split; where they cut more, as repeated folds
#: do, every split makes a pass of its own.
PARTS_PER_SPLIT = 4
#: Rows drawn where there are more and ``max_rows`` is "auto".
AUTO_ROWS = 2000


def domain_folds(
    y: Array,
    domains: Array | None,
    *,
    classification: bool,
    cv: Any = None,
    max_splits: int | None = MAX_FOLDS,
    usable: Callable[[Array, Array], bool] | None = None,
) -> tuple[list[Split], str]:
    """Split by domains, or by rows, with a warning, where there are no domains to leave out.

    Splits that leave one class to train on are left out, and those of whose targets, to train on
    and to test on, ``usable`` says no; if these are all splits by domains, rows are split. Without
    ``cv`` it is :class:`LeaveDomainsOut` with at most ``max_splits``. Also returned is what was
    split, "domains" or "rows".
    """
    several = domains is not None and len(np.unique(domains)) > 1

    def kept(splits: Iterable[Split]) -> list[Split]:
        return [
            (train, test)
            for train, test in splits
            if not (classification and len(np.unique(y[train])) < 2)
            and (usable is None or usable(y[train], y[test]))
        ]

    rows = np.zeros((len(y), 1))
    if domains is not None and 2 < len(y) == len(np.unique(domains)):
        warn_caller(
            "sample_domain is different in every row: leaving out domains is leaving out rows, "
            "which says little about unseen domains"
        )
    if cv is not None or several:
        cv = LeaveDomainsOut(max_splits=max_splits) if cv is None else cv
        splitter = check_cv(cv, y, classifier=classification)
        with warnings.catch_warnings():
            # All splitters are told the domains; those of rows need not say that they do not ask.
            warnings.filterwarnings("ignore", message="The groups parameter is ignored")
            given = splitter.split(rows, y, domains if several else None)
            splits = kept(
                (
                    _row_numbers(train, len(y), f"the training set of split {number}"),
                    _row_numbers(test, len(y), f"the test set of split {number}"),
                )
                for number, (train, test) in enumerate(given)
            )
        if splits:
            return splits, "domains"
    if not several:
        warn_caller(
            "without several domains there is no domain to leave out: folds of rows are used, "
            "which say little about unseen domains",
            RowFoldsWarning,
        )
    splits = kept(row_folds(y, classification)) if usable or not several else []
    if not splits and len(y) < 2:
        raise ValueError(f"n_samples={len(y)}: at least two rows are needed to hold some out")
    if not splits:
        what = "the score can judge" if usable else "two classes to train on"
        raise ValueError(f"no split leaves {what}; choose another scoring, or cv")
    return splits, "rows"


def _row_numbers(part: Any, n: int, where: str) -> Array:
    """Rows of a user's split as numbers; refuse rows that do not exist."""
    rows = np.asarray(part)
    if rows.dtype.kind == "b" and rows.shape == (n,):
        return np.flatnonzero(rows)
    if rows.size == 0:
        return rows.astype(np.intp)
    if rows.dtype.kind not in "iu" or rows.min() < -n or rows.max() >= n:
        raise ValueError(
            f"cv: {where} has rows that do not exist, between {rows.min()!r} and {rows.max()!r}, "
            f"but there are {n} rows. Give row numbers from 0 to {n - 1}."
        )
    return rows


def row_folds(
    y: Array, classification: bool, n_folds: int = ROW_FOLDS, random_state: int = 0
) -> list[Split]:
    """Folds of rows, classes spread over them; none where there are too few rows."""
    # As many as the largest class has rows; rarer classes miss some folds.
    most = int(np.unique(y, return_counts=True)[1].max()) if classification else len(y)
    if min(n_folds, most) < 2:
        return []
    folds = StratifiedKFold if classification else KFold
    splitter = folds(min(n_folds, most), shuffle=True, random_state=random_state)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        return list(splitter.split(np.zeros((len(y), 1)), y))


def split_parts(splits: Sequence[Split], n: int) -> tuple[Array, SplitParts]:
    """Part of each of n items, and the parts of each split of them."""
    part_of = np.zeros(n, dtype=np.int64)
    for train, test in splits:
        state = np.zeros(n, dtype=np.int64)
        state[train] = 1
        state[test] = 2
        part_of = np.unique(part_of * 3 + state, return_inverse=True)[1]
    return part_of, [
        (np.unique(part_of[train]).tolist(), np.unique(part_of[test]).tolist())
        for train, test in splits
    ]


def leaves_domains_out(cv: Any) -> bool:
    """Whether a splitter looks at domains alone, so that it needs no rows."""
    return cv is None or isinstance(cv, LeaveDomainsOut | LeaveOneGroupOut | LeavePGroupsOut)


def split_domains(cv: Any, n_domains: int) -> tuple[Array, SplitParts]:
    """Part of each domain, and the parts of each split.

    Domains that all splits keep together make one part.
    """
    splitter = LeaveDomainsOut(max_splits=MAX_FOLDS) if cv is None else cv
    domains = np.arange(n_domains)
    return split_parts(list(splitter.split(domains[:, None], None, domains)), n_domains)


def split_rows(splits: Sequence[Split], n: int) -> list[tuple[Array, SplitParts]]:
    """Passes over n rows: the part of each row, and the splits that the pass serves."""
    part_of, parts = split_parts(splits, n)
    if part_of.max() < PARTS_PER_SPLIT * len(splits):
        return [(part_of, parts)]
    return [split_parts([split], n) for split in splits]


# Fewer rows, drawn so that domains count.


def draw_rows(codes: Array, max_rows: int | str | None, random_state: int) -> Array:
    """Draw rows evenly from the domains: small domains stay whole, large ones are thinned."""
    n = len(codes)
    check_arguments("evaluate", max_rows=max_rows)
    if isinstance(max_rows, str):
        max_rows = AUTO_ROWS
    if max_rows is None or n <= max_rows:
        return np.arange(n)
    counts = np.bincount(codes)
    if max_rows < 2 * len(counts):
        raise ValueError(
            f"max_rows={max_rows} leaves fewer than two rows to each of {len(counts)} domains"
        )
    # Domains are cut off at one size; the few rows that are left go to the largest, one to each.
    sizes = range(max_rows + 1)
    cut = bisect_right(sizes, max_rows, key=lambda size: int(np.minimum(counts, size).sum())) - 1
    share = np.minimum(counts, cut)
    largest = np.argsort(share - counts, kind="stable")
    share[largest[: max_rows - int(share.sum())]] += 1
    rng = np.random.default_rng(random_state)
    rows = [
        rng.choice(np.flatnonzero(codes == code), size, replace=False)
        for code, size in enumerate(share)
    ]
    return np.sort(np.concatenate(rows))


def spaced_rows(codes: Array, most: Array) -> Array:
    """Evenly spaced rows of each domain, domain by domain; ``most`` of each, at most."""
    parts = []
    for code, count in enumerate(most):
        mine = np.flatnonzero(codes == code)
        parts.append(mine[np.linspace(0, len(mine) - 1, min(len(mine), count)).astype(int)])
    return np.concatenate(parts)
