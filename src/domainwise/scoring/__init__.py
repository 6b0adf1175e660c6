"""Scores on held-out domains: metrics, stored predictions for scorers, intervals."""
