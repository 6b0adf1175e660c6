"""Loaders of files that have the domain first, the target last and the features between."""

from __future__ import annotations

from typing import Protocol

from sklearn.utils import Bunch

from domainwise.datasets.bunch import bunch, described
from domainwise.datasets.lookup import read_table


class Loader(Protocol):
    """A loader without options of its own."""

    def __call__(self, *, as_frame: bool = False) -> Bunch:
        """Read the data set."""


def _loader(name: str, about: str, shape: str, domain: str) -> Loader:
    """Loader of one data set; ``about`` is the first line of its docstring."""

    def load(*, as_frame: bool = False) -> Bunch:
        table = read_table(name, as_frame)
        features, target = list(table.columns[1:-1]), table.columns[-1]
        return bunch(table, features, target, name, as_frame=as_frame)

    load.__name__ = load.__qualname__ = f"load_{name}"
    load.__doc__ = f"""{about}

    Parameters
    ----------
    {{shared}}

    Examples
    --------
    >>> from domainwise.datasets import load_{name}
    >>> load_{name}().data.shape  # doctest: +SKIP
    {shape}
    """
    return described(shape, domain)(load)


load_landmine = _loader(
    "landmine",
    "LandMine: 29 fields, 9 features, mine (1) or clutter (0).",
    "(14820, 9)",
    "field number",
)
load_adult = _loader(
    "adult",
    "Census income: 13 occupations, a person's circumstances, over 50,000 dollars (1) or not (0).",
    "(5549, 32)",
    "occupation",
)
load_shoppers = _loader(
    "shoppers",
    "Online shoppers: 10 months, what a visitor did, a purchase (1) or not (0).",
    "(4734, 18)",
    "month",
)
load_bike = _loader(
    "bike",
    "Bike sharing by the hour: 8 seasons, time and weather, log of the bikes rented.",
    "(4800, 8)",
    "season and year",
)
load_communities = _loader(
    "communities",
    "Communities and crime: 30 states, 98 census figures, log of violent crimes.",
    "(1869, 98)",
    "state",
)
load_kc_house = _loader(
    "kc_house",
    "House sales in King County: 70 zip codes, 15 facts about a house, log of its price.",
    "(5547, 15)",
    "zip code",
)
