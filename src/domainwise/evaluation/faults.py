"""Differences between domains, and faults: leaks, units, fillers, missing columns, copies.

Every check uses all rows. Levels and signs are tested against the spread of the other domains, with
a correction for the number of columns and domains, so that about one in ten tables without faults
raises an alarm (theory 19).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.evaluation.leaks import LEAST_CLASS, LEAST_ROWS, Target, find_leaks, spaced
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.results import Results
from domainwise.evaluation.units import find_shifts
from domainwise.scoring.statistics import in_words
from domainwise.tables.errors import import_pandas
from domainwise.tables.schema import identifier_reason
from domainwise.tables.statistics import columns_of, describe_column

#: Columns that are described: those that identify domains best.
MAX_COLUMNS = 40
#: A numeric column with more distinct values is a quantity.
QUANTITY = 10
#: A filler is one value with a share of at least FILLED in a domain, and of at most RARE elsewhere.
#: For a value outside the range of all others, PARTLY and NOWHERE are enough.
FILLED, RARE, PARTLY, NOWHERE = 0.95, 0.2, 0.2, 0.02
#: Minimum share of missing values in a domain that lacks a column, and maximum in one that has it.
MISSING, PRESENT = 0.5, 0.1
#: Minimum correlation of copied columns; minimum share of rows that two domains have in common.
COPIED, SHARED = 0.9995, 0.05
#: Domains with fewer rows are tiny; with more than MOST_DOMAINS, copied rows are not searched.
TINY, MOST_DOMAINS = 10, 2000


@dataclass(frozen=True)
class Fault:
    """A possible fault in a table, for JSON."""

    kind: str
    columns: list[str]
    domains: list[str]  #: names in the table; empty if it concerns all
    rows: int  #: number of rows that it concerns
    severity: int  #: 3 if scores cannot be trusted, 2 if they may change, 1 for a remark
    message: str  #: what is wrong, and where
    action: str  #: what to do about it
    leak: bool = False  #: whether methods are also compared without the columns
    effect: str = ""  #: what it does to scores, in a sentence


@dataclass(frozen=True)
class _Column:
    """A column, as the index of each row's value in ``labels``; -1 if it is missing."""

    name: str
    number: bool
    levels: Array
    labels: Array  #: distinct values, sorted if they are numbers

    @cached_property
    def numbers(self) -> Array:
        """Numeric values, or indices of text values; NaN if missing."""
        labels = self.labels if self.number else np.arange(len(self.labels))
        return np.append(labels.astype(np.float64), np.nan)[self.levels]

    @property
    def quantity(self) -> bool:
        """Whether the column is numeric, with many distinct values."""
        return self.number and len(self.labels) > QUANTITY

    def is_outlier(self, level: int, counts: Array) -> bool:
        """Whether a value of a quantity is an outlier, given the ``counts`` of all values."""
        if not self.quantity:
            return False
        value, labels = float(self.labels[level]), np.delete(self.labels, level)
        shares = np.cumsum(np.delete(counts, level)) / max(counts.sum() - counts[level], 1)
        places = np.searchsorted(shares, (0.01, 0.5, 0.99)).clip(0, len(shares) - 1)
        low, middle, high = labels[places]
        if value == 0 and low > 0:
            return bool(low >= 0.2 * middle)
        return bool(value > high + (high - low) or value < low - (high - low))


@dataclass(frozen=True)
class _Table:
    columns: list[_Column]
    target: Target
    codes: Array
    domains: list[str]

    @cached_property
    def sizes(self) -> Array:
        """Number of rows of each domain."""
        return np.bincount(self.codes, minlength=len(self.domains))

    @cached_property
    def rows(self) -> list[Array]:
        """Rows of each domain."""
        return np.split(np.argsort(self.codes, kind="stable"), np.cumsum(self.sizes)[:-1])

    def counts(self, column: _Column) -> Array:
        """Number of rows of each domain in which a column has a value."""
        return np.bincount(self.codes[column.levels >= 0], minlength=len(self.domains))

    def names(self, places: Any) -> list[str]:
        """Names of domains by their codes."""
        return [self.domains[d] for d in places]

    @cached_property
    def copies(self) -> list[tuple[int, int]]:
        """Pairs of columns that are equal up to location and scale, or names of categories."""
        rows = spaced(np.arange(len(self.codes)), 20_000)
        numbers = [i for i, c in enumerate(self.columns) if c.number and len(c.labels) > 2]
        pairs = []
        if numbers:
            X = np.column_stack([self.columns[i].numbers[rows] for i in numbers])
            present = np.isfinite(X)
            count = np.maximum(present.sum(axis=0), 1)
            Z = np.where(present, X - np.where(present, X, 0.0).sum(axis=0) / count, 0.0)
            Z /= np.maximum(np.sqrt((Z**2).sum(axis=0)), 1e-300)
            same = np.triu(np.abs(Z.T @ Z) >= COPIED, 1)
            pairs = [(numbers[a], numbers[b]) for a, b in np.argwhere(same).tolist()]
        first_with: dict[bytes, int] = {}
        for i, column in enumerate(self.columns):
            if not column.number and 2 < len(column.labels) < len(self.codes) / 2:
                first = first_with.setdefault(column.levels.tobytes(), i)
                pairs += [(first, i)] if first != i else []
        return pairs

    def fault(
        self, kind: str, severity: int, columns: list[str], places: Any, *texts: str, **more: Any
    ) -> Fault:
        """Make a fault in the domains ``places``, or in all if empty, from a message and an action.

        It concerns all rows of these domains, unless the number of ``rows`` is given.
        """
        places = np.asarray(places, dtype=np.intp)
        rows = self.sizes[places].sum() if len(places) else len(self.codes)
        rows = int(more.pop("rows", rows))
        message, action = texts
        return Fault(kind, columns, self.names(places), rows, severity, message, action, **more)


def describe_differences(problem: Problem) -> dict[str, Any]:
    """Describe the domains, the columns that differ most, and faults, from all rows; for JSON."""
    problem = problem.everything
    codes, names = problem.codes, [str(name) for name in problem.domains.tolist()]
    values = columns_of(problem.X)
    columns = [describe_column(name, column, codes, len(names)) for name, column in values]
    columns.sort(key=lambda column: -column["tells"])
    domains = []
    for code, name in enumerate(names):
        y = problem.y[codes == code]
        if problem.classes is None:
            target: dict[str, Any] = {"target": np.quantile(y, (0.25, 0.5, 0.75)).tolist()}
        else:
            target = {"classes": [int(np.sum(y == c)) for c in problem.classes]}
        domains.append({"name": name, "rows": len(y), **target})
    faults = find_faults(values, problem.y, problem.classification, codes, names)
    return {
        "domains": domains,
        "columns": columns[:MAX_COLUMNS],
        "others": len(columns[MAX_COLUMNS:]),
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

    ``columns`` are pairs of a name and values: numbers, NaN if missing, or text, None if missing.
    ``codes`` are the index into ``domains`` of each row.
    """
    n_classes = 0
    if classification:
        classes, y = np.unique(y, return_inverse=True)
        n_classes = len(classes)
    indexed = []
    for name, values in columns:
        number = values.dtype.kind == "f"
        if number:
            levels, present = np.full(len(values), -1), np.isfinite(values)
            labels, levels[present] = np.unique(values[present], return_inverse=True)
        else:
            levels, labels = import_pandas().factorize(values)
        indexed.append(_Column(name, number, levels, labels))
    table = _Table(indexed, Target(y, n_classes), np.asarray(codes), list(domains))
    faults = [*_missing(table), *_fillers(table)]
    faults += _shifted(table, faults)
    for check in (_leaks, _identifiers, _copied_columns, _copied_rows, _small_domains):
        faults += check(table)
    order = {kind: place for place, kind in enumerate(("unit", "sign", "filler", "missing"))}
    return sorted(faults, key=lambda f: (-f.severity, order.get(f.kind, len(order)), -f.rows))


def listed(names: Sequence[str], most: int = 4) -> str:
    """Join names for a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    >>> listed(["a", "b", "c"], most=1)
    'a and 2 others'
    """
    parts, more = list(names[:most]), len(names[most:])
    parts += [f"{more} other{'s' * (more > 1)}"] if more else []
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _drop(columns: Sequence[str]) -> str:
    return f"--drop {shlex.quote(','.join(columns))}"


def _leaks(table: _Table) -> Iterator[Fault]:
    """Columns that leak the target, or that alone predict it as well as all others together."""
    X = np.column_stack([column.numbers for column in table.columns])
    text = {j for j, column in enumerate(table.columns) if not column.number}
    metric = "AUC" if table.target.n_classes else "rank correlation"
    neutral: dict[str, float] = {}
    for leak in find_leaks(X, text, table.target, table.rows, table.copies):
        name = table.columns[leak.column].name
        if leak.neutral:
            neutral[name] = max(leak.scores.values())
            continue
        places = [] if leak.everywhere else list(leak.scores)
        message = (
            f"{f'Whether {name} is missing' if leak.by_missing else name} predicts the target "
            f"almost perfectly{f' at {listed(table.names(places))}' if places else ''} ({metric} "
            f"{min(leak.scores.values()):.2f} alone, {leak.rest:.2f} with all other columns): it "
            "may contain the answer."
        )
        action = f"If it is not known when a prediction is made, leave it out: {_drop([name])}."
        yield table.fault("leak", 3, [name], places, message, action, leak=True)
    if neutral:
        names, score = list(neutral), f"{max(neutral.values()):.2f} ({metric})"
        verb, they = ("reaches", "it is") if len(names) == 1 else ("reach", "they are")
        message = f"{listed(names)} alone {verb} {score}, as do all others together."
        action = f"Check that {they} known when a prediction is made."
        yield table.fault("strong column", 1, names, [], message, action)


def _missing(table: _Table) -> Iterator[Fault]:
    """Columns that are missing in some domains only, one fault for each set of domains."""
    large = table.sizes >= LEAST_ROWS
    groups: dict[tuple[int, ...], dict[str, Array]] = {}
    for column in table.columns:
        shares = 1 - table.counts(column) / table.sizes
        lacking = large & (shares >= MISSING)
        if lacking.any() and (large & (shares <= PRESENT)).any():
            groups.setdefault(tuple(np.flatnonzero(lacking)), {})[column.name] = shares
    for places, by_column in groups.items():
        names, missing = list(by_column), np.array(list(by_column.values()))
        low, high = np.floor(100 * np.quantile(missing[:, places], (0, 1)))
        share = f"{low:.0f} %" if low == high else f"{low:.0f} to {high:.0f} %"
        most = np.where(large, missing, np.inf).max(axis=0)
        best = int(np.argmin(most))
        rest = f"only in {100 * most[best]:.0f} %"
        if most[best] < 0.01:
            rest = "in less than 1 %" if most[best] > 0 else "in none"
        message = (
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} missing in "
            f"{'all rows' if low == 100 else f'{share} of the rows'} of "
            f"{listed(table.names(places))}, but {rest} at {table.domains[best]}."
        )
        action = (
            f"Check whether the values exist there; if not, evaluate again with {_drop(names)}."
        )
        yield table.fault("missing", 2, names, places, message, action)


def _fillers(table: _Table) -> Iterator[Fault]:
    """Codes for missing values: a value that is frequent in some domains and rare elsewhere."""
    for column in table.columns:
        name, size, has_value = column.name, len(column.labels), column.levels >= 0
        present = table.counts(column)
        large = present >= LEAST_ROWS
        cells = table.codes[has_value].astype(np.int64) * size + column.levels[has_value]
        cells, counts = np.unique(cells, return_counts=True)
        place, level = np.divmod(cells, max(size, 1))
        often = large[place] & (counts >= np.maximum(PARTLY * present[place], LEAST_CLASS))
        constant = np.unique(place[often & (counts >= FILLED * present[place])])
        if 2 * len(constant) > large.sum():  # the column describes domains
            continue
        for value in np.unique(level[often]).tolist():
            same = level == value
            rows = np.bincount(place[same], counts[same], len(table.domains))
            outlier = column.is_outlier(value, np.bincount(level, counts, size))
            filled = np.zeros(len(rows), dtype=bool)
            end = column.quantity and value in (0, size - 1)  # where a scale ends, values pile up
            elsewhere = NOWHERE if end and not outlier else RARE
            for least, most in ((FILLED, elsewhere), *[(PARTLY, NOWHERE)] * outlier):
                marked = large & (rows >= np.maximum(least * present, LEAST_CLASS))
                few = outlier or 3 * marked.sum() <= large.sum()
                if few and 0 < marked.sum() < len(rows):
                    rare = rows[~marked].sum() <= most * present[~marked].sum()
                    filled = marked if rare else filled
            places = np.flatnonzero(filled)
            if not len(places):
                continue
            shown = column.labels[value]
            shown = f"{shown:g}" if column.number else repr(str(shown))
            parts = [
                ("all " if rows[d] == present[d] else f"{rows[d]:,.0f} of ")
                + f"{present[d]:,.0f} rows of {table.domains[d]}"
                for d in places
            ]
            message = (
                f"{name} is {shown} in {listed(parts, 3)}, and hardly anywhere else: it looks like "
                "a code for a missing value."
            )
            action = f"Leave these cells empty, or evaluate again with {_drop([name])}."
            n_filled = rows[places].sum()
            yield table.fault("filler", 2, [name], places, message, action, rows=n_filled)


def _shifted(table: _Table, faults: Sequence[Fault]) -> Iterator[Fault]:
    """Columns with another unit, the opposite sign, or very different values in some domains.

    Columns are not compared in the domains where they already have one of the ``faults``.
    """
    names = [column.name for column in table.columns]
    quantities = {i: c.numbers for i, c in enumerate(table.columns) if c.quantity}
    places = {name: d for d, name in enumerate(table.domains)}
    excluded = {(names.index(c), places[d]) for f in faults for c in f.columns for d in f.domains}
    target = table.target.y if table.target.n_classes <= 2 else None
    far_columns: dict[tuple[int, ...], list[str]] = {}
    for shift in find_shifts(names, quantities, target, table.codes, excluded):
        name, where = names[shift.column], listed(table.names(shift.domains))
        if shift.kind == "level":
            far_columns.setdefault(tuple(shift.domains), []).append(name)
            continue
        here, elsewhere = (
            " to ".join(dict.fromkeys(f"{end:.4g}" for end in (values.min(), values.max())))
            for values in (shift.here, shift.elsewhere)
        )
        statistic = "a standard deviation" if shift.by_spread else "a median"
        if shift.partner is not None:
            partner = "the target" if shift.partner < 0 else names[shift.partner]
            statistic = f"a rank correlation with {partner}"
        reason = "it looks like another unit" if shift.kind == "unit" else "its sign looks swapped"
        message = (
            f"{name} has {statistic} of {here} at {where} ({table.sizes[shift.domains].sum():,} "
            f"rows) and of {elsewhere} in the other domains: {reason}"
            f"{f' ({shift.units} would fit)' if shift.units else ''}."
        )
        action = f"Correct it there, or evaluate again with {_drop([name])}."
        yield table.fault(shift.kind, 2, [name], shift.domains, message, action)
    for group, columns in far_columns.items():
        verb, where = "is" if len(group) == 1 else "are", listed(table.names(group))
        message = f"{where} {verb} far from all other domains in {listed(columns)}."
        action = "Check that these columns are recorded there as they are elsewhere."
        yield table.fault("level", 1, columns, group, message, action)


def _identifiers(table: _Table) -> Iterator[Fault]:
    """Columns that number the rows, or repeat the domain."""
    n, n_domains = len(table.codes), len(table.domains)
    for column in table.columns:
        name, size, has_value = column.name, len(column.labels), column.levels >= 0
        action = f"Leave it out unless it has the same meaning in new domains: {_drop([name])}."
        reason = identifier_reason(column.numbers, table.rows) if column.number else ""
        if not column.number and n >= LEAST_ROWS and size >= 0.95 * n:
            reason = "is a different text in almost every row"
        if reason:
            message = f"{name} {reason}: it looks like an identifier or a clock."
            yield table.fault("identifier", 1, [name], [], message, action)
        elif 3 <= n_domains <= size <= 2 * n_domains:
            cells = table.codes[has_value] * size + column.levels[has_value]
            counts = np.bincount(cells, minlength=n_domains * size).reshape(n_domains, size)
            distinct = len(np.unique(counts.argmax(axis=1)))
            if counts.max(axis=1).sum() >= 0.98 * n and distinct == n_domains:
                message = f"{name} has one value in each domain, a different one in every domain."
                yield table.fault("copy of the domain", 1, [name], [], message, action)


def _copied_columns(table: _Table) -> Iterator[Fault]:
    pairs = [(table.columns[a].name, table.columns[b].name) for a, b in table.copies]
    if pairs:
        names, copies = (list(dict.fromkeys(n)) for n in (sum(pairs, ()), [b for _, b in pairs]))
        message = listed([f"{second} repeats {first}" for first, second in pairs])
        message += ": one can be computed from the other."
        action = f"One of them is enough: {_drop(copies)}."
        yield table.fault("copied column", 1, names, [], message, action)


def _copied_rows(table: _Table) -> Iterator[Fault]:
    """Pairs of domains that have more rows in common than other pairs of domains."""
    n, sizes = len(table.domains), table.sizes
    if n > MOST_DOMAINS:
        return
    rng = np.random.default_rng(0)
    key = np.zeros(len(table.codes), dtype=np.uint64)
    target_levels = np.unique(table.target.y, return_inverse=True)[1]
    for levels in (*(column.levels for column in table.columns), target_levels):
        marks = rng.integers(1, 2**63, size=int(levels.max(initial=0)) + 2, dtype=np.uint64)
        key += marks[levels]
    _, group, group_sizes = np.unique(key, return_inverse=True, return_counts=True)
    several = group_sizes[group] > 1
    cells = np.unique(group[several].astype(np.int64) * n + table.codes[several])
    shared = np.zeros((n, n))
    for places in np.split(cells % n, np.flatnonzero(np.diff(cells // n)) + 1):
        if len(places) > 1:
            shared[np.ix_(places, places)] += 1
    np.fill_diagonal(shared, 0)
    share = shared / np.maximum(np.minimum.outer(sizes, sizes), 1)
    usual = np.median(share[~np.eye(n, dtype=bool)]) if n > 2 else 0.0
    inside = 1 - len(np.unique(np.stack([group, table.codes]), axis=1).T) / len(table.codes)
    limit = max(SHARED, 5 * usual, 2 * inside)
    pairs = np.argwhere(np.triu((share >= limit) & (shared >= LEAST_CLASS)))
    if not len(pairs):
        return
    rows = shared[tuple(pairs.T)]
    first, second = pairs[np.argmax(rows)]
    others = f", and others in {len(pairs) - 1} more pairs of domains" * (len(pairs) > 1)
    message = (
        f"{rows.max():,.0f} rows occur both in {table.domains[first]} ({sizes[first]:,} rows) and "
        f"in {table.domains[second]} ({sizes[second]:,} rows){others}: they are not independent."
    )
    action = "Remove the copies, or give these domains one name."
    yield table.fault("copied rows", 2, [], np.unique(pairs), message, action, rows=rows.sum())


def _small_domains(table: _Table) -> Iterator[Fault]:
    tiny, single = table.sizes < TINY, np.zeros(len(table.domains), dtype=bool)
    if table.target.n_classes:
        single = np.array([len(np.unique(table.target.y[rows])) == 1 for rows in table.rows])
    unscored = "Their rows are used for training, but are not scored."
    for kind, marked, reason, consequence in (
        ("tiny domain", tiny, f"fewer than {TINY} rows", "Scores on so few rows are uncertain."),
        ("one class", single & ~tiny, "only one class", unscored),
    ):
        if marked.any():
            places, rows = np.flatnonzero(marked), table.sizes[marked].sum()
            verb = "has" if len(places) == 1 else "have"
            message = f"{listed(table.names(places))} {verb} {reason} ({rows:,} rows together)."
            yield table.fault(kind, 1, [], places, message, consequence)


# After the evaluation -----------------------------------------------------------------------------


def stored_fault(fault: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a fault from a file of this or an earlier version to the current form."""
    if "words" in fault:
        where = [fault["column"]], [fault["domain"]]
        return asdict(Fault(fault["kind"], *where, 0, 2, f"{fault['words']}.", ""))
    return dict(fault)


def leaking_columns(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns that may leak; methods are also compared without them."""
    return list(dict.fromkeys(c for fault in faults if fault["leak"] for c in fault["columns"]))


def with_effects(faults: Sequence[dict[str, Any]], results: Results) -> list[dict[str, Any]]:
    """Add the effects of faults on scores, and a fault if scores are too good to be true.

    A method fails on a domain if its gain over a constant prediction is less than half of its
    median gain on the domains without the fault.
    """
    constant = next((result.known for result in results.results if result.trivial), {})
    methods = [result for result in results.results if not result.trivial]
    gains = {
        result.label: {str(d): s - constant[d] for d, s in result.known.items() if d in constant}
        for result in methods
    }
    with_effect, reported = [], set()
    for fault in faults:
        domain, effect = _effect(fault, gains)
        with_effect.append({**fault, "effect": "" if domain in reported else effect})
        reported.add(domain)
    if not methods or leaking_columns(faults):
        return with_effect
    best = methods[0]
    if results.measure.sign > 0:
        perfect = best.worst >= 0.99 and best.mean >= 0.995
    else:
        perfect = all(s >= 0.02 * constant.get(d, 0.0) for d, s in best.known.items())
    if perfect:
        columns = sorted(best.importance, key=lambda name: -best.importance[name])[:3]
        columns = [name for name in columns if best.importance[name] > 0]
        message = (
            f"{results.measure.label} is {results.show(best.mean)} on held-out domains, which is "
            "too good for most tasks: a column may contain the answer."
        )
        action = f"Check the columns that matter most: {listed(columns)}."
        action = action if columns else "Check how the columns were obtained."
        rows = int(results.facts["rows"])
        with_effect.insert(0, asdict(Fault("score", columns, [], rows, 3, message, action)))
    return with_effect


def _effect(fault: Mapping[str, Any], gains: Mapping[str, Mapping[str, float]]) -> tuple[str, str]:
    """The domain of a fault on which most methods fail, and a sentence about it."""
    failing: dict[str, int] = {}
    for by_domain in gains.values():
        others = [gain for d, gain in by_domain.items() if d not in fault["domains"]]
        usual = float(np.median(others)) if others else 0.0
        for d in fault["domains"] if usual > 0 else ():
            failing[d] = failing.get(d, 0) + (by_domain.get(d, np.inf) < usual / 2)
    worst = max(failing, key=lambda d: failing[d], default="")
    if fault["severity"] != 2 or not worst or 2 * failing[worst] <= len(gains):
        return "", ""
    return worst, (
        f"{in_words(failing[worst]).capitalize()} of {in_words(len(gains))} methods "
        f"fail{'s' * (len(gains) == 1)} at {worst}: less than half of the usual gain over a "
        "constant prediction."
    )
