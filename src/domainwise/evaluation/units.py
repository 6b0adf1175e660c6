"""Domains in which a quantity is in another unit, has the other sign, or is far from all others.

A domain is compared with the spread of the other domains, by a t-test whose level is divided by the
number of columns, domains and kinds, and with the spread of rows inside domains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, t

from domainwise.arrays import Array
from domainwise.tables.statistics import NORMAL_IQR, quantiles_by_domain

#: Share of tables without faults that raise an alarm.
ALARMS = 0.1
#: Minimum number of values of a column in a domain, and of domains, for a comparison.
LEAST_VALUES, LEAST_DOMAINS = 20, 3
#: Minimum distance of a domain, in standard deviations inside domains; larger if no unit fits.
FAR, VERY_FAR = 2.0, 4.0
#: A unit fits if it brings a domain within FITS standard errors of the others, or removes all but
#: NEARLY of the distance. The spread of its rows must be that of the others up to a factor, or on a
#: logarithmic scale up to a share of the factor between the units.
FITS, NEARLY, ALIKE, ALIKE_BY = 2.0, 0.1, 1.6, 0.2
#: A unit is reported only if it moves the domain by this many times the range of all others.
MOVES = 2.0
#: Maximum number of columns with compared correlations, and of groups of domains on each side.
MOST_COLUMNS, MOST_GROUPS = 200, 12

#: Units that are often mixed up, by parts of column names: a value in the first unit is the value
#: in the second times a factor, plus an offset.
QUANTITIES = {
    r"temp|celsius|fahrenheit|kelvin": (("°F", "°C", 1.8, 32.0), ("K", "°C", 1.0, 273.15)),
    r"gluc|sugar|glyc": (("mg/dl", "mmol/l", 18.016, 0.0),),
    r"chol|ldl|hdl": (("mg/dl", "mmol/l", 38.67, 0.0),),
    r"trigly": (("mg/dl", "mmol/l", 88.57, 0.0),),
    r"creat": (("µmol/l", "mg/dl", 88.42, 0.0),),
    r"bilirubin": (("µmol/l", "mg/dl", 17.1, 0.0),),
    r"urea|bun": (("mg/dl", "mmol/l", 2.8, 0.0),),
    r"press|bps?|sys|dia": (("mmHg", "kPa", 7.50062, 0.0), ("psi", "bar", 14.5038, 0.0)),
    r"weight|wt|mass": (("pounds", "kilograms", 2.20462, 0.0),),
    r"height|length|width|waist": (("centimetres", "inches", 2.54, 0.0),),
    r"height|length|depth|elev|altitude": (("feet", "metres", 3.28084, 0.0),),
    r"dist|speed|wind|veloc": (("kilometres", "miles", 1.60934, 0.0),),
    r"speed|wind|veloc": (("km/h", "m/s", 3.6, 0.0),),
    r"area|sqft|square|surface": (("square feet", "square metres", 10.7639, 0.0),),
    r"time|duration|hour|minute": (("minutes", "hours", 60.0, 0.0),),
    r"age|months?|years?": (("months", "years", 12.0, 0.0), ("days", "years", 365.25, 0.0)),
}


@dataclass(frozen=True)
class Shift:
    """A column that is different in some domains."""

    kind: str  #: "unit", "sign" or "level"
    column: int
    domains: list[int]
    here: Array  #: medians, or a correlation with ``partner``
    elsewhere: Array  #: the same in all other domains
    units: str = ""  #: units that would fit
    by_spread: bool = False  #: whether these are deviations of rows instead of medians
    partner: int | None = None  #: the other column of the correlation, -1 for the target


@dataclass(frozen=True)
class _Levels:
    """A quantity by domain: medians, or spreads of rows where medians may be zero."""

    column: int
    domains: Array
    medians: Array
    widths: Array  #: interquartile ranges, as standard deviations
    #: What is compared: "logarithm" of medians, if they are positive, else "median", and "width".
    scale: str
    values: Array  #: on this scale
    inside: Array  #: standard deviations of rows inside each domain
    errors: Array  #: standard errors of ``values``, for normal rows

    def spread(self, others: Array) -> tuple[float, float]:
        """Mean of the domains ``others``, and the prediction variance of one more domain."""
        values = self.values[others]
        between = max(float(np.var(values, ddof=1)), float(np.mean(self.errors[others] ** 2)))
        return float(np.mean(values)), between * (1 + 1 / len(values))

    def far(self) -> tuple[Array, Array]:
        """p-value and distance (in deviations inside domains) of each domain from the others.

        Groups of up to a third of the domains, the highest or the lowest, are compared with the n
        others by a t-test with n - 1 degrees of freedom. All members of a group must be far from
        the others. With groups, two domains with the same fault do not hide each other. If there
        are many groups, those next to the widest gaps are compared.
        """
        n, inside = len(self.values), float(np.median(self.inside))
        p_values, distance = np.ones(n), np.zeros(n)
        for order in (np.argsort(self.values), np.argsort(-self.values)):
            gaps = np.abs(np.diff(self.values[order]))[: max(n // 3, 1)]
            for size in sorted(1 + np.argsort(-gaps, kind="stable")[:MOST_GROUPS]):
                group, others = order[:size], order[size:]
                center, between = self.spread(others)
                away = np.abs(self.values[group] - center)
                p = (
                    2
                    * t.sf(away / np.sqrt(between + self.errors[group] ** 2), len(others) - 1).max()
                )
                closer = p < p_values[group]
                distance[group[closer]] = away[closer] / inside
                p_values[group[closer]] = p
        return p_values, distance

    def explain(self, name: str, i: int, off: Array) -> tuple[str, str]:
        """Return the kind of a shift, and the units that would bring domain i to the others."""
        center, between = self.spread(np.flatnonzero(~off))
        error = np.sqrt(between + self.errors[i] ** 2)
        near = max(FITS * error, NEARLY * abs(self.values[i] - center))
        logarithm = self.scale == "logarithm"
        relative = self.widths[~off] / (self.medians[~off] if logarithm else 1.0)
        usual = np.log(np.maximum(relative, 1e-300))
        alike = max(np.log(ALIKE), FITS * float(np.std(usual)))

        def fits(factor: float, offset: float) -> bool:
            median, width = (self.medians[i] - offset) / factor, self.widths[i] / abs(factor)
            if width <= 0 or (logarithm and median <= 0):
                return False
            value = width if self.scale == "width" else median
            value = value if self.scale == "median" else np.log(value)
            spread = np.log(max(width / (median if logarithm else 1.0), 1e-300))
            allowed = max(alike, ALIKE_BY * abs(np.log(abs(factor))))
            return bool(
                abs(value - center) < near
                and abs(spread - np.median(usual)) < allowed
                and abs(value - self.values[i]) >= MOVES * np.ptp(self.values[~off])
            )

        if self.scale == "median" and fits(-1.0, 0.0):
            return "sign", ""
        tens = self.scale != "median"  # a median of zero has no factor
        units = " or ".join(unit for unit, *change in _units(name, tens) if fits(*change))
        return "unit" if units else "level", units


def find_shifts(
    names: Sequence[str],
    quantities: Mapping[int, Array],
    target: Array | None,
    codes: Array,
    excluded: set[tuple[int, int]],
) -> list[Shift]:
    """Find quantities that differ in some domains; ``quantities`` are by index of the column.

    ``codes`` are the domains of all rows; ``excluded`` are columns and domains with another fault.
    """
    n_domains = int(codes.max()) + 1
    compared = [
        levels
        for place, x in quantities.items()
        for levels in _levels(place, x, codes, n_domains, excluded)
    ]
    tests = 2 * sum(len(levels.domains) for levels in compared)
    shifts = []
    for levels in compared:
        p_values, distance = levels.far()
        off = (p_values <= ALARMS / tests) & (distance >= FAR)
        by_spread = levels.scale == "width"
        reasons: dict[tuple[str, str], list[int]] = {}
        for i in np.flatnonzero(off).tolist():
            if (levels.column, int(levels.domains[i])) in excluded:
                continue
            kind, units = levels.explain(names[levels.column], i, off)
            if kind != "level" or (distance[i] >= VERY_FAR and not by_spread):
                reasons.setdefault((kind, units), []).append(i)
        shown = levels.widths if by_spread else levels.medians
        for (kind, units), places in reasons.items():
            domains, ends = levels.domains[places].tolist(), (shown[places], shown[~off])
            shifts.append(Shift(kind, levels.column, domains, *ends, units, by_spread))
            excluded = excluded | {(levels.column, d) for d in domains}
    if tests:
        columns = list(dict.fromkeys(levels.column for levels in compared))[:MOST_COLUMNS]
        quantities = {place: quantities[place] for place in columns}
        rows = [np.flatnonzero(codes == d) for d in range(n_domains)]
        signs = _signs(quantities, target, rows, ALARMS / tests)
        shifts += [sign for sign in signs if (sign.column, sign.domains[0]) not in excluded]
    return shifts


def _levels(
    place: int, x: Array, codes: Array, n_domains: int, excluded: set[tuple[int, int]]
) -> Iterator[_Levels]:
    counts = np.bincount(codes[np.isfinite(x)], minlength=n_domains)
    large = np.flatnonzero(counts >= LEAST_VALUES).tolist()
    usable = np.array([d for d in large if (place, d) not in excluded], dtype=np.intp)
    if len(usable) < LEAST_DOMAINS:
        return
    shares = (0.0, 0.25, 0.5, 0.75)
    lowest, low, medians, high = quantiles_by_domain(x, codes, n_domains, shares)[:, usable]
    widths = (high - low) / NORMAL_IQR
    if np.median(widths) <= 0:  # most rows have one value: it has no level
        return
    root, columns = np.sqrt(counts[usable]), (place, usable, medians, widths)
    if lowest.min() >= 0 and medians.min() > 0:
        inside = widths / medians
        yield _Levels(*columns, "logarithm", np.log(medians), inside, 1.2533 * inside / root)
        return
    yield _Levels(*columns, "median", medians, widths, 1.2533 * widths / root)
    # If a quarter of the rows has the lowest value, spreads are not informative.
    if (low > lowest).all() and widths.min() > 0:
        inside = np.full(len(usable), np.log(3) / FAR)  # three times the width is FAR
        yield _Levels(*columns, "width", np.log(widths), inside, 1.17 / root)


def _units(name: str, tens: bool) -> Iterator[tuple[str, float, float]]:
    """Possible mistakes in the unit of a column, and powers of ten: text, factor, offset."""
    for k in range(1, 7) if tens else ():
        yield f"a factor of {10**k:,}", 10.0**k, 0.0
        yield f"a factor of 1/{10**k:,}", 10.0**-k, 0.0
    for pattern, pairs in QUANTITIES.items():
        if re.search(rf"(?<![a-z])(?:{pattern})|(?:{pattern})(?![a-z])", name.lower()):
            for one, other, factor, offset in pairs:
                yield f"{one} instead of {other}", factor, offset
                yield f"{other} instead of {one}", 1 / factor, -offset / factor


def _signs(
    quantities: Mapping[int, Array], target: Array | None, rows: Sequence[Array], alarm: float
) -> Iterator[Shift]:
    """Columns whose correlations with others have the opposite sign in one domain.

    In each domain the clearest column comes first; its sign is corrected before the next is tested,
    because a correct column that is correlated with it would seem wrong, too.
    """
    large = [d for d, domain_rows in enumerate(rows) if len(domain_rows) >= LEAST_VALUES]
    if len(large) <= LEAST_DOMAINS or len(quantities) < 2:
        return
    places = [-1, *quantities]
    first = np.zeros(sum(map(len, rows))) if target is None else target
    X = np.column_stack([first, *quantities.values()])
    correlations = np.array([_correlations(X[rows[d]]) for d in large])
    usual = np.median(correlations, axis=0)
    strength = np.maximum((usual**2).sum(axis=1), 1e-12)
    along = (correlations * usual).sum(axis=2) / strength
    for number, d in enumerate(large):
        current, others = correlations[number], np.delete(along, number, axis=0)
        variance = others.var(axis=0, ddof=1) * (1 + 1 / len(others))
        error = np.sqrt(variance + 1 / ((len(rows[d]) - 3) * strength))
        for _ in quantities:
            score = (current * usual).sum(axis=1) / strength
            score[0] = 1.0  # the sign of the target is right
            worst = int(np.argmin(score))
            z = (others[:, worst].mean() - score[worst]) / error[worst]
            if score[worst] > -0.5 or 2 * t.sf(z, len(others) - 1) > alarm:
                break
            j = int(np.argmax(np.abs(usual[worst])))
            ends = current[worst, [j]], usual[worst, [j]]
            yield Shift("sign", places[worst], [d], *ends, partner=places[j])
            current[worst] *= -1
            current[:, worst] *= -1


def _correlations(X: Array) -> Array:
    """Rank correlations of columns, missing values at the mean rank; 0 on the diagonal."""
    present = np.isfinite(X)
    ranks = rankdata(np.where(present, X, np.inf), axis=0)
    Z = np.where(present, ranks - (present.sum(axis=0) + 1) / 2, 0.0)
    Z /= np.maximum(np.sqrt((Z**2).sum(axis=0)), 1e-12)
    return np.asarray(Z.T @ Z * (1 - np.eye(X.shape[1])))
