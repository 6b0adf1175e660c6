"""Data sets with domains: the paper's synthetic data, and loaders for real data.

:func:`load_heart` reads a file that is part of the package. Other files are looked up in the folder
``$DOMAINWISE_DATA``, then in the folder ``domainwise`` in the user's cache (``$XDG_CACHE_HOME``, or
``~/.cache``), and their SHA-256 is checked. If a file is missing, the error says where to find the
original data.
"""

from typing import TYPE_CHECKING

from domainwise.datasets import loaders
from domainwise.datasets.loaders import *
from domainwise.datasets.synthetic import make_synthetic as make_synthetic

if not TYPE_CHECKING:  # type checkers use the star import
    __all__ = [*loaders.__all__, "make_synthetic"]
