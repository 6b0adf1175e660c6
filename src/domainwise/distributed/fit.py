"""Fitting on a Dask cluster, from files that no single machine has to hold."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from os import PathLike
from typing import Any, TypeVar

from domainwise.estimators.projection import Projection
from domainwise.ridge.base import InvariantRidge

Estimator = TypeVar("Estimator", bound=Projection | InvariantRidge)

__all__ = ["fit_parquet"]


def fit_parquet(
    estimator: Estimator,
    path: str | PathLike[str],
    *,
    target: str | Sequence[str] | None,
    domain: str | Sequence[str] | None,
    features: Sequence[str] | None = None,
    client: Any = None,
) -> Estimator:
    """Fit an estimator to Parquet files, in one pass over them for the fast family.

    A ridge search whose ``scoring`` looks at predictions takes another.

    Row groups of the files are the partitions: neighbouring ones of a file are taken together up
    to 32 MiB. Their lengths stand in the files' footers, which are read first, so that a damaged
    or foreign file is found before any work is done.

    Parameters
    ----------
    estimator : FastDCM or another of the fast family, an exact estimator, or a ridge search
        Fitted in place. If anything fails, it is left as it was.
    path : str or path-like
        A file, a folder of files, or a pattern; on whatever storage fsspec can open. Names of
        folders such as ``site=A`` count as columns of strings.
    target : str, list of str or None
        Column or columns of y; None without a target.
    domain : str, list of str or None
        Column of ``sample_domain``, or columns of continuous descriptors; None for one domain.
    features : list of str, default=None
        Columns of X; None for all others, which then have to be numbers.
    client : distributed.Client, default=None
        Where to compute. None stands for the current client, or for threads of this process where
        there is none.

    Returns
    -------
    estimator : object
        The same, fitted.

    Raises
    ------
    OSError
        If a file cannot be read. The message names it.

    Examples
    --------
    >>> from domainwise import FastDCM
    >>> from domainwise.distributed.fit import fit_parquet
    >>> model = fit_parquet(
    ...     FastDCM(n_landmarks=300), "measurements/", target="y", domain="site"
    ... )  # doctest: +SKIP
    """
    _check_installed()
    if not isinstance(estimator, Projection | InvariantRidge):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}: Parquet files are for the exact and the "
            "fast projections, such as FastDCM, for InvariantFeatures, and for the searches "
            "InvariantRidgeClassifierCV and InvariantRidgeCV"
        )
    from domainwise.backends.dask import DaskBackend
    from domainwise.distributed.parquet import known_rows

    target, domain = _column_argument(target, "target"), _column_argument(domain, "domain")
    labels = [name for part in (target, domain) for name in _listed(part)]
    chosen = None if features is None else _feature_argument(features, labels)
    with _computing_on(client):
        frame, known = known_rows(path, labels, chosen)
        attempt = copy.copy(estimator)
        attempt._fit_on(DaskBackend(known), frame, target, domain)
    estimator.__dict__ = attempt.__dict__
    return estimator


def _check_installed() -> None:
    packages = ("dask", "distributed", "pandas", "pyarrow")
    missing = [name for name in packages if not _found(name)]
    if missing:
        raise ImportError(
            f"domainwise.distributed needs {' and '.join(missing)}: "
            'pip install "domainwise[dask,data]"'
        )


def _found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # a module that was put in place by hand
        return True


def _computing_on(client: Any) -> AbstractContextManager[Any]:
    """Make a client the current one, or say why it cannot be used."""
    if client is None:
        return nullcontext()
    from distributed import Client

    if not isinstance(client, Client):
        raise TypeError(
            f"client must be a distributed.Client, got {type(client).__name__}: connect with "
            "Client(address) first"
        )
    if client.asynchronous:
        raise TypeError("client is asynchronous: pass one made with asynchronous=False")
    if client.status != "running":
        raise ValueError(f"client is {client.status}: connect a new one with Client(address)")
    return client.as_current()


def _feature_argument(features: Any, labels: list[str]) -> list[str]:
    """Names of feature columns: some, each once, and none that is a label."""
    if isinstance(features, str):
        raise TypeError(f"features={features!r}: give a list of column names")
    chosen = list(features)
    problem = "" if chosen else "no columns are given"
    for name in chosen:
        if name in labels:
            problem = f"{name!r} is a label, too"
        elif chosen.count(name) > 1:
            problem = f"{name!r} is named twice"
    if problem:
        raise ValueError(f"features={features!r}: {problem}")
    return chosen


def _column_argument(names: Any, argument: str) -> Any:
    """A column's name, a list of names, or None."""
    if names is None or isinstance(names, str):
        return names
    found = list(names) if isinstance(names, Sequence) else []
    if not found or not all(isinstance(name, str) for name in found):
        raise TypeError(
            f"{argument}={names!r}: give the name of a column, a list of names, or None"
        )
    return found


def _listed(names: Any) -> list[str]:
    if names is None:
        return []
    return names if isinstance(names, list) else [names]
