"""Displays in the style of scikit-learn; matplotlib is imported when a plot is drawn."""

from domainwise.evaluation.plots import (
    CalibrationDisplay,
    DecisionCurveDisplay,
    DomainMapDisplay,
    DomainScoresDisplay,
    ForestDisplay,
    ShiftDisplay,
)

__all__ = [
    "CalibrationDisplay",
    "DecisionCurveDisplay",
    "DomainMapDisplay",
    "DomainScoresDisplay",
    "ForestDisplay",
    "ShiftDisplay",
]
