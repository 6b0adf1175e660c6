"""What a site's statistician asks: differences between sites, calibration, and net benefit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from domainwise.arrays import Frame
from domainwise.evaluation.results import MethodResult, Results
from domainwise.scoring.pooling import PooledScores
from domainwise.scoring.site_errors import pool_measure
from domainwise.tables.errors import import_pandas


@dataclass(frozen=True)
class BetweenSites(PooledScores):
    """Scores of a method pooled over domains: a PooledScores with the scores of each domain.

    Attributes
    ----------
    table : data frame
        Columns: domain, rows, score, low and high (95 % interval), error (standard error). Errors
        such as RMSE are positive.
    """

    table: Frame = field(repr=False, compare=False)


def pool_method(results: Results, method: MethodResult, level: float = 0.9) -> PooledScores | None:
    """Pool a method's scores, as displayed; None if no standard error is known."""
    if not any(np.isfinite(error) and error > 0 for error in method.errors.values()):
        return None
    domains = list(method.known)
    scores = np.array([results.measure.shown(method.known[name]) for name in domains])
    errors = np.array([method.errors.get(name, np.nan) for name in domains])
    n_rows = np.array([max(results.row_counts.get(name, 0), 1) for name in domains])
    return pool_measure(results.measure, scores, errors, n_rows, level)


def between_sites(results: Results, method: MethodResult) -> BetweenSites:
    """Pool a method's scores, and list the scores of each domain, worst first."""
    pooled = pool_method(results, method)
    if pooled is None:
        raise ValueError(
            f"the standard errors of {method.label} are not known, because {results.measure.label} "
            "is a custom scorer, or is computed by scikit-learn and the method is not among those "
            "that the report describes. Choose another scorer, or the recommended method"
        )
    rows = []
    for name in sorted(method.known, key=lambda name: method.known[name]):
        low, high = results.ends(method, name)
        rows.append(
            {
                "domain": name,
                "rows": results.row_counts.get(name),
                "score": results.measure.shown(method.known[name]),
                "low": low,
                "high": high,
                "error": method.errors.get(name, float("nan")),
            }
        )
    return BetweenSites(**vars(pooled), table=import_pandas().DataFrame(rows))
