"""Data with domains: the paper's synthetic set, and loaders of real files.

:func:`load_heart` reads a file that is part of the package. Other files are looked up in the folder
``$DOMAINWISE_DATA``, then in ``domainwise`` inside the user's cache (``$XDG_CACHE_HOME``, else
``~/.cache``), and their SHA-256 is checked. The error for an absent file says where the original
is.
"""

from domainwise.datasets.loaders import (
    DatasetInfo,
    list_datasets,
    load_adult,
    load_bike,
    load_communities,
    load_cytof,
    load_facies,
    load_gvhd,
    load_heart,
    load_hipc,
    load_kc_house,
    load_landmine,
    load_oilwells,
    load_parkinsons,
    load_shoppers,
)
from domainwise.datasets.synthetic import make_synthetic

__all__ = [
    "DatasetInfo",
    "list_datasets",
    "load_adult",
    "load_bike",
    "load_communities",
    "load_cytof",
    "load_facies",
    "load_gvhd",
    "load_heart",
    "load_hipc",
    "load_kc_house",
    "load_landmine",
    "load_oilwells",
    "load_parkinsons",
    "load_shoppers",
    "make_synthetic",
]
