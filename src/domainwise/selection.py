"""Model selection for unseen domains: splitters, scores by domain, and searches."""

from domainwise.estimators.conformal import DomainConformal
from domainwise.estimators.invariant.tuning import InvariantSearchCV
from domainwise.estimators.projections.dcmcv import DCMCV, FastDCMCV
from domainwise.estimators.ridge import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.held_out.calibration.curves import adapt_class_shares
from domainwise.held_out.folds import LeaveDomainsOut
from domainwise.held_out.scoring.measures import DomainScores, domain_cross_validate

__all__ = [
    "DCMCV",
    "DomainConformal",
    "DomainScores",
    "FastDCMCV",
    "InvariantRidgeCV",
    "InvariantRidgeClassifierCV",
    "InvariantSearchCV",
    "LeaveDomainsOut",
    "adapt_class_shares",
    "domain_cross_validate",
]
