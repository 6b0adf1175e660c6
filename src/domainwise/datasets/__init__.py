"""Data sets with domains: synthetic data as in the DCM paper, and loaders for real data.

:func:`load_heart` reads a file that is part of the package. Other files are read from the folder
``$DOMAINWISE_DATA``, or else from ``domainwise`` in ``$XDG_CACHE_HOME`` or ``~/.cache``, and their
SHA-256 digests are checked. The error for a missing file says where its data come from.
"""

from typing import TYPE_CHECKING

from domainwise.datasets import loaders
from domainwise.datasets.loaders import *
from domainwise.datasets.synthetic import make_synthetic as make_synthetic

if not TYPE_CHECKING:  # type checkers use the star import
    __all__ = [*loaders.__all__, "make_synthetic"]
