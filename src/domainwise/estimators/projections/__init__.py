"""The projections as scikit-learn transformers: exact ones, and fast ones that use landmarks."""

from typing import TYPE_CHECKING

from domainwise.estimators.projections import exact, fast
from domainwise.estimators.projections.exact import *
from domainwise.estimators.projections.fast import *

if not TYPE_CHECKING:  # type checkers use the names of the star imports
    __all__ = exact.__all__ + fast.__all__
