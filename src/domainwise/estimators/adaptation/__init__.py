"""Correction of models with a few labels from a new site, and the expected gain from labels."""

from domainwise.estimators.adaptation.adapter import SiteAdapter

__all__ = ["SiteAdapter"]
