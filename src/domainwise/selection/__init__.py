"""Model selection for domains nobody has seen: splitters, scores by domain, searches."""

from domainwise.selection._dcmcv import DCMCV, FastDCMCV
from domainwise.selection._invariant_ridge import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.selection._invariant_search import InvariantSearchCV
from domainwise.selection._scores import DomainScores, domain_cross_validate
from domainwise.selection._splitters import LeaveDomainsOut

__all__ = [
    "DCMCV",
    "DomainScores",
    "FastDCMCV",
    "InvariantRidgeCV",
    "InvariantRidgeClassifierCV",
    "InvariantSearchCV",
    "LeaveDomainsOut",
    "domain_cross_validate",
]
