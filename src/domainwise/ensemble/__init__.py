"""Rows in the context of their domain, and ensembles that domains left out have chosen."""

from domainwise.ensemble.context import DomainContext

__all__ = ["DomainContext"]
