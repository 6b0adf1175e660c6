"""Label factors: targets and domains as thin matrices (theory 6)."""

from domainwise.algebra.labels import kernel_factor

__all__ = ["kernel_factor"]
