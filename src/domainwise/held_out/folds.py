"""A splitter that holds out whole domains, folds for searches, and samples of rows."""

from __future__ import annotations

import sys
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.model_selection import (
    BaseCrossValidator,
    KFold,
    LeaveOneGroupOut,
    LeavePGroupsOut,
    StratifiedKFold,
    check_cv,
)
from sklearn.utils import check_random_state

from domainwise.base.arguments import check_arguments
from domainwise.base.arrays import Array, ArrayLike, MaybeArray, Seed, content_keys, evenly_spaced
from domainwise.base.inputs import check_length, check_sample_domain, count_rows
from domainwise.base.messages import RowFoldsWarning, warn_caller
from domainwise.base.process import filtered_warnings


@dataclass(eq=False, repr=False)
class LeaveDomainsOut(BaseCrossValidator):
    """Splitter that holds out whole domains.

    Parameters
    ----------
    n_test_domains : int, default=1
        Number of domains in each test set.
    n_repeats : int, default=None
        Number of test sets, whose domains are drawn at random without replacement. If None, each of
        the T domains is in one test set, which gives ``ceil(T / n_test_domains)`` splits.
    random_state : int, RandomState instance or None, default=None
        Seed for random test sets. None uses a fixed seed, so that every call to ``split`` gives the
        same folds. With several domains per test set, they also depend on the content of the rows,
        but not on the names of domains.
    max_splits : int, default=None
        Maximum number of splits. If there would be more, larger groups of domains are held out.

    See Also
    --------
    domain_cross_validate : Scores an estimator on every held-out domain.

    Notes
    -----
    Domains are passed to :meth:`split` as ``groups``. With metadata routing enabled, they are taken
    from ``sample_domain``: ``cross_validate(..., params={"sample_domain": d})`` works without
    ``set_split_request``.

    References
    ----------
    E. W. Steyerberg and F. E. Harrell (2016), "Prediction models need appropriate internal,
    internal-external, and external validation", Journal of Clinical Epidemiology 69,
    doi:10.1016/j.jclinepi.2015.04.005.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.selection import LeaveDomainsOut
    >>> domains = np.array(["a", "a", "b", "c"])
    >>> for train, test in LeaveDomainsOut().split(np.zeros((4, 1)), groups=domains):
    ...     print(domains[test])
    ['a' 'a']
    ['b']
    ['c']
    """

    n_test_domains: int = 1
    n_repeats: int | None = None
    random_state: Seed = None
    max_splits: int | None = None

    __metadata_request__split = {"groups": "sample_domain"}

    def get_n_splits(
        self, X: MaybeArray = None, y: MaybeArray = None, groups: MaybeArray = None
    ) -> int:
        """Return the number of splits.

        Parameters
        ----------
        X, y : ignored
        groups : array-like of shape (n_samples,)
            The domain of each row.

        Returns
        -------
        n_splits : int
            Number of splits that :meth:`split` yields.
        """
        return len(self._test_sets(self._domain_codes(groups)[1]))

    def split(
        self, X: ArrayLike, y: MaybeArray = None, groups: MaybeArray = None
    ) -> Iterator[tuple[Array, Array]]:
        """Yield the indices of training and test rows for each split.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            If several domains are held out together, X and y decide which ones, so that the names
            of domains make no difference.
        groups : array-like of shape (n_samples,)
            The domain of each row.
        """
        domain_codes, n_domains = self._domain_codes(groups)
        for name, labels in (("groups", domain_codes), ("y", y)):
            if labels is not None:
                check_length(count_rows(labels), name, count_rows(X))
        order = np.arange(n_domains)
        if len(test_sets := self._test_sets(n_domains)) < n_domains:
            order = content_order(X, y, domain_codes)
        for positions in test_sets:
            is_test = np.isin(domain_codes, order[positions])
            yield np.flatnonzero(~is_test), np.flatnonzero(is_test)

    @property
    def shuffle(self) -> bool:
        """Whether repeated calls to :meth:`split` give different folds; searches check this."""
        return isinstance(self.random_state, np.random.RandomState)

    def _domain_codes(self, groups: Any) -> tuple[Array, int]:
        if groups is None:
            raise ValueError(
                "LeaveDomainsOut needs the domain of each row. Pass groups=sample_domain."
            )
        if np.isscalar(groups) or getattr(groups, "ndim", 1) == 0:
            raise ValueError(f"groups must contain the domain of each row; got {groups!r}.")
        domains = check_sample_domain(groups, count_rows(groups), "delta")
        return domains.codes, domains.n_categories

    def _test_sets(self, n_domains: int) -> list[Array]:
        check_arguments("LeaveDomainsOut", **vars(self))
        n_test, n_repeats, max_splits = int(self.n_test_domains), self.n_repeats, self.max_splits
        if max_splits == 1 and n_repeats is None:
            raise ValueError(
                "max_splits must be at least 2, so that every split has domains to train on; got 1."
            )
        if n_domains <= n_test:
            raise ValueError(
                f"n_test_domains={n_test} leaves no domains to train on, because the number of "
                f"domains is {n_domains}. Pass more domains, or use a smaller n_test_domains."
            )
        rng = check_random_state(0 if self.random_state is None else self.random_state)
        n_splits = -(-n_domains // n_test) if n_repeats is None else n_repeats
        n_splits = n_splits if max_splits is None else min(n_splits, max_splits)
        if n_repeats is not None:
            return [rng.choice(n_domains, n_test, replace=False) for _ in range(n_splits)]
        # Similar domains, which are neighbours in the order of content, are not held out together.
        domain_order = rng.permutation(n_domains) if n_splits < n_domains else np.arange(n_domains)
        return np.array_split(domain_order, n_splits)


def content_order(X: Any, y: Any, domain_codes: Array) -> Array:
    """Return the codes of domains, sorted by targets and sizes, and then by X, but not by names."""
    sizes = np.bincount(domain_codes)
    keys = [np.arange(len(sizes), dtype=float)]  # names decide if all else is equal
    if hasattr(X, "select_dtypes"):
        sums = np.zeros(len(sizes), np.uint64)
        np.add.at(sums, domain_codes, row_keys(X))
        keys.append(sums)
        X = X.select_dtypes("number")
    features = np.zeros(0) if issparse(X) else np.asarray(X)
    if features.ndim == 2 and features.dtype.kind in "biuf" and features.size:
        keys.append(domain_means(features, domain_codes))
    keys.append(sizes)
    if y is not None:
        keys.append(domain_means(target_numbers(y), domain_codes))
    return np.lexsort(keys)


def row_keys(X: Any) -> Array:
    """Return a number for each row of an array or data frame; equal rows have equal numbers."""
    if hasattr(X, "select_dtypes"):
        return np.asarray(sys.modules["pandas"].util.hash_pandas_object(X, index=False))
    return np.asarray(content_keys(np.nan_to_num(X)))


def rows_by_content(X: Any, y: Array) -> Array:
    """Return the indices of all rows, sorted by targets and X: their order makes no difference."""
    return np.lexsort([row_keys(X), np.unique(y, return_inverse=True)[1]])


def target_numbers(y: Any) -> Array:
    """Return targets as columns of numbers; classes become codes."""
    targets = np.asarray(y)
    if targets.dtype.kind not in "biuf":
        targets = np.unique(targets, return_inverse=True)[1]
    return targets.reshape(len(targets), -1)


def domain_means(values: Array, domain_codes: Array) -> Array:
    """Return the mean key of each domain, rounded: sums depend a little on the order of rows."""
    keys = content_keys(np.nan_to_num(np.asarray(values, dtype=np.float64)))
    scale = np.abs(keys).max(initial=0.0) or 1.0
    sums = np.bincount(domain_codes, weights=keys / scale)
    return np.asarray(np.round(sums / np.bincount(domain_codes), 10))


Split = tuple[Array, Array]  #: indices of training and test rows
SplitParts = list[tuple[list[int], list[int]]]  #: codes of training and test parts, by split

#: Up to this many domains are held out one at a time; more are held out in this many groups.
MAX_FOLDS = 10
#: Number of folds of rows, if there are no domains to hold out.
ROW_FOLDS = 5
#: If splits divide the rows into more parts than this per split, as repeated folds do, each split
#: has its own pass over the rows.
MAX_PARTS_PER_SPLIT = 4


def domain_folds(
    y: Array,
    domains: Array | None,
    *,
    classification: bool,
    cv: Any = None,
    max_splits: int | None = MAX_FOLDS,
    is_usable: Callable[[Array, Array], bool] | None = None,
    X: Any = None,
) -> tuple[list[Split], str]:
    """Return splits, and whether they hold out "domains" or "rows".

    ``cv=None`` means :class:`LeaveDomainsOut` with at most ``max_splits`` splits. A split is
    removed if it has a single training class, or if ``is_usable`` returns False for its training
    and test targets. Rows are held out if there are no domains (with a warning), or if
    ``is_usable`` is passed and no split of domains remains. X is passed to the splitter.
    """
    has_domains = domains is not None and len(np.unique(domains)) > 1

    def select_usable(splits: Iterable[Split]) -> list[Split]:
        return [
            (train, test)
            for train, test in splits
            if not (classification and len(np.unique(y[train])) < 2)
            and (is_usable is None or is_usable(y[train], y[test]))
        ]

    X = np.zeros((len(y), 1)) if X is None else X
    if domains is not None and 2 < len(y) == len(np.unique(domains)):
        warn_caller(
            "sample_domain is different in every row. Individual rows are held out, and scores say "
            "little about unseen domains. Give all rows from a domain the same label."
        )
    if cv is not None or has_domains:
        cv = LeaveDomainsOut(max_splits=max_splits) if cv is None else cv
        splitter = check_cv(cv, y, classifier=classification)
        with filtered_warnings():
            # Splitters such as KFold ignore the domains.
            warnings.filterwarnings("ignore", message="The groups parameter is ignored")
            index_pairs = splitter.split(X, y, domains if has_domains else None)
            splits = select_usable(
                (
                    _check_row_indices(train, len(y), f"the training set of split {split_number}"),
                    _check_row_indices(test, len(y), f"the test set of split {split_number}"),
                )
                for split_number, (train, test) in enumerate(index_pairs)
            )
        if splits:
            return splits, "domains"
    if not has_domains:
        warn_caller(
            "There is no domain to hold out, because fewer than two different domain labels were "
            "passed. Rows are held out instead, and scores say little about unseen domains.",
            RowFoldsWarning,
        )
    splits = select_usable(row_folds(y, classification)) if is_usable or not has_domains else []
    if not splits and len(y) < 2:
        raise ValueError(
            f"n_samples={len(y)}, but at least 2 rows are needed to hold some out. Pass more rows."
        )
    if not splits:
        requirement, advice = "two training classes", "another splitter (cv)"
        if is_usable:
            requirement = "the targets needed for training and scoring"
            advice += " or scorer (scoring)"
        raise ValueError(f"No split has {requirement}. Pass more rows, or choose {advice}.")
    return splits, "rows"


def _check_row_indices(rows: Any, n: int, description: str) -> Array:
    """Return row indices from the user's ``cv``, which may be a mask; reject invalid indices."""
    rows = np.asarray(rows)
    if rows.dtype.kind == "b" and rows.shape == (n,):
        return np.flatnonzero(rows)
    if rows.size == 0:
        return rows.astype(np.intp)
    if rows.dtype.kind not in "iu" or rows.min() < -n or rows.max() >= n:
        raise ValueError(
            f"cv: {description} has row indices from {rows.min()} to {rows.max()} "
            f"({rows.dtype}), but they must be integers from 0 to {n - 1}."
        )
    return rows


def without_rows(cv: Any, sample_weight: Any) -> Any:
    """Return ``cv`` after rows with weight 0 were removed: lists of row indices are renumbered."""
    if sample_weight is None or cv is None or isinstance(cv, Integral) or hasattr(cv, "split"):
        return cv
    is_kept = np.asarray(sample_weight) > 0
    positions, splits = np.cumsum(is_kept) - 1, []
    for number, pair in enumerate(cv):
        sets = [_check_row_indices(rows, len(is_kept), f"split {number}") for rows in pair]
        splits.append(tuple(positions[rows[is_kept[rows]]] for rows in sets))
    return splits


def row_folds(
    y: Array, classification: bool, n_folds: int = ROW_FOLDS, random_state: int = 0
) -> list[Split]:
    """Return folds of rows, stratified by class; an empty list if there are too few rows."""
    # The largest class limits the number of folds; smaller classes may be missing from some folds.
    max_folds = int(np.unique(y, return_counts=True)[1].max()) if classification else len(y)
    n_folds = min(n_folds, max_folds)
    if n_folds < 2:
        return []
    splitter_class = StratifiedKFold if classification else KFold
    splitter = splitter_class(n_folds, shuffle=True, random_state=random_state)
    with filtered_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        return list(splitter.split(np.zeros((len(y), 1)), y))


def split_parts(splits: Sequence[Split], n: int) -> tuple[Array, SplitParts]:
    """Divide n rows into parts so that each split trains on, tests on or omits whole parts.

    Returns the part code of each row, and the codes of the training and test parts of each split.
    """
    part_codes = np.zeros(n, dtype=np.int64)
    for train, test in splits:
        roles = np.zeros(n, dtype=np.int64)
        roles[train] = 1
        roles[test] = 2
        part_codes = np.unique(part_codes * 3 + roles, return_inverse=True)[1]
    return part_codes, [
        (np.unique(part_codes[train]).tolist(), np.unique(part_codes[test]).tolist())
        for train, test in splits
    ]


def leaves_domains_out(cv: Any) -> bool:
    """Return whether a splitter's splits depend only on the domains, and not on the rows."""
    return cv is None or isinstance(cv, LeaveDomainsOut | LeaveOneGroupOut | LeavePGroupsOut)


def split_domains(cv: Any, sizes: Array, mean_targets: Array) -> tuple[Array, SplitParts]:
    """Divide domains into parts, as :func:`split_parts` does for rows."""
    splitter, n_domains = LeaveDomainsOut(max_splits=MAX_FOLDS) if cv is None else cv, len(sizes)
    splits = splitter.split(sizes[:, None], mean_targets, np.arange(n_domains))
    return split_parts(list(splits), n_domains)


def split_rows(splits: Sequence[Split], n: int) -> list[tuple[Array, SplitParts]]:
    """Return results of :func:`split_parts`, one for each pass over n rows (usually one pass)."""
    part_codes, parts_by_split = split_parts(splits, n)
    if part_codes.max() < MAX_PARTS_PER_SPLIT * len(splits):
        return [(part_codes, parts_by_split)]
    return [split_parts([split], n) for split in splits]


def draw_rows(domain_codes: Array, max_rows: int | None, random_state: int) -> Array:
    """Draw row indices evenly from domains: all from small domains, samples from large ones.

    The rows depend on their order, but not on the order of the codes.
    """
    n = len(domain_codes)
    check_arguments("evaluate", max_rows=max_rows)
    if max_rows is None or n <= max_rows:
        return np.arange(n)
    _, first_rows, codes = np.unique(domain_codes, return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first_rows))[codes]  # in the order of their first rows
    sizes = np.bincount(codes)
    if max_rows < 2 * len(sizes):
        raise ValueError(
            f"max_rows={max_rows} allows fewer than two rows for each of {len(sizes)} domains. "
            f"Use at least {2 * len(sizes)}."
        )
    # All domains have the same limit; rows that remain are drawn from the largest domains.
    limits = range(max_rows + 1)
    limit = bisect_right(limits, max_rows, key=lambda k: int(np.minimum(sizes, k).sum())) - 1
    sample_sizes = np.minimum(sizes, limit)
    largest_codes = np.argsort(sample_sizes - sizes, kind="stable")
    sample_sizes[largest_codes[: max_rows - int(sample_sizes.sum())]] += 1
    rng = np.random.default_rng(random_state)
    samples = [
        rng.choice(np.flatnonzero(codes == code), size, replace=False)
        for code, size in enumerate(sample_sizes)
    ]
    return np.sort(np.concatenate(samples))


def sample_rows(domain_codes: Array, max_rows: int) -> Array:
    """Draw rows as :func:`draw_rows` does, but at least two from each domain."""
    return draw_rows(domain_codes, max(max_rows, 2 * len(np.unique(domain_codes))), 0)


def spaced_rows(domain_codes: Array, max_rows: int) -> Array:
    """Return indices of evenly spaced rows from each domain, at most ``max_rows`` from each."""
    rows_by_domain = (np.flatnonzero(domain_codes == code) for code in np.unique(domain_codes))
    return np.concatenate([rows[evenly_spaced(len(rows), max_rows)] for rows in rows_by_domain])
