"""Correct a model's outputs by a few labels of a new site, and estimate what labels gain."""

from domainwise.adaptation.adapter import SiteAdapter

__all__ = ["SiteAdapter"]
