"""Find leaks: columns that predict the target almost perfectly, while all others together do not.

Legitimate columns may also predict a target almost perfectly. Each column is therefore compared,
within a domain, with a cross-validated model that uses all other columns (theory 19).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise.base.arrays import Array
from domainwise.base.process import filtered_warnings
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
