"""Displays in the style of scikit-learn; matplotlib is imported when a plot is drawn."""

from domainwise.evaluation.plots import (
    CalibrationByDomainDisplay,
    DomainMapDisplay,
    DomainScoresDisplay,
    ShiftDisplay,
)

__all__ = ["CalibrationByDomainDisplay", "DomainMapDisplay", "DomainScoresDisplay", "ShiftDisplay"]
