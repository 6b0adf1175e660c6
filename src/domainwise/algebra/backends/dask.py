"""The backend for Dask collections, whose rows are summed and projected partition by partition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from numbers import Integral
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils.validation import validate_data

from domainwise.algebra.backends.base import NAN_ADVICE, Backend
from domainwise.algebra.gram.dask.graphs import Task, calls, constant, run, task, tree, unwrap
from domainwise.algebra.gram.sums import NystromSums
from domainwise.base.arrays import Array, evenly_spaced, is_dask
from domainwise.base.inputs import check_length
from domainwise.base.messages import listed

ALIGN_ADVICE = "Rechunk or repartition one of them so that their partitions contain the same rows."


@dataclass(frozen=True)
class Layout:
    """The columns of a partition that contain features, targets and domains."""

    features: tuple[Any, ...] | None  #: names of the feature columns; None for an array
    n_features: int
    dtype: Any  #: precision of the features
    target: Any = None  #: name(s) of the target columns; None if X does not contain the target
    domain: Any = None  #: name(s) of the domain columns; None if X does not contain the domains

    def split(self, rows: Any, y: Any, domains: Any) -> tuple[Array, Any, Any]:
        """Return the features of a partition as an array, and its labels as arrays or None."""
        y = rows[self.target] if self.target is not None else y
        domains = rows[self.domain] if self.domain is not None else domains
        X, label_arrays = self.values(rows), []
        for name, labels in (("y", y), ("sample_domain", domains)):
            if labels is not None:
                labels = labels.to_numpy() if hasattr(labels, "to_numpy") else np.asarray(labels)
                check_length(len(labels), name, len(X))
            label_arrays.append(labels)
        return X, label_arrays[0], label_arrays[1]

    def values(self, rows: Any) -> Array:
        """Return a partition's features; reject NaN and infinity."""
        if self.features is not None:
            X = rows[list(self.features)].to_numpy(dtype=self.dtype, na_value=np.nan)
        else:
            X = np.asarray(rows, dtype=self.dtype)
        X = unwrap(X)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have {self.n_features} features; got shape {X.shape}.")
        if not np.isfinite(X).all():
            raise ValueError(f"Input X contains NaN or infinity. {NAN_ADVICE}")
        return X


@dataclass(frozen=True)
class Partitions:
    """X, y and sample_domain as tasks, one task for each partition."""

    layout: Layout
    empty_X: Any  #: X without rows, for the names and number of its features
    rows: list[Task]
    y: list[Task] | None  #: targets; None if the rows contain them, or if they are not used
    domains: list[Task] | None  #: None in the same cases as ``y``
    lengths: tuple[int, ...] | None  #: None if lengths are not known before partitions are read
    sources: tuple[str, ...] = field(repr=False)  #: names of the partitions in error messages

    def __len__(self) -> int:
        return len(self.rows)

    def arguments(self, i: int) -> tuple[Task, Task | None, Task | None, str]:
        """Return the rows, y, sample_domain and name of partition i, as arguments of a task."""
        y = None if self.y is None else self.y[i]
        domains = None if self.domains is None else self.domains[i]
        return self.rows[i], y, domains, self.sources[i]


def partitions_of(X: Any, y: Any, sample_domain: Any) -> Partitions:
    """Return the partitions of Dask collections, and check that they match as far as is known."""
    layout, empty_X, y, sample_domain = separate_labels(X, y, sample_domain)
    y, domains = (None if labels is None else tasks_of(labels) for labels in (y, sample_domain))
    rows, sources = tasks_of(X), tuple(f"partition {i}" for i in range(n_partitions(X)))
    return Partitions(layout, empty_X, rows, y, domains, known_lengths(X), sources)


def separate_labels(X: Any, y: Any, sample_domain: Any) -> tuple[Layout, Any, Any, Any]:
    """Return the layout of X, X without rows, and labels that are not columns of X (or None)."""
    label_columns = label_column(X, y, "y"), label_column(X, sample_domain, "sample_domain")
    layout, empty_X = layout_of(X, *label_columns)
    y = y if layout.target is None else None
    sample_domain = sample_domain if layout.domain is None else None
    for name, labels in (("y", y), ("sample_domain", sample_domain)):
        if labels is not None:
            check_aligned(X, labels, name)
    return layout, empty_X, y, sample_domain


def is_frame(X: Any) -> bool:
    """Return whether a Dask collection is a data frame or a series."""
    return hasattr(X, "divisions")


def describe(X: Any) -> str:
    """Return the type of X in words, for messages."""
    library = "Dask" if is_dask(X) else type(X).__module__.split(".")[0]
    return f"a {library} {type(X).__name__}"


def label_column(X: Any, labels: Any, name: str) -> Any:
    """Return ``labels`` if they name columns of X, else None."""
    column_names = labels if isinstance(labels, list) and labels else [labels]
    if not all(isinstance(column_name, str) for column_name in column_names):
        return None
    if not is_frame(X):
        return None
    if missing_names := [column for column in column_names if column not in X.columns]:
        raise ValueError(
            f"{name}={labels!r}: X has no column {missing_names[0]!r}. Use one of its columns: "
            f"{listed(X.columns, 6)}."
        )
    return labels


def layout_of(X: Any, target: Any = None, domain: Any = None) -> tuple[Layout, Any]:
    """Return the layout of the partitions of X, and X without rows."""
    if is_frame(X):
        if X.ndim != 2:
            raise TypeError(f"X is {describe(X)}. Pass a data frame (X.to_frame()) or an array.")
        label_names = {*_as_list(target), *_as_list(domain)}
        feature_names = [name for name in X.columns if name not in label_names]
        if not feature_names:
            raise ValueError(
                f"X has no features: all of its columns ({listed(X.columns, 6)}) are labels. Add "
                "feature columns."
            )
        empty_X = X._meta[feature_names]
        dtype_by_name = {name: _numeric_dtype(empty_X[name].dtype) for name in feature_names}
        if non_numeric_names := [name for name, dtype in dtype_by_name.items() if dtype is None]:
            raise ValueError(
                "features must be numeric, but these columns of X are not: "
                f"{listed(non_numeric_names, 6)}. Drop or encode them."
            )
        is_float32 = all(dtype == np.float32 for dtype in dtype_by_name.values())
        dtype = np.dtype(np.float32 if is_float32 else np.float64)
        return Layout(tuple(feature_names), len(feature_names), dtype, target, domain), empty_X
    if not hasattr(X, "chunks"):
        raise TypeError(f"X is {describe(X)}. Pass a Dask array or a Dask data frame.")
    if X.ndim != 2:
        raise ValueError(
            f"Expected a 2D Dask array as X, got {X.ndim} dimension(s). Reshape your data with "
            "X.reshape(-1, 1) for one feature."
        )
    if np.isnan(X.shape[1]):
        raise ValueError(
            "the number of features of X is unknown. Call X.compute_chunk_sizes(), or set the "
            "chunks when you create X."
        )
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X must be numeric; got a Dask array of {X.dtype}. Encode X as numbers.")
    dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
    return Layout(None, int(X.shape[1]), dtype), np.empty((0, int(X.shape[1])), dtype=dtype)


def check_aligned(X: Any, labels: Any, name: str) -> None:
    """Raise an error unless labels are a Dask collection with the same partitions as X."""
    if not is_dask(labels):
        column_advice = ", or as the name of a column of X" if is_frame(X) else ""
        raise TypeError(
            f"X is {describe(X)} but {name} is {describe(labels)}. Pass {name} as a Dask "
            f"collection with the same partitions as X{column_advice}."
        )
    n_parts, n_X_parts = n_partitions(labels), n_partitions(X)
    if n_parts != n_X_parts:
        raise ValueError(f"{name} has {n_parts} partitions but X has {n_X_parts}. {ALIGN_ADVICE}")
    if is_frame(X) and is_frame(labels):
        if X.known_divisions and labels.known_divisions and X.divisions != labels.divisions:
            raise ValueError(
                f"{name} has divisions {listed(labels.divisions, 6)} but X has "
                f"{listed(X.divisions, 6)}. {ALIGN_ADVICE}"
            )
        return
    label_lengths, X_lengths = known_lengths(labels), known_lengths(X)
    if label_lengths is not None and X_lengths is not None and label_lengths != X_lengths:
        raise ValueError(
            f"{name} has chunks of {listed(label_lengths, 6)} rows but X has chunks of "
            f"{listed(X_lengths, 6)} rows. {ALIGN_ADVICE}"
        )


def n_partitions(X: Any) -> int:
    """Return the number of partitions into which the rows are divided."""
    return int(X.npartitions) if is_frame(X) else int(X.numblocks[0])


def known_lengths(X: Any) -> tuple[int, ...] | None:
    """Return the lengths of the partitions, or None if they would have to be computed."""
    if is_frame(X) or np.isnan(X.chunks[0]).any():
        return None
    return tuple(int(n) for n in X.chunks[0])


def tasks_of(X: Any) -> list[Task]:
    """Return one task for each partition."""
    if is_frame(X):
        return list(X.to_delayed())
    if X.ndim > 1 and X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    return list(X.to_delayed().ravel())


@contextmanager
def source_in_errors(source: str) -> Iterator[None]:
    """Add the name of a partition to errors about its rows."""
    try:
        yield
    except (TypeError, ValueError) as error:
        error_type = TypeError if isinstance(error, TypeError) else ValueError
        raise error_type(f"{source}: {error}") from error


def _numeric_dtype(dtype: Any) -> Any:
    """Return the NumPy dtype of a numeric column, or None for other columns."""
    try:
        numpy_dtype = np.dtype(getattr(dtype, "numpy_dtype", dtype))
    except TypeError:
        return None
    return numpy_dtype if numpy_dtype.kind in "biuf" else None


def _as_list(column_names: Any) -> list[Any]:
    if column_names is None:
        return []
    return column_names if isinstance(column_names, list) else [column_names]


#: Numbers of partitions and of rows that :func:`sample_rows` reads at a time.
SAMPLE_PARTITIONS, SAMPLE_ROWS = 32, 32_768
#: :func:`sample_rows` reads more partitions if it has fewer rows than this.
MIN_SAMPLE_ROWS = 2_000


def sum_partitions(estimator: Any, partitions: Partitions) -> NystromSums:
    """Choose landmarks and kernel from sampled rows, then compute sums over all partitions."""
    validate_data(estimator, partitions.empty_X, skip_check_array=True)
    # Landmarks are chosen from the sampled rows, so at least n_landmarks rows are needed.
    n_landmarks = estimator.n_landmarks if isinstance(estimator.landmarks, str) else 0
    n_needed = int(n_landmarks) if isinstance(n_landmarks, Integral) else 0
    (X, y, sample_domain), n_rows = sample_rows(partitions, n_needed)
    if n_rows < 2:
        raise ValueError(
            f"Found {n_rows} sample(s) in {len(partitions)} partitions while a minimum of 2 is "
            f"required by {type(estimator).__name__}."
        )
    estimator.begin_pass(X, y, sample_domain, n_rows)
    estimator_task = constant((estimator, partitions.layout), "estimator")
    task_arguments = [(estimator_task, *partitions.arguments(i)) for i in range(len(partitions))]
    (merged_sums,) = run([tree(calls(partial_sums, task_arguments), merge_sums)])
    # Copy arrays that arrived unaligned over a network, so that BLAS can use them.
    sums = merged_sums.mapped(unwrap)
    classes = sums.classes()
    if len(classes) == 1 and None not in classes:  # None is the class of a continuous target
        raise ValueError(
            f"y has only one class ({classes.pop()!r}) in all {len(partitions)} partitions. Add "
            "rows from another class."
        )
    return sums


@task
def partial_sums(
    estimator_and_layout: tuple[Any, Layout], rows: Any, y: Any, domains: Any, source: str
) -> NystromSums | None:
    """Return the sums over one partition, or None if it is empty."""
    estimator, layout = estimator_and_layout
    with source_in_errors(source):
        X, y, domains = layout.split(rows, y, domains)
        return estimator.sum_partition(X, y, domains) if len(X) else None


@task
def merge_sums(sums: list[NystromSums | None]) -> NystromSums | None:
    """Merge the sums of consecutive partitions, in order."""
    nonempty_sums = [partition_sums for partition_sums in sums if partition_sums is not None]
    # The sums can also be of another type with a merge method, such as CellSums.
    return reduce(lambda left, right: left.merge(right), nonempty_sums) if nonempty_sums else None


def sample_rows(partitions: Partitions, n_needed: int) -> tuple[tuple[Array, Any, Any], int]:
    """Read rows from evenly spaced partitions, at least ``n_needed`` rows if X has that many.

    Returns X, y and sample_domain of these rows, in the order of the partitions, and the total
    number of rows: exact if lengths are known or every partition was read, otherwise an estimate.
    """
    layout_task, lengths = constant(partitions.layout, "layout"), partitions.lengths
    unread_ids = [i for i in range(len(partitions)) if lengths is None or lengths[i]]
    samples: dict[int, tuple[int, Array, Any, Any]] = {}
    min_rows = max(MIN_SAMPLE_ROWS, n_needed)
    while unread_ids and sum(len(X) for _, X, _, _ in samples.values()) < min_rows:
        selected_ids = [unread_ids[i] for i in evenly_spaced(len(unread_ids), SAMPLE_PARTITIONS)]
        # Read the same number of rows per partition, or the same fraction if lengths are known.
        n_requested = max(SAMPLE_ROWS, 4 * n_needed)
        quotas = [-(-n_requested // len(selected_ids))] * len(selected_ids)
        if lengths is not None:
            fraction = min(1.0, n_requested / sum(lengths[i] for i in selected_ids))
            quotas = [int(np.ceil(fraction * lengths[i])) for i in selected_ids]
        pairs = zip(selected_ids, quotas, strict=True)
        task_arguments = [(layout_task, *partitions.arguments(i), quota) for i, quota in pairs]
        samples.update(zip(selected_ids, run(calls(sample_partition, task_arguments)), strict=True))
        unread_ids = [i for i in unread_ids if i not in samples]
    n_rows = sum(length for length, *_ in samples.values())
    if lengths is not None:
        n_rows = sum(lengths)
    elif unread_ids:
        n_rows = round(n_rows / len(samples) * len(partitions))
    nonempty_samples = [samples[i][1:] for i in sorted(samples) if samples[i][0]]
    if not nonempty_samples:
        return (partitions.empty_X, None, None), n_rows
    X_arrays, *label_arrays = zip(*nonempty_samples, strict=True)
    y, domains = (None if arrays[0] is None else np.concatenate(arrays) for arrays in label_arrays)
    return (np.concatenate(X_arrays), y, domains), n_rows


@task
def sample_partition(
    layout: Layout, rows: Any, y: Any, domains: Any, source: str, quota: int
) -> tuple[int, Array, Any, Any]:
    """Return the length of a partition and up to ``quota`` of its rows, evenly spaced."""
    with source_in_errors(source):
        X, y, domains = layout.split(rows, y, domains)
        row_indices = evenly_spaced(len(X), quota)
        y, domains = (None if labels is None else labels[row_indices] for labels in (y, domains))
        return len(X), X[row_indices], y, domains


class DaskBackend(Backend):
    """Backend for Dask collections."""

    def partitions(self, X: Any, y: Any, sample_domain: Any, weights: Any = None) -> Any:
        """Return the partitions of X, y and sample_domain."""
        if weights is not None:
            raise ValueError(
                "sample_weight is not supported for Dask collections. Call partial_fit with the "
                "rows and weights of each partition."
            )
        return partitions_of(X, y, sample_domain)

    def check_rows(
        self, estimator: Any, X: Any, *, reset: bool = False, ensure_min_samples: int = 1
    ) -> Any:
        """Check the names and the number of the features of new rows, without loading the rows."""
        if is_frame(X) and X.ndim == 2:
            feature_names = list(getattr(estimator, "feature_names_in_", X.columns))
            # Drop labels that are columns of the same data frame.
            X = X[feature_names] if set(feature_names) <= set(X.columns) else X
        validate_data(estimator, layout_of(X)[1], reset=reset, skip_check_array=True)
        return X

    def transform(self, model: Any, X: Any) -> Any:
        """Project partition by partition, lazily."""
        refuse_output_in_memory(model, X)
        layout, _ = layout_of(X)
        output_names = model.get_feature_names_out()
        meta = np.empty((0, len(output_names)), dtype=layout.dtype)
        return _map_partitions(X, layout, model, "transform", meta, output_names)

    def predict(self, model: Any, method: str, X: Any) -> Any:
        """Call the given method of a fitted model on every partition, lazily."""
        layout, _ = layout_of(X)
        meta = getattr(model, method)(np.zeros((1, layout.n_features), dtype=layout.dtype))[:0]
        column_names = None if meta.ndim == 1 else list(range(meta.shape[1]))
        return _map_partitions(X, layout, model, method, meta, column_names)


def refuse_output_in_memory(model: Any, X: Any) -> None:
    """Raise ValueError if ``set_output`` requests an output that is not a Dask collection."""
    container = getattr(model, "_sklearn_output_config", {}).get("transform")
    container = container or get_config()["transform_output"]
    if container != "default":
        raise ValueError(
            f'set_output(transform="{container}") would load {describe(X)} into memory. '
            'Use "default", which returns a Dask collection.'
        )


def _map_partitions(
    X: Any, layout: Layout, model: Any, method: str, meta: Array, column_names: Any
) -> Any:
    """Call a method of a fitted model on every partition; ``meta`` is its output for 0 rows."""
    arguments = constant((model, layout, method, meta, column_names), "model")
    if is_frame(X):
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
