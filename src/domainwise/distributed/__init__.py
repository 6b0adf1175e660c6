"""Computation on a Dask cluster: fits from Parquet files, and folds on the workers."""

from domainwise.distributed.fit import fit_parquet

__all__ = ["fit_parquet"]
