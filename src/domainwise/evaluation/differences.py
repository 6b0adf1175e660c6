"""What differs between the domains: columns, and faults in the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from domainwise.arrays import Array
from domainwise.evaluation.problem import Problem

#: Columns that are described: those that identify domains best.
MAX_COLUMNS = 40
#: Drawn for each domain: the ends of its spread, quartiles and the median.
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
#: A domain with fewer values of a column differs from the others by chance.
FEW_VALUES = 10
#: Categories that have a share of their own; those with fewer rows count together.
MAX_CATEGORIES, RARE = 4, 5


def describe_differences(problem: Problem) -> dict[str, Any]:
    """Return domains, columns that differ most, and what looks like a fault; for JSON."""
    codes, n_domains = problem.codes, len(problem.domains)
    columns = [
        describe_column(name, values, codes, n_domains) for name, values in columns_of(problem.X)
    ]
    columns.sort(key=lambda column: -column["tells"])
    described = columns[:MAX_COLUMNS]
    numbers = {n: v for n, v in columns_of(problem.X) if v.dtype.kind == "f"}
    target = problem.y if problem.classes is None else problem.y == problem.classes[-1]
    values_of = {"the target": np.asarray(target, dtype=np.float64)}
    values_of |= {c["name"]: numbers[c["name"]] for c in described if c["name"] in numbers}
    return {
        "domains": _domains(problem),
        "columns": described,
        "others": len(columns) - len(described),
        "faults": find_faults(
            described, values_of, codes, [str(name) for name in problem.domains.tolist()]
        ),
    }


def columns_of(X: Any) -> list[tuple[str, Array]]:
    """Names and values of columns: numbers with NaN, or text with None, for what is missing."""
    if not hasattr(X, "columns"):
        return [(f"x{i}", np.asarray(column, np.float64)) for i, column in enumerate(X.T)]
    columns = []
    for name in X.columns:
        column = X[name]
        if column.dtype.kind in "biuf":
            columns.append((str(name), column.to_numpy(np.float64)))
        else:
            columns.append(
                (str(name), column.astype(object).where(column.notna(), None).to_numpy())
            )
    return columns


def describe_column(name: str, values: Array, codes: Array, n_domains: int) -> dict[str, Any]:
    """Spread, missing share, distance to the others, and how well it identifies a domain."""
    number = values.dtype.kind == "f"
    there = np.isfinite(values) if number else np.array([value is not None for value in values])
    rows = np.bincount(codes, minlength=n_domains)
    counts = np.bincount(codes[there], minlength=n_domains)
    describe = _describe_numbers if number else _describe_text
    statistics, distances, tells = describe(values[there], codes[there], n_domains)
    missing = 1 - counts / rows
    elsewhere = (len(codes) - len(codes[there]) - (rows - counts)) / (len(codes) - rows)
    # Few values differ by chance; where there is nothing else they have to do.
    few = counts < (FEW_VALUES if (counts >= FEW_VALUES).any() else 1)
    tells = np.maximum(np.where(few, 0.5, tells), 0.5 + np.abs(missing - elsewhere) / 2)
    distances = np.where(few, 0.0, distances)
    far, best = int(np.argmax(distances)), int(np.argmax(tells))
    return {
        "name": name,
        "kind": "number" if number else "text",
        "missing": missing.tolist(),
        **statistics,
        "distance": float(distances[far]),
        "distance_at": far,
        "tells": float(tells[best]),
        "tells_at": best,
    }


def _describe_numbers(x: Array, codes: Array, n: int) -> tuple[dict[str, Any], Array, Array]:
    mine = [x[codes == d] for d in range(n)]
    spread = [np.quantile(v, QUANTILES).tolist() if len(v) else None for v in mine]
    counts = np.bincount(codes, minlength=n)
    distances, tells = np.zeros(n), np.full(n, 0.5)
    statistics = {"quantiles": spread, "deviation": deviation_inside(x, codes, n)}
    if len(x) == 0:
        return statistics, distances, tells
    sums = np.bincount(codes, rankdata(x), minlength=n)
    with np.errstate(invalid="ignore", divide="ignore"):
        area = (sums - counts * (counts + 1) / 2) / (counts * (len(x) - counts))
    tells = np.maximum(area, 1 - area)
    for d, values in enumerate(mine):
        if 0 < len(values) < len(x):
            away = np.median(values) - np.median(x[codes != d])
            distances[d] = abs(away) / statistics["deviation"]
    return statistics, distances, np.nan_to_num(tells, nan=0.5)


def deviation_inside(x: Array, codes: Array, n: int) -> float:
    """Deviation of rows from the median of their own domain: the usual one, as of a normal law.

    Columns of which more than half of the rows are alike have the mean square; constants one of 1.
    """
    if not len(x):
        return 1.0
    medians = np.array([np.median(x[codes == d]) if (codes == d).any() else 0.0 for d in range(n)])
    inside = np.abs(x - medians[codes])
    usual = 1.4826 * float(np.median(inside))
    return usual or float(np.sqrt(np.mean(inside**2))) or float(np.std(x)) or 1.0


def _describe_text(x: Array, codes: Array, n: int) -> tuple[dict[str, Any], Array, Array]:
    names = [str(value) for value in x]
    often = Counter(names).most_common()
    frequent = [name for name, count in often if count >= RARE]
    place = {name: i for i, name in enumerate(frequent)}
    table = np.zeros((n, len(frequent) + 1))
    which = np.array([place.get(name, len(frequent)) for name in names], dtype=np.intp)
    np.add.at(table, (codes, which), 1.0)
    counts = table.sum(axis=1)
    here = table / np.maximum(counts, 1)[:, None]
    rest = table.sum(axis=0) - table
    rest = rest / np.maximum(rest.sum(axis=1), 1)[:, None]
    shown = min(MAX_CATEGORIES, len(frequent))
    statistics = {
        "categories": frequent[:shown],
        "shares": [here[d, :shown].tolist() if counts[d] else None for d in range(n)],
    }
    return statistics, np.abs(here - rest).sum(axis=1) / 2, np.array(list(map(_area, here, rest)))


def _area(here: Array, rest: Array) -> float:
    """Area under the curve of the best order of categories: by how much more often they are here.

    >>> _area(np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    0.5
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        order = np.argsort(np.nan_to_num(-here / (here + rest)), kind="stable")
    hits = np.concatenate([[0.0], np.cumsum(here[order])])
    alarms = np.concatenate([[0.0], np.cumsum(rest[order])])
    return float(np.trapezoid(hits, alarms)) if hits[-1] > 0 and alarms[-1] > 0 else 0.5


def _domains(problem: Problem) -> list[dict[str, Any]]:
    """Rows, and classes or the middle of the target, of each domain."""
    domains = []
    for code, name in enumerate(problem.domains.tolist()):
        y = problem.y[problem.codes == code]
        if problem.classes is None:
            target: dict[str, Any] = {"target": np.quantile(y, (0.25, 0.5, 0.75)).tolist()}
        else:
            target = {"classes": [int(np.sum(y == c)) for c in problem.classes]}
        domains.append({"name": str(name), "rows": len(y), **target})
    return domains


#: Description of each kind of fault, the most certain first.
LOOKS = {
    "unit": "looks like another unit",
    "sign": "looks like a swapped sign",
    "missing": "is missing",
    "apart": "is far from all other domains",
}
#: Units that are mixed up: the first is the second times a factor, plus an offset.
PAIRS = (
    ("°F", "°C", 1.8, 32.0),
    ("K", "°C", 1.0, 273.15),
    ("feet", "metres", 3.28084, 0.0),
    ("pounds", "kilograms", 2.20462, 0.0),
    ("centimetres", "inches", 2.54, 0.0),
    ("mg/dl of glucose", "mmol/l", 18.016, 0.0),
    ("µmol/l of creatinine", "mg/dl", 88.42, 0.0),
)
UNITS = {
    **{f"{a} instead of {b}": (factor, offset) for a, b, factor, offset in PAIRS},
    **{f"{b} instead of {a}": (1 / factor, -offset / factor) for a, b, factor, offset in PAIRS},
    **{f"a factor of {10**k:,}": (10.0**k, 0.0) for k in range(1, 7)},
    **{f"a factor of 1/{10**k:,}": (10.0**-k, 0.0) for k in range(1, 7)},
}
#: Off by this many deviations, of the narrower side, and this many times what domains are apart.
FAR, APART = 2.0, 4.0
#: A median this many deviations off is reported even if nothing explains it.
STRANGE = 6.0
#: Spreads that are alike differ by no more than this factor; two units fit about as well by less
#: than that, in deviations of the domains' medians and logarithms of their spreads.
ALIKE, CLOSE = 1.6, 0.3
#: A column is missing at a domain with this share where the middle domain lacks no more than that.
GONE, KNOWN = 0.5, 0.1
#: A sign is swapped by correlations that differ by so many standard errors.
SURE = 5.0


Fault = dict[str, Any]


def find_faults(
    columns: Sequence[Mapping[str, Any]],
    numbers: Mapping[str, Array],
    codes: Array,
    domains: Sequence[str],
) -> list[Fault]:
    """List what looks like a fault, the most certain first.

    ``columns`` are those of :func:`~domainwise.evaluation.differences.describe_column`;
    ``numbers`` the values of columns, and of the target, whose correlations are compared.
    """
    faults = []
    for column in columns:
        faults += _missing(column, domains)
        faults += _levels(column, domains) if column["kind"] == "number" else []
    named = {(fault["column"], fault["domain"]) for fault in faults}
    signs = _signs(numbers, codes, domains)
    faults += [fault for fault in signs if (fault["column"], fault["domain"]) not in named]
    return sorted(faults, key=lambda fault: list(LOOKS).index(fault["kind"]))


def _fault(kind: str, column: str, domain: str, reason: str) -> Fault:
    words = f"{column} at {domain} {LOOKS[kind]} ({reason})"
    return {"kind": kind, "column": column, "domain": domain, "words": words}


def _missing(column: Mapping[str, Any], domains: Sequence[str]) -> list[Fault]:
    shares = np.array(column["missing"])
    if np.sort(shares)[(len(shares) - 1) // 2] > KNOWN:
        return []
    usual = 100 * shares[shares < GONE].max(initial=0.0)
    others = f"at most {usual:.0f} % elsewhere" if usual else "none elsewhere"
    return [
        _fault(
            "missing",
            column["name"],
            domains[d],
            f"in {f'{100 * shares[d]:.0f} %' if shares[d] < 1 else 'all'} of its rows; {others}",
        )
        for d in np.flatnonzero(shares >= GONE).tolist()
    ]


def _levels(column: Mapping[str, Any], domains: Sequence[str]) -> list[Fault]:
    """Domains whose values are those of the others in another unit, of the other sign, or apart."""
    known = [d for d, quantiles in enumerate(column["quantiles"]) if quantiles is not None]
    if len(known) < 3:
        return []
    _, low, medians, high, _ = np.array([column["quantiles"][d] for d in known]).T
    widths = (high - low) / 1.349
    middle, width = np.median(medians), np.median(widths)
    apart = 1.4826 * np.median(np.abs(medians - middle))
    if width <= 0:  # counts, and yes or no: their level is what they are about
        return []
    away = np.abs(medians - middle)
    off = (away > FAR * np.minimum(np.maximum(widths, 1e-9 * away), width)) & (away > APART * apart)
    others = medians[~off]
    faults = []
    for i in np.flatnonzero(off).tolist():
        reach = max(APART * apart, width)
        kind, fits = _explain(medians[i], widths[i], middle, width, reach)
        kind = kind or ("apart" if away[i] > STRANGE * width else "")
        usual = " to ".join(dict.fromkeys(f"{v:.4g}" for v in (others.min(), others.max())))
        reason = f"median {medians[i]:.4g}; other domains {usual}{fits}"
        faults += [_fault(kind, column["name"], domains[known[i]], reason)] if kind else []
    return faults


def _explain(
    median: float, width: float, middle: float, usual: float, reach: float
) -> tuple[str, str]:
    """Which change of unit, or of sign, would bring a domain to the others."""
    fits = {}
    for name, (factor, offset) in UNITS.items():
        off = abs((median - offset) / factor - middle) / reach
        wider = abs(np.log(max(width, 1e-300) / factor / usual))
        if off < 1 and wider < np.log(ALIKE):
            fits[name] = off + wider
    if fits:  # what fits about as well is named, too
        close = [name for name, off in fits.items() if off < min(fits.values()) + CLOSE]
        return "unit", f"; {' or '.join(close)} would fit"
    if 1 / ALIKE < width / usual < ALIKE and abs(median + middle) < reach:
        return "sign", ""
    return "", ""


def _signs(numbers: Mapping[str, Array], codes: Array, domains: Sequence[str]) -> list[Fault]:
    """Columns that go along with others everywhere, and against them in one domain.

    One after the other, the clearest first, and with the sign put right: what goes against a
    swapped column is not at fault.
    """
    names = list(numbers)
    rows = np.column_stack([numbers[name] for name in names])
    counts = np.bincount(codes, minlength=len(domains))
    large = np.flatnonzero(counts >= 10).tolist()
    if len(large) < 3 or len(names) < 2:
        return []
    # Correlations of ranks inside each domain; what is missing counts for nothing.
    tables = np.zeros((len(domains), len(names), len(names)))
    for d in large:
        tables[d] = _correlations(rankdata(rows[codes == d], axis=0, nan_policy="omit"))
    usual = np.median(tables[large], axis=0)
    faults = []
    for d in large:
        mine, error = tables[d].copy(), 1 / np.sqrt(max(counts[d] - 3, 1))
        for _ in names:
            # Against all partners together, and against the closest one beyond chance.
            against = -(mine * usual).sum(axis=1) / np.maximum((usual**2).sum(axis=1), 1e-12)
            against[0] = -1.0  # the target is what it is
            worst = int(np.argmax(against))
            partner = int(np.argmax(np.abs(usual[worst])))
            here, there = float(mine[worst, partner]), float(usual[worst, partner])
            gap = abs(np.subtract(*np.arctanh(np.clip([here, there], -0.99, 0.99))))
            if against[worst] < 0.5 or here * there >= 0 or gap < SURE * error:
                break
            reason = f"its correlation with {names[partner]} is {here:.2f}, elsewhere {there:.2f}"
            faults.append(_fault("sign", names[worst], domains[d], reason))
            mine[worst] *= -1
            mine[:, worst] *= -1
    return faults


def _correlations(ranks: Array) -> Array:
    """Correlations of columns over the rows that each has; 0 on the diagonal and for constants."""
    there = np.isfinite(ranks)
    z = np.where(there, ranks, 0.0)
    z = np.where(there, z - z.sum(axis=0) / np.maximum(there.sum(axis=0), 1), 0.0)
    z /= np.maximum(np.sqrt((z**2).sum(axis=0)), 1e-12)
    return np.asarray(z.T @ z * (1 - np.eye(z.shape[1])))
