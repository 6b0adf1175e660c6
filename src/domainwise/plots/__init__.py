"""Displays like those of scikit-learn: differences and model performance by domain.

matplotlib is loaded when something is drawn.
"""

from domainwise.plots.differences import DomainMapDisplay, ShiftDisplay
from domainwise.plots.performance import CalibrationByDomainDisplay, DomainScoresDisplay

__all__ = ["CalibrationByDomainDisplay", "DomainMapDisplay", "DomainScoresDisplay", "ShiftDisplay"]
