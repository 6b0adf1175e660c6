"""Scores on held-out domains: metrics, predictions for scorers, and confidence intervals."""
