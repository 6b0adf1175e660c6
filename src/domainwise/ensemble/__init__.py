"""Rows in the context of their domain, and ensembles weighted by held-out domains."""

from domainwise.ensemble.context import DomainContext
from domainwise.ensemble.ensemble import DomainEnsembleClassifier, DomainEnsembleRegressor

__all__ = ["DomainContext", "DomainEnsembleClassifier", "DomainEnsembleRegressor"]
