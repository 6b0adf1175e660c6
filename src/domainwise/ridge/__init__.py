"""The invariant ridge family: kernel ridge machines chosen on held-out domains, from moments."""

from domainwise.ridge.invariant_ridge import InvariantRidgeClassifierCV, InvariantRidgeCV

__all__ = ["InvariantRidgeCV", "InvariantRidgeClassifierCV"]
