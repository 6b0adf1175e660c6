"""Find units that differ, and leaks: columns that predict the target almost perfectly alone.

Legitimate columns may also predict a target almost perfectly. Each column is therefore compared,
within a domain, with a cross-validated model that uses all other columns (theory 19).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata, t
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise.base.arrays import Array
from domainwise.base.messages import load_texts
from domainwise.base.process import filtered_warnings
from domainwise.evaluation.plots.columns import NORMAL_IQR, quantiles_by_domain
from domainwise.held_out.folds import row_folds

#: Minimum number of rows in a domain that is checked, and of rows inside and outside a class.
MIN_ROWS, MIN_CLASS_ROWS = 20, 8
#: A column with a score (AUC or rank correlation) of at least ALMOST_PERFECT may be a leak. It is
#: reported if its score exceeds that of a model that uses all other columns by MIN_LEAD and by
#: LEAD_ERRORS standard errors (the second number if the column is almost perfect in only one
#: domain). A model with a score of at least MATCHING_SCORE is considered as good as the column.
ALMOST_PERFECT, MIN_LEAD, LEAD_ERRORS, MATCHING_SCORE = 0.95, 0.1, (2.0, 3.0), 0.97
#: Maximum median score, in the other domains, of a column that leaks in only some domains.
MAX_SCORE_ELSEWHERE = 0.8
#: Number of bins for a column's values, and maximum number of categories with indicator variables.
N_BINS = 20
#: Maximum numbers of rows in a domain on which columns are scored, of rows that a model is trained
#: on, of models in total, and of domains in which a column is compared with models.
MAX_ROWS, MAX_MODEL_ROWS, MAX_MODELS, MAX_MODEL_DOMAINS = 5000, 600, 40, 6


@dataclass(frozen=True)
class Leak:
    """A column that leaks, or that predicts the target no better than all other columns do."""

    column: int
    by_missing: bool  #: whether its missing cells, not its values, predict the target
    scores: dict[int, float]  #: score of the column alone by domain; domain -1 stands for all rows
    others_score: float  #: highest score of a model that uses all other columns
    in_all_domains: bool  #: whether it is almost perfect in all domains that were checked
    is_matched: bool  #: whether a model that uses all other columns is as good


@dataclass(frozen=True)
class Target:
    """The target of each row: class codes 0, 1, … or, if ``n_classes`` is 0, numbers."""

    y: Array
    n_classes: int

    def outcomes(self, rows: Array) -> list[Array]:
        """Targets of these rows: numbers, or an indicator for each class with enough rows."""
        y = self.y[rows]
        if not self.n_classes:
            return [y] if len(np.unique(y)) > 2 else []
        classes = [1] if self.n_classes == 2 else range(self.n_classes)
        masks = [y == c for c in classes]
        return [mask for mask in masks if MIN_CLASS_ROWS <= mask.sum() <= len(y) - MIN_CLASS_ROWS]

    def agreement(self, outcome: Array, ranks: Array, either_direction: bool = False) -> Array:
        """AUC or rank correlation of an outcome with the ranks in each column."""
        if self.n_classes:
            n_positive = int(outcome.sum())
            areas = np.asarray(ranks[outcome].sum(axis=0) - n_positive * (n_positive + 1) / 2)
            areas = areas / (n_positive * (len(outcome) - n_positive))
            return np.maximum(areas, 1 - areas) if either_direction else areas
        outcome_ranks, deviations = rankdata(outcome), ranks - ranks.mean(axis=0)
        scales = np.std(outcome_ranks) * np.sqrt((deviations**2).mean(axis=0))
        covariances = (outcome_ranks - outcome_ranks.mean()) @ deviations / len(outcome)
        correlations = np.asarray(covariances / np.maximum(scales, 1e-12))
        return np.abs(correlations) if either_direction else correlations

    def sample(self, rows: Array) -> Array:
        """Select rows to train a model on, with the same number from each class if possible."""
        if not self.n_classes:
            return select_evenly(rows, MAX_MODEL_ROWS)
        y = self.y[rows]
        classes = np.unique(y)
        samples = [select_evenly(rows[y == c], MAX_MODEL_ROWS // len(classes)) for c in classes]
        return np.sort(np.concatenate(samples))

    def standard_error(self, rows: Array, score: float) -> float:
        """Standard error of an AUC (Hanley and McNeil), or of a rank correlation."""
        n = len(rows)
        if not self.n_classes:
            return float((1 - score**2) / np.sqrt(n - 1))
        class_shares = [outcome.mean() for outcome in self.outcomes(rows)]
        n_rare = n * float(np.mean([min(share, 1 - share) for share in class_shares]))
        q1, q2 = score / (2 - score) - score**2, 2 * score**2 / (1 + score) - score**2
        variance = score * (1 - score) + (n_rare - 1) * q1 + (n - n_rare - 1) * q2
        return float(np.sqrt(max(variance, 0.0) / (n_rare * (n - n_rare))))


def select_evenly(rows: Array, max_rows: int) -> Array:
    """Select at most ``max_rows`` of the rows, evenly spaced."""
    return rows[:: -(-len(rows) // max_rows)] if len(rows) > max_rows else rows


def find_leaks(
    X: Array,
    categorical: Collection[int],
    target: Target,
    rows_by_domain: list[Array],
    copies: list[tuple[int, int]],
) -> list[Leak]:
    """Find columns that predict the target almost perfectly, highest score first.

    ``X`` contains numbers, and codes 0, 1, … in ``categorical`` columns; missing values are NaN.
    ``rows_by_domain`` contains the row indices of each domain. ``copies`` contains pairs of columns
    with the same information: a column is compared with models that do not use its copies.
    """
    samples = {d: select_evenly(rows, MAX_ROWS) for d, rows in enumerate(rows_by_domain)}
    samples = {d: s for d, s in samples.items() if len(s) >= MIN_ROWS and target.outcomes(s)}
    # If most rows are in domains that are too small to check, rows from all domains are pooled.
    if 2 * sum(len(rows_by_domain[d]) for d in samples) < len(X):
        sample = select_evenly(np.arange(len(X)), MAX_ROWS)
        samples = {-1: sample} if len(sample) >= MIN_ROWS and target.outcomes(sample) else {}
    score_arrays = [_column_scores(X[r], categorical, target, r) for r in samples.values()]
    column_scores = np.array(score_arrays)
    candidates: dict[tuple[int, bool], dict[int, float]] = {}
    for by_missing, column in np.argwhere((column_scores >= ALMOST_PERFECT).any(axis=0)).tolist():
        scores = dict(zip(samples, column_scores[:, by_missing, column].tolist(), strict=True))
        low_scores = [score for score in scores.values() if score < ALMOST_PERFECT]
        # A column that is good in all domains may be almost perfect in small ones by chance.
        if 3 * len(low_scores) <= len(scores) or np.median(low_scores) <= MAX_SCORE_ELSEWHERE:
            high_scores = {d: score for d, score in scores.items() if score >= ALMOST_PERFECT}
            candidates[column, bool(by_missing)] = high_scores
    leaks, n_models_left = [], MAX_MODELS
    sorted_candidates = sorted(candidates.items(), key=lambda item: -max(item[1].values()))
    for (column, by_missing), high_scores in sorted_candidates:
        # Report values or missing cells, whichever predict better (missing cells if similar).
        rival_score = max(candidates.get((column, not by_missing), {}).values(), default=0.0)
        if rival_score > max(high_scores.values()) + 0.01 * (2 * by_missing - 1):
            continue
        excluded_columns = {column} | {c for pair in copies if column in pair for c in pair}
        # Scores of models that are worse than the column, and number of models that are as good.
        lower_scores, n_matching = [], 0
        domains = sorted(high_scores, key=lambda d: -len(samples[d]))
        for d in domains[: min(MAX_MODEL_DOMAINS, n_models_left)]:
            n_models_left -= 1
            rows, score = target.sample(samples[d]), high_scores[d]
            others_score = _score_without(X[rows], excluded_columns, categorical, target, rows)
            errors = [target.standard_error(rows, s) for s in (others_score, score)]
            significant_lead = LEAD_ERRORS[len(high_scores) == 1] * np.hypot(errors[0], errors[1])
            if score - others_score >= max(MIN_LEAD, significant_lead):
                lower_scores.append(others_score)
            n_matching += others_score >= MATCHING_SCORE
        if lower_scores or n_matching:
            others_score = max(lower_scores, default=MATCHING_SCORE)
            in_all, is_matched = len(high_scores) == len(samples), len(lower_scores) <= n_matching
            leaks.append(Leak(column, by_missing, high_scores, others_score, in_all, is_matched))
    return leaks


def _column_scores(X: Array, categorical: Collection[int], target: Target, rows: Array) -> Array:
    """Score how well values (row 0) and missing cells (row 1) of each column predict the target."""
    is_present = np.isfinite(X)
    n, p = X.shape
    n_missing = n - is_present.sum(axis=0)
    ranks = rankdata(np.where(is_present, X, np.inf), axis=0)
    bins = np.minimum((ranks - 1) * N_BINS // n, N_BINS - 1).astype(np.intp)
    for j in range(p):  # each category is a bin; so is each value if there are few
        distinct_values, value_codes = np.unique(X[:, j], return_inverse=True)
        if len(distinct_values) <= N_BINS or j in categorical:
            bins[:, j] = value_codes
    bins = np.where(is_present, bins, bins.max() + 1)
    n_bins = int(bins.max()) + 1
    bin_ids = bins + n_bins * np.arange(p)  # bins of different columns have different ids
    bin_sizes = np.bincount(bin_ids.ravel(), minlength=n_bins * p)
    ranks = np.where(is_present, ranks, (n - n_missing + 1) / 2)  # missing values get a middle rank
    ranks = rankdata(ranks, axis=0) if n_missing.any() else ranks
    presence_ranks = rankdata(is_present, axis=0)
    scores, outcomes = np.zeros((2, p)), target.outcomes(rows)
    for outcome in outcomes:
        cell_outcomes = np.repeat(outcome.astype(np.float64), p)
        bin_sums = np.bincount(bin_ids.ravel(), cell_outcomes, minlength=n_bins * p)
        # Mean outcome in each row's bin, with the row's own outcome replaced with the overall mean.
        means = (bin_sums[bin_ids] - outcome[:, None] + outcome.mean()) / bin_sizes[bin_ids]
        bin_scores = target.agreement(outcome, rankdata(means, axis=0))
        rank_scores = target.agreement(outcome, ranks, either_direction=True)
        rank_scores[list(categorical)] = 0.0
        presence_scores = target.agreement(outcome, presence_ranks, either_direction=True)
        presence_scores[np.minimum(n_missing, n - n_missing) < MIN_CLASS_ROWS] = 0.0
        scores += np.array([np.maximum(bin_scores, rank_scores), presence_scores]) / len(outcomes)
    return scores


def _score_without(
    X: Array, excluded: Collection[int], categorical: Collection[int], target: Target, rows: Array
) -> float:
    """Return the better score of two cross-validated models that do not use excluded columns."""
    y, is_classification = target.y[rows], bool(target.n_classes)
    features = []
    for j in range(X.shape[1]):
        is_missing = np.isnan(X[:, j])
        if j in excluded or is_missing.all():
            continue
        features.append(np.where(is_missing, np.nanmedian(X[:, j]), X[:, j]))
        if is_missing.sum() >= MIN_CLASS_ROWS:
            features.append(is_missing.astype(np.float64))
        if j in categorical:
            categories, counts = np.unique(X[~is_missing, j], return_counts=True)
            frequent_categories = categories[np.argsort(-counts)[:N_BINS]]
            features += [(X[:, j] == c).astype(np.float64) for c in frequent_categories]
    if not features:
        return 0.5 if is_classification else 0.0
    Z = np.column_stack(features)
    forest_type: Any = ExtraTreesClassifier if is_classification else ExtraTreesRegressor
    linear_model: Any = LogisticRegression(max_iter=200) if is_classification else Ridge()
    forest = forest_type(40, min_samples_leaf=2, random_state=0)
    output_method = "predict_proba" if is_classification else "predict"
    folds = row_folds(y, is_classification, 4)
    outcomes = [y == c for c in np.unique(y)] if is_classification else [y]
    best_score = 0.0
    for model in (forest, make_pipeline(StandardScaler(), linear_model)):
        with filtered_warnings():
            warnings.simplefilter("ignore")  # a class may be absent from a fold
            outputs = cross_val_predict(model, Z, y, cv=folds, method=output_method)
        ranks = rankdata(outputs.reshape(len(y), -1), axis=0)
        scores = [
            float(target.agreement(outcome, ranks[:, [c]])[0])
            for c, outcome in enumerate(outcomes)
            if not is_classification or MIN_CLASS_ROWS <= outcome.sum() <= len(y) - MIN_CLASS_ROWS
        ]
        best_score = max(best_score, float(np.mean(scores or [0.0])))
    return best_score


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

#: Units that are often confused, with patterns in column names.
UNITS: list[tuple[str, str, str, float, float]]
UNITS = load_texts("domainwise.evaluation", "units.toml")["units"]


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
    for pattern, unit, other_unit, factor, offset in UNITS:
        if re.search(rf"(?<![a-z])(?:{pattern})|(?:{pattern})(?![a-z])", column_name.lower()):
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


def identifier_reason(values: Array, domain_rows: Sequence[Array]) -> str:
    """Explain why numbers look like row identifiers; return "" if they do not.

    Numbers look like identifiers if they are at least 20 distinct integers, or if they are
    monotonic in every domain with at least five rows and these domains have at least 20 rows in
    total. ``domain_rows`` contains the row indices of each domain.
    """
    n_values = len(np.unique(values))
    if n_values == len(values) >= 20 and np.array_equal(values, np.round(values)):
        return "is a different whole number in every row"
    large_domain_rows = [rows for rows in domain_rows if len(rows) >= 5]
    steps_by_domain = (np.diff(values[rows]) for rows in large_domain_rows)
    is_monotonic = all((steps > 0).all() or (steps < 0).all() for steps in steps_by_domain)
    has_enough_rows = sum(map(len, large_domain_rows)) >= 20
    text = "increases or decreases from row to row in every domain"
    return text if has_enough_rows and is_monotonic else ""
