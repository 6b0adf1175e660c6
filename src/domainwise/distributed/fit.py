"""Fits on a Dask cluster: from Parquet files larger than memory, or with folds on the workers."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from typing import Any, TypeVar

from joblib import parallel_config

from domainwise.checks import needs_extra
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
    """Fit an estimator to Parquet files, in one pass over them for the fast estimators.

    A ridge search whose ``scoring`` needs predictions takes a second pass.

    Partitions are row groups of the files; neighbouring row groups of a file are read together, up
    to 32 MiB. The footers of all files, which contain the lengths, are read first, so that a
    damaged file, or a file in another format, raises an error before anything is computed.

    Parameters
    ----------
    estimator : FastDCM or another of the fast family, an exact estimator, or a ridge search
        Fitted in place. It is unchanged if an error occurs.
    path : str or path-like
        A file, a folder of files, or a pattern, on any storage that fsspec can open. Folder
        names such as ``site=A`` become string columns.
    target : str, list of str or None
        Column or columns of y; None if there is no target.
    domain : str, list of str or None
        Column of ``sample_domain``, or columns of continuous descriptors; None for one domain.
    features : list of str, default=None
        Columns of X; None for all others, which must then be numeric.
    client : distributed.Client, default=None
        Where to compute. None uses the current client, or threads of this process if there is
        none.

    Returns
    -------
    estimator : object
        The same object, fitted.

    Raises
    ------
    OSError
        If a file cannot be read. The message contains its name.

    See Also
    --------
    domainwise.FastDCM : The estimator, for rows in memory.

    Examples
    --------
    >>> from domainwise import FastDCM
    >>> from domainwise.distributed.fit import fit_parquet
    >>> model = fit_parquet(
    ...     FastDCM(n_landmarks=300), "measurements/", target="y", domain="site"
    ... )  # doctest: +SKIP
    """
    with needs_extra("fit_parquet", "dask,data"):
        for package in ("dask", "distributed", "pandas", "pyarrow"):
            import_module(package)
    if not isinstance(estimator, Projection | InvariantRidge):
        raise TypeError(
            f"fit_parquet does not support {type(estimator).__name__}. Pass a projection, such "
            "as FastDCM or InvariantFeatures, or InvariantRidgeClassifierCV or InvariantRidgeCV."
        )
    from domainwise.backends.dask import DaskBackend
    from domainwise.distributed.parquet import open_parquet

    labels: list[str] = []
    columns: dict[str, Any] = {"target": target, "domain": domain}
    for argument, names in columns.items():
        if isinstance(names, str):
            labels.append(names)
        elif isinstance(names, Sequence) and names and all(isinstance(n, str) for n in names):
            columns[argument] = [*names]
            labels += names
        elif names is not None:
            raise TypeError(
                f"{argument} must be the name of a column, a list of names, or None; got {names!r}"
            )
    if isinstance(features, str):
        raise TypeError(f"features must be a list of column names; got {features!r}")
    feature_names = None if features is None else list(features)
    problem = "the list is empty" if feature_names == [] else ""
    for name, count in Counter(feature_names or ()).items():
        if name in labels:
            problem = f"{name!r} is also a label"
        elif count > 1:
            problem = f"{name!r} is listed twice"
    if problem:
        raise ValueError(
            f"features={features!r}: {problem}. List every feature once, without target and domain."
        )
    with nullcontext() if client is None else _as_current(client):
        frame, partitions = open_parquet(path, labels, feature_names)
        fitted = copy.copy(estimator)
        fitted.fit_with(DaskBackend(partitions), frame, columns["target"], columns["domain"])
    estimator.__dict__ = fitted.__dict__
    return estimator


def _as_current(client: Any) -> AbstractContextManager[Any]:
    """Return a context in which a client is the current one; raise an error if it is not usable."""
    from distributed import Client

    if not isinstance(client, Client):
        raise TypeError(
            f"client must be a distributed.Client; got {type(client).__name__}. Connect with "
            "Client(address) first."
        )
    if client.asynchronous:
        raise TypeError("client is asynchronous. Pass Client(address, asynchronous=False).")
    if client.status != "running":
        raise ValueError(f"client is {client.status}. Connect a new client with Client(address).")
    return client.as_current()


# Folds on workers ---------------------------------------------------------------------------------


@contextmanager
def folds_on(client: Any, report: Callable[[int], None] | None = None) -> Iterator[None]:
    """Run folds on the workers of a client by joblib; None has no effect.

    ``report`` is called with the number of finished tasks. joblib's backend for Dask sends every
    loop to the workers, including loops inside a task and loops with ``n_jobs=1``, such as those of
    a column transformer. Here, only loops with more than one job are sent, and loops inside a task
    run in the process of the task.
    """
    if client is None:
        yield
        return
    from joblib._dask import DaskDistributedBackend

    class FoldsBackend(DaskDistributedBackend):  # type: ignore[misc, unused-ignore]
        default_n_jobs = 1
        n_done = 0

        def effective_n_jobs(self, n_jobs: int) -> int:
            return 1 if n_jobs == 1 else super().effective_n_jobs(n_jobs)

        def submit(self, func: Any, callback: Any = None) -> Any:
            func.items = [
                (SequentialTask(function), args, kwargs) for function, args, kwargs in func.items
            ]
            return super().submit(func, callback)

        def retrieve_result_callback(self, out: Any) -> Any:
            self.n_done += 1
            if report is not None:
                report(self.n_done)
            return super().retrieve_result_callback(out)

    with parallel_config(backend=FoldsBackend(client=client)):
        yield


@dataclass(frozen=True)
class SequentialTask:
    """A function whose joblib loops run sequentially in the process that calls it."""

    function: Callable[..., Any]

    @property
    def __name__(self) -> str:
        """Name of the task on the dashboard."""
        function = getattr(self.function, "func", self.function)  # of functools.partial
        return getattr(function, "__name__", type(function).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        with parallel_config(backend="sequential"):
            return self.function(*args, **kwargs)
