"""Displays like scikit-learn's, of what differs between domains and of how models do on them.

matplotlib is loaded when something is drawn.
"""

from domainwise.plots.calibration import CalibrationByDomainDisplay
from domainwise.plots.maps import DomainMapDisplay
from domainwise.plots.scores import DomainScoresDisplay
from domainwise.plots.shift import ShiftDisplay

__all__ = ["CalibrationByDomainDisplay", "DomainMapDisplay", "DomainScoresDisplay", "ShiftDisplay"]
