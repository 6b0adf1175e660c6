"""Scores on held-out domains: metrics, predictions that scorers judge, intervals."""
