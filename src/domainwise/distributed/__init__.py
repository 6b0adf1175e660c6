"""Fits on a Dask cluster: from Parquet files, or with folds on the workers."""

from domainwise.distributed.fit import fit_parquet

__all__ = ["fit_parquet"]
