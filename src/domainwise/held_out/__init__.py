"""Splits, scores, calibration and search: all that chooses or judges on held-out domains."""
