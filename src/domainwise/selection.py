"""Model selection for unseen domains: splitters, scores by domain, and searches."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domainwise.calibration.conformal import DomainConformal as DomainConformal
    from domainwise.calibration.curves import adapt_class_shares as adapt_class_shares
    from domainwise.estimators.dcmcv import DCMCV as DCMCV
    from domainwise.estimators.dcmcv import FastDCMCV as FastDCMCV
    from domainwise.invariant.search import InvariantSearchCV as InvariantSearchCV
    from domainwise.ridge import InvariantRidgeClassifierCV as InvariantRidgeClassifierCV
    from domainwise.ridge import InvariantRidgeCV as InvariantRidgeCV
    from domainwise.scoring.measures import DomainScores as DomainScores
    from domainwise.scoring.measures import domain_cross_validate as domain_cross_validate
    from domainwise.splits.folds import LeaveDomainsOut as LeaveDomainsOut

#: Modules that are imported when a public name in them is first used.
_MODULE_BY_NAME = {
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

if not TYPE_CHECKING:  # type checkers use the imports above
    __all__ = list(_MODULE_BY_NAME)


def __getattr__(name: str) -> Any:
    if name in _MODULE_BY_NAME:
        return getattr(import_module(f"domainwise.{_MODULE_BY_NAME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(_MODULE_BY_NAME)
