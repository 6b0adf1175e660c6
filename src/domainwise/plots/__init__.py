"""Displays in the style of scikit-learn: differences between domains, and scores by domain.

matplotlib is imported when a plot is drawn.
"""

from domainwise.plots.differences import DomainMapDisplay, ShiftDisplay
from domainwise.plots.performance import DomainScoresDisplay
from domainwise.plots.sites import CalibrationDisplay, DecisionCurveDisplay, ForestDisplay

__all__ = [
    "CalibrationDisplay",
    "DecisionCurveDisplay",
    "DomainMapDisplay",
    "DomainScoresDisplay",
    "ForestDisplay",
    "ShiftDisplay",
]
