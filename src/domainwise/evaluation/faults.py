"""Differences between domains, and faults in a table, such as leaks, wrong units and duplicates.

All checks use all rows. In about one of ten tables without faults, a fault is reported by mistake
(theory 19).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.evaluation.leaks import MIN_CLASS_ROWS, MIN_ROWS, Target, find_leaks, spaced
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.results import Results, listed
from domainwise.evaluation.units import correlations, find_anomalies
from domainwise.evaluation.verdict import names_of
from domainwise.scoring.statistics import in_words
from domainwise.tables.errors import import_pandas
from domainwise.tables.schema import identifier_reason
from domainwise.tables.statistics import columns_of, describe_column

#: Maximum number of columns that are described: those that distinguish domains best.
MAX_COLUMNS = 40
#: A numeric column with at most this many distinct values may contain codes, not quantities.
MAX_CODES = 10
#: A placeholder for missing values is a value whose share is at least the first number in some
#: domains, and at most the second elsewhere. For outliers, these are OUTLIER_SHARES.
FILLER_SHARES, OUTLIER_SHARES = (0.95, 0.2), (0.2, 0.02)
#: A column is missing in a domain if at least the first share of its values is missing, and present
#: if at most the second share is missing.
MISSING_SHARE, PRESENT_SHARE = 0.5, 0.1
#: Minimum correlation of copied columns, and minimum share of rows that two domains have in common.
COPY_CORRELATION, COPIED_ROWS = 0.9995, 0.05
#: Domains with fewer than TINY_ROWS rows are tiny. Duplicate rows are not searched for if there are
#: more than MAX_DOMAINS domains.
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
    leak: bool = False  #: whether the columns may leak; methods are also compared without them
    effect: str = ""  #: a sentence on how the fault affects scores


@dataclass(frozen=True)
class _Column:
    """A column, as its distinct values and the index of each row's value."""

    name: str
    is_number: bool
    index: Array  #: index into ``values`` for each row; -1 if the value is missing
    values: Array  #: distinct values, sorted if they are numbers

    @cached_property
    def numbers(self) -> Array:
        """Numeric values, or indices of text values; NaN if missing."""
        values = self.values if self.is_number else np.arange(len(self.values))
        return np.append(values.astype(np.float64), np.nan)[self.index]

    @property
    def is_quantity(self) -> bool:
        """Whether the column is numeric and has many distinct values."""
        return self.is_number and len(self.values) > MAX_CODES

    def is_outlier(self, i: int, counts: Array) -> bool:
        """Whether value i is an outlier of a quantity, given the ``counts`` of all values."""
        if not self.is_quantity:
            return False
        value, others = float(self.values[i]), np.delete(self.values, i)
        shares = np.cumsum(np.delete(counts, i)) / max(counts.sum() - counts[i], 1)
        positions = np.searchsorted(shares, (0.01, 0.5, 0.99)).clip(0, len(shares) - 1)
        low, median, high = others[positions]
        if value == 0 and low > 0:
            return bool(low >= 0.2 * median)
        return bool(value > high + (high - low) or value < low - (high - low))


@dataclass(frozen=True)
class _Table:
    """Columns, target and domains."""

    columns: list[_Column]
    target: Target
    codes: Array  #: index into ``names`` of each row's domain
    names: list[str]  #: names of the domains

    @cached_property
    def sizes(self) -> Array:
        """Number of rows of each domain."""
        return np.bincount(self.codes, minlength=len(self.names))

    @cached_property
    def rows(self) -> list[Array]:
        """Row indices of each domain."""
        return np.split(np.argsort(self.codes, kind="stable"), np.cumsum(self.sizes)[:-1])

    def counts(self, column: _Column) -> Array:
        """Number of rows in each domain that have a value in a column."""
        return np.bincount(self.codes[column.index >= 0], minlength=len(self.names))

    def names_of(self, domains: Any) -> str:
        """Names of domains, for a sentence."""
        return names_of(*(self.names[d] for d in domains))

    @cached_property
    def copies(self) -> list[tuple[int, int]]:
        """Pairs of columns that are equal up to location and scale, or up to category names."""
        rows = spaced(np.arange(len(self.codes)), 20_000)
        indices = [i for i, c in enumerate(self.columns) if c.is_number and len(c.values) > 2]
        pairs = []
        if indices:
            X = np.column_stack([self.columns[i].numbers[rows] for i in indices])
            is_copy = np.triu(np.abs(correlations(X)) >= COPY_CORRELATION, 1)
            pairs = [(indices[a], indices[b]) for a, b in np.argwhere(is_copy).tolist()]
        first_column: dict[bytes, int] = {}
        for i, column in enumerate(self.columns):
            if not column.is_number and 2 < len(column.values) < len(self.codes) / 2:
                first = first_column.setdefault(column.index.tobytes(), i)
                pairs += [(first, i)] if first != i else []
        return pairs

    def fault(
        self,
        kind: str,
        severity: int,
        columns: list[str],
        domains: Any,
        message: str,
        action: str,
        *,
        rows: int | None = None,
        leak: bool = False,
    ) -> Fault:
        """Create a fault that affects these domains, or all domains if there are none.

        All rows of these domains are affected, unless the number of affected ``rows`` is passed.
        """
        if rows is None:
            rows = sum(self.sizes[d] for d in domains) if len(domains) else len(self.codes)
        names = [self.names[d] for d in domains]
        return Fault(kind, columns, names, int(rows), severity, message, action, leak)


def describe_differences(problem: Problem) -> dict[str, Any]:
    """Describe domains, the columns that differ most, and faults; the result is stored in JSON."""
    problem = problem.full
    codes, names = problem.codes, [str(name) for name in problem.domains.tolist()]
    columns = columns_of(problem.X)
    descriptions = [describe_column(name, column, codes, len(names)) for name, column in columns]
    descriptions.sort(key=lambda column: -column["tells"])
    domains = []
    for code, name in enumerate(names):
        y = problem.y[codes == code]
        if problem.classes is None:
            target: dict[str, Any] = {"target": np.quantile(y, (0.25, 0.5, 0.75)).tolist()}
        else:
            target = {"classes": [int(np.sum(y == c)) for c in problem.classes]}
        domains.append({"name": name, "rows": len(y), **target})
    faults = find_faults(columns, problem.y, problem.classification, codes, names)
    return {
        "domains": domains,
        "columns": descriptions[:MAX_COLUMNS],
        "others": len(descriptions[MAX_COLUMNS:]),
        "faults": [asdict(fault) for fault in faults],
    }


def find_faults(
    columns: Sequence[tuple[str, Array]],
    y: Array,
    classification: bool,
    codes: Array,
    domains: Sequence[str],
) -> list[Fault]:
    """Return the possible faults in a table, the most severe first.

    ``columns`` are pairs of a name and values: numbers, or NaN if missing; or text, or None if
    missing. ``codes`` contains the index into ``domains`` of each row.
    """
    n_classes = 0
    if classification:
        classes, y = np.unique(y, return_inverse=True)
        n_classes = len(classes)
    indexed_columns = []
    for name, values in columns:
        is_number = values.dtype.kind == "f"
        if is_number:
            index, is_present = np.full(len(values), -1), np.isfinite(values)
            distinct_values, index[is_present] = np.unique(values[is_present], return_inverse=True)
        else:
            index, distinct_values = import_pandas().factorize(values)
        indexed_columns.append(_Column(name, is_number, index, distinct_values))
    table = _Table(indexed_columns, Target(y, n_classes), np.asarray(codes), list(domains))
    faults = [*_missing(table), *_fillers(table)]
    faults += _anomalies(table, faults)
    for check in (_leaks, _identifiers, _copied_columns, _copied_rows, _small_domains):
        faults += check(table)
    order = {kind: i for i, kind in enumerate(("unit", "sign", "filler", "missing"))}
    return sorted(faults, key=lambda f: (-f.severity, order.get(f.kind, len(order)), -f.rows))


def _drop(columns: Sequence[str]) -> str:
    """The command-line option that drops columns."""
    return f"--drop {shlex.quote(','.join(columns))}"


def _rounded(value: float) -> str:
    """A number with four digits, and without an exponent unless it is very large or small."""
    return f"{float(f'{value:.4g}'):,.12g}"


def _leaks(table: _Table) -> Iterator[Fault]:
    """Find columns that leak the target, or predict it as well as all other columns together."""
    X = np.column_stack([column.numbers for column in table.columns])
    categorical = {j for j, column in enumerate(table.columns) if not column.is_number}
    metric = "AUC" if table.target.n_classes else "rank correlation"
    matched_scores: dict[str, float] = {}  # of columns that are only as good as all others
    for leak in find_leaks(X, categorical, table.target, table.rows, table.copies):
        name = table.columns[leak.column].name
        if leak.is_matched:
            matched_scores[name] = max(leak.scores.values())
            continue
        domains = [] if leak.in_all_domains else list(leak.scores)
        message = (
            f"{f'Whether {name} is missing' if leak.by_missing else name} predicts the target "
            f"almost perfectly{f' in {table.names_of(domains)}' if domains else ''} ({metric} "
            f"{min(leak.scores.values()):.2f} alone, {leak.others_score:.2f} for all other columns "
            "together). This column may contain the answer."
        )
        action = f"If it is unknown when a prediction is made, evaluate again with {_drop([name])}."
        yield table.fault("leak", 3, [name], domains, message, action, leak=True)
    if matched_scores:
        names, score = list(matched_scores), max(matched_scores.values())
        verb, they = ("predicts", "it is") if len(names) == 1 else ("each predict", "they are")
        message = (
            f"{listed(names)} {verb} the target as well as all other columns together ({metric} "
            f"{score:.2f})."
        )
        action = f"Check that {they} known when a prediction is made."
        yield table.fault("strong column", 1, names, [], message, action)


def _missing(table: _Table) -> Iterator[Fault]:
    """Find columns that are missing in only some domains, one fault for each set of domains."""
    is_large = table.sizes >= MIN_ROWS
    groups: dict[tuple[int, ...], dict[str, Array]] = {}
    for column in table.columns:
        shares = 1 - table.counts(column) / table.sizes
        is_missing = is_large & (shares >= MISSING_SHARE)
        if is_missing.any() and (is_large & (shares <= PRESENT_SHARE)).any():
            groups.setdefault(tuple(np.flatnonzero(is_missing)), {})[column.name] = shares
    for domains, shares_by_column in groups.items():
        names, shares = list(shares_by_column), np.array(list(shares_by_column.values()))
        low, high = np.quantile(shares[:, domains], (0, 1))
        range_text = " to ".join(dict.fromkeys(f"{100 * end:.0f}" for end in (low, high)))
        affected = f"{range_text} % of the rows" if low < 1 else "all rows"
        max_shares = np.where(is_large, shares, np.inf).max(axis=0)
        best = int(np.argmin(max_shares))  # the domain with the fewest missing values
        contrast = f"in only {100 * max_shares[best]:.0f} % of the rows"
        if max_shares[best] < 0.01:
            contrast = "in less than 1 % of the rows" if max_shares[best] > 0 else "in no row"
        message = (
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} missing in {affected} from "
            f"{table.names_of(domains)}, but {contrast} from {table.names_of([best])}."
        )
        action = f"Add the values if they exist; if not, evaluate again with {_drop(names)}."
        yield table.fault("missing", 2, names, domains, message, action)


def _fillers(table: _Table) -> Iterator[Fault]:
    """Find placeholders for missing values: values that are frequent in only some domains."""
    for column in table.columns:
        name, n_values, has_value = column.name, len(column.values), column.index >= 0
        n_present = table.counts(column)
        is_large = n_present >= MIN_ROWS
        pairs = table.codes[has_value].astype(np.int64) * n_values + column.index[has_value]
        pairs, counts = np.unique(pairs, return_counts=True)
        codes, indices = np.divmod(pairs, max(n_values, 1))  # of domains and of values
        min_counts = np.maximum(OUTLIER_SHARES[0] * n_present[codes], MIN_CLASS_ROWS)
        is_frequent = is_large[codes] & (counts >= min_counts)
        is_constant = is_frequent & (counts >= FILLER_SHARES[0] * n_present[codes])
        if 2 * len(np.unique(codes[is_constant])) > is_large.sum():  # the column describes domains
            continue
        for i in np.unique(indices[is_frequent]).tolist():
            is_value = indices == i
            n_rows = np.bincount(codes[is_value], counts[is_value], len(table.names))
            is_outlier = column.is_outlier(i, np.bincount(indices, counts, n_values))
            # The lowest and the highest value may be the limits of a scale.
            is_limit = column.is_quantity and i in (0, n_values - 1) and not is_outlier
            share, share_elsewhere = FILLER_SHARES
            rules = [(share, OUTLIER_SHARES[1] if is_limit else share_elsewhere)]
            is_filled = np.zeros(len(n_rows), dtype=bool)
            for min_share, max_elsewhere in [*rules, *[OUTLIER_SHARES] * is_outlier]:
                is_common = is_large & (n_rows >= np.maximum(min_share * n_present, MIN_CLASS_ROWS))
                is_exception = is_outlier or 3 * is_common.sum() <= is_large.sum()
                if is_exception and 0 < is_common.sum() < len(n_rows):
                    max_rows = max_elsewhere * n_present[~is_common].sum()
                    is_filled = is_common if n_rows[~is_common].sum() <= max_rows else is_filled
            domains = np.flatnonzero(is_filled)
            if not len(domains):
                continue
            text = f"{column.values[i]:g}" if column.is_number else repr(str(column.values[i]))
            affected = [
                f"{'all' if n_rows[d] == n_present[d] else f'{n_rows[d]:,.0f} of'} "
                f"{n_present[d]:,.0f}{' non-missing' * bool(n_present[d] < table.sizes[d])} "
                f"rows from {table.names_of([d])}"
                for d in domains
            ]
            message = (
                f"{name} is {text} in {listed(affected, 3)}, and almost nowhere else: this "
                "value may be a code for missing values."
            )
            action = f"Clear these cells, or evaluate again with {_drop([name])}."
            n_filled = n_rows[domains].sum()
            yield table.fault("filler", 2, [name], domains, message, action, rows=n_filled)


def _anomalies(table: _Table, faults: Sequence[Fault]) -> Iterator[Fault]:
    """Find columns with another unit, the opposite sign, or very different values in some domains.

    A column with one of the ``faults`` is not compared in the affected domains.
    """
    names = [column.name for column in table.columns]
    quantities = {i: c.numbers for i, c in enumerate(table.columns) if c.is_quantity}
    code_of = {name: d for d, name in enumerate(table.names)}
    excluded = {(names.index(c), code_of[d]) for f in faults for c in f.columns for d in f.domains}
    target = table.target.y if table.target.n_classes <= 2 else None
    distant_columns: dict[tuple[int, ...], list[str]] = {}
    for anomaly in find_anomalies(names, quantities, target, table.codes, excluded):
        name, domains = names[anomaly.column], anomaly.domains
        if anomaly.kind == "level":
            distant_columns.setdefault(tuple(domains), []).append(name)
            continue
        here, elsewhere = (
            " to ".join(dict.fromkeys(map(_rounded, (values.min(), values.max()))))
            for values in (anomaly.values, anomaly.other_values)
        )
        statistic = f"{'standard deviation' if anomaly.by_spread else 'median'} of {name}"
        if anomaly.partner is not None:
            partner = "the target" if anomaly.partner < 0 else names[anomaly.partner]
            statistic = f"rank correlation of {name} with {partner}"
        reason = "the sign may be reversed"
        if anomaly.kind == "unit":
            reason = f"the unit may be different ({anomaly.units} would fit)"
        message = (
            f"The {statistic} is {here} in {table.names_of(domains)} "
            f"({table.sizes[domains].sum():,} rows) and {elsewhere} in the other domains: {reason}."
        )
        action = f"Correct these values, or evaluate again with {_drop([name])}."
        yield table.fault(anomaly.kind, 2, [name], domains, message, action)
    for group, columns in distant_columns.items():
        message = (
            f"The values of {listed(columns)} in {table.names_of(group)} are very different from "
            "those in all other domains."
        )
        action = "Check that these values are recorded in the same way in all domains."
        yield table.fault("level", 1, columns, group, message, action)


def _identifiers(table: _Table) -> Iterator[Fault]:
    """Find columns that identify the row or the domain."""
    n, n_domains = len(table.codes), len(table.names)
    for column in table.columns:
        name, n_values, has_value = column.name, len(column.values), column.index >= 0
        action = f"Drop it, unless it has the same meaning in new domains: {_drop([name])}."
        reason = identifier_reason(column.numbers, table.rows) if column.is_number else ""
        if not column.is_number and n >= MIN_ROWS and n_values >= 0.95 * n:
            reason = "is different in almost every row"
        if reason:
            message = f"{name} {reason}: it looks like an identifier or a time stamp."
            yield table.fault("identifier", 1, [name], [], message, action)
        elif 3 <= n_domains <= n_values <= 2 * n_domains:
            pairs = table.codes[has_value] * n_values + column.index[has_value]
            counts = np.bincount(pairs, minlength=n_domains * n_values).reshape(n_domains, n_values)
            n_distinct = len(np.unique(counts.argmax(axis=1)))
            if counts.max(axis=1).sum() >= 0.98 * n and n_distinct == n_domains:
                message = f"{name} identifies the domain: it has a different value in each domain."
                yield table.fault("copy of the domain", 1, [name], [], message, action)


def _copied_columns(table: _Table) -> Iterator[Fault]:
    pairs = [(table.columns[a].name, table.columns[b].name) for a, b in table.copies]
    if pairs:
        names, copies = (list(dict.fromkeys(n)) for n in (sum(pairs, ()), [b for _, b in pairs]))
        message = listed([f"{second} can be computed from {first}" for first, second in pairs])
        action = f"One column of each pair is enough: {_drop(copies)}."
        yield table.fault("copied column", 1, names, [], f"{message}.", action)


def _copied_rows(table: _Table) -> Iterator[Fault]:
    """Find pairs of domains that have more rows in common than other pairs."""
    n, sizes = len(table.names), table.sizes
    if n > MAX_DOMAINS:
        return
    rng = np.random.default_rng(0)
    hashes = np.zeros(len(table.codes), dtype=np.uint64)
    target_index = np.unique(table.target.y, return_inverse=True)[1]
    for index in (*(column.index for column in table.columns), target_index):
        random_keys = rng.integers(1, 2**63, size=int(index.max(initial=0)) + 2, dtype=np.uint64)
        hashes += random_keys[index]
    _, group, group_sizes = np.unique(hashes, return_inverse=True, return_counts=True)
    is_repeated = group_sizes[group] > 1
    occurrences = np.unique(group[is_repeated].astype(np.int64) * n + table.codes[is_repeated])
    n_shared = np.zeros((n, n))
    for domains in np.split(occurrences % n, np.flatnonzero(np.diff(occurrences // n)) + 1):
        if len(domains) > 1:
            n_shared[np.ix_(domains, domains)] += 1
    np.fill_diagonal(n_shared, 0)
    shares = n_shared / np.maximum(np.minimum.outer(sizes, sizes), 1)
    usual_share = np.median(shares[~np.eye(n, dtype=bool)]) if n > 2 else 0.0
    n_distinct = np.unique(np.stack([group, table.codes]), axis=1).shape[1]
    min_share = max(COPIED_ROWS, 5 * usual_share, 2 * (1 - n_distinct / len(table.codes)))
    pairs = np.argwhere(np.triu((shares >= min_share) & (n_shared >= MIN_CLASS_ROWS)))
    if not len(pairs):
        return
    n_by_pair = n_shared[tuple(pairs.T)]
    a, b = (f"{table.names_of([d])} ({sizes[d]:,} rows)" for d in pairs[np.argmax(n_by_pair)])
    message = f"{n_by_pair.max():,.0f} rows occur both in {a} and in {b}."
    if n_more := len(pairs) - 1:
        message += f" Rows are also shared by {n_more} more pair{'s' * (n_more > 1)} of domains."
    action = "Remove the duplicates, or give these domains the same name: they are not independent."
    yield table.fault("copied rows", 2, [], np.unique(pairs), message, action, rows=n_by_pair.sum())


def _small_domains(table: _Table) -> Iterator[Fault]:
    is_tiny, has_one_class = table.sizes < TINY_ROWS, np.zeros(len(table.names), dtype=bool)
    if table.target.n_classes:
        has_one_class = np.array([len(np.unique(table.target.y[r])) == 1 for r in table.rows])
    few_rows = f"There are fewer than {TINY_ROWS} rows"
    training_only = "These rows are used only for training."
    for kind, is_affected, description, consequence in (
        ("tiny domain", is_tiny, few_rows, "Scores on so few rows are uncertain."),
        ("one class", has_one_class & ~is_tiny, "There is only one class", training_only),
    ):
        if is_affected.any():
            domains, n_rows = np.flatnonzero(is_affected), table.sizes[is_affected].sum()
            where = "each of " * (len(domains) > 1) + table.names_of(domains)
            message = f"{description} in {where} ({n_rows:,} rows in total)."
            yield table.fault(kind, 1, [], domains, message, consequence)


# After the evaluation -----------------------------------------------------------------------------


def stored_fault(fault: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a fault that this or an earlier version stored to the current form."""
    if "words" not in fault:
        return dict(fault)
    columns, domains = [fault["column"]], [fault["domain"]]
    return asdict(Fault(fault["kind"], columns, domains, 0, 2, f"{fault['words']}.", ""))


def leaking_columns(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return columns that may leak the target; methods are also compared without them."""
    return list(dict.fromkeys(c for fault in faults if fault["leak"] for c in fault["columns"]))


def with_effects(faults: Sequence[dict[str, Any]], results: Results) -> list[dict[str, Any]]:
    """Add the effects of faults on scores, and a fault if the best score is almost perfect.

    A method scores poorly on a domain if its gain over a constant prediction is less than half of
    its median gain on the domains without the fault.
    """
    constant_scores = next((result.known for result in results.results if result.trivial), {})
    methods = [result for result in results.results if not result.trivial]
    gains = [
        {str(d): s - constant_scores[d] for d, s in result.known.items() if d in constant_scores}
        for result in methods
    ]
    changed_faults, reported_domains = [], set()
    for fault in faults:
        domain, effect = _effect(fault, gains)
        changed_faults.append({**fault, "effect": "" if domain in reported_domains else effect})
        reported_domains.add(domain)
    if not methods or leaking_columns(faults):
        return changed_faults
    best = methods[0]
    if results.measure.sign > 0:
        is_perfect = best.worst >= 0.99 and best.mean >= 0.995
    else:
        is_perfect = all(s >= 0.02 * constant_scores.get(d, 0.0) for d, s in best.known.items())
    if is_perfect:
        columns = sorted(best.importance, key=lambda name: -best.importance[name])[:3]
        columns = [name for name in columns if best.importance[name] > 0]
        message = (
            f"{results.measure.label} is {results.show(best.mean)} on held-out domains, which is "
            "unusually good: a column may contain the answer."
        )
        action = "Check how the columns were obtained."
        if columns:
            action = f"Check the most important columns: {listed(columns)}."
        rows = int(results.facts["rows"])
        changed_faults.insert(0, asdict(Fault("score", columns, [], rows, 3, message, action)))
    return changed_faults


def _effect(fault: Mapping[str, Any], gains: Sequence[Mapping[str, float]]) -> tuple[str, str]:
    """The affected domain on which most methods score poorly, with a sentence; empty if none."""
    n_poor: dict[str, int] = {}  # number of methods that score poorly, by domain
    for by_domain in gains:
        other_gains = [gain for d, gain in by_domain.items() if d not in fault["domains"]]
        usual_gain = float(np.median(other_gains)) if other_gains else 0.0
        for d in fault["domains"] if usual_gain > 0 else ():
            n_poor[d] = n_poor.get(d, 0) + (by_domain.get(d, np.inf) < usual_gain / 2)
    worst = max(n_poor, key=lambda d: n_poor[d], default="")
    if fault["severity"] != 2 or not worst or 2 * n_poor[worst] <= len(gains):
        return "", ""
    n, total = in_words(n_poor[worst]), in_words(len(gains))
    return worst, (
        f"For {'all' if n == total else f'{n} of {total}'} methods, the gain over a constant "
        f"prediction on {names_of(worst)} is less than half of the gain on other domains."
    )
