"""Data sets with domains: heart disease in four hospitals, and synthetic data as in the paper."""

from domainwise.datasets.heart import load_heart
from domainwise.datasets.synthetic import make_synthetic

__all__ = ["load_heart", "make_synthetic"]
