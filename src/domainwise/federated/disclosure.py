"""Disclosure control: which groups of rows a site may describe, and with how many numbers.

A group of rows is a site, a class at a site, a domain, or a class within a domain. A number in a
file is about a group if it depends only on rows in the group. Three rules apply:

1. The file has at most half as many numbers about a group as the group has values (rows times
   columns). An attacker who tries to compute the rows from these numbers has at least twice as many
   unknowns as equations.
2. A feature map has at most a third as many columns as the group has rows. Testing whether a row
   lies in the span of the other rows then reveals nothing.
3. If second moments are sent, the number of maps times the cube of the number of columns is at most
   a quarter of the square of the number of rows. Leverages from the second moment then differ by
   less than half a standard deviation between rows in the group and other rows.

Groups that are too small are merged, or their rows are left out of the file. Notes for the site,
which are not part of the file, name these groups.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from dataclasses import dataclass, replace
from math import ceil, isqrt
from typing import Any, Self

import numpy as np

from domainwise.arrays import Array
from domainwise.federated.plan import Plan, PlanError, check_plan
from domainwise.shift.watch import MAX_SOURCES
from domainwise.tables.errors import Argument, TableError, describe_names, import_pandas
from domainwise.tables.names import named_frame, require_columns
from domainwise.tables.schema import class_codes

#: Minimum number of rows per column of a map (rule 2), and of values per number (rule 1).
ROWS_PER_COLUMN, VALUES_PER_NUMBER = 3, 2
LEVERAGE_RATIO = 4  #: minimum of rows^2 / (maps * columns^3) if second moments are sent (rule 3)
#: With at least this number of columns per map, more maps are preferred to more columns.
ENOUGH_COLUMNS = 100
#: The number of columns is chosen so that sums include at least ``MIN_SHARE`` of all rows.
#: With up to ``FEW_COLUMNS`` columns, ``MIN_SHARE_FEW_COLUMNS`` of all rows are sufficient.
MIN_SHARE, FEW_COLUMNS, MIN_SHARE_FEW_COLUMNS = 0.95, 8, 0.8
MIN_COLUMNS, MAX_AUTO_COLUMNS = 4, 500  #: limits for ``n_features="auto"``
MAX_WATCH_LANDMARKS = 30  #: maximum number of landmarks for comparing new rows with domains
ACCEPT_ADVICE = (
    "If you are allowed to disclose these rows, pass accept_disclosure=True (--accept-disclosure)."
)
ADVICE = (
    "Use a table with more rows, or ask for a plan with a smaller n_features, fewer kernels "
    f"or fewer gammas. {ACCEPT_ADVICE}"
)


class DisclosureError(ValueError):
    """Raised if a file would disclose too much about a site's rows."""


@dataclass(frozen=True)
class Request:
    """Sizes of the second-round file that a plan requests from a site."""

    n_table_columns: int  #: number of feature columns in the table
    n_classes: int  #: 1 for a continuous target
    n_maps: int
    width: int  #: number of columns of a map, including those for a continuous target
    by_class: bool  #: True: a second moment for each class; False: one for the site
    n_per_domain: int  #: how many numbers are sent about each domain, to compare new rows with it

    @classmethod
    def of_plan(cls, plan: Plan, n_maps: int, width: int, by_class: bool, n_landmarks: int) -> Self:
        """Return the request of a plan; the shift check has ``n_landmarks`` landmarks."""
        schema = plan.schema
        # 3 numbers, 4 for each numeric column, 2 for each text column, and 1 for each landmark.
        n_per_domain = 3 + 4 * len(schema.numbers) + 2 * len(schema.categorical) + n_landmarks
        return cls(len(schema.features), plan.n_classes, n_maps, width, by_class, n_per_domain)

    @classmethod
    def of_merged(cls, plan: Plan) -> Self:
        """Return the request of a merged plan."""
        width, by_class = max(map(plan.width, plan.maps)), plan.first_round("by_class")
        n_landmarks = len(plan.first_round("watch")["landmarks"])
        return cls.of_plan(plan, len(plan.maps), width, by_class, n_landmarks)

    @property
    def maps_text(self) -> str:
        """The number and size of the maps, for messages."""
        ending, each_text = ("", "") if self.n_maps == 1 else ("s", " each")
        return f"{self.n_maps} kernel feature map{ending} with {self.width} columns{each_text}"

    def min_cell_rows(self) -> int:
        """Return the minimum number of rows in a cell (a class within a domain)."""
        return self._min_rows(n_cells=1)

    def min_class_rows(self, n_domains: int = 1) -> int:
        """Return the minimum number of rows in a class at a site with ``n_domains`` domains."""
        return self._min_rows(n_cells=n_domains, n_second_moments=int(self.by_class))

    def min_domain_rows(self) -> int:
        """Return the minimum number of rows in a domain at a site."""
        return self._min_rows(n_cells=self.n_classes, n_other_numbers=self.n_per_domain)

    def min_site_rows(self, n_sent: int, n_domains: int = 1) -> int:
        """Return the minimum number of rows at a site that has already sent ``n_sent`` numbers."""
        n_second_moments = self.n_classes if self.by_class else 1
        n_other_numbers = n_sent + n_domains * self.n_per_domain
        return self._min_rows(n_domains * self.n_classes, n_second_moments, n_other_numbers)

    def _min_rows(self, n_cells: int, n_second_moments: int = 0, n_other_numbers: int = 0) -> int:
        """Return the minimum size of a group about which these numbers are sent."""
        n_per_map = n_cells * self.width + n_second_moments * (self.width * (self.width + 1) // 2)
        min_values = VALUES_PER_NUMBER * (self.n_maps * n_per_map + n_other_numbers)
        n_rows = max(ROWS_PER_COLUMN * self.width, ceil(min_values / max(self.n_table_columns, 1)))
        if n_second_moments:
            n_rows = max(n_rows, isqrt(LEVERAGE_RATIO * self.n_maps * self.width**3 - 1) + 1)
        return n_rows


def choose_sizes(
    plan: Plan, class_counts: list[Array], sent_counts: list[int], n_maps: int, target_width: int
) -> tuple[int, int, bool]:
    """Choose the numbers of columns and maps, and whether second moments are sent by class.

    For each site, ``class_counts`` contains the number of rows in each class, and ``sent_counts``
    how many numbers the site sent in the first round. There are at most ``n_maps`` maps. Each has
    ``target_width`` additional columns for a continuous target.
    """

    def make_request(n_columns: int, n_maps: int, by_class: bool = False) -> Request:
        n_landmarks = min(MAX_WATCH_LANDMARKS, n_columns)
        return Request.of_plan(plan, n_maps, n_columns + target_width, by_class, n_landmarks)

    def count_included(request: Request) -> int:  # rows that sums may include
        min_class_rows = request.min_class_rows()
        row_counts = [int(counts[counts >= min_class_rows].sum()) for counts in class_counts]
        min_site_rows = map(request.min_site_rows, sent_counts)
        return sum(n for n, min_n in zip(row_counts, min_site_rows, strict=True) if n >= min_n)

    def find_max_columns(n_maps: int, min_share: float, limit: int) -> int:
        n_needed = min_share * sum(int(counts.sum()) for counts in class_counts)
        requests = [make_request(m, n_maps) for m in range(1, limit + 1)]
        return bisect_left(requests, True, key=lambda request: count_included(request) < n_needed)

    by_class = plan.second_moments == "classes"
    if plan.n_features == "auto":
        # Maps are removed from the end: the first is the smoothest and needs the fewest columns.
        smaller_map_counts = [3, 1] if isinstance(plan.gammas, str) else []
        n_columns_by_map_count = {}
        for k in [n_maps, *(k for k in smaller_map_counts if k < n_maps)]:
            n_columns = find_max_columns(k, MIN_SHARE, MAX_AUTO_COLUMNS)
            n_relaxed = find_max_columns(k, MIN_SHARE_FEW_COLUMNS, FEW_COLUMNS)
            n_columns_by_map_count[k] = max(n_columns, n_relaxed)
        min_columns = max(MIN_COLUMNS, min(ENOUGH_COLUMNS, max(n_columns_by_map_count.values())))
        map_counts = [k for k, n in n_columns_by_map_count.items() if n >= min_columns]
        if not map_counts:
            request = make_request(MIN_COLUMNS, min(n_columns_by_map_count))
            raise PlanError(
                "the sites have too few rows for a second round: individual rows could be inferred "
                f"from the second-round files. Even {request.maps_text} would need "
                f"{request.min_class_rows()} rows in each class and "
                f"{request.min_site_rows(max(sent_counts))} rows in total at each site. Use sites "
                "with more rows, or set n_features and ask the sites to pass accept_disclosure=True"
            )
        n_columns, n_maps = n_columns_by_map_count[map_counts[0]], map_counts[0]
    else:
        n_columns = int(plan.n_features)
    if plan.second_moments == "auto":
        requests = [make_request(n_columns, n_maps, option) for option in (False, True)]
        by_class = count_included(requests[0]) == count_included(requests[1]) > 0
    return n_columns, n_maps, by_class


def select_rows(rows: SiteRows, request: Request, n_sent: int, accept_disclosure: bool) -> SiteRows:
    """Select the rows that sums may include, and merge domains that are too small.

    Classes that are too small are left out. Raises :class:`DisclosureError` if too few rows remain.
    ``n_sent`` is how many numbers the site sent in the first round.
    """
    cell_counts = np.zeros((request.n_classes, len(rows.domain_names)), dtype=np.int64)
    np.add.at(cell_counts, (rows.class_codes, rows.domain_codes), 1)
    notes = [*rows.notes]
    if accept_disclosure:
        is_used = cell_counts[rows.class_codes, rows.domain_codes] >= rows.min_rows
        if not is_used.any():
            raise DisclosureError(
                f"no domain and no class within a domain has at least {rows.min_rows} rows. Use a "
                "table with more rows, or ask for a plan with a smaller value of smallest_cell"
            )
        excluded_text = f"domains and classes with fewer than {rows.min_rows} rows"
        domain_groups = [[int(d)] for d in np.unique(rows.domain_codes[is_used])]
    else:
        is_large_class = cell_counts.sum(axis=1) >= request.min_class_rows()
        is_used = is_large_class[rows.class_codes]
        n_used, n_excluded = int(is_used.sum()), int((~is_used).sum())
        min_rows = request.min_site_rows(n_sent)
        if n_used < min_rows:
            needed_text, found_text = f"{min_rows} rows", f"{len(is_used)} rows"
            if request.n_classes > 1:
                needed_text += f" in total and {request.min_class_rows()} rows in each class"
                found_text = f"{n_used} rows in large enough classes, and {n_excluded} in others"
            raise DisclosureError(
                f"the second-round file was not created: the plan asks for {request.maps_text}, "
                f"for which a site needs {needed_text}. This site has {found_text}. {ADVICE}"
            )
        excluded_text = f"classes with fewer than {request.min_class_rows()} rows"
        domain_groups = _group_domains(cell_counts[is_large_class], request, n_sent)
    group_names = [rows.domain_names[group[0]] for group in domain_groups]
    if n_excluded := int((~is_used).sum()):
        notes.append(f"left out: {n_excluded} rows from {excluded_text}")
    if len(domain_groups[-1]) > 1:
        group_names[-1] = rows.site if len(domain_groups) == 1 else f"{rows.site} (other domains)"
        merged_text = describe_names([rows.domain_names[d] for d in domain_groups[-1]])
        notes.append(f"merged into one domain, {group_names[-1]!r}: {merged_text}")
    group_codes = np.zeros(len(rows.domain_names), dtype=np.int64)
    for group_code, group in enumerate(domain_groups):
        group_codes[group] = group_code
    return replace(
        rows,
        X=rows.X.iloc[np.flatnonzero(is_used)],
        y=rows.y[is_used],
        class_codes=rows.class_codes[is_used],
        domain_codes=group_codes[rows.domain_codes[is_used]],
        domain_names=group_names,
        notes=notes,
    )


def _group_domains(counts: Array, request: Request, n_sent: int) -> list[list[int]]:
    """Group domain codes: one group for each large domain, and one group for all others."""
    domain_sizes = counts.sum(axis=0)
    is_large = (counts >= request.min_cell_rows()).all(axis=0)
    is_large &= domain_sizes >= request.min_domain_rows()
    large_domains = sorted(np.flatnonzero(is_large).tolist(), key=lambda d: (-domain_sizes[d], d))
    nonempty_domains = np.flatnonzero(domain_sizes)
    for k in range(min(len(large_domains), MAX_SOURCES), 0, -1):
        other_domains = np.setdiff1d(nonempty_domains, large_domains[:k])
        groups = [[d] for d in large_domains[:k]]
        groups += [other_domains.tolist()] if len(other_domains) else []
        group_counts = [counts[:, group].sum(axis=1) for group in groups]
        if (
            min(class_counts.min() for class_counts in group_counts) >= request.min_cell_rows()
            and group_counts[-1].sum() >= request.min_domain_rows()
            and counts.sum(axis=1).min() >= request.min_class_rows(len(groups))
            and domain_sizes.sum() >= request.min_site_rows(n_sent, len(groups))
        ):
            return groups
    return [nonempty_domains.tolist()]


@dataclass(frozen=True)
class SiteRows:
    """The rows of a site that belong to classes with at least ``min_rows`` rows.

    A column with fewer than ``min_rows`` values is treated as missing in all rows.
    """

    site: str
    min_rows: int  #: minimum number of rows about which numbers may be sent
    X: Any  #: features as :meth:`Schema.prepare` returns them
    y: Array  #: continuous targets, or class codes
    class_codes: Array  #: zeros for a continuous target
    domain_codes: Array
    domain_names: list[str]
    n_left_out: int  #: number of rows without a target or domain; 0 if below ``min_rows``
    notes: list[str]  #: what was left out or merged, for the site only

    def checksum(self) -> str:
        """Hash the rows to 16 bits, regardless of their order.

        The hash shows whether a table was changed after the first round. It is too short to confirm
        a guess about a row.
        """
        util = import_pandas().util
        row_hashes = util.hash_pandas_object(self.X, index=False).to_numpy() * np.uint64(31)
        domain_hashes = util.hash_array(np.array(self.domain_names, dtype=object))
        y_hashes = util.hash_array(np.asarray(self.y))
        row_hashes += domain_hashes[self.domain_codes] * np.uint64(17) + y_hashes
        return hashlib.sha256(np.sort(row_hashes).tobytes()).hexdigest()[:4]


def hide_small_counts(counts: Any, n: Any, min_rows: int) -> Any:
    """Replace counts below ``min_rows`` with 0, and counts above ``n - min_rows`` with ``n``."""
    counts = np.where(np.asarray(counts) < min_rows, 0, counts)
    return np.where(np.asarray(n) - counts < min_rows, n, counts)


def read_site_rows(frame: Any, plan: Plan, site: str | None) -> SiteRows:
    """Read and check a site's table, and omit rows and values about which nothing may be sent."""
    check_plan(plan)
    frame, schema, min_rows = named_frame(frame), plan.schema, plan.smallest_cell
    require_columns([*schema.features, schema.target], list(frame.columns), "the table")
    labelled_indices, y, domain_labels = schema.read_labels(frame, plan.classes)
    if not len(labelled_indices):
        raise TableError(
            f"no row has both a target ({schema.target!r}) and a domain ({schema.domain!r}). Check "
            "that these are the right columns"
        )
    if site is None and (domain_labels is None or len(np.unique(domain_labels)) > 1):
        raise TableError(
            "the site cannot be named after its domain, because the table does not contain exactly "
            "one domain. Pass the name of the site, for example ",
            Argument("site", "north"),
        )
    site = str(domain_labels[0]) if site is None and domain_labels is not None else str(site)
    domain_labels = np.full(len(y), site) if domain_labels is None else domain_labels
    domain_names, domain_codes = np.unique(domain_labels, return_inverse=True)
    y_codes = np.zeros(len(y), dtype=int)
    if plan.classes is not None:
        y = y_codes = class_codes(y, plan.classes, schema.target, "the plan")
    is_used = np.bincount(y_codes)[y_codes] >= min_rows
    if not is_used.any():
        subject = "the table" if plan.classes is None else f"every class of {schema.target!r}"
        raise TableError(
            f"{subject} has fewer than {min_rows} rows with a target and a domain. The plan does "
            "not allow sites to send statistics of fewer rows. Use a table with more rows"
        )
    notes, n_left_out = [], len(frame) - len(labelled_indices)
    if n_excluded := int((~is_used).sum()):
        notes.append(f"left out: {n_excluded} rows from classes with fewer than {min_rows} rows")
    X = schema.prepare(frame.iloc[labelled_indices[is_used]])
    for name in (*schema.numbers, *schema.categorical):
        if 0 < X[name].notna().sum() < min_rows:
            X[name] = X[name].where(X[name].isna())
            notes.append(f"treated as missing: {name!r}, which has fewer than {min_rows} values")
    if 0 < n_left_out < min_rows:
        notes.append(f"left out: {n_left_out} rows without a target or domain")
        n_left_out = 0
    row_arrays = (y[is_used], y_codes[is_used], domain_codes[is_used])
    return SiteRows(site, min_rows, X, *row_arrays, domain_names.tolist(), n_left_out, notes)
