"""Scores of predictions on unseen domains, and measures of how features depend on domains."""

from domainwise.held_out.scoring.metrics import (
    InvarianceReport,
    g_mean_score,
    hsic,
    invariance_report,
    mmd,
    worst_domain_score,
)
from domainwise.held_out.scoring.pooling import PooledScores, pool_scores
from domainwise.held_out.scoring.site_calibration import (
    DecisionCurves,
    Estimate,
    SiteEstimates,
    calibration_slope,
    decision_scores,
    net_benefit,
    observed_expected,
)

__all__ = [
    "DecisionCurves",
    "Estimate",
    "InvarianceReport",
    "PooledScores",
    "SiteEstimates",
    "calibration_slope",
    "decision_scores",
    "g_mean_score",
    "hsic",
    "invariance_report",
    "mmd",
    "net_benefit",
    "observed_expected",
    "pool_scores",
    "worst_domain_score",
]
