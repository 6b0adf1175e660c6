"""Leaks: columns that predict the target almost perfectly where all other columns do not.

Legitimate columns may also predict a target almost perfectly. Each column is therefore compared,
inside a domain, with a cross-validated model of all other columns.
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

from domainwise.arrays import Array
from domainwise.splits.folds import row_folds

#: Minimum number of rows of a domain, and of its rarer class, for a check inside it.
LEAST_ROWS, LEAST_CLASS = 20, 8
#: A score (AUC or rank correlation) of at least NEARLY is almost perfect. The column leaks if its
#: score exceeds that of all others by LEAD and by ERRORS standard errors (more if it is almost
#: perfect in one domain only). Others with a score of at least PERFECT count as equally good.
NEARLY, LEAD, ERRORS, PERFECT = 0.95, 0.1, (2.0, 3.0), 0.97
#: A column that leaks in some domains only has at most this median score in the others.
CLEARLY_LESS = 0.8
#: Bins of a column's values.
BINS = 20
#: Maximum numbers: rows of a domain on which columns are scored, rows that a model is fitted to,
#: models in all, and domains with a model for each column.
MOST_ROWS, MODEL_ROWS, MODELS, MODEL_DOMAINS = 5000, 600, 40, 6


@dataclass(frozen=True)
class Leak:
    """A column that leaks, or that is as good alone as all other columns together."""

    column: int
    by_missing: bool  #: whether its missing cells predict the target, and not its values
    scores: dict[int, float]  #: score of the column alone by domain; domain -1 is all rows
    rest: float  #: highest score of all other columns together
    everywhere: bool
    neutral: bool  #: whether all other columns predict the target as well


@dataclass(frozen=True)
class Target:
    """Classes as 0, 1, …, or numbers if there are no classes."""

    y: Array
    n_classes: int

    def parts(self, rows: Array) -> list[Array]:
        """Targets of some rows: numbers, or a mask for each class that is frequent enough."""
        y = self.y[rows]
        if not self.n_classes:
            return [y] if len(np.unique(y)) > 2 else []
        classes = [1] if self.n_classes == 2 else range(self.n_classes)
        members = [y == c for c in classes]
        return [m for m in members if LEAST_CLASS <= m.sum() <= len(y) - LEAST_CLASS]

    def agreement(self, part: Array, ranks: Array, either_way: bool = False) -> Array:
        """AUC or rank correlation of a part with columns of ranks, or with reversed ranks."""
        if self.n_classes:
            n = int(part.sum())
            area = np.asarray(ranks[part].sum(axis=0) - n * (n + 1) / 2) / (n * (len(part) - n))
            return np.maximum(area, 1 - area) if either_way else area
        a, b = rankdata(part), ranks - ranks.mean(axis=0)
        scale = np.std(a) * np.sqrt((b**2).mean(axis=0))
        correlation = np.asarray((a - a.mean()) @ b / len(a) / np.maximum(scale, 1e-12))
        return np.abs(correlation) if either_way else correlation

    def sample(self, rows: Array) -> Array:
        """Select rows to fit a model to, the same number of each class if there are enough."""
        if not self.n_classes:
            return spaced(rows, MODEL_ROWS)
        y = self.y[rows]
        classes = np.unique(y)
        parts = [spaced(rows[y == c], MODEL_ROWS // len(classes)) for c in classes]
        return np.sort(np.concatenate(parts))

    def error(self, rows: Array, score: float) -> float:
        """Standard error of an AUC (Hanley and McNeil), or of a rank correlation."""
        n = len(rows)
        if not self.n_classes:
            return float((1 - score**2) / np.sqrt(n - 1))
        shares = [part.mean() for part in self.parts(rows)]
        rare = n * float(np.mean([min(share, 1 - share) for share in shares]))
        one, two = score / (2 - score) - score**2, 2 * score**2 / (1 + score) - score**2
        variance = score * (1 - score) + (rare - 1) * one + (n - rare - 1) * two
        return float(np.sqrt(max(variance, 0.0) / (rare * (n - rare))))


def spaced(rows: Array, most: int) -> Array:
    """Return at most ``most`` of the rows, evenly spaced."""
    return rows[:: -(-len(rows) // most)] if len(rows) > most else rows


def find_leaks(
    X: Array,
    text: Collection[int],
    target: Target,
    rows: list[Array],
    copies: list[tuple[int, int]],
) -> list[Leak]:
    """Find columns that leak, and neutral ones, the highest score first.

    ``X`` holds numbers, NaN where they are missing, and categories of ``text`` columns as 0, 1, ….
    ``rows`` are the rows of each domain, and ``copies`` are pairs of equal columns: a column is
    compared with models that do not use its copies.
    """
    large = {d: spaced(r, MOST_ROWS) for d, r in enumerate(rows) if len(r) >= LEAST_ROWS}
    groups = {d: sample for d, sample in large.items() if target.parts(sample)}
    if 2 * sum(len(rows[d]) for d in groups) < len(X):  # domains are small: all rows together
        sample = spaced(np.arange(len(X)), MOST_ROWS)
        groups = {-1: sample} if len(sample) >= LEAST_ROWS and target.parts(sample) else {}
    column_scores = np.array([_column_scores(X[r], text, target, r) for r in groups.values()])
    candidates: dict[tuple[int, bool], dict[int, float]] = {}
    for by_missing, column in np.argwhere((column_scores >= NEARLY).any(axis=0)).tolist():
        scores = dict(zip(groups, column_scores[:, by_missing, column].tolist(), strict=True))
        weak = [score for score in scores.values() if score < NEARLY]
        # A column that is good everywhere is nearly perfect in some small domains by chance.
        if 3 * len(weak) <= len(scores) or np.median(weak) <= CLEARLY_LESS:
            high = {d: score for d, score in scores.items() if score >= NEARLY}
            candidates[column, bool(by_missing)] = high
    leaks, models = [], MODELS
    order = sorted(candidates.items(), key=lambda item: -max(item[1].values()))
    for (column, by_missing), scores in order:
        other = candidates.get((column, not by_missing), {})
        if max(other.values(), default=0.0) > max(scores.values()) + 0.01 * (2 * by_missing - 1):
            continue  # values and missing cells of one column: the better of the two, once
        without = {column} | {c for pair in copies if column in pair for c in pair}
        leads, tied = [], 0
        for d in sorted(scores, key=lambda d: -len(groups[d]))[: min(MODEL_DOMAINS, models)]:
            models -= 1
            sample = target.sample(groups[d])
            other_score = _rest_score(X[sample], without, text, target, sample)
            error = np.hypot(target.error(sample, other_score), target.error(sample, scores[d]))
            if scores[d] - other_score >= max(LEAD, ERRORS[len(scores) == 1] * error):
                leads.append(other_score)
            tied += other_score >= PERFECT
        if leads or tied:
            other_score, everywhere = max(leads, default=PERFECT), len(scores) == len(groups)
            leaks.append(
                Leak(column, by_missing, scores, other_score, everywhere, len(leads) <= tied)
            )
    return leaks


def _column_scores(X: Array, text: Collection[int], target: Target, rows: Array) -> Array:
    """Score each column as a predictor of the target, by its values and by its missing cells."""
    present = np.isfinite(X)
    n, p = X.shape
    n_missing = n - present.sum(axis=0)
    ranks = rankdata(np.where(present, X, np.inf), axis=0)
    bins = np.minimum((ranks - 1) * BINS // n, BINS - 1).astype(np.intp)
    for j in range(p):  # few values are bins of their own
        distinct, place = np.unique(X[:, j], return_inverse=True)
        if len(distinct) <= BINS or j in text:
            bins[:, j] = place
    bins = np.where(present, bins, bins.max() + 1)
    width = int(bins.max()) + 1
    flat = bins + width * np.arange(p)
    counts = np.bincount(flat.ravel(), minlength=width * p)
    middle = np.where(present, ranks, (n - n_missing + 1) / 2)  # missing values are in the middle
    middle = rankdata(middle, axis=0) if n_missing.any() else middle
    scores = np.zeros((2, p))
    parts = target.parts(rows)
    for part in parts:
        weights = np.repeat(part.astype(np.float64), p)
        sums = np.bincount(flat.ravel(), weights, minlength=width * p)
        # Leave-one-out mean of a bin, shrunk to the overall mean with the weight of one row.
        others = (sums[flat] - part[:, None] + part.mean()) / counts[flat]
        by_bin = target.agreement(part, rankdata(others, axis=0))
        by_rank = target.agreement(part, middle, either_way=True)
        by_rank[list(text)] = 0.0
        by_missing = target.agreement(part, rankdata(present, axis=0), either_way=True)
        by_missing[np.minimum(n_missing, n - n_missing) < LEAST_CLASS] = 0.0
        scores += np.array([np.maximum(by_bin, by_rank), by_missing]) / len(parts)
    return scores


def _rest_score(
    X: Array, without: Collection[int], text: Collection[int], target: Target, rows: Array
) -> float:
    """Score of all other columns inside a domain: the better of two cross-validated models."""
    y, classes = target.y[rows], bool(target.n_classes)
    parts = []
    for j in range(X.shape[1]):
        missing = np.isnan(X[:, j])
        if j in without or missing.all():
            continue
        parts.append(np.where(missing, np.nanmedian(X[:, j]), X[:, j]))
        if missing.sum() >= LEAST_CLASS:
            parts.append(missing.astype(np.float64))
        if j in text:
            levels, counts = np.unique(X[~missing, j], return_counts=True)
            frequent = levels[np.argsort(-counts)[:BINS]]
            parts += [(X[:, j] == level).astype(np.float64) for level in frequent]
    if not parts:
        return 0.5 if classes else 0.0
    Z = np.column_stack(parts)
    trees: Any = ExtraTreesClassifier if classes else ExtraTreesRegressor
    linear: Any = LogisticRegression(max_iter=200) if classes else Ridge()
    forest = trees(40, min_samples_leaf=2, random_state=0)
    method, folds = "predict_proba" if classes else "predict", row_folds(y, classes, 4)
    members = [y == c for c in np.unique(y)] if classes else [y]
    best = 0.0
    for model in (forest, make_pipeline(StandardScaler(), linear)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a class may be missing in a fold
            outputs = cross_val_predict(model, Z, y, cv=folds, method=method)
        ranks = rankdata(outputs.reshape(len(y), -1), axis=0)
        scores = [
            float(target.agreement(part, ranks[:, [c]])[0])
            for c, part in enumerate(members)
            if not classes or LEAST_CLASS <= part.sum() <= len(y) - LEAST_CLASS
        ]
        best = max(best, float(np.mean(scores or [0.0])))
    return best
