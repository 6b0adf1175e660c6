"""Backend for Dask arrays and data frames, whose rows are summed and projected on workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils.validation import validate_data

from domainwise.algebra.backends import partitions
from domainwise.algebra.backends.base import Backend
from domainwise.algebra.gram.dask.graphs import constant, task
from domainwise.base.arrays import Array


class DaskBackend(Backend):
    """Backend for Dask collections; ``known_partitions`` describes partitions in files."""

    def __init__(self, known_partitions: partitions.KnownPartitions | None = None) -> None:
        self.known_partitions = known_partitions

    def partitions(self, X: Any, y: Any, sample_domain: Any) -> Any:
        """Return the partitions of X, y and sample_domain."""
        return partitions.partitions_of(X, y, sample_domain, self.known_partitions)

    def check_rows(
        self, estimator: Any, X: Any, *, reset: bool = False, ensure_min_samples: int = 1
    ) -> Any:
        """Check the names and the number of the features of new rows, without loading the rows."""
        if partitions.is_frame(X) and X.ndim == 2:
            feature_names = list(getattr(estimator, "feature_names_in_", X.columns))
            # Drop labels that are columns of the same data frame.
            X = X[feature_names] if set(feature_names) <= set(X.columns) else X
        validate_data(estimator, partitions.layout_of(X)[1], reset=reset, skip_check_array=True)
        return X

    def transform(self, model: Any, X: Any) -> Any:
        """Project partition by partition, lazily."""
        refuse_output_in_memory(model, X)
        layout, _ = partitions.layout_of(X)
        output_names = model.get_feature_names_out()
        meta = np.empty((0, len(output_names)), dtype=layout.dtype)
        return _map_partitions(X, layout, model, "transform", meta, output_names)

    def predict(self, model: Any, method: str, X: Any) -> Any:
        """Call the given method of a fitted model on every partition, lazily."""
        layout, _ = partitions.layout_of(X)
        meta = getattr(model, method)(np.zeros((1, layout.n_features), dtype=layout.dtype))[:0]
        column_names = None if meta.ndim == 1 else list(range(meta.shape[1]))
        return _map_partitions(X, layout, model, method, meta, column_names)

    def finish_fit(self, model: Any, X: Any) -> None:
        """Store the number of partitions in ``solver_info_``; coefficients stay on the client."""
        model.solver_info_["n_partitions"] = partitions.n_partitions(X)


def refuse_output_in_memory(model: Any, X: Any) -> None:
    """Raise ValueError if ``set_output`` requests an output that is not a Dask collection."""
    container = getattr(model, "_sklearn_output_config", {}).get("transform")
    container = container or get_config()["transform_output"]
    if container != "default":
        raise ValueError(
            f'set_output(transform="{container}") would load {partitions.describe(X)} into memory. '
            'Use "default", which returns a Dask collection.'
        )


def _map_partitions(
    X: Any, layout: partitions.Layout, model: Any, method: str, meta: Array, column_names: Any
) -> Any:
    """Call a method of a fitted model on every partition; ``meta`` is its output for 0 rows."""
    arguments = constant((model, layout, method, meta, column_names), "model")
    if partitions.is_frame(X):
        frame_meta = _with_index(X._meta, meta, column_names)
        return X.map_partitions(_apply_to_rows, arguments, meta=frame_meta)
    X = X.rechunk({1: -1})
    options = {"chunks": (X.chunks[0], (meta.shape[1],))} if meta.ndim == 2 else {"drop_axis": 1}
    return X.map_blocks(_apply_to_rows, arguments=arguments, dtype=meta.dtype, meta=meta, **options)


@task
def _apply_to_rows(rows: Any, arguments: tuple[Any, ...]) -> Any:
    model, layout, method, meta, column_names = arguments
    X, output = layout.values(rows), meta
    if len(X):
        is_transform = method == "transform"
        output = Backend().transform(model, X) if is_transform else getattr(model, method)(X)
    return output if layout.features is None else _with_index(rows, output, column_names)


def _with_index(rows: Any, values: Array, column_names: Any) -> Any:
    """Return a data frame, or a series if ``column_names`` is None, with the index of ``rows``."""
    import pandas as pd

    if column_names is None:
        return pd.Series(values, index=rows.index)
    return pd.DataFrame(values, index=rows.index, columns=column_names)
