"""What differs between domains, and faults: leaks, units, fillers, missing columns, copies.

Every check uses all rows. Levels and signs are compared with the spread of the other domains, over
all columns and domains together, so that a table without faults gives about one alarm in ten
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
from domainwise.evaluation.leaks import LEAST_CLASS, LEAST_ROWS, Target, find_leaks, spaced
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.results import Results
from domainwise.evaluation.units import Shift, find_shifts
from domainwise.scoring.statistics import in_words
from domainwise.tables.schema import identifier_reason
from domainwise.tables.statistics import columns_of, describe_column

#: Columns that are described: those that identify domains best.
MAX_COLUMNS = 40
#: Distinct values of a column from which it is a quantity.
QUANTITY = 10
#: A filler is one value in this share of rows, and elsewhere in no more than that; or in part of
#: the rows, and almost nowhere else, if it lies outside of all other values.
FILLED, RARE, PARTLY, NOWHERE = 0.95, 0.2, 0.2, 0.02
#: A column is missing at a domain with this share, where another domain lacks no more than that.
MISSING, PRESENT = 0.5, 0.1
#: Correlation of copied columns; share of a domain's rows that are copies of another's.
COPIED, SHARED = 0.9995, 0.05
#: What small domains mean.
SMALL = {
    "tiny domain": "Scores on so few rows are uncertain.",
    "one class": "Their rows are used for training, and are not scored.",
}
#: Domains with fewer rows are tiny; if there are more domains than that, rows are not compared.
TINY, MOST_DOMAINS = 10, 2000


@dataclass(frozen=True)
class Fault:
    """One thing that looks wrong, for JSON."""

    kind: str
    columns: list[str]
    domains: list[str]  #: as the user knows them; none if it is so everywhere
    rows: int  #: that it concerns
    severity: int  #: 3 if scores cannot be trusted, 2 if they may change, 1 for a remark
    message: str  #: what is wrong, and where
    action: str  #: what to do about it
    leak: bool = False  #: whether methods are also compared without the columns
    effect: str = ""  #: what it does to scores, in a sentence


@dataclass(frozen=True)
class _Column:
    """A column by the index of each row's value; -1 where it is missing."""

    name: str
    number: bool
    levels: Array
    labels: Array  #: distinct values, sorted if they are numbers

    @cached_property
    def numbers(self) -> Array:
        """Values with NaN where they are missing; indices of text."""
        labels = self.labels if self.number else np.arange(len(self.labels))
        return np.append(labels.astype(np.float64), np.nan)[self.levels]

    @property
    def quantity(self) -> bool:
        """Whether these are numbers of many different values."""
        return self.number and len(self.labels) > QUANTITY


@dataclass(frozen=True)
class _Table:
    columns: list[_Column]
    target: Target
    codes: Array
    domains: list[str]

    @cached_property
    def rows(self) -> list[Array]:
        """Rows of each domain."""
        order = np.argsort(self.codes, kind="stable")
        return np.split(order, np.cumsum(self.sizes)[:-1])

    @cached_property
    def sizes(self) -> Array:
        """Number of rows of each domain."""
        return np.bincount(self.codes, minlength=len(self.domains))

    def counts(self, column: _Column) -> Array:
        """Rows of each domain with a value."""
        there = column.levels >= 0
        return np.bincount(self.codes[there], minlength=len(self.domains))

    @cached_property
    def copies(self) -> list[tuple[int, int]]:
        """Pairs of columns that are the same up to scale and names of categories."""
        rows = spaced(np.arange(len(self.codes)), 20_000)
        numbers = [i for i, c in enumerate(self.columns) if c.number and len(c.labels) > 2]
        pairs = []
        if numbers:
            X = np.column_stack([self.columns[i].numbers[rows] for i in numbers])
            there = np.isfinite(X)
            count = np.maximum(there.sum(axis=0), 1)
            Z = np.where(there, X - np.where(there, X, 0.0).sum(axis=0) / count, 0.0)
            Z /= np.maximum(np.sqrt((Z**2).sum(axis=0)), 1e-300)
            alike = np.triu(np.abs(Z.T @ Z) >= COPIED, 1)
            pairs = [(numbers[a], numbers[b]) for a, b in np.argwhere(alike).tolist()]
        seen: dict[bytes, int] = {}
        for i, column in enumerate(self.columns):
            if not column.number and 2 < len(column.labels) < len(self.codes) / 2:
                first = seen.setdefault(column.levels.tobytes(), i)
                pairs += [(first, i)] if first != i else []
        return pairs

    def names(self, places: Any) -> list[str]:
        """Names of domains by their codes."""
        return [self.domains[d] for d in np.asarray(places, dtype=np.intp).tolist()]

    def fault(
        self,
        kind: str,
        severity: int,
        columns: list[str],
        places: Any,
        message: str,
        action: str,
        *,
        rows: float | None = None,
        leak: bool = False,
    ) -> Fault:
        """A fault in some domains, or in all of them if there are none, with all their rows."""
        places = np.asarray(places, dtype=np.intp)
        if rows is None:
            rows = self.sizes[places].sum() if len(places) else len(self.codes)
        names = self.names(places)
        return Fault(kind, columns, names, int(rows), severity, message, action, leak)


def describe_differences(problem: Problem) -> dict[str, Any]:
    """Return domains, columns that differ most, and faults in the table, of all rows; for JSON."""
    problem = problem.whole or problem
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
    """List what looks wrong in a table, the worst first.

    ``columns`` are names and values: numbers with NaN, or text with None, for what is missing.
    ``codes`` are indices into ``domains`` of all rows.
    """
    target = Target(y, 0)
    if classification:
        classes, y = np.unique(y, return_inverse=True)
        target = Target(y, len(classes))
    made = [_column(name, values) for name, values in columns]
    table = _Table(made, target, np.asarray(codes), list(domains))
    faults = [*_missing(table), *_fillers(table)]
    faults += _shifted(table, faults)
    for check in (_leaks, _identifiers, _copied_columns, _copied_rows, _small_domains):
        faults += check(table)
    order = {kind: place for place, kind in enumerate(("unit", "sign", "filler", "missing"))}
    return sorted(faults, key=lambda f: (-f.severity, order.get(f.kind, len(order)), -f.rows))


def _column(name: str, values: Array) -> _Column:
    number = values.dtype.kind == "f"
    if number:
        there = np.isfinite(values)
        labels, inverse = np.unique(values[there], return_inverse=True)
    else:
        there = np.array([value is not None for value in values], dtype=bool)
        places: dict[str, int] = {}
        inverse = np.array([places.setdefault(v, len(places)) for v in values[there]], np.intp)
        labels = np.array(list(places), dtype=object)
    levels = np.full(len(values), -1)
    levels[there] = inverse
    return _Column(name, number, levels, labels)


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    >>> listed(["a", "b", "c"], most=1)
    'a and 2 others'
    """
    first = list(names)[:most]
    more = len(names) - len(first)
    if more:
        first.append(f"{more} other{'s' * (more > 1)}")
    return " and ".join(filter(None, (", ".join(first[:-1]), first[-1]))) if first else ""


def _drop(columns: Sequence[str]) -> str:
    return f"--drop {shlex.quote(','.join(columns))}"


def _leaks(table: _Table) -> Iterator[Fault]:
    """Columns that leak, and those that are as good alone as all others together."""
    X = np.column_stack([column.numbers for column in table.columns])
    text = {j for j, column in enumerate(table.columns) if not column.number}
    measure = "AUC" if table.target.n_classes else "rank correlation"
    neutral: list[tuple[str, float]] = []
    for leak in find_leaks(X, text, table.target, table.rows, table.copies):
        name = table.columns[leak.column].name
        if leak.neutral:
            neutral.append((name, max(leak.scores.values())))
            continue
        places = [] if leak.everywhere else list(leak.scores)
        where = f" at {listed(table.names(places))}" if places else ""
        yield table.fault(
            "leak",
            3,
            [name],
            places,
            f"{f'Whether {name} is missing' if leak.by_missing else name} predicts the target "
            f"almost perfectly{where} ({measure} {min(leak.scores.values()):.2f} alone, "
            f"{leak.rest:.2f} with all other columns): it may contain the answer.",
            f"If it is not known when a prediction is made, leave it out: {_drop([name])}.",
            leak=True,
        )
    if neutral:
        names, best = [name for name, _ in neutral], max(score for _, score in neutral)
        verb, they = ("reaches", "it is") if len(names) == 1 else ("reach", "they are")
        message = f"{listed(names)} alone {verb} {best:.2f} ({measure}), as do all others together."
        action = f"Check that {they} known when a prediction is made."
        yield table.fault("strong column", 1, names, [], message, action)


# Cells: missing, or one value ---------------------------------------------------------------------


def _missing(table: _Table) -> Iterator[Fault]:
    """Columns that some domains lack and others have; those of the same domains together."""
    large = table.sizes >= LEAST_ROWS
    groups: dict[tuple[int, ...], list[tuple[str, Array]]] = {}
    for column in table.columns:
        shares = 1 - table.counts(column) / table.sizes
        gone = large & (shares >= MISSING)
        if gone.any() and (large & (shares <= PRESENT)).any():
            key = tuple(np.flatnonzero(gone).tolist())
            groups.setdefault(key, []).append((column.name, shares))
    for places, members in groups.items():
        names = [name for name, _ in members]
        here = np.array([shares[list(places)] for _, shares in members])
        lacking = np.max([np.where(large, shares, np.inf) for _, shares in members], axis=0)
        best = int(np.argmin(lacking))
        low, high = np.floor(100 * here.min()), np.floor(100 * here.max())
        share = f"{low:.0f} %" if low == high else f"{low:.0f} to {high:.0f} %"
        part = "all rows" if low == 100 else f"{share} of the rows"
        verb = "is" if len(names) == 1 else "are"
        few = "in less than 1 %" if lacking[best] > 0 else "in none"
        rest = f"only in {100 * lacking[best]:.0f} %" if lacking[best] >= 0.01 else few
        yield table.fault(
            "missing",
            2,
            names,
            places,
            f"{listed(names)} {verb} missing in {part} of {listed(table.names(places))}, but "
            f"{rest} at {table.domains[best]}.",
            f"Check whether the values exist there; if not, evaluate again with {_drop(names)}.",
        )


def _fillers(table: _Table) -> Iterator[Fault]:
    """Values that stand for none: one value in all rows of a domain, which is rare elsewhere."""
    for column in table.columns:
        size, there = len(column.labels), column.levels >= 0
        present = table.counts(column)
        large = present >= LEAST_ROWS
        cells = table.codes[there].astype(np.int64) * size + column.levels[there]
        cells, counts = np.unique(cells, return_counts=True)
        place, level = np.divmod(cells, max(size, 1))
        often = large[place] & (counts >= np.maximum(PARTLY * present[place], LEAST_CLASS))
        constant = np.unique(place[often & (counts >= FILLED * present[place])])
        if 2 * len(constant) > large.sum():  # what it says is about domains
            continue
        for value in np.unique(level[often]).tolist():
            mine = level == value
            here = np.bincount(place[mine], counts[mine], len(table.domains))
            outside = _outside(column, value, np.bincount(level, counts, size))
            filled = np.zeros(len(here), dtype=bool)
            end = column.quantity and value in (0, size - 1)  # where a scale ends, values pile up
            elsewhere = NOWHERE if end and not outside else RARE
            for least, most in ((FILLED, elsewhere), *[(PARTLY, NOWHERE)] * outside):
                marked = large & (here >= np.maximum(least * present, LEAST_CLASS))
                few = outside or 3 * marked.sum() <= large.sum()
                if few and 0 < marked.sum() < len(here):
                    rare = here[~marked].sum() <= most * present[~marked].sum()
                    filled = marked if rare else filled
            if filled.any():
                yield _filler(table, column, value, np.flatnonzero(filled), here, present)


def _outside(column: _Column, level: int, usual: Array) -> bool:
    """Whether a value of a quantity lies outside of all other values."""
    if not column.quantity:
        return False
    value, labels = float(column.labels[level]), np.delete(column.labels, level)
    share = np.cumsum(np.delete(usual, level)) / max(usual.sum() - usual[level], 1)
    low, middle, high = labels[np.searchsorted(share, (0.01, 0.5, 0.99)).clip(0, len(share) - 1)]
    if value == 0 and low > 0:
        return bool(low >= 0.2 * middle)
    return bool(value > high + (high - low) or value < low - (high - low))


def _filler(
    table: _Table, column: _Column, level: int, places: Array, here: Array, present: Array
) -> Fault:
    value = column.labels[level]
    shown = f"{value:g}" if column.number else repr(str(value))
    parts = [
        f"all {present[d]:,.0f} rows of {table.domains[d]}"
        if here[d] == present[d]
        else f"{here[d]:,.0f} of {present[d]:,.0f} rows of {table.domains[d]}"
        for d in places.tolist()
    ]
    name = column.name
    text = (
        f"{name} is {shown} in {listed(parts, 3)}, and hardly anywhere else: it looks like a code "
    )
    text += "for a missing value."
    action = f"Leave these cells empty, or evaluate again with {_drop([name])}."
    return table.fault("filler", 2, [name], places, text, action, rows=here[places].sum())


# Levels and signs ---------------------------------------------------------------------------------


def _shifted(table: _Table, known: Sequence[Fault]) -> Iterator[Fault]:
    """Domains in which a column is in another unit, of the other sign, or far from all others."""
    names = [column.name for column in table.columns]
    quantities = {i: c.numbers for i, c in enumerate(table.columns) if c.quantity}
    places = {name: place for place, name in enumerate(names)}
    codes = {name: code for code, name in enumerate(table.domains)}
    cells = {(places[c], codes[d]) for fault in known for c in fault.columns for d in fault.domains}
    target = table.target.y if table.target.n_classes <= 2 else None
    far: dict[tuple[int, ...], list[str]] = {}
    for shift in find_shifts(names, quantities, target, table.codes, cells):
        if shift.kind == "level":
            far.setdefault(tuple(shift.domains), []).append(names[shift.column])
        else:
            yield _shift_fault(table, shift)
    action = "Check that these columns are recorded there as they are elsewhere."
    for group, columns in far.items():
        text = (
            f"{listed(table.names(group))} {'is' if len(group) == 1 else 'are'} far from all other "
        )
        text += f"domains in {listed(columns)}."
        yield table.fault("level", 1, columns, group, text, action)


def _shift_fault(table: _Table, shift: Shift) -> Fault:
    name, domains = table.columns[shift.column].name, table.names(shift.domains)
    rows = int(table.sizes[shift.domains].sum())
    here, there = (
        " to ".join(dict.fromkeys(f"{end:.4g}" for end in ends))
        for ends in (shift.here, shift.there)
    )
    looks = "it looks like another unit" if shift.kind == "unit" else "its sign looks swapped"
    fits = f" ({shift.units} would fit)" if shift.units else ""
    what = "a standard deviation" if shift.by_spread else "a median"
    if shift.partner is not None:
        other = "the target" if shift.partner < 0 else table.columns[shift.partner].name
        what = f"a rank correlation with {other}"
    text = (
        f"{name} has {what} of {here} at {listed(domains)} ({rows:,} rows) and of {there} in the "
    )
    text += f"other domains: {looks}{fits}."
    action = f"Correct it there, or evaluate again with {_drop([name])}."
    return table.fault(shift.kind, 2, [name], shift.domains, text, action)


# Identifiers and copies ---------------------------------------------------------------------------


def _identifiers(table: _Table) -> Iterator[Fault]:
    """Columns that number the rows, or repeat the domain."""
    n = len(table.codes)
    for column in table.columns:
        name, size = column.name, len(column.labels)
        action = f"Leave it out unless it has the same meaning in new domains: {_drop([name])}."
        reason = ""
        if column.number:
            reason = identifier_reason(column.numbers, table.rows)
        elif n >= LEAST_ROWS and size >= 0.95 * n:
            reason = "is a different text in almost every row"
        if reason:
            text = f"{name} {reason}: it looks like an identifier or a clock."
            yield table.fault("identifier", 1, [name], [], text, action)
            continue
        domains, there = len(table.domains), column.levels >= 0
        if not 3 <= domains <= size <= 2 * domains:
            continue
        cells = table.codes[there] * size + column.levels[there]
        counts = np.bincount(cells, minlength=domains * size).reshape(domains, size)
        same = counts.max(axis=1).sum() / n
        if same >= 0.98 and len(np.unique(counts.argmax(axis=1))) == domains:
            text = f"{name} has one value in each domain, a different one in every domain."
            yield table.fault("copy of the domain", 1, [name], [], text, action)


def _copied_columns(table: _Table) -> Iterator[Fault]:
    pairs = [(table.columns[a].name, table.columns[b].name) for a, b in table.copies]
    if pairs:
        names = list(dict.fromkeys(name for pair in pairs for name in pair))
        repeated = list(dict.fromkeys(second for _, second in pairs))
        text = listed([f"{second} repeats {first}" for first, second in pairs])
        text += ": one can be computed from the other."
        action = f"One of them is enough: {_drop(repeated)}."
        yield table.fault("copied column", 1, names, [], text, action)


def _copied_rows(table: _Table) -> Iterator[Fault]:
    """Rows of a domain that are also rows of another one, more often than between other domains."""
    n = len(table.domains)
    if n > MOST_DOMAINS:
        return
    rng = np.random.default_rng(0)
    key = np.zeros(len(table.codes), dtype=np.uint64)
    for levels in (
        *(c.levels for c in table.columns),
        np.unique(table.target.y, return_inverse=True)[1],
    ):
        marks = rng.integers(1, 2**63, size=int(levels.max(initial=0)) + 2, dtype=np.uint64)
        key += marks[levels]
    _, group, sizes = np.unique(key, return_inverse=True, return_counts=True)
    several = sizes[group] > 1
    pairs = np.unique(group[several].astype(np.int64) * n + table.codes[several])
    domains_of = np.split(pairs % n, np.flatnonzero(np.diff(pairs // n)) + 1)
    shared = np.zeros((n, n))
    for places in domains_of:
        if len(places) > 1:
            shared[np.ix_(places, places)] += 1
    np.fill_diagonal(shared, 0)
    smaller = np.minimum.outer(table.sizes, table.sizes)
    share = shared / np.maximum(smaller, 1)
    usual = np.median(share[~np.eye(n, dtype=bool)]) if n > 2 else 0.0
    inside = 1 - len(np.unique(np.stack([group, table.codes]), axis=1).T) / len(table.codes)
    limit = max(SHARED, 5 * usual, 2 * inside)
    pairs = np.argwhere(np.triu((share >= limit) & (shared >= LEAST_CLASS)))
    if not len(pairs):
        return
    rows = np.array([shared[a, b] for a, b in pairs])
    a, b = pairs[np.argmax(rows)]
    others = f", and others in {len(pairs) - 1} more pairs of domains" * (len(pairs) > 1)
    text = (
        f"{shared[a, b]:,.0f} rows occur both in {table.domains[a]} ({table.sizes[a]:,} rows) and "
    )
    text += f"in {table.domains[b]} ({table.sizes[b]:,} rows){others}: they are not independent."
    action = "Remove the copies, or give these domains one name."
    yield table.fault("copied rows", 2, [], np.unique(pairs), text, action, rows=rows.sum())


def _small_domains(table: _Table) -> Iterator[Fault]:
    kinds = {"tiny domain": table.sizes < TINY}
    if table.target.n_classes:
        least = np.array([len(np.unique(table.target.y[rows])) for rows in table.rows])
        kinds["one class"] = (least == 1) & ~kinds["tiny domain"]
    for kind, marked in kinds.items():
        if not marked.any():
            continue
        names, rows = table.names(np.flatnonzero(marked)), int(table.sizes[marked].sum())
        verb = "has" if len(names) == 1 else "have"
        what = f"fewer than {TINY} rows" if kind == "tiny domain" else "one class only"
        text = f"{listed(names)} {verb} {what} ({rows:,} rows together)."
        yield table.fault(kind, 1, [], np.flatnonzero(marked), text, SMALL[kind])


# After the evaluation -----------------------------------------------------------------------------


def stored_fault(fault: Mapping[str, Any]) -> dict[str, Any]:
    """A fault as it is now, from a file of this or an earlier version."""
    if "words" in fault:
        where = [fault["column"]], [fault["domain"]]
        return asdict(Fault(fault["kind"], *where, 0, 2, f"{fault['words']}.", ""))
    return dict(fault)


def leaking_columns(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns without which methods are also compared."""
    return list(dict.fromkeys(c for fault in faults if fault["leak"] for c in fault["columns"]))


def with_effects(faults: Sequence[dict[str, Any]], results: Results) -> list[dict[str, Any]]:
    """Say at which faults methods fail, and add a fault where scores are too good to be true.

    A method fails on a domain if it gains there, over a constant prediction, less than half of what
    it gains on domains without the fault.
    """
    constant = next((result.known for result in results.results if result.trivial), {})
    gains = {
        result.label: {str(d): s - constant[d] for d, s in result.known.items() if d in constant}
        for result in results.results
        if not result.trivial
    }
    connected, said = [], set()
    for fault in faults:
        domain, effect = _effect(fault, gains)
        connected.append({**fault, "effect": "" if domain in said else effect})
        said.add(domain)
    too_good = None if leaking_columns(faults) else _too_good(results, constant)
    return connected if too_good is None else [asdict(too_good), *connected]


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


def _too_good(results: Results, constant: Mapping[Any, float]) -> Fault | None:
    """Nearly perfect scores on all held-out domains."""
    best = next((result for result in results.results if not result.trivial), None)
    if best is None:
        return None
    if results.measure.sign > 0:
        perfect = best.worst >= 0.99 and best.mean >= 0.995
    else:
        perfect = all(s >= 0.02 * constant.get(d, 0.0) for d, s in best.known.items())
    if not perfect:
        return None
    columns = sorted(best.importance, key=lambda name: -best.importance[name])[:3]
    columns = [name for name in columns if best.importance[name] > 0]
    return Fault(
        "score",
        columns,
        [],
        int(results.facts["rows"]),
        3,
        f"{results.measure.label} is {results.show(best.mean)} on held-out domains, which is too "
        "good for most tasks: a column may contain the answer.",
        f"Check the columns that matter most: {listed(columns)}." * bool(columns)
        or "Check how the columns were obtained.",
    )
