"""DomainContext for Dask collections."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from domainwise.arrays import Array
from domainwise.backends import backend_of, partitions
from domainwise.backends.dask import collect, refuse_output_in_memory
from domainwise.backends.partitions import Layout
from domainwise.checks.inputs import check_sample_domain
from domainwise.ensemble.moments import FeatureRanges, Moments, no_moments, rows_moments
from domainwise.gram.dask.graphs import call, constant, run, task, tree

SourceMoments = tuple[int, Moments, FeatureRanges]
DomainMoments = tuple[Array, Moments]


def source_moments(context: Any, X: Any, sample_domain: Any, *, reset: bool) -> SourceMoments:
    """Return the number of rows, the moments and the ranges of features over all partitions."""
    source = partitions.partitions_of(X, None, sample_domain)
    validate_data(context, source.empty_X, reset=reset, skip_check_array=True)
    tasks = [call(_moments, rows, source.layout) for rows in source.rows]
    totals: SourceMoments = run([tree(tasks, _join_moments)])[0]
    if not totals[0]:
        raise ValueError(
            f"Found Dask collection with 0 sample(s) while a minimum of 1 is required by "
            f"{type(context).__name__}."
        )
    return totals


def transform_partitions(context: Any, X: Any, sample_domain: Any) -> Any:
    """Return transformed rows as a Dask collection; domain statistics are computed immediately."""
    refuse_output_in_memory(context, X)
    domain_column = partitions.label_column(X, sample_domain, "sample_domain")
    domain = sample_domain if domain_column is None else X[domain_column]
    X = backend_of(X).check_rows(context, X, reset=False)
    layout, _ = partitions.layout_of(X)
    row_tasks = partitions.tasks_of(X)
    context_constant, statistics = constant(context, "context"), None
    label_tasks: list[Any] = [None] * len(row_tasks)
    if domain is not None:
        partitions.check_aligned(X, domain, "sample_domain")
        label_tasks = partitions.tasks_of(domain)
        pairs = zip(row_tasks, label_tasks, strict=True)
        moment_tasks = [call(_domain_moments, *pair, context_constant, layout) for pair in pairs]
        statistics = constant(run([tree(moment_tasks, _join_domains)])[0], "statistics")
    pairs = zip(row_tasks, label_tasks, strict=True)
    tasks = [call(_in_context, *pair, context_constant, layout, statistics) for pair in pairs]
    return collect(tasks, X, context.get_feature_names_out(), layout.dtype)


@task
def _moments(rows: Any, layout: Layout) -> SourceMoments:
    X = layout.values(rows, allow_missing=True)
    if not len(X):
        nan_values = np.full(layout.n_features, np.nan)
        ranges = FeatureRanges(nan_values, nan_values, np.zeros(layout.n_features, dtype=bool))
        return 0, no_moments(X), ranges
    return len(X), *rows_moments(X)


@task
def _join_moments(partition_moments: list[SourceMoments]) -> SourceMoments:
    n, moments, ranges = partition_moments[0]
    for next_n, next_moments, next_ranges in partition_moments[1:]:
        n, moments, ranges = n + next_n, moments.merged(next_moments), ranges.merged(next_ranges)
    return n, moments, ranges


@task
def _domain_moments(rows: Any, labels: Any, context: Any, layout: Layout) -> DomainMoments:
    Z = context._standardized(layout.values(rows, allow_missing=True))
    names, domain_codes = _categories(labels, len(Z))
    return names, Moments.of_rows(Z, domain_codes, len(names))


@task
def _join_domains(partition_moments: list[DomainMoments]) -> DomainMoments:
    name_arrays = [names for names, _ in partition_moments if len(names)]
    names = np.unique(np.concatenate(name_arrays)) if name_arrays else partition_moments[0][0]
    total: Moments | None = None
    for partition_names, moments in partition_moments:
        if not len(partition_names):
            continue
        domain_codes = np.searchsorted(names, partition_names)
        expanded_arrays = []
        for array in (moments.count, moments.mean, moments.squares):
            expanded_arrays.append(np.zeros((len(names), array.shape[1])))
            expanded_arrays[-1][domain_codes] = array
        expanded_moments = Moments(*expanded_arrays)
        total = expanded_moments if total is None else total.merged(expanded_moments)
    return names, partition_moments[0][1] if total is None else total


@task
def _in_context(
    rows: Any, labels: Any, context: Any, layout: Layout, statistics: DomainMoments | None
) -> Any:
    X = layout.values(rows, allow_missing=True)
    Z = context._standardized(X)
    if statistics is None:
        domain_codes, moments = np.zeros(len(X), dtype=np.intp), no_moments(Z)
    else:
        names, moments = statistics
        partition_names, domain_codes = _categories(labels, len(X))
        if len(partition_names):
            domain_codes = np.searchsorted(names, partition_names)[domain_codes]
    output = context._in_context(Z, domain_codes, moments, with_domains=statistics is not None)
    output = output.astype(X.dtype, copy=False)
    if layout.features is None:
        return output
    return type(rows)(output, index=rows.index, columns=context.get_feature_names_out())


def _categories(labels: Any, n_rows: int) -> tuple[Array, Array]:
    """Return the names of the domains in a partition, and the domain codes of its rows."""
    domain = check_sample_domain(labels, n_rows, "delta")
    return domain.names, domain.codes
