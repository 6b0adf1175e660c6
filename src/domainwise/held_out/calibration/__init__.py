"""Probabilities, prediction sets and class shares that are valid on new domains."""
