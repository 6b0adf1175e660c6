"""Kernel ridge regression with invariant kernels that are selected on held-out domains."""

from domainwise.estimators.ridge.invariant_ridge import InvariantRidgeClassifierCV, InvariantRidgeCV

__all__ = ["InvariantRidgeCV", "InvariantRidgeClassifierCV"]
