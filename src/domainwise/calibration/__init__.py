"""Probabilities, prediction sets and class shares that hold on new domains."""
