"""Displays in the style of scikit-learn: differences between domains, and scores by domain.

matplotlib is imported when a plot is drawn.
"""

from domainwise.evaluation.plots.differences import DomainMapDisplay, ShiftDisplay
from domainwise.evaluation.plots.performance import CalibrationByDomainDisplay, DomainScoresDisplay

__all__ = ["CalibrationByDomainDisplay", "DomainMapDisplay", "DomainScoresDisplay", "ShiftDisplay"]
