"""Scores of predictions on unseen domains, and measures of how features depend on domains."""

from domainwise.held_out.scoring.metrics import (
    InvarianceReport,
    g_mean_score,
    hsic,
    invariance_report,
    mmd,
    worst_domain_score,
)

__all__ = [
    "InvarianceReport",
    "g_mean_score",
    "hsic",
    "invariance_report",
    "mmd",
    "worst_domain_score",
]
