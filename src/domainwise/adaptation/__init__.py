"""Correct models with a few labels from a new site, and estimate the gain from labels."""

from domainwise.adaptation.adapter import SiteAdapter

__all__ = ["SiteAdapter"]
