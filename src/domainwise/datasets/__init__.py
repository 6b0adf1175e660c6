"""Data with domains: the paper's synthetic set, and loaders of real files.

:func:`load_heart` reads a file that is part of the package. Other files are looked up in the folder
``$DOMAINWISE_DATA``, then in ``domainwise`` inside the user's cache (``$XDG_CACHE_HOME``, else
``~/.cache``), and their SHA-256 is checked. If a file is absent, the error says where the original
is.
"""

from typing import TYPE_CHECKING

from domainwise.datasets import loaders
from domainwise.datasets.loaders import *
from domainwise.datasets.synthetic import make_synthetic as make_synthetic

if not TYPE_CHECKING:  # type checkers take all names of the star import
    __all__ = [*loaders.__all__, "make_synthetic"]
