"""Invariant kernel ridge regression, fitted from moments and selected on held-out domains."""

from domainwise.ridge.invariant_ridge import InvariantRidgeClassifierCV, InvariantRidgeCV

__all__ = ["InvariantRidgeCV", "InvariantRidgeClassifierCV"]
