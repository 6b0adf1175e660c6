"""Fitting on a Dask cluster: from Parquet files, or with folds distributed over the workers."""

from domainwise.distributed.fit import fit_parquet

__all__ = ["fit_parquet"]
