"""What differs between the domains: columns, and faults in the table."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.stats import rankdata

from domainwise.arrays import Array
from domainwise.evaluation.faults import find_faults
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
    """Return domains, columns that differ most, and faults in the table, of all rows; for JSON."""
    problem = problem.whole or problem
    codes, names = problem.codes, [str(name) for name in problem.domains.tolist()]
    values = columns_of(problem.X)
    columns = [describe_column(name, column, codes, len(names)) for name, column in values]
    columns.sort(key=lambda column: -column["tells"])
    faults = find_faults(values, problem.y, problem.classification, codes, names)
    return {
        "domains": _domains(problem),
        "columns": columns[:MAX_COLUMNS],
        "others": len(columns[MAX_COLUMNS:]),
        "faults": [asdict(fault) for fault in faults],
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
