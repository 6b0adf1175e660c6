"""Fitting on a Dask cluster: from Parquet files, or with folds distributed over the workers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from os import PathLike
from typing import Any, TypeVar

from joblib import parallel_config

from domainwise.base.arguments import SequenceOf, check_arguments
from domainwise.base.messages import needs_extra
from domainwise.estimators.projections.projection import Projection
from domainwise.estimators.ridge.base import InvariantRidge

Estimator = TypeVar("Estimator", bound=Projection | InvariantRidge)


def fit_parquet(
    estimator: Estimator,
    path: str | PathLike[str],
    *,
    target: str | Sequence[str] | None,
    domain: str | Sequence[str] | None,
    features: Sequence[str] | None = None,
    client: Any = None,
) -> Estimator:
    """Fit an estimator to Parquet files, which may be larger than memory.

    The rows are read once. A partition consists of adjacent row groups of a file, up to 32 MiB in
    total. The footers of all files, which contain the numbers of rows, are read first. If a footer
    cannot be read, an error is raised before anything is computed.

    Parameters
    ----------
    estimator : projection, InvariantRidgeClassifierCV or InvariantRidgeCV
        For example :class:`~domainwise.FastDCM`. Fitted in place, but unchanged if an error occurs.
    path : str or path-like
        A file, a folder or a glob pattern, on any storage that fsspec can open. Folder names such
        as ``site=A`` become string columns.
    target : str, list of str or None
        Column or columns to use as y; None if there is no target.
    domain : str, list of str or None
        Column with domain labels, or columns with continuous domain descriptors. None treats all
        rows as one domain.
    features : list of str, default=None
        Columns to use as X. None uses all other columns, which must be numeric.
    client : distributed.Client, default=None
        Client of the cluster. None uses the current client or, if there is none, local threads.

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
    domainwise.FastDCM : An estimator that can be fitted with this function.

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
            f"fit_parquet does not support {type(estimator).__name__}. Pass a projection (such "
            "as FastDCM or InvariantFeatures), InvariantRidgeClassifierCV or InvariantRidgeCV."
        )
    from domainwise.algebra.backends.dask import partitions_of
    from domainwise.distributed.parquet import open_parquet

    names = [SequenceOf(str), None]
    constraints: dict[str, list[Any]] = {
        "target": [str, *names],
        "domain": [str, *names],
        "features": names,
    }
    check_arguments("fit_parquet", constraints, target=target, domain=domain, features=features)
    labels = [c if c is None or isinstance(c, str) else [*c] for c in (target, domain)]
    label_columns = [n for c in labels if c is not None for n in ([c] if isinstance(c, str) else c)]
    feature_names = None if features is None else list(dict.fromkeys(features))
    if repeated_names := {*label_columns} & {*(feature_names or ())}:
        raise ValueError(
            f"features={features!r}: {min(repeated_names)!r} is also a target or domain column. "
            "Remove it from features."
        )
    with nullcontext() if client is None else client.as_current():
        frame, pieces = open_parquet(path, label_columns, feature_names)
        fitted_copy: Any = copy.copy(estimator)
        if hasattr(fitted_copy, "fit_partitions"):
            # The tasks that sum a partition's rows also read them.
            fitted_copy.fit_partitions(replace(partitions_of(frame, *labels), **pieces))
        else:  # raises an error that names the estimator to use
            fitted_copy.fit(frame, *labels)
    estimator.__dict__ = fitted_copy.__dict__
    return estimator


@contextmanager
def folds_on(client: Any, report: Callable[[int], None] | None = None) -> Iterator[None]:
    """Run joblib loops, such as loops over folds, on a client's workers; None changes nothing.

    ``report`` is called after each task with the number of finished tasks. joblib's Dask backend
    sends every loop to the workers, including loops inside a task and loops with ``n_jobs=1``, such
    as those in a column transformer. Here, these two kinds of loops run in the calling process.
    """
    if client is None:
        yield
        return
    from joblib._dask import DaskDistributedBackend

    class FoldsBackend(DaskDistributedBackend):  # type: ignore[misc, unused-ignore]
        default_n_jobs = 1
        n_finished = 0

        def effective_n_jobs(self, n_jobs: int) -> int:
            return 1 if n_jobs == 1 else super().effective_n_jobs(n_jobs)

        def submit(self, func: Any, callback: Any = None) -> Any:
            func.items = [
                (SequentialTask(function), args, kwargs) for function, args, kwargs in func.items
            ]
            return super().submit(func, callback)

        def retrieve_result_callback(self, out: Any) -> Any:
            self.n_finished += 1
            if report is not None:
                report(self.n_finished)
            return super().retrieve_result_callback(out)

    with parallel_config(backend=FoldsBackend(client=client)):
        yield


@dataclass(frozen=True)
class SequentialTask:
    """A function whose joblib loops run sequentially in the calling process."""

    function: Callable[..., Any]

    @property
    def __name__(self) -> str:
        """Name of the task on the dashboard."""
        function = getattr(self.function, "func", self.function)  # unwrap functools.partial
        return getattr(function, "__name__", type(function).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        with parallel_config(backend="sequential"):
            return self.function(*args, **kwargs)
