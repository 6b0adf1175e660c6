"""Model selection for unseen domains: splitters, scores by domain, searches."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domainwise.calibration.conformal import DomainConformal
    from domainwise.calibration.curves import adapt_class_shares
    from domainwise.estimators.dcmcv import DCMCV, FastDCMCV
    from domainwise.invariant.search import InvariantSearchCV
    from domainwise.ridge import InvariantRidgeClassifierCV, InvariantRidgeCV
    from domainwise.scoring.measures import DomainScores, domain_cross_validate
    from domainwise.splits.folds import LeaveDomainsOut

#: Where each public name is defined; imported when it is first asked for.
_LAZY = {
    "DCMCV": "estimators.dcmcv",
    "DomainConformal": "calibration.conformal",
    "DomainScores": "scoring.measures",
    "FastDCMCV": "estimators.dcmcv",
    "InvariantRidgeCV": "ridge",
    "InvariantRidgeClassifierCV": "ridge",
    "InvariantSearchCV": "invariant.search",
    "LeaveDomainsOut": "splits.folds",
    "adapt_class_shares": "calibration.curves",
    "domain_cross_validate": "scoring.measures",
}

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


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"domainwise.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
