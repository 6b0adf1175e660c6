"""Standard errors of the scores of a site, and the scale on which they are pooled (theory 20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import rankdata

from domainwise.arrays import Array
from domainwise.scoring.measures import Measure
from domainwise.scoring.pooling import MIN_SITES, SCALES, Ends, PooledScores, pool_transformed
from domainwise.scoring.statistics import defined_score

#: Number of bootstrap samples of a site's rows, if there is no formula for the standard error.
N_DRAWS = 100
#: Beginnings of the names of scorers whose values are between 0 and 1.
_SHARES = (
    *("accuracy", "balanced_accuracy", "top_k_accuracy", "roc_auc", "average_precision"),
    *("f1", "jaccard", "precision", "recall"),
)
#: Beginnings of the names of scorers that are 1 minus a relative error.
_EXPLAINED = ("r2", "explained_variance", "d2_")


def scale_of(measure: Measure) -> str:
    """Return the scale on which scores are pooled, as displayed (errors are positive).

    It is "log" for errors, "logit" for shares and AUC, "log1m" for R² and "identity" otherwise.
    """
    if measure.is_custom:
        return "identity"
    if measure.sign < 0:
        return "log"
    if measure.name.startswith(_EXPLAINED):
        return "log1m"
    return "logit" if measure.name.startswith(_SHARES) else "identity"


def inside(scores: Any, n_rows: Any, scale: str) -> Array:
    """Move shares of 0 and 1 inside by half a row, so that their logit is finite."""
    values = np.asarray(scores, dtype=np.float64)
    if scale != "logit":
        return values
    return np.clip(values, 0.5 / np.asarray(n_rows), 1.0 - 0.5 / np.asarray(n_rows))


def auc_error(is_event: Array, scores: Array) -> tuple[float, float]:
    """Return the area under the ROC curve, and its standard error (DeLong, from ranks).

    >>> auc, error = auc_error(np.array([False, False, True, True]), np.array([1.0, 3, 2, 4]))
    >>> auc, round(error, 3)
    (0.75, 0.354)
    """
    event_scores, other_scores = scores[is_event], scores[~is_event]
    n_events, n_others = len(event_scores), len(other_scores)
    if not n_events or not n_others:
        return float("nan"), float("nan")
    ranks = rankdata(scores)
    # Share of the other group that a row is ranked above (events) or below (others).
    event_shares = (ranks[is_event] - rankdata(event_scores)) / n_others
    other_shares = 1.0 - (ranks[~is_event] - rankdata(other_scores)) / n_events
    variances = [
        float(shares.var(ddof=1)) / len(shares) if len(shares) > 1 else float("nan")
        for shares in (event_shares, other_shares)
    ]
    return float(event_shares.mean()), float(np.sqrt(sum(variances)))


def score_error(
    measure: Measure,
    classes: Array | None,
    record: Mapping[str, Any],
    score: float,
    bootstrap_scores: Array | None = None,
) -> float:
    """Return the standard error of a site's score; NaN if it cannot be computed.

    Shares of correct predictions, AUC and mean errors have formulas; classes are strata, and their
    sizes are fixed. Other errors are the standard deviation of ``bootstrap_scores``, on the scale
    of :func:`scale_of`. Perfect scores are moved inside by half a row.
    """
    targets, predictions = record["target"], record["prediction"]
    n, name = len(targets), measure.name
    if name in ("accuracy", "balanced_accuracy"):
        _, codes, sizes = np.unique(targets, return_inverse=True, return_counts=True)
        recalls = (np.bincount(codes, targets == predictions) + 0.5) / (sizes + 1.0)
        shares = sizes / n if name == "accuracy" else np.full(len(sizes), 1.0 / len(sizes))
        return float(np.sqrt(np.sum(shares**2 * recalls * (1.0 - recalls) / sizes)))
    if name == "roc_auc" and classes is not None and len(classes) == 2:
        outputs = record["decisions"]
        outputs = record["probabilities"][:, 1] if outputs is None else outputs
        auc, error = auc_error(targets == classes[1], outputs)
        if error > 0:
            return error
        auc = float(inside(auc, n, "logit"))
        n_smaller = min(np.sum(targets == c) for c in classes)
        return float(np.sqrt(auc * (1.0 - auc) / n_smaller)) if n_smaller else float("nan")
    powers = {"neg_mean_absolute_error": 1, "neg_mean_squared_error": 2}
    powers["neg_root_mean_squared_error"] = 2
    if name in powers and n > 1:
        terms = np.abs(targets.astype(np.float64) - predictions) ** powers[name]
        error = float(terms.std(ddof=1) / np.sqrt(n))
        return error / (2.0 * abs(score)) if "root" in name and score else error
    if bootstrap_scores is None:
        return float("nan")
    scale = scale_of(measure)
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = SCALES[scale].forward(inside(measure.sign * bootstrap_scores, n, scale))
        slope = SCALES[scale].slope(inside(measure.shown(score), n, scale))
    draws = draws[np.isfinite(draws)]
    return float(draws.std(ddof=1) / slope) if len(draws) > 1 else float("nan")


def stratified_scores(
    measure: Measure,
    classes: Array | None,
    record: Mapping[str, Any],
    rng: np.random.Generator,
    n_draws: int | None = None,
) -> Array:
    """Return bootstrap scores of a site (by default 100); classes keep their sizes."""
    n, n_draws = len(record["target"]), n_draws or N_DRAWS
    samples = np.empty((n_draws, n), dtype=np.intp)
    strata = np.zeros(n) if classes is None else record["target"]
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        samples[:, rows] = rng.choice(rows, (n_draws, len(rows)))
    score = partial(measure.score_record, classes, record)
    return np.array([defined_score(score, rows) for rows in samples])


def true_score_range(
    measure: Measure, classes: Array | None, records: Sequence[Mapping[str, Any]]
) -> Ends | None:
    """Return a 90 % range for the true score at a new site, from a record for each held-out site.

    Larger scores are better, as in ``expected_range_``. None for fewer than four sites.
    """
    all_rows = np.s_[:]
    scores = [defined_score(partial(measure.score_record, classes, r), all_rows) for r in records]
    errors = []
    for seed, (score, record) in enumerate(zip(scores, records, strict=True)):
        error = score_error(measure, classes, record, score)
        if np.isnan(error) and np.isfinite(score):
            draws = stratified_scores(measure, classes, record, np.random.default_rng(seed))
            error = score_error(measure, classes, record, score, draws)
        errors.append(error)
    if np.isfinite(errors).sum() < MIN_SITES:
        return None
    n_rows = np.array([len(record["target"]) for record in records])
    pooled = pool_measure(measure, measure.sign * np.array(scores), np.array(errors), n_rows)
    if pooled.true_range is None:
        return None
    low, high = sorted(map(measure.shown, pooled.true_range))
    return low, high


def pool_measure(
    measure: Measure, scores: Array, errors: Array, n_rows: Array, level: float = 0.9
) -> PooledScores:
    """Pool the scores of sites, as displayed, on the scale of the measure."""
    scale = scale_of(measure)
    values = inside(scores, n_rows, scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        transformed_errors = errors * SCALES[scale].slope(values)
        return pool_transformed(SCALES[scale].forward(values), transformed_errors, scale, level)
