"""Loaders of five everyday tables: income, shopping, bikes, crime and houses.

Their files have the domain first, the target last and the features between.
"""

from __future__ import annotations

from sklearn.utils import Bunch

from domainwise.datasets.bunch import bunch
from domainwise.datasets.lookup import read_table


def load_adult(*, as_frame: bool = False) -> Bunch:
    """Census income: 13 occupations, a person's circumstances, over 50,000 dollars (1) or not (0).

    Parameters
    ----------
    as_frame : bool, default=False
        Return pandas objects in place of arrays, and the file's rows as ``frame``: there the five
        text columns still are text, for an encoder of your own.

    Returns
    -------
    Bunch
        ``data`` (5549, 32): five numbers, then an indicator for every value of the text columns
        (``workclass_Private``); ``target``, ``sample_domain`` (occupation), ``feature_names`` and
        ``DESCR``.

    Examples
    --------
    >>> from domainwise.datasets import load_adult
    >>> load_adult().feature_names[-2:]  # doctest: +SKIP
    ['sex_Female', 'sex_Male']
    """
    return _load("adult", as_frame=as_frame)


def load_shoppers(*, as_frame: bool = False) -> Bunch:
    """Online shoppers: 10 months, what a visitor did, a purchase (1) or not (0).

    Parameters
    ----------
    as_frame : bool, default=False
        Return pandas objects in place of arrays, and the file's rows as ``frame``.

    Returns
    -------
    Bunch
        ``data`` (4734, 18): fifteen numbers and three indicators of the kind of visitor;
        ``target``, ``sample_domain`` (month), ``feature_names`` and ``DESCR``.

    Examples
    --------
    >>> from domainwise.datasets import load_shoppers
    >>> load_shoppers().target.sum()  # doctest: +SKIP
    727
    """
    return _load("shoppers", as_frame=as_frame)


def load_bike(*, as_frame: bool = False) -> Bunch:
    """Bike sharing by the hour: 8 seasons, time and weather, log of the bikes rented.

    Parameters
    ----------
    as_frame : bool, default=False
        Return pandas objects in place of arrays, and the file's rows as ``frame``.

    Returns
    -------
    Bunch
        ``data`` (4800, 8), ``target``, ``sample_domain`` (season and year), ``feature_names`` and
        ``DESCR``.

    Examples
    --------
    >>> from domainwise.datasets import load_bike
    >>> load_bike().feature_names[0]  # doctest: +SKIP
    'hr'
    """
    return _load("bike", as_frame=as_frame)


def load_communities(*, as_frame: bool = False) -> Bunch:
    """Communities and crime: 30 states, 98 census figures, log of violent crimes.

    Parameters
    ----------
    as_frame : bool, default=False
        Return pandas objects in place of arrays, and the file's rows as ``frame``.

    Returns
    -------
    Bunch
        ``data`` (1869, 98), ``target``, ``sample_domain`` (state), ``feature_names`` and ``DESCR``.

    Examples
    --------
    >>> from domainwise.datasets import load_communities
    >>> len(set(load_communities().sample_domain))  # doctest: +SKIP
    30
    """
    return _load("communities", as_frame=as_frame)


def load_kc_house(*, as_frame: bool = False) -> Bunch:
    """House sales in King County: 70 zip codes, 15 facts about a house, log of its price.

    Parameters
    ----------
    as_frame : bool, default=False
        Return pandas objects in place of arrays, and the file's rows as ``frame``.

    Returns
    -------
    Bunch
        ``data`` (5547, 15), ``target``, ``sample_domain`` (zip code), ``feature_names`` and
        ``DESCR``.

    Examples
    --------
    >>> from domainwise.datasets import load_kc_house
    >>> load_kc_house().data.shape  # doctest: +SKIP
    (5547, 15)
    """
    return _load("kc_house", as_frame=as_frame)


def _load(name: str, *, as_frame: bool) -> Bunch:
    table = read_table(name, as_frame)
    features, target = list(table.columns[1:-1]), table.columns[-1]
    return bunch(table, features, target, name, as_frame=as_frame)
