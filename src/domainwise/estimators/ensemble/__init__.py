"""DomainContext, and ensembles whose members are weighted by scores on held-out domains."""

from domainwise.estimators.ensemble.context import DomainContext
from domainwise.estimators.ensemble.ensemble import (
    DomainEnsembleClassifier,
    DomainEnsembleRegressor,
)

__all__ = ["DomainContext", "DomainEnsembleClassifier", "DomainEnsembleRegressor"]
