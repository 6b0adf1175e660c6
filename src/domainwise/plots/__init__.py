"""Displays in the style of scikit-learn: differences between domains, and scores by domain.

matplotlib is imported when a plot is drawn.
"""

from domainwise.plots.differences import DomainMapDisplay, ShiftDisplay
from domainwise.plots.performance import CalibrationByDomainDisplay, DomainScoresDisplay

__all__ = ["CalibrationByDomainDisplay", "DomainMapDisplay", "DomainScoresDisplay", "ShiftDisplay"]
