"""Differences between domains, and faults in a table, such as leaks, wrong units and duplicates.

All checks use all rows. About one in ten tables without faults causes a false alarm (theory 19).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from domainwise.base.arrays import Array
from domainwise.base.messages import listed, load_texts
from domainwise.evaluation.plots.columns import columns_of, describe_column
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.results import Results
from domainwise.evaluation.table_checks import (
    MIN_CLASS_ROWS,
    MIN_ROWS,
    Target,
    correlations,
    find_anomalies,
    find_leaks,
    identifier_reason,
    select_evenly,
)
from domainwise.evaluation.verdict import names_of, site_columns_sentences
from domainwise.held_out.scoring.statistics import in_words
from domainwise.tables.errors import import_pandas
from domainwise.tables.names import site_columns
from domainwise.tables.schema import MAX_LEVELS, MIN_LEVEL_ROWS

FAULTS: dict[str, Any] = load_texts("domainwise.evaluation", "faults.toml")
#: Maximum number of columns that are described: those that distinguish domains best.
MAX_COLUMNS = 40
#: A numeric column with at most this many distinct values may contain codes, not quantities.
MAX_CODES = 10
#: A value may be a code for missing values if, in some domains, its share of the rows is at least
#: the first number and, in the others, at most the second. OUTLIER_SHARES apply to outliers.
FILLER_SHARES, OUTLIER_SHARES = (0.95, 0.2), (0.2, 0.02)
#: A column counts as missing in a domain if at least MISSING_SHARE of its values are missing, and
#: as present if at most PRESENT_SHARE are missing.
MISSING_SHARE, PRESENT_SHARE = 0.5, 0.1
#: Minimum absolute correlation of copied columns, and minimum share of copies in a domain's rows.
MIN_COPY_CORRELATION, MIN_COPIED_SHARE = 0.9995, 0.05
#: Minimum ratio of equal rows within and between domains for which copied rows are reported.
COPY_RATIO = 10
#: Kind of the remark that lists columns which are constant within every domain.
SITE_LEVEL = "site level"
#: Row count below which a domain is tiny, and domain count above which rows are not compared.
TINY_ROWS, MAX_DOMAINS = 10, 2000


@dataclass(frozen=True)
class Fault:
    """A possible fault in a table, as stored in JSON."""

    kind: str
    columns: list[str]
    domains: list[str]  #: names of affected domains; empty if all are affected
    rows: int  #: number of affected rows
    severity: int  #: 3 if scores cannot be trusted, 2 if they may be affected, 1 for a remark
    message: str  #: what is wrong, and where
    action: str  #: what to do about it
    leak: bool = False  #: True if the columns may leak the target; scores without them are added
    effect: str = ""  #: a sentence on how the fault affects scores


@dataclass(frozen=True)
class _Column:
    """A column, stored as its distinct values and the index of each row's value."""

    name: str
    is_number: bool
    codes: Array  #: index of each row's value in ``uniques``; -1 if the value is missing
    uniques: Array  #: distinct values, sorted if they are numbers

    @cached_property
    def numbers(self) -> Array:
        """The number in each row, or the index of its text in ``uniques``; NaN if missing."""
        numbers = self.uniques if self.is_number else np.arange(len(self.uniques))
        return np.append(numbers.astype(np.float64), np.nan)[self.codes]

    @property
    def is_quantity(self) -> bool:
        """Whether the column is numeric and has many distinct values."""
        return self.is_number and len(self.uniques) > MAX_CODES

    def is_outlier(self, i: int, counts: Array) -> bool:
        """Whether ``uniques[i]`` is an outlier; ``counts[j]`` rows contain ``uniques[j]``."""
        if not self.is_quantity:
            return False
        value, other_values = float(self.uniques[i]), np.delete(self.uniques, i)
        cumulative_shares = np.cumsum(np.delete(counts, i)) / max(counts.sum() - counts[i], 1)
        quantile_indices = np.searchsorted(cumulative_shares, (0.01, 0.5, 0.99))
        low, median, high = other_values[quantile_indices.clip(0, len(other_values) - 1)]
        if value == 0 and low > 0:
            return bool(low >= 0.2 * median)  # all other values are far from zero
        return bool(value > high + (high - low) or value < low - (high - low))


@dataclass(frozen=True)
class _Table:
    """The columns, target and domains of a table, in the form that the checks use."""

    columns: list[_Column]
    target: Target
    domain_codes: Array  #: index of each row's domain in ``domain_names``
    domain_names: list[str]

    @cached_property
    def sizes(self) -> Array:
        """Number of rows from each domain."""
        return np.bincount(self.domain_codes, minlength=len(self.domain_names))

    @cached_property
    def rows_by_domain(self) -> list[Array]:
        """Indices of the rows from each domain."""
        return np.split(np.argsort(self.domain_codes, kind="stable"), np.cumsum(self.sizes)[:-1])

    def count_present(self, column: _Column) -> Array:
        """Count the rows from each domain in which a column is not missing."""
        return np.bincount(self.domain_codes[column.codes >= 0], minlength=len(self.domain_names))

    def names_of(self, domains: Any) -> str:
        """Names of domains for a sentence; ``domains`` contains their codes."""
        return names_of(*(self.domain_names[d] for d in domains))

    @cached_property
    def copied_pairs(self) -> list[tuple[int, int]]:
        """Index pairs of columns that differ only in offset and scale, or in category names."""
        sampled_rows = select_evenly(np.arange(len(self.domain_codes)), 20_000)
        indices = [i for i, c in enumerate(self.columns) if c.is_number and len(c.uniques) > 2]
        pairs = []
        if indices:
            X = np.column_stack([self.columns[i].numbers[sampled_rows] for i in indices])
            is_copy = np.triu(np.abs(correlations(X)) >= MIN_COPY_CORRELATION, 1)
            pairs = [(indices[a], indices[b]) for a, b in np.argwhere(is_copy).tolist()]
        first_index_by_codes: dict[bytes, int] = {}
        for i, column in enumerate(self.columns):
            if not column.is_number and 2 < len(column.uniques) < len(self.domain_codes) / 2:
                first_index = first_index_by_codes.setdefault(column.codes.tobytes(), i)
                pairs += [(first_index, i)] if first_index != i else []
        return pairs

    def make_fault(
        self,
        kind: str,
        columns: list[str],
        domains: Any,
        /,
        rows: int | None = None,
        **values: object,
    ) -> Fault:
        """Create a fault that affects ``domains`` (their codes; if empty, all are affected).

        All rows from these domains are affected, unless the number of affected ``rows`` is passed.
        ``values`` are inserted into the texts of ``faults.toml``.
        """
        if rows is None:
            rows = sum(self.sizes[d] for d in domains) if len(domains) else len(self.domain_codes)
        domain_names = [self.domain_names[d] for d in domains]
        texts = {"domains": self.names_of(domains), "n_rows": int(rows)}
        return make_fault(kind, columns, domain_names, int(rows), **texts, **values)


def make_fault(
    kind: str, columns: list[str], domains: list[str], rows: int, /, **values: Any
) -> Fault:
    """Create a fault with the texts of its kind in ``faults.toml``."""
    words = ("is", "it is", "it") if len(columns) == 1 else ("are", "they are", "them")
    values |= zip(("is", "they_are", "them"), words, strict=True)
    values |= {"columns": listed(columns), "drop": _drop_option(columns)}
    texts = FAULTS[kind]
    message, action = (texts[key].format(**values) for key in ("message", "action"))
    is_leak = kind == "leak"
    return Fault(kind, columns, domains, rows, texts["severity"], message, action, is_leak)


def describe_differences(problem: Problem) -> dict[str, Any]:
    """Describe domains, the columns that differ most, and faults; the result is stored in JSON."""
    problem = problem.full
    domain_codes, domain_names = problem.codes, list(map(str, problem.domains.tolist()))
    columns, n_domains = columns_of(problem.X), len(domain_names)
    column_entries = [describe_column(*column, domain_codes, n_domains) for column in columns]
    column_entries.sort(key=lambda entry: -entry["tells"])
    domain_entries = []
    for code, name in enumerate(domain_names):
        y = problem.y[domain_codes == code]
        if problem.classes is None:
            target_summary: dict[str, Any] = {"target": np.quantile(y, (0.25, 0.5, 0.75)).tolist()}
        else:
            target_summary = {"classes": [int(np.sum(y == label)) for label in problem.classes]}
        domain_entries.append({"name": name, "rows": len(y), **target_summary})
    faults = find_faults(columns, problem.y, problem.classification, domain_codes, domain_names)
    return {
        "domains": domain_entries,
        "columns": column_entries[:MAX_COLUMNS],
        "others": len(column_entries[MAX_COLUMNS:]),
        "faults": [asdict(fault) for fault in faults],
    }


def find_faults(
    columns: Sequence[tuple[str, Array]],
    y: Array,
    classification: bool,
    domain_codes: Array,
    domain_names: Sequence[str],
) -> list[Fault]:
    """Return the possible faults in a table, most severe first.

    ``columns`` contains (name, array) pairs; missing values are NaN in arrays of numbers, and None
    in arrays of text. ``domain_codes`` contains the index of each row's domain in ``domain_names``.
    """
    n_classes = 0
    if classification:
        classes, y = np.unique(y, return_inverse=True)
        n_classes = len(classes)
    coded_columns = []
    for name, values in columns:
        is_number = values.dtype.kind == "f"
        if is_number:
            codes, is_present = np.full(len(values), -1), np.isfinite(values)
            uniques, codes[is_present] = np.unique(values[is_present], return_inverse=True)
        else:
            codes, uniques = import_pandas().factorize(values)
        coded_columns.append(_Column(name, is_number, codes, uniques))
    # Columns of the site are neither identifiers nor wrong units; they are listed instead.
    frame = import_pandas().DataFrame({c.name: c.codes for c in coded_columns})
    site_level = site_columns(frame.where(frame >= 0), np.asarray(domain_codes))
    row_columns = [column for column in coded_columns if column.name not in site_level]
    table = _Table(row_columns, Target(y, n_classes), np.asarray(domain_codes), [*domain_names])
    faults = [*_describe_site_columns(table, site_level), *_check_missing(table)]
    faults += _check_fillers(table)
    faults += _check_anomalies(table, faults)
    checks = (_check_leaks, _check_identifiers, _check_copied_columns, _check_copied_rows)
    for check in (*checks, _check_small_domains):
        faults += check(table)
    ranks = {kind: rank for rank, kind in enumerate(("unit", "sign", "filler", "missing"))}
    return sorted(faults, key=lambda f: (-f.severity, ranks.get(f.kind, len(ranks)), -f.rows))


def _drop_option(columns: Sequence[str]) -> str:
    """Return the command-line option that drops these columns."""
    return f"--drop {shlex.quote(','.join(columns))}"


def _format_number(value: float) -> str:
    """Format a number with four significant digits; only extreme numbers have an exponent."""
    return f"{float(f'{value:.4g}'):,.12g}"


def _describe_site_columns(table: _Table, names: Sequence[str]) -> Iterator[Fault]:
    """List the columns that are constant within every domain."""
    if names:
        yield table.make_fault(SITE_LEVEL, [*names], [], n=len(table.domain_names))


def _check_leaks(table: _Table) -> Iterator[Fault]:
    """Find columns that leak the target, or predict it as well as all other columns together."""
    if not table.columns:
        return
    X = np.column_stack([column.numbers for column in table.columns])
    text_indices = {j for j, column in enumerate(table.columns) if not column.is_number}
    metric = "AUC" if table.target.n_classes else "rank correlation"
    matched_scores: dict[str, float] = {}  # for columns that are as good as all others together
    for leak in find_leaks(X, text_indices, table.target, table.rows_by_domain, table.copied_pairs):
        name = table.columns[leak.column].name
        if leak.is_matched:
            matched_scores[name] = max(leak.scores.values())
            continue
        domains = [] if leak.in_all_domains else list(leak.scores)
        values: dict[str, Any] = {
            "subject": f"Whether {name} is missing" if leak.by_missing else name,
            "where": f" in {table.names_of(domains)}" if domains else "",
            "score": min(leak.scores.values()),
            "others": leak.others_score,
        }
        yield table.make_fault("leak", [name], domains, metric=metric, **values)
    if matched_scores:
        names, score = list(matched_scores), max(matched_scores.values())
        predict = "predicts" if len(names) == 1 else "each predict"
        yield table.make_fault(
            "strong column", names, [], predict=predict, metric=metric, score=score
        )


def _check_missing(table: _Table) -> Iterator[Fault]:
    """Find columns that are missing in only some domains, grouped by these domains."""
    is_large = table.sizes >= MIN_ROWS
    groups: dict[tuple[int, ...], dict[str, Array]] = {}  # missing shares by domains and column
    for column in table.columns:
        shares = 1 - table.count_present(column) / table.sizes
        is_missing = is_large & (shares >= MISSING_SHARE)
        if is_missing.any() and (is_large & (shares <= PRESENT_SHARE)).any():
            groups.setdefault(tuple(np.flatnonzero(is_missing)), {})[column.name] = shares
    for domains, shares_by_column in groups.items():
        names, shares = list(shares_by_column), np.array(list(shares_by_column.values()))
        low, high = np.quantile(shares[:, domains], (0, 1))
        range_text = " to ".join(dict.fromkeys(f"{100 * end:.0f}" for end in (low, high)))
        extent = f"{range_text} % of the rows" if low < 1 else "all rows"
        max_shares = np.where(is_large, shares, np.inf).max(axis=0)  # over columns
        best_domain, min_share = int(np.argmin(max_shares)), max_shares.min()
        best_extent = f"only {100 * min_share:.0f} % of the rows"
        if min_share < 0.01:
            best_extent = "no row" if min_share == 0 else "less than 1 % of the rows"
        best: Any = {"best_extent": best_extent, "best_domain": table.names_of([best_domain])}
        yield table.make_fault("missing", names, domains, extent=extent, **best)


def _check_fillers(table: _Table) -> Iterator[Fault]:
    """Find placeholders for missing values: values that are frequent in only some domains."""
    for column in table.columns:
        name, n_values, has_value = column.name, len(column.uniques), column.codes >= 0
        n_present = table.count_present(column)
        is_large = n_present >= MIN_ROWS
        pairs = table.domain_codes[has_value].astype(np.int64) * n_values + column.codes[has_value]
        pairs, counts = np.unique(pairs, return_counts=True)
        domain_codes, value_codes = np.divmod(pairs, max(n_values, 1))
        min_counts = np.maximum(OUTLIER_SHARES[0] * n_present[domain_codes], MIN_CLASS_ROWS)
        is_frequent = is_large[domain_codes] & (counts >= min_counts)
        is_constant = is_frequent & (counts >= FILLER_SHARES[0] * n_present[domain_codes])
        if 2 * len(np.unique(domain_codes[is_constant])) > is_large.sum():
            continue  # the column is constant in most domains: it describes domains, not rows
        for i in np.unique(value_codes[is_frequent]).tolist():
            is_match = value_codes == i
            n_same = np.bincount(domain_codes[is_match], counts[is_match], len(table.domain_names))
            is_outlier = column.is_outlier(i, np.bincount(value_codes, counts, n_values))
            # The lowest and the highest value may be the limits of a scale.
            is_scale_limit = column.is_quantity and i in (0, n_values - 1) and not is_outlier
            max_share_elsewhere = OUTLIER_SHARES[1] if is_scale_limit else FILLER_SHARES[1]
            share_limits = [(FILLER_SHARES[0], max_share_elsewhere), *[OUTLIER_SHARES] * is_outlier]
            is_filled = np.zeros(len(n_same), dtype=bool)
            for min_share, max_share in share_limits:
                is_common = is_large & (n_same >= np.maximum(min_share * n_present, MIN_CLASS_ROWS))
                is_exception = is_outlier or 3 * is_common.sum() <= is_large.sum()
                if is_exception and 0 < is_common.sum() < len(n_same):
                    max_same = max_share * n_present[~is_common].sum()
                    is_filled = is_common if n_same[~is_common].sum() <= max_same else is_filled
            domains = np.flatnonzero(is_filled)
            if not len(domains):
                continue
            value = column.uniques[i]
            value_text = f"{value:g}" if column.is_number else repr(str(value))
            extents = [
                f"in {'all' if n_same[d] == n_present[d] else f'{n_same[d]:,.0f} of the'} "
                f"{n_present[d]:,.0f} rows from {table.names_of([d])}"
                f"{' that have a value' * bool(n_present[d] < table.sizes[d])}"
                for d in domains
            ]
            values = {"value": value_text, "extents": listed(extents, 3)}
            n_filled = n_same[domains].sum()
            yield table.make_fault("filler", [name], domains, rows=n_filled, **values)


def _check_anomalies(table: _Table, faults: Sequence[Fault]) -> Iterator[Fault]:
    """Find columns with another unit, the opposite sign, or very different values in some domains.

    Columns that already have one of ``faults`` are not compared in the affected domains.
    """
    names = [column.name for column in table.columns]
    quantities = {i: c.numbers for i, c in enumerate(table.columns) if c.is_quantity}
    code_of = {name: d for d, name in enumerate(table.domain_names)}
    excluded = {(names.index(c), code_of[d]) for f in faults for c in f.columns for d in f.domains}
    target = table.target.y if table.target.n_classes <= 2 else None
    columns_by_domains: dict[tuple[int, ...], list[str]] = {}
    for anomaly in find_anomalies(names, quantities, target, table.domain_codes, excluded):
        name, domains = names[anomaly.column], anomaly.domains
        if anomaly.kind == "level":
            columns_by_domains.setdefault(tuple(domains), []).append(name)
            continue
        range_text, other_text = (
            " to ".join(dict.fromkeys(map(_format_number, (values.min(), values.max()))))
            for values in (anomaly.values, anomaly.other_values)
        )
        statistic = f"{'standard deviation' if anomaly.by_spread else 'median'} of {name}"
        if anomaly.partner is not None:
            partner = "the target" if anomaly.partner < 0 else names[anomaly.partner]
            statistic = f"rank correlation of {name} with {partner}"
        values: Any = {"statistic": statistic, "range": range_text, "others": other_text}
        yield table.make_fault(anomaly.kind, [name], domains, units=anomaly.units, **values)
    for group, columns in columns_by_domains.items():
        yield table.make_fault("level", columns, group)


def _check_identifiers(table: _Table) -> Iterator[Fault]:
    """Find columns that identify the row or the domain, and those with many categories."""
    n_rows, n_domains = len(table.domain_codes), len(table.domain_names)
    for column in table.columns:
        name, n_values, has_value = column.name, len(column.uniques), column.codes >= 0
        reason = identifier_reason(column.numbers, table.rows_by_domain) if column.is_number else ""
        if not column.is_number and n_rows >= MIN_ROWS and n_values >= 0.95 * n_rows:
            reason = "is different in almost every row"
        if reason:
            yield table.make_fault("identifier", [name], [], reason=reason)
        elif not column.is_number and n_values > MAX_LEVELS:
            limits = {"min_rows": MIN_LEVEL_ROWS, "n_most": MAX_LEVELS - 1}
            yield table.make_fault("many categories", [name], [], n=n_values, **limits)
        elif 3 <= n_domains <= n_values <= 2 * n_domains:
            pairs = table.domain_codes[has_value] * n_values + column.codes[has_value]
            counts = np.bincount(pairs, minlength=n_domains * n_values).reshape(n_domains, n_values)
            n_modes = len(np.unique(counts.argmax(axis=1)))
            if counts.max(axis=1).sum() >= 0.98 * n_rows and n_modes == n_domains:
                yield table.make_fault("copy of the domain", [name], [])


def _check_copied_columns(table: _Table) -> Iterator[Fault]:
    """Find columns that can be computed from another column."""
    name_pairs = [(table.columns[a].name, table.columns[b].name) for a, b in table.copied_pairs]
    if name_pairs:
        names = list(dict.fromkeys(name for pair in name_pairs for name in pair))
        copies = list(dict.fromkeys(second for _, second in name_pairs))
        pairs = listed([f"{second} can be computed from {first}" for first, second in name_pairs])
        option = _drop_option(copies)
        yield table.make_fault("copied column", names, [], pairs=pairs, drop_copies=option)


def _check_copied_rows(table: _Table) -> Iterator[Fault]:
    """Find copied rows within domains, and pairs of domains that share more rows than others."""
    n, sizes, domain_codes = len(table.domain_names), table.sizes, table.domain_codes
    if n > MAX_DOMAINS:
        return
    rng = np.random.default_rng(0)
    hashes = np.zeros(len(domain_codes), dtype=np.uint64)
    target_codes = np.unique(table.target.y, return_inverse=True)[1]
    for codes in (*(column.codes for column in table.columns), target_codes):
        random_keys = rng.integers(1, 2**63, size=int(codes.max(initial=0)) + 2, dtype=np.uint64)
        hashes += random_keys[codes]  # equal rows have equal hashes
    _, row_groups, group_sizes = np.unique(hashes, return_inverse=True, return_counts=True)
    domain_groups = np.unique(np.stack([row_groups, domain_codes]), axis=1, return_counts=True)
    (_, domains_of_groups), counts = domain_groups
    n_copies = sizes - np.bincount(domains_of_groups, minlength=n)
    n_within, n_total = (np.sum(k * (k - 1.0)) for k in (counts, group_sizes))
    share_within = np.sum((sizes / sizes.sum()) ** 2)
    if n_within * (1 - share_within) > COPY_RATIO * (n_total - n_within) * share_within:
        extents = [f"{n_copies[d]} in {table.names_of([d])}" for d in np.flatnonzero(n_copies)]
        values: dict[str, Any] = {"rows": n_copies.sum(), "extents": listed(extents)}
        yield table.make_fault("repeated rows", [], np.flatnonzero(n_copies), **values)
    is_repeated = group_sizes[row_groups] > 1
    pair_codes = np.unique(row_groups[is_repeated].astype(np.int64) * n + domain_codes[is_repeated])
    n_shared = np.zeros((n, n))
    for domains in np.split(pair_codes % n, np.flatnonzero(np.diff(pair_codes // n)) + 1):
        if len(domains) > 1:
            n_shared[np.ix_(domains, domains)] += 1
    np.fill_diagonal(n_shared, 0)
    shares = n_shared / np.maximum(np.minimum.outer(sizes, sizes), 1)
    usual_share = np.median(shares[~np.eye(n, dtype=bool)]) if n > 2 else 0.0
    min_share = max(MIN_COPIED_SHARE, 5 * usual_share, 2 * n_copies.sum() / len(domain_codes))
    pairs = np.argwhere(np.triu((shares >= min_share) & (n_shared >= MIN_CLASS_ROWS)))
    if not len(pairs):
        return
    pair_counts = n_shared[tuple(pairs.T)]
    a, b = (f"{table.names_of([d])} ({sizes[d]:,} rows)" for d in pairs[np.argmax(pair_counts)])
    n_pairs, more, n_rows = len(pairs) - 1, "", pair_counts.sum()
    if n_pairs:
        more = f" Rows are also shared by {n_pairs} more pair{'s' * (n_pairs > 1)} of domains."
    values = {"n_copied": pair_counts.max(), "first": a, "second": b, "more": more}
    yield table.make_fault("copied rows", [], np.unique(pairs), rows=n_rows, **values)


def _check_small_domains(table: _Table) -> Iterator[Fault]:
    """Find domains with very few rows or with only one class."""
    is_tiny, has_one_class = table.sizes < TINY_ROWS, np.zeros(len(table.sizes), dtype=bool)
    if table.target.n_classes:
        y_by_domain = [table.target.y[rows] for rows in table.rows_by_domain]
        has_one_class = np.array([len(np.unique(y)) == 1 for y in y_by_domain])
    one_class = has_one_class & ~is_tiny
    for kind, is_affected in (("tiny domain", is_tiny), ("one class", one_class)):
        if is_affected.any():
            domains = np.flatnonzero(is_affected)
            each = "each of " * (len(domains) > 1)
            yield table.make_fault(kind, [], domains, each=each, limit=TINY_ROWS)


# After the evaluation -----------------------------------------------------------------------------


def leaking_columns(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return columns that may leak the target; methods are also compared without them."""
    return list(dict.fromkeys(c for fault in faults if fault["leak"] for c in fault["columns"]))


def columns_of_sites(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return columns that are constant within every domain."""
    return [name for fault in faults if fault["kind"] == SITE_LEVEL for name in fault["columns"]]


def check_leaks(results: Results, rerun: Results | None) -> dict[str, Any]:
    """Return faults after a ``rerun`` without leaking columns, for :attr:`Results.differences`.

    A column stays an alarm only if the recommendation among the methods of the rerun changes
    without it, or if their recommended method gets worse by more than a standard error: on average
    over all domains, or over the affected ones.
    """
    faults = results.differences["faults"]
    names = leaking_columns(faults)
    scores = {} if rerun is None else {result.label: result.mean for result in rerun.results}
    if rerun is None or _scores_change(results, rerun, faults):
        return {"without_leaks": {"columns": names, "scores": scores}}
    action = "The recommendation and the scores are about the same without it."
    remark = {"severity": 1, "leak": False, "action": action}
    faults = [{**fault, **remark} if fault["leak"] else fault for fault in faults]
    return {"faults": sorted(faults, key=lambda fault: -fault["severity"])}


def _scores_change(results: Results, rerun: Results, faults: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the recommendation changes, or scores get worse, in a ``rerun`` of some methods.

    The constant prediction, which uses no columns, is not run again.
    """
    constants = [result for result in results.results if result.trivial]
    before = [result for result in results.results if result.trivial or rerun.find(result.key)]
    after = sorted([*rerun.results, *constants], key=lambda result: -result.mean)
    old, new = (replace(results, results=methods).recommended for methods in (before, after))
    if old.key != new.key:
        return True

    def is_worse(domains: Sequence[Any]) -> bool:
        scores, n = [old.known[d] for d in domains], len(domains)
        error = np.std(scores, ddof=1) / np.sqrt(n) if n > 1 else old.errors.get(domains[0], 0.0)
        return bool(np.mean(scores) - np.mean([new.known[d] for d in domains]) > error)

    domains = [domain for domain in old.known if domain in new.known]
    affected_names = {name for fault in faults if fault["leak"] for name in fault["domains"]}
    groups = domains, [domain for domain in domains if str(domain) in affected_names]
    return any(is_worse(group) for group in groups if group)


def with_effects(faults: Sequence[dict[str, Any]], results: Results) -> list[dict[str, Any]]:
    """Add effects on scores to faults, and add a fault if the best score is almost perfect.

    A method scores poorly on a domain if its gain over a constant prediction is less than half of
    its median gain on the domains without the fault.
    """
    constant_scores = next((result.known for result in results.results if result.trivial), {})
    nontrivial_results = [result for result in results.results if not result.trivial]
    gains = [
        {str(d): s - constant_scores[d] for d, s in result.known.items() if d in constant_scores}
        for result in nontrivial_results
    ]
    new_faults, reported_domains = [], set()
    for fault in faults:
        domain, effect = _effect(fault, gains)
        changes: dict[str, Any] = {"effect": "" if domain in reported_domains else effect}
        if fault["kind"] == SITE_LEVEL:
            changes |= site_columns_sentences(results)
            hurt = results.site_columns is not None and results.site_columns.hurt
            changes["severity"] = 2 if hurt else fault["severity"]
        new_faults.append({**fault, **changes})
        reported_domains.add(domain)
    new_faults.sort(key=lambda fault: -fault["severity"])
    if not nontrivial_results or leaking_columns(faults):
        return new_faults
    leader = nontrivial_results[0]
    if results.measure.sign > 0:
        is_suspect = leader.worst >= 0.99 and leader.mean >= 0.995
    else:
        is_suspect = all(s >= 0.02 * constant_scores.get(d, 0.0) for d, s in leader.known.items())
    if is_suspect:
        columns = sorted(leader.importance, key=lambda name: -leader.importance[name])[:3]
        columns = [name for name in columns if leader.importance[name] > 0]
        check = "Check how the columns were obtained."
        if columns:
            check = f"Check the most important columns: {listed(columns)}."
        values = {"metric": results.measure.label, "score": results.show(leader.mean)}
        score_fault = make_fault(
            "score", columns, [], int(results.facts["rows"]), check=check, **values
        )
        return [asdict(score_fault), *new_faults]
    return new_faults


def _effect(fault: Mapping[str, Any], gains: Sequence[Mapping[str, float]]) -> tuple[str, str]:
    """Return an affected domain where most methods score poorly, and a sentence, or "" for both."""
    n_poor: dict[str, int] = {}  # number of methods that score poorly, by domain
    for gain_by_domain in gains:
        other_gains = [gain for d, gain in gain_by_domain.items() if d not in fault["domains"]]
        usual_gain = float(np.median(other_gains)) if other_gains else 0.0
        for d in fault["domains"] if usual_gain > 0 else ():
            n_poor[d] = n_poor.get(d, 0) + (gain_by_domain.get(d, np.inf) < usual_gain / 2)
    worst_domain = max(n_poor, key=lambda d: n_poor[d], default="")
    if fault["severity"] != 2 or not worst_domain or 2 * n_poor[worst_domain] <= len(gains):
        return "", ""
    n, n_methods = n_poor[worst_domain], len(gains)
    n_text = "all" if n == n_methods else f"{in_words(n)} of {in_words(n_methods)}"
    return worst_domain, (
        f"For {n_text} methods, the gain over a constant prediction on {names_of(worst_domain)} is "
        "less than half of the gain on other domains."
    )
