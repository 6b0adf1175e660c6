"""Backend for Dask arrays and data frames: checks, labels and operators.

The rows of X, and all arrays of that size, remain Dask collections. Labels, and coefficients of
exact models (one number per row and component), are kept in the client's memory.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from sklearn import get_config
from sklearn.utils.validation import validate_data

from domainwise.arrays import Array, is_dask
from domainwise.arrays.namespace import evenly_spaced
from domainwise.backends import partitions
from domainwise.backends.base import NAN_ADVICE, Backend
from domainwise.checks.kernels import FUNCTION_ROWS, VALID_KERNELS, check_kernel
from domainwise.gram.dask.graphs import call, constant, fetch, run, task
from domainwise.gram.dask.operator import DaskGram, cross_tasks, in_blocks, row_blocks
from domainwise.gram.tiles import kernel_matrix
from domainwise.kernels.functions import MEDIAN_ROWS, Kernel, make_kernel


class DaskBackend(Backend):
    """Backend for Dask collections; ``known_partitions`` describes partitions in files."""

    streamed_gram = DaskGram

    def __init__(self, known_partitions: partitions.KnownPartitions | None = None) -> None:
        self.known_partitions = known_partitions

    def split_labels(self, X: Any, y: Any, sample_domain: Any) -> tuple[Any, Any, Any]:
        """Return X, y and sample_domain; label columns are removed from X."""
        layout, _, y, sample_domain = partitions.separate_labels(X, y, sample_domain)
        y = y if layout.target is None else X[layout.target]
        sample_domain = sample_domain if layout.domain is None else X[layout.domain]
        return X if layout.features is None else X[list(layout.features)], y, sample_domain

    def partitions(self, X: Any, y: Any, sample_domain: Any) -> Any:
        """Return the partitions of X, y and sample_domain."""
        return partitions.partitions_of(X, y, sample_domain, self.known_partitions)

    def check_rows(
        self, estimator: Any, X: Any, *, reset: bool = True, ensure_min_samples: int = 1
    ) -> Any:
        """Check X without loading it into memory; for a fit, compute chunk sizes if unknown."""
        is_frame = partitions.is_frame(X)
        if not reset:
            if is_frame and X.ndim == 2:
                feature_names = list(getattr(estimator, "feature_names_in_", X.columns))
                # Drop labels that are columns of the same data frame.
                X = X[feature_names] if set(feature_names) <= set(X.columns) else X
            validate_data(estimator, partitions.layout_of(X)[1], reset=False, skip_check_array=True)
            return X
        layout, empty_X = partitions.layout_of(X)
        if is_frame:
            lengths = True if self.known_partitions is None else list(self.known_partitions.lengths)
            X = X.astype(layout.dtype).to_dask_array(lengths=lengths)
        else:
            X = X.astype(layout.dtype, copy=False)
        validate_data(estimator, empty_X, skip_check_array=True)
        if partitions.known_lengths(X) is None:
            X = X.compute_chunk_sizes()
        if len(X) < ensure_min_samples:
            raise ValueError(
                f"Found a Dask array with {len(X)} sample(s) while a minimum of "
                f"{ensure_min_samples} is required by {type(estimator).__name__}."
            )
        return X

    def labels_in_memory(self, labels: Any, rows: Any, name: str) -> Any:
        """Return labels as an array; unlike X, one label per row fits into memory."""
        if labels is not None and not is_dask(labels):
            partitions.check_aligned(rows, labels, name)
        return None if labels is None else fetch(labels)

    @staticmethod
    def check_precomputed(K: Any) -> bool:
        """Raise ValueError: precomputed kernel matrices must be in memory."""
        raise ValueError(
            'kernel="precomputed" takes a matrix in memory; got a Dask collection. Pass '
            "X.compute()."
        )

    def resolve_kernel(  # type: ignore[override]
        self, kernel: Any, X: Any, *, gamma: Any, **arguments: Any
    ) -> Kernel:
        """Set parameters as ``make_kernel`` does, but from sampled rows or Dask reductions."""
        zero_row = np.zeros((1, X.shape[1]), dtype=X.dtype)
        if isinstance(gamma, str) and isinstance(kernel, str):
            if gamma == "scale":
                variance = float(fetch(X.var(dtype=np.float64)))
                gamma = 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
            else:
                sample = fetch(X[evenly_spaced(len(X), MEDIAN_ROWS)])
                if not np.isfinite(sample).all():
                    raise ValueError(f"Input X contains NaN or infinity. {NAN_ADVICE}")
                gamma = make_kernel(kernel, sample, gamma=gamma, **arguments).gamma
        resolved_kernel = make_kernel(kernel, zero_row, gamma=gamma, **arguments)
        if resolved_kernel.name not in ("rbf", "linear"):
            if resolved_kernel.name in VALID_KERNELS:
                return resolved_kernel
            return check_kernel(resolved_kernel, fetch(X[evenly_spaced(len(X), FUNCTION_ROWS)]))
        origin, max_squared_distance = fetch(X.mean(axis=0, dtype=np.float64)).astype(X.dtype), 0.0
        if resolved_kernel.name == "rbf":
            max_squared_distance = float(fetch(((X - origin) ** 2).sum(axis=1).max()))
        return resolved_kernel.with_origin(origin, max_squared_distance)

    @staticmethod
    def kernel_matrix(kernel: Kernel, rows: Any) -> Array:
        """Evaluate the whole kernel matrix of a few rows in the client's memory."""
        return kernel_matrix(kernel, np.vstack(run(row_blocks(in_blocks(rows)))))

    def transform(self, model: Any, X: Any) -> Any:
        """Project partition by partition, lazily."""
        refuse_output_in_memory(model, X)
        layout, _ = partitions.layout_of(X)
        output_names = model.get_feature_names_out()
        if is_dask(getattr(model, "X_fit_", None)):
            # The training rows form many blocks, of which a worker stores a few at a time.
            partition_tasks, expansion = partitions.tasks_of(X), model.expansion
            row_tasks = [call(layout.values, partition) for partition in partition_tasks]
            products = cross_tasks(expansion.kernel, row_tasks, expansion.landmarks, expansion.dual)
            arguments = constant((expansion.intercept, layout.dtype, output_names), "projection")
            if not partitions.is_frame(X):
                partition_tasks = [None] * len(products)
            pairs = zip(partition_tasks, products, strict=True)
            projections = [call(_finish_projection, *pair, arguments) for pair in pairs]
            return collect(projections, X, output_names, layout.dtype)
        meta = np.empty((0, len(output_names)), dtype=layout.dtype)
        return _map_partitions(X, layout, model, "transform", meta, output_names)

    def predict(self, model: Any, method: str, X: Any) -> Any:
        """Call the given method of a fitted model on every partition, lazily."""
        layout, _ = partitions.layout_of(X)
        meta = getattr(model, method)(np.zeros((1, layout.n_features), dtype=layout.dtype))[:0]
        column_names = None if meta.ndim == 1 else list(range(meta.shape[1]))
        return _map_partitions(X, layout, model, method, meta, column_names)

    def copy_rows(self, rows: Any) -> Any:
        """Return the rows themselves: Dask collections are immutable."""
        return rows

    def like_rows(self, values: Array, rows: Any) -> Any:
        """Return ``values`` as a Dask array with the precision and chunks of the rows."""
        return da.from_array(values.astype(rows.dtype), chunks=(rows.chunks[0], values.shape[1]))

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


@task
def _finish_projection(rows: Any, Z: Array, arguments: tuple[Array, Any, Array]) -> Any:
    intercept, dtype, column_names = arguments
    Z = (Z + intercept).astype(dtype)
    return Z if rows is None else _with_index(rows, Z, column_names)


def collect(tasks: list[Any], X: Any, column_names: Array, dtype: Any) -> Any:
    """Return a collection of the same type as X, whose partitions are the results of tasks."""
    if partitions.is_frame(X):
        import dask.dataframe as dd

        meta = _with_index(X._meta, np.empty((0, len(column_names)), dtype), column_names)
        return dd.from_delayed(tasks, meta=meta, divisions=X.divisions, verify_meta=False)
    blocks = [
        da.from_delayed(block_task, (n_rows, len(column_names)), dtype=dtype)
        for block_task, n_rows in zip(tasks, X.chunks[0], strict=True)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


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
