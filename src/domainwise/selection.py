"""Model selection for unseen domains: splitters, scores by domain, and searches."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domainwise.estimators.conformal import DomainConformal as DomainConformal
    from domainwise.estimators.invariant.tuning import InvariantSearchCV as InvariantSearchCV
    from domainwise.estimators.projections.dcmcv import DCMCV as DCMCV
    from domainwise.estimators.projections.dcmcv import FastDCMCV as FastDCMCV
    from domainwise.estimators.ridge import InvariantRidgeClassifierCV as InvariantRidgeClassifierCV
    from domainwise.estimators.ridge import InvariantRidgeCV as InvariantRidgeCV
    from domainwise.held_out.calibration.curves import adapt_class_shares as adapt_class_shares
    from domainwise.held_out.folds import LeaveDomainsOut as LeaveDomainsOut
    from domainwise.held_out.scoring.measures import DomainScores as DomainScores
    from domainwise.held_out.scoring.measures import domain_cross_validate as domain_cross_validate

#: Modules that are imported when a public name in them is first used.
_MODULE_BY_NAME = {
    "DCMCV": "estimators.projections.dcmcv",
    "DomainConformal": "estimators.conformal",
    "DomainScores": "held_out.scoring.measures",
    "FastDCMCV": "estimators.projections.dcmcv",
    "InvariantRidgeCV": "estimators.ridge",
    "InvariantRidgeClassifierCV": "estimators.ridge",
    "InvariantSearchCV": "estimators.invariant.tuning",
    "LeaveDomainsOut": "held_out.folds",
    "adapt_class_shares": "held_out.calibration.curves",
    "domain_cross_validate": "held_out.scoring.measures",
}

if not TYPE_CHECKING:  # type checkers use the imports above
    __all__ = list(_MODULE_BY_NAME)


def __getattr__(name: str) -> Any:
    if name in _MODULE_BY_NAME:
        return getattr(import_module(f"domainwise.{_MODULE_BY_NAME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(_MODULE_BY_NAME)
