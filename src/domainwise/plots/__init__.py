"""Displays like scikit-learn's, of what differs between domains and of how models do on them.

matplotlib is loaded when something is drawn.
"""

from domainwise.plots.differences import DomainMapDisplay, ShiftDisplay
from domainwise.plots.performance import CalibrationByDomainDisplay, DomainScoresDisplay

__all__ = ["CalibrationByDomainDisplay", "DomainMapDisplay", "DomainScoresDisplay", "ShiftDisplay"]
