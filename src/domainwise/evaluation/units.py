"""Find columns with a different unit, the opposite sign, or very different values in some domains.

Domains are compared by t-tests whose significance level is divided by the number of tests. The
distance between domains is also compared with the spread of rows within domains (theory 19).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, t

from domainwise.base.arrays import Array
from domainwise.evaluation.columns import NORMAL_IQR, quantiles_by_domain

#: Maximum share of tables without faults for which a fault is reported.
FALSE_ALARM_RATE = 0.1
#: Minimum number of values of a column in a domain, and of domains, for a comparison.
MIN_VALUES, MIN_DOMAINS = 20, 3
#: Minimum distance of a domain from the others, in standard deviations within domains: if a unit or
#: the opposite sign explains the distance, and if nothing does.
MIN_DISTANCE, MIN_UNEXPLAINED_DISTANCE = 2.0, 4.0
#: A unit explains a distance if less than MAX_ERRORS standard errors, or less than MAX_SHARE of the
#: distance, remains after conversion.
MAX_ERRORS, MAX_SHARE = 2.0, 0.1
#: The spread of converted rows may differ from that of the other domains by at most the larger of
#: two factors: SPREAD_FACTOR, and the factor between the units to the power of SPREAD_POWER.
SPREAD_FACTOR, SPREAD_POWER = 1.6, 0.2
#: A conversion must change a domain's value by at least this many times the range of the others.
MIN_MOVE = 2.0
#: Maximum number of columns whose correlations are compared, and of groups of domains to test.
MAX_COLUMNS, MAX_GROUPS = 200, 12

#: Units that are often confused, by patterns in column names: a value in the first unit is the
#: value in the second unit times a factor, plus an offset.
UNITS = {
    r"temp|celsius|fahrenheit|kelvin": (("°F", "°C", 1.8, 32.0), ("K", "°C", 1.0, 273.15)),
    r"gluc|sugar|glyc": (("mg/dl", "mmol/l", 18.016, 0.0),),
    r"chol|ldl|hdl": (("mg/dl", "mmol/l", 38.67, 0.0),),
    r"trigly": (("mg/dl", "mmol/l", 88.57, 0.0),),
    r"creat": (("µmol/l", "mg/dl", 88.42, 0.0),),
    r"bilirubin": (("µmol/l", "mg/dl", 17.1, 0.0),),
    r"urea|bun": (("mg/dl", "mmol/l", 2.8, 0.0),),
    r"press|bps?|sys|dia": (("mmHg", "kPa", 7.50062, 0.0), ("psi", "bar", 14.5038, 0.0)),
    r"weight|wt|mass": (("pounds", "kilograms", 2.20462, 0.0),),
    r"height|length|width|waist": (("centimeters", "inches", 2.54, 0.0),),
    r"height|length|depth|elev|altitude": (("feet", "meters", 3.28084, 0.0),),
    r"dist|speed|wind|veloc": (("kilometers", "miles", 1.60934, 0.0),),
    r"speed|wind|veloc": (("km/h", "m/s", 3.6, 0.0),),
    r"area|sqft|square|surface": (("square feet", "square meters", 10.7639, 0.0),),
    r"time|duration|hour|minute": (("minutes", "hours", 60.0, 0.0),),
    r"age|months?|years?": (("months", "years", 12.0, 0.0), ("days", "years", 365.25, 0.0)),
}


@dataclass(frozen=True)
class Anomaly:
    """A column whose values are anomalous in some domains."""

    kind: str  #: "unit", "sign" or, if there is no explanation, "level"
    column: int
    domains: list[int]
    values: Array  #: medians in these domains, or correlation with ``partner``
    other_values: Array  #: the same statistic in the other domains
    units: str = ""  #: units that would explain the difference
    by_spread: bool = False  #: whether values are standard deviations instead of medians
    partner: int | None = None  #: the other column of the correlation; -1 is the target


@dataclass(frozen=True)
class _ColumnStatistics:
    """Statistics of a column by domain, including the values that are compared."""

    column: int
    domains: Array
    medians: Array
    spreads: Array  #: standard deviations of rows, from interquartile ranges
    scale: str  #: "logarithm" (of medians), "median", or "spread" (logarithms of spreads)
    values: Array  #: compared values, on this scale
    deviations: Array  #: standard deviations of rows within domains, on this scale
    errors: Array  #: standard errors of ``values``, for normally distributed rows

    def predict(self, domains: Array) -> tuple[float, float]:
        """Mean and variance of the value that these domains predict for a new domain."""
        values = self.values[domains]
        variance = max(float(np.var(values, ddof=1)), float(np.mean(self.errors[domains] ** 2)))
        return float(np.mean(values)), variance * (1 + 1 / len(values))

    def test_domains(self) -> tuple[Array, Array]:
        """p-value of each domain, and its distance from the others in standard deviations of rows.

        Groups of the highest or the lowest domains, up to a third of all, are compared with the
        others by t-tests, because domains with the same fault would hide each other. All domains of
        a group must be far from the others. Only groups next to the widest gaps are compared.
        """
        n, deviation = len(self.values), float(np.median(self.deviations))
        p_values, distances = np.ones(n), np.zeros(n)
        for order in (np.argsort(self.values), np.argsort(-self.values)):
            gaps = np.abs(np.diff(self.values[order]))[: max(n // 3, 1)]
            for group_size in sorted(1 + np.argsort(-gaps, kind="stable")[:MAX_GROUPS]):
                group, others = order[:group_size], order[group_size:]
                center, variance = self.predict(others)
                group_distances = np.abs(self.values[group] - center)
                t_values = group_distances / np.sqrt(variance + self.errors[group] ** 2)
                p_value = 2 * t.sf(t_values, len(others) - 1).max()
                has_smaller_p = p_value < p_values[group]
                distances[group[has_smaller_p]] = group_distances[has_smaller_p] / deviation
                p_values[group[has_smaller_p]] = p_value
        return p_values, distances

    def explain(self, column_name: str, i: int, is_distant: Array) -> tuple[str, str]:
        """Return the kind of anomaly in domain i, and the units that would explain it."""
        others = np.flatnonzero(~is_distant)
        center, variance = self.predict(others)
        standard_error = np.sqrt(variance + self.errors[i] ** 2)
        max_distance = max(MAX_ERRORS * standard_error, MAX_SHARE * abs(self.values[i] - center))
        on_log_scale = self.scale == "logarithm"

        def compute_log_spread(median: Array, spread: Array) -> Array:
            spread = spread / median if on_log_scale else spread
            return np.log(np.maximum(spread, 1e-300))

        other_log_spreads = compute_log_spread(self.medians[others], self.spreads[others])
        max_log_ratio = max(np.log(SPREAD_FACTOR), MAX_ERRORS * float(np.std(other_log_spreads)))

        def explains(factor: float, offset: float) -> bool:
            """Whether domain i is similar to the others after this conversion."""
            median, spread = (self.medians[i] - offset) / factor, self.spreads[i] / abs(factor)
            if spread <= 0 or (on_log_scale and median <= 0):
                return False
            value = median if self.scale == "median" else np.log(median if on_log_scale else spread)
            log_ratio = abs(compute_log_spread(median, spread) - np.median(other_log_spreads))
            return bool(
                abs(value - center) < max_distance
                and log_ratio < max(max_log_ratio, SPREAD_POWER * abs(np.log(abs(factor))))
                and abs(value - self.values[i]) >= MIN_MOVE * np.ptp(self.values[others])
            )

        if self.scale == "median" and explains(-1.0, 0.0):
            return "sign", ""
        # Powers of ten are not tried if medians may be zero.
        conversions = _conversions(column_name, use_powers_of_ten=self.scale != "median")
        units = " or ".join(text for text, *conversion in conversions if explains(*conversion))
        return "unit" if units else "level", units


def find_anomalies(
    column_names: Sequence[str],
    quantities: Mapping[int, Array],
    target: Array | None,
    domain_codes: Array,
    known_pairs: set[tuple[int, int]],
) -> list[Anomaly]:
    """Find quantities that are anomalous in some domains.

    ``quantities`` contains values by column index. ``known_pairs`` contains (column, domain) pairs
    in which another fault is already known.
    """
    n_domains = int(domain_codes.max()) + 1
    all_statistics = [
        statistics
        for column, x in quantities.items()
        for statistics in _column_statistics(column, x, domain_codes, n_domains, known_pairs)
    ]
    n_tests = 2 * sum(len(statistics.domains) for statistics in all_statistics)
    anomalies = []
    for statistics in all_statistics:
        p_values, distances = statistics.test_domains()
        is_distant = (p_values <= FALSE_ALARM_RATE / n_tests) & (distances >= MIN_DISTANCE)
        column, by_spread = statistics.column, statistics.scale == "spread"
        groups: dict[tuple[str, str], list[int]] = {}  # domains with the same explanation
        for i in np.flatnonzero(is_distant).tolist():
            if (column, int(statistics.domains[i])) in known_pairs:
                continue
            kind, units = statistics.explain(column_names[column], i, is_distant)
            if kind != "level" or (distances[i] >= MIN_UNEXPLAINED_DISTANCE and not by_spread):
                groups.setdefault((kind, units), []).append(i)
        values = statistics.spreads if by_spread else statistics.medians
        other_values = values[~is_distant]
        for (kind, units), group in groups.items():
            domains, group_values = statistics.domains[group].tolist(), values[group]
            fields = kind, column, domains, group_values, other_values, units, by_spread
            anomalies.append(Anomaly(*fields))
            known_pairs = known_pairs | {(column, d) for d in domains}
    if n_tests:
        columns = list(dict.fromkeys(s.column for s in all_statistics))[:MAX_COLUMNS]
        quantities = {column: quantities[column] for column in columns}
        rows_by_domain = [np.flatnonzero(domain_codes == d) for d in range(n_domains)]
        reversals = _find_reversals(quantities, target, rows_by_domain, FALSE_ALARM_RATE / n_tests)
        anomalies += [a for a in reversals if (a.column, a.domains[0]) not in known_pairs]
    return anomalies


def _column_statistics(
    column: int, x: Array, domain_codes: Array, n_domains: int, known_pairs: set[tuple[int, int]]
) -> Iterator[_ColumnStatistics]:
    """Yield statistics of a column by domain; none if too few domains have enough values."""
    counts = np.bincount(domain_codes[np.isfinite(x)], minlength=n_domains)
    large_domains = np.flatnonzero(counts >= MIN_VALUES).tolist()
    domains = np.array([d for d in large_domains if (column, d) not in known_pairs], dtype=np.intp)
    if len(domains) < MIN_DOMAINS:
        return
    quantiles = quantiles_by_domain(x, domain_codes, n_domains, (0.0, 0.25, 0.5, 0.75))
    minima, q1, medians, q3 = quantiles[:, domains]
    spreads = (q3 - q1) / NORMAL_IQR
    if np.median(spreads) <= 0:  # most rows have the same value
        return
    root_n, common_fields = np.sqrt(counts[domains]), (column, domains, medians, spreads)
    if minima.min() >= 0 and medians.min() > 0:
        deviations = spreads / medians
        errors = 1.2533 * deviations / root_n  # a median has 1.2533 times the error of a mean
        yield _ColumnStatistics(*common_fields, "logarithm", np.log(medians), deviations, errors)
        return
    yield _ColumnStatistics(*common_fields, "median", medians, spreads, 1.2533 * spreads / root_n)
    # If a quarter of the rows have the lowest value, spreads are not informative.
    if (q1 > minima).all() and spreads.min() > 0:
        # A spread of three times the usual one has a distance of MIN_DISTANCE.
        deviations = np.full(len(domains), np.log(3) / MIN_DISTANCE)
        errors = 1.17 / root_n  # standard errors of the logarithms of spreads
        yield _ColumnStatistics(*common_fields, "spread", np.log(spreads), deviations, errors)


def _conversions(column_name: str, use_powers_of_ten: bool) -> Iterator[tuple[str, float, float]]:
    """Yield the description, factor and offset of each plausible conversion of a column."""
    for k in range(1, 7) if use_powers_of_ten else ():
        yield f"a factor of {10**k:,}", 10.0**k, 0.0
        yield f"a factor of 1/{10**k:,}", 10.0**-k, 0.0
    for pattern, unit_pairs in UNITS.items():
        if re.search(rf"(?<![a-z])(?:{pattern})|(?:{pattern})(?![a-z])", column_name.lower()):
            for unit, other_unit, factor, offset in unit_pairs:
                yield f"{unit} instead of {other_unit}", factor, offset
                yield f"{other_unit} instead of {unit}", 1 / factor, -offset / factor


def _find_reversals(
    quantities: Mapping[int, Array], target: Array | None, rows_by_domain: list[Array], max_p: float
) -> Iterator[Anomaly]:
    """Find columns whose correlations with other columns have the opposite sign in one domain.

    In each domain, the column with the clearest reversal is tested first. Its sign is corrected
    before the next column is tested, because columns that are correlated with it would
    otherwise seem to be reversed as well.
    """
    large_domains = [d for d, rows in enumerate(rows_by_domain) if len(rows) >= MIN_VALUES]
    if len(large_domains) <= MIN_DOMAINS or len(quantities) < 2:
        return
    columns = [-1, *quantities]  # -1 is the target
    y = np.zeros(sum(map(len, rows_by_domain))) if target is None else target
    X = np.column_stack([y, *quantities.values()])
    matrices = np.array([_rank_correlations(X[rows_by_domain[d]]) for d in large_domains])
    usual_correlations = np.median(matrices, axis=0)
    strengths = np.maximum((usual_correlations**2).sum(axis=1), 1e-12)
    # Agreement of each domain and column with the usual correlations: about 1, or -1 if reversed.
    agreements = (matrices * usual_correlations).sum(axis=2) / strengths
    for i, d in enumerate(large_domains):
        domain_correlations, other_agreements = matrices[i], np.delete(agreements, i, axis=0)
        variances = other_agreements.var(axis=0, ddof=1) * (1 + 1 / len(other_agreements))
        errors = np.sqrt(variances + 1 / ((len(rows_by_domain[d]) - 3) * strengths))
        for _ in quantities:
            domain_agreements = (domain_correlations * usual_correlations).sum(axis=1) / strengths
            domain_agreements[0] = 1.0  # the sign of the target is assumed to be correct
            j = int(np.argmin(domain_agreements))  # the column with the clearest reversal
            difference = other_agreements[:, j].mean() - domain_agreements[j]
            p_value = 2 * t.sf(difference / errors[j], len(other_agreements) - 1)
            if domain_agreements[j] > -0.5 or p_value > max_p:
                break
            k = int(np.argmax(np.abs(usual_correlations[j])))  # its partner
            value, usual_value = domain_correlations[j, [k]], usual_correlations[j, [k]]
            yield Anomaly("sign", columns[j], [d], value, usual_value, partner=columns[k])
            domain_correlations[j] *= -1
            domain_correlations[:, j] *= -1


def _rank_correlations(X: Array) -> Array:
    """Rank correlations between columns; 0 on the diagonal."""
    is_present = np.isfinite(X)
    ranks = rankdata(np.where(is_present, X, np.inf), axis=0)
    return correlations(np.where(is_present, ranks, np.nan)) * (1 - np.eye(X.shape[1]))


def correlations(X: Array) -> Array:
    """Correlations between columns, 0 for constant ones; missing values are set to the mean."""
    is_present = np.isfinite(X)
    means = np.where(is_present, X, 0.0).sum(axis=0) / np.maximum(is_present.sum(axis=0), 1)
    Z = np.where(is_present, X - means, 0.0)
    Z /= np.maximum(np.sqrt((Z**2).sum(axis=0)), 1e-300)
    return np.asarray(Z.T @ Z)
