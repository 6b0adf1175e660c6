"""Targets and domains as thin matrices, one factor F with P = FF' each."""

from domainwise.labels.factors import kernel_factor

__all__ = ["kernel_factor"]
