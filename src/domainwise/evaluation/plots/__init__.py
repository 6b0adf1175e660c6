"""Displays in the style of scikit-learn: differences between domains, and scores by domain.

matplotlib is imported when a plot is drawn.
"""

from domainwise.evaluation.plots.differences import DomainMapDisplay, ShiftDisplay
from domainwise.evaluation.plots.performance import DomainScoresDisplay
from domainwise.evaluation.plots.sites import (
    CalibrationDisplay,
    DecisionCurveDisplay,
    ForestDisplay,
)

__all__ = [
    "CalibrationDisplay",
    "DecisionCurveDisplay",
    "DomainMapDisplay",
    "DomainScoresDisplay",
    "ForestDisplay",
    "ShiftDisplay",
]
