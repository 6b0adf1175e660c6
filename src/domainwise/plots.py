"""Displays in the style of scikit-learn; matplotlib is imported when a plot is drawn."""

from domainwise.evaluation import plots
from domainwise.evaluation.plots import *

__all__: list[str] = []
__all__ += plots.__all__
