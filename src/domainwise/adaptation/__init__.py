"""A few labels from a new site: how a model's outputs are corrected by them, and what they gain."""

from domainwise.adaptation.adapter import SiteAdapter

__all__ = ["SiteAdapter"]
