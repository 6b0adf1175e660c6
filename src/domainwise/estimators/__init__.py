"""The projections as scikit-learn transformers: exact ones, and fast ones that use landmarks."""

from typing import TYPE_CHECKING

from domainwise.estimators import exact, fast
from domainwise.estimators.exact import *
from domainwise.estimators.fast import *

if not TYPE_CHECKING:  # type checkers use the names of the star imports
    __all__ = exact.__all__ + fast.__all__
