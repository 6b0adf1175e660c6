"""Disclosure control: which rows a site may send numbers about, and how many numbers.

A group of rows is a whole site, one of its classes, a domain, or a class within a domain. A number
in a file is about a group if it depends only on the rows of the group. Three rules apply:

1. There are at most half as many numbers about a group as it has values (rows times columns). An
   attacker who searches for rows that explain them has twice as many unknowns as equations or more.
2. A map has at most a third as many columns as the group has rows. Whether a row lies in the span
   of the others then reveals nothing.
3. If second moments are sent, the cube of the number of columns, times the number of maps, is at
   most a quarter of the square of the number of rows. The leverage of a row in the second moment of
   its group then differs from that of a row outside by less than half a standard deviation.

Groups that are too small are merged, or their rows are left out of the file. The notes for the
site name these groups; the file does not.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, isqrt
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.federated.plan import Plan, PlanError
from domainwise.shift.watch import MAX_SOURCES
from domainwise.tables.errors import TableError, describe_names, import_pandas
from domainwise.tables.schema import class_codes, named_frame, require_columns

#: Fewest rows per column of a map (rule 2), and values of a group per number about it (rule 1).
ROWS_PER_COLUMN, VALUES_PER_NUMBER = 3, 2
#: Smallest ratio of rows^2 to maps * columns^3 if second moments are sent (rule 3).
LEVERAGE = 4
#: From this number of columns on, more maps are preferred to more columns.
ENOUGH_COLUMNS = 100
#: The number of columns is chosen so that at least this share of all rows can be sent. If that
#: allows fewer than ``FEW_COLUMNS``, the share ``SENT_BY_FEW`` is used instead.
SENT, FEW_COLUMNS, SENT_BY_FEW = 0.95, 8, 0.8
LEAST_COLUMNS, MOST_AUTO = 4, 500
#: Largest number of landmarks for the comparison of new rows with domains.
WATCH_POINTS = 30
ADVICE = (
    "Send more rows, or ask for a plan with fewer n_features, kernels or gammas. If you may "
    "disclose these rows, pass accept_disclosure=True (--accept-disclosure)"
)


class DisclosureError(ValueError):
    """A file would disclose too much about the rows of a site; the message says what would help."""


@dataclass(frozen=True)
class Request:
    """How many numbers a plan requests from a site in the second round."""

    n_columns: int  #: of the table, without target and domain
    n_classes: int  #: 1 for a continuous target
    n_maps: int
    width: int  #: columns of a map, including those of a continuous target
    by_class: bool  #: True: a second moment for each class; False: one for the site
    n_watch: int  #: numbers about each domain, for the comparison with new rows

    @classmethod
    def of_plan(cls, plan: Plan, n_maps: int, width: int, by_class: bool, n_points: int) -> Request:
        """Return the request of a plan with these numbers of maps, columns and landmarks."""
        schema = plan.schema
        n_watch = 3 + 4 * len(schema.numbers) + 2 * len(schema.categorical) + n_points
        n_classes = len(plan.classes or "-")
        return cls(len(schema.features), n_classes, n_maps, width, by_class, n_watch)

    @classmethod
    def of_merged(cls, plan: Plan) -> Request:
        """Return the request of a merged plan."""
        width, n_points = max(map(plan.width, plan.maps)), len(plan.part("watch")["landmarks"])
        return cls.of_plan(plan, len(plan.maps), width, plan.part("by_class"), n_points)

    @property
    def maps(self) -> str:
        """The number of maps in words."""
        return f"{self.n_maps} map" + "s" * (self.n_maps != 1)

    def cell_rows(self) -> int:
        """Smallest number of rows of a class in a domain."""
        return self._rows_for(cells=1)

    def class_rows(self, n_domains: int = 1) -> int:
        """Smallest number of rows of a class at a site with this many domains."""
        return self._rows_for(cells=n_domains, seconds=int(self.by_class))

    def domain_rows(self) -> int:
        """Smallest number of rows of a domain at a site."""
        return self._rows_for(cells=self.n_classes, others=self.n_watch)

    def site_rows(self, first: int, n_domains: int = 1) -> int:
        """Smallest number of rows of a site that sent ``first`` numbers in the first round."""
        seconds = self.n_classes if self.by_class else 1
        others = first + n_domains * self.n_watch
        return self._rows_for(n_domains * self.n_classes, seconds, others)

    def _rows_for(self, cells: int, seconds: int = 0, others: int = 0) -> int:
        """Smallest number of rows for this many cell sums, second moments and other numbers."""
        second = self.width * (self.width + 1) // 2
        numbers = self.n_maps * (cells * self.width + seconds * second) + others
        leverage = isqrt(LEVERAGE * self.n_maps * self.width**3 - 1) + 1 if seconds else 0
        by_values = ceil(VALUES_PER_NUMBER * numbers / max(self.n_columns, 1))
        return max(ROWS_PER_COLUMN * self.width, by_values, leverage)


def choose_sizes(
    plan: Plan, counts: Sequence[Array], first: Sequence[int], n_maps: int, n_targets: int
) -> tuple[int, int, bool]:
    """Choose the columns of a map, the number of maps, and whether second moments are by class.

    ``counts`` has the number of rows per class of each site, and ``first`` how many numbers each
    site sent in the first round. The plan has at most ``n_maps`` maps, and ``n_targets`` columns of
    a continuous target. A further map may reduce the columns only if ``ENOUGH_COLUMNS`` remain.
    """

    def request(columns: int, n_maps: int, by_class: bool = False) -> Request:
        points = min(WATCH_POINTS, columns)
        return Request.of_plan(plan, n_maps, columns + n_targets, by_class, points)

    def rows_sent(request: Request) -> int:
        sizes = [int(by_class[by_class >= request.class_rows()].sum()) for by_class in counts]
        return sum(n for n, k in zip(sizes, first, strict=True) if n >= request.site_rows(k))

    def most_columns(n_maps: int, share: float, most: int) -> int:
        needed = share * sum(int(by_class.sum()) for by_class in counts)
        return bisect_left(
            range(1, most + 1), True, key=lambda m: rows_sent(request(m, n_maps)) < needed
        )

    by_class = plan.second_moments == "classes"
    if plan.n_features == "auto":
        # The widest map of the first kernel remains: few columns suit a smooth kernel.
        fewer = [3, 1] if isinstance(plan.gammas, str) else []
        possible = {
            k: max(most_columns(k, SENT, MOST_AUTO), most_columns(k, SENT_BY_FEW, FEW_COLUMNS))
            for k in [n_maps, *(k for k in fewer if k < n_maps)]
        }
        least = max(LEAST_COLUMNS, min(ENOUGH_COLUMNS, max(possible.values())))
        enough = [k for k, columns in possible.items() if columns >= least]
        if not enough:
            fewest = request(LEAST_COLUMNS, min(possible))
            raise PlanError(
                "the sites have too few rows for a second round: what they would send could be "
                f"traced to single rows. A map of {LEAST_COLUMNS} columns needs "
                f"{fewest.class_rows()} rows of each class and {fewest.site_rows(max(first))} rows "
                "at each site. Use sites with more rows, or set n_features: sites then have to "
                "pass accept_disclosure=True"
            )
        columns, n_maps = possible[enough[0]], enough[0]
    else:
        columns = int(plan.n_features)
    if plan.second_moments == "auto":
        rows = [rows_sent(request(columns, n_maps, option)) for option in (False, True)]
        by_class = rows[0] == rows[1] > 0
    return columns, n_maps, by_class


def select_rows(rows: SiteRows, request: Request, first: int, accept: bool) -> SiteRows:
    """Select the rows that may be sent, and merge domains that are too small.

    Classes that are too small are left out. Raises :class:`DisclosureError` if too few rows remain.
    ``first`` is how many numbers the site sent in the first round.
    """
    counts = np.zeros((request.n_classes, len(rows.names)), dtype=np.int64)
    np.add.at(counts, (rows.classes, rows.domains), 1)
    notes = [*rows.notes]
    if accept:
        selected = counts[rows.classes, rows.domains] >= rows.least
        if not selected.any():
            raise DisclosureError(
                f"all classes of all domains have fewer than {rows.least} rows. Add rows, or ask "
                "for a plan with a smaller smallest_cell"
            )
        excluded = f"domains and classes with fewer than {rows.least} rows"
        groups = [[int(d)] for d in np.unique(rows.domains[selected])]
    else:
        large = counts.sum(axis=1) >= request.class_rows()
        selected = large[rows.classes]
        n, needed = int(selected.sum()), request.site_rows(first)
        if n < needed:
            raise DisclosureError(
                f"the second round is not written: the plan asks for {request.maps} of "
                f"{request.width} columns, for which a site needs {needed} rows, and "
                f"{request.class_rows()} in each class. This site has {n} rows in classes that are "
                f"large enough, and {len(selected) - n} in smaller ones. {ADVICE}"
            )
        excluded = f"classes with fewer than {request.class_rows()} rows"
        groups = _groups_of_domains(counts[large], request, first)
    names = [rows.names[group[0]] for group in groups]
    if left_out := int((~selected).sum()):
        notes.append(f"left out: {left_out} rows of {excluded}")
    if len(groups[-1]) > 1:
        names[-1] = rows.site if len(groups) == 1 else f"{rows.site} (other domains)"
        merged = describe_names([rows.names[d] for d in groups[-1]])
        notes.append(f"sent as one domain, {names[-1]!r}: {merged}")
    group_of = np.zeros(len(rows.names), dtype=np.int64)
    for place, group in enumerate(groups):
        group_of[group] = place
    return replace(
        rows,
        X=rows.X.iloc[np.flatnonzero(selected)],
        y=rows.y[selected],
        classes=rows.classes[selected],
        domains=group_of[rows.domains[selected]],
        names=names,
        notes=notes,
    )


def _groups_of_domains(counts: Array, request: Request, first: int) -> list[list[int]]:
    """Return a group for each domain that is large enough, and a last group of all others."""
    sizes = counts.sum(axis=0)
    large = (counts >= request.cell_rows()).all(axis=0) & (sizes >= request.domain_rows())
    named = sorted(np.flatnonzero(large).tolist(), key=lambda d: (-sizes[d], d))[:MAX_SOURCES]
    present = np.flatnonzero(sizes)
    for k in range(len(named), 0, -1):
        others = np.setdiff1d(present, named[:k])
        joined = [*counts[:, named[:k]].T]
        joined += [counts[:, others].sum(axis=1)] if len(others) else []
        n = len(joined)
        if (
            min(by_class.min() for by_class in joined) >= request.cell_rows()
            and joined[-1].sum() >= request.domain_rows()
            and counts.sum(axis=1).min() >= request.class_rows(n)
            and sizes.sum() >= request.site_rows(first, n)
        ):
            return [[d] for d in named[:k]] + ([others.tolist()] if len(others) else [])
    return [present.tolist()]


# The rows of a site.


@dataclass(frozen=True)
class SiteRows:
    """The rows of a site that belong to classes with at least ``least`` rows.

    All values of a column are treated as missing if it has fewer than ``least``.
    """

    site: str
    least: int  #: smallest number of rows about which numbers may be sent
    X: Any  #: features as :meth:`Schema.prepare` returns them
    y: Array  #: continuous targets, or class codes
    classes: Array  #: class codes; zeros for a continuous target
    domains: Array  #: domain codes
    names: list[str]  #: names of the domains
    left_out: int  #: number of rows without target or domain; 0 if below ``least``
    notes: list[str]  #: what was left out; only for the site

    def checksum(self) -> str:
        """Hash the rows to 16 bits, regardless of their order.

        The hash shows that a table was changed after the first round. It is too short to confirm a
        guess about a row.
        """
        hashed = import_pandas().util.hash_array
        rows = import_pandas().util.hash_pandas_object(self.X, index=False).to_numpy()
        names = hashed(np.array(self.names, dtype=object))[self.domains]
        rows = rows * np.uint64(31) + names * np.uint64(17) + hashed(np.asarray(self.y))
        return hashlib.sha256(np.sort(rows).tobytes()).hexdigest()[:4]


def hide_small_counts(counts: Any, n: Any, least: int) -> Any:
    """Replace counts below ``least`` by 0, and counts above ``n - least`` by ``n``."""
    counts = np.where(np.asarray(counts) < least, 0, counts)
    return np.where(np.asarray(n) - counts < least, n, counts)


def site_rows(frame: Any, plan: Plan, site: str | None) -> SiteRows:
    """Check the table of a site, and omit rows and values about which nothing may be sent."""
    schema, least = plan.schema, plan.smallest_cell
    frame = named_frame(frame)
    require_columns([*schema.features, schema.target], list(frame.columns), "the table")
    labelled, y, labels = schema.read_labels(frame, plan.classes)
    if not len(labelled):
        raise TableError(
            f"no row has both a target ({schema.target!r}) and a domain ({schema.domain!r}). Check "
            "that these are the right columns"
        )
    if site is None and (labels is None or len(np.unique(labels)) > 1):
        raise TableError(
            "the site cannot be named after its domain, because the table does not have exactly "
            "one domain. Pass the name of the site (--site)"
        )
    site = str(labels[0]) if site is None and labels is not None else str(site)
    labels = np.full(len(y), site) if labels is None else labels
    names, domains = np.unique(labels, return_inverse=True)
    classes = np.zeros(len(y), dtype=int)
    if plan.classes is not None:
        y = classes = class_codes(y, plan.classes, schema.target, "the plan")
    selected = np.bincount(classes)[classes] >= least
    if not selected.any():
        raise TableError(
            f"every class of {schema.target!r} has fewer than {least} rows, the smallest number "
            "that the plan allows sites to report. Add rows"
        )
    notes, unlabelled = [], len(frame) - len(labelled)
    if not selected.all():
        notes.append(f"left out: {(~selected).sum()} rows of classes with fewer than {least} rows")
    X = schema.prepare(frame.iloc[labelled[selected]])
    for name in (*schema.numbers, *schema.categorical):
        if 0 < X[name].notna().sum() < least:
            X[name] = X[name].where(X[name].isna())
            notes.append(f"treated as missing: the values of {name!r}, fewer than {least}")
    if 0 < unlabelled < least:
        notes.append(f"left out: {unlabelled} rows without a target or domain")
    left_out = unlabelled if unlabelled >= least else 0
    rows = (y[selected], classes[selected], domains[selected])
    return SiteRows(site, least, X, *rows, names.tolist(), left_out, notes)
