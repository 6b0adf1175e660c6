"""Data sets with domains: heart disease in four hospitals, and synthetic data as in the paper."""

from domainwise.datasets.loaders import load_heart, make_synthetic

__all__ = ["load_heart", "make_synthetic"]
