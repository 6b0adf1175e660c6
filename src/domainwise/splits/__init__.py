"""Splitters that hold out whole domains, and the folds of a search."""
