"""Faults of tables, in words: another unit, a swapped sign, a column that is missing at one site.

A domain is set against the middle one of all, so that a fault in fewer than half of them shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from domainwise.arrays import Array

#: What is said of a kind of fault, the surest first.
LOOKS = {
    "unit": "looks like another unit",
    "sign": "looks like a swapped sign",
    "missing": "is missing",
    "apart": "lies far from all others",
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
#: Off by this many deviations is said even where nothing explains it.
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
    """Name what looks like a fault, the surest first.

    ``columns`` are those of :func:`~domainwise.evaluation.differences.describe_column`;
    ``numbers`` the values of columns, and of the target, whose correlations are compared.
    """
    found = []
    for column in columns:
        found += _missing(column, domains)
        found += _levels(column, domains) if column["kind"] == "number" else []
    named = {(fault["column"], fault["domain"]) for fault in found}
    signs = _signs(numbers, codes, domains)
    found += [fault for fault in signs if (fault["column"], fault["domain"]) not in named]
    return sorted(found, key=lambda fault: list(LOOKS).index(fault["kind"]))


def _fault(kind: str, column: str, domain: str, why: str) -> Fault:
    words = f"{column} at {domain} {LOOKS[kind]} ({why})"
    return {"kind": kind, "column": column, "domain": domain, "words": words}


def _missing(column: Mapping[str, Any], domains: Sequence[str]) -> list[Fault]:
    shares = np.array(column["missing"])
    if np.sort(shares)[(len(shares) - 1) // 2] > KNOWN:
        return []
    usual = 100 * shares[shares < GONE].max(initial=0.0)
    others = f"the others lack at most {usual:.0f} %" if usual else "the others lack none"
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
    found = []
    for i in np.flatnonzero(off).tolist():
        reach = max(APART * apart, width)
        kind, fits = _explain(medians[i], widths[i], middle, width, reach)
        kind = kind or ("apart" if away[i] > STRANGE * width else "")
        usual = " to ".join(dict.fromkeys(f"{v:.4g}" for v in (others.min(), others.max())))
        why = f"median {medians[i]:.4g} where the others have {usual}{fits}"
        found += [_fault(kind, column["name"], domains[known[i]], why)] if kind else []
    return found


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
    swapped column has done nothing.
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
    found = []
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
            why = f"its correlation with {names[partner]} is {here:.2f}, elsewhere {there:.2f}"
            found.append(_fault("sign", names[worst], domains[d], why))
            mine[worst] *= -1
            mine[:, worst] *= -1
    return found


def _correlations(ranks: Array) -> Array:
    """Correlations of columns over the rows that each has; 0 on the diagonal and for constants."""
    there = np.isfinite(ranks)
    z = np.where(there, ranks, 0.0)
    z = np.where(there, z - z.sum(axis=0) / np.maximum(there.sum(axis=0), 1), 0.0)
    z /= np.maximum(np.sqrt((z**2).sum(axis=0)), 1e-12)
    return np.asarray(z.T @ z * (1 - np.eye(z.shape[1])))
