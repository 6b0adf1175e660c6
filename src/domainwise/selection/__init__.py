"""Model selection for domains nobody has seen: splitters, scores by domain, searches."""

from domainwise.selection.conformal import DomainConformal
from domainwise.selection.dcmcv import DCMCV, FastDCMCV
from domainwise.selection.invariant_ridge import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.selection.invariant_search import InvariantSearchCV
from domainwise.selection.scores import DomainScores, domain_cross_validate
from domainwise.selection.shares import adapt_class_shares
from domainwise.selection.splitters import LeaveDomainsOut

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
