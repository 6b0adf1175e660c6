"""Rows in the context of their domain, and ensembles that domains left out have chosen."""

from domainwise.ensemble.context import DomainContext
from domainwise.ensemble.ensemble import DomainEnsembleClassifier, DomainEnsembleRegressor

__all__ = ["DomainContext", "DomainEnsembleClassifier", "DomainEnsembleRegressor"]
