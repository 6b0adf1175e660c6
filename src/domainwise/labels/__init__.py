"""Targets and domains as thin matrices: factors F of ``P = F F'``."""

from domainwise.labels.factors import kernel_factor

__all__ = ["kernel_factor"]
