"""Label factors: targets and domains as thin matrices (theory 6)."""

from domainwise.labels.factors import kernel_factor

__all__ = ["kernel_factor"]
